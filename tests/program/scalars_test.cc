// Run-time scalars: declared maxima, what verify says of them, and the values they have.
#include "program/scalars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/elements.h"
#include "program/complaint.h"
#include "program/scalar_values.h"
#include "testing/value_of.h"

namespace nlsplit::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A counts and tells B, which writes into its cache and attends over it; a slice of A's lengths goes through a pack.
const std::string sound = R"(nlsplit program 1
program lengths batch 1 micro_batches 1
device A cpu host a isa v2 memory 65536
  buffer length i64[2] state max 9
  buffer more i64[2] input max 1
  buffer grown i64[2] comm max 9
  segment S stage 0 phase step
    grown = Add(length, more) kernel generated_v2
    length = copy(grown)
    send length to B tag 0
  order
    S.-
device B cpu host b isa v2 memory 65536
  buffer length i64[2] comm max 9
  buffer begin i64[1] scratch max 8
  buffer lengths i32[1] scratch max 10
  buffer q f32[1,2,1,4] state
  buffer k f32[1,1,1,4] state
  buffer keys f32[1,1,10,4] state
  buffer y f32[1,2,1,4] scratch
  segment S stage 1 phase step
    recv length from A tag 0
    begin = pack(length) axis 0 begin 1 end 2
    keys = TensorScatter(keys, k, begin) {axis=-2, mode="linear"} kernel scatter_in_place_v2
    lengths = Cast(begin) {to="i32"} kernel generated_v2
    y = CachedAttention(q, keys, keys, lengths) {causal=0, scale=1.0, softcap=0.0, window=0} kernel cached_attention_v2
  order
    S.-
)";

std::string changed(const std::string& from, const std::string& to) { return complaint(replaced(sound, from, to)); }

TEST(Scalars, HaveAMaximumInTheText) {
  const Program program = value_of(parse_program(sound, "test.nls"));
  EXPECT_EQ(value_of(verified(program)).instances.size(), 8u);
  EXPECT_EQ(program.devices[0].buffers[0].max, 9);
  EXPECT_EQ(program.devices[1].buffers[3].max, std::nullopt);
  EXPECT_EQ(value_of(parse_program(to_string(program), "again.nls")), program);
  EXPECT_THAT(changed("input max 1", "input max -1"), HasSubstr("a maximum"));
  EXPECT_THAT(changed("q f32[1,2,1,4] state", "q f32[1,2,1,4] state max 3"),
              HasSubstr("device B buffer q: only i64 and i32 have a maximum"));
  EXPECT_THAT(changed("scratch max 10", "scratch max 2147483648"),
              HasSubstr("buffer lengths: no value of its type is the maximum 2147483648"));
  Program viewed = program;
  viewed.devices[1].buffers[1].kind = BufferKind::view;
  viewed.devices[1].buffers[1].of = BufferId(0);
  EXPECT_THAT(check_structure(viewed).error().message, HasSubstr("a view has the maximum of what it is a view of"));
}

TEST(Scalars, AreReadFromBuffersWhoseMaximumIsSafe) {
  EXPECT_THAT(changed("begin i64[1] scratch max 8", "begin i64[1] scratch"),
              HasSubstr("operand 2 is read from begin, which declares no maximum; TensorScatter takes 0 … 9"));
  EXPECT_THAT(changed("begin i64[1] scratch max 8", "begin i64[1] scratch max 10"),
              HasSubstr("operand 2 is read from begin, whose maximum is 10; TensorScatter takes 0 … 9"));
  EXPECT_EQ(changed("begin i64[1] scratch max 8", "begin i64[1] scratch max 9"), "");
  EXPECT_THAT(changed("scratch max 10", "scratch max 11"),
              HasSubstr("whose maximum is 11; CachedAttention takes 0 … 10"));
  EXPECT_EQ(changed("mode=\"linear\"", "mode=\"circular\""), "");
}

TEST(Scalars, AKernelThatWorksInPlaceHasItsResultThere) {
  EXPECT_THAT(complaint(replaced(replaced(sound, "  buffer y ", "  buffer other f32[1,1,10,4] state\n  buffer y "),
                                 "keys = TensorScatter", "other = TensorScatter")),
              HasSubstr("scatter_in_place_v2 changes its first operand where it lies, and its result lies elsewhere"));
}

TEST(Scalars, GetTheLargestMaximumThatAllReadersTake) {
  Program program = value_of(parse_program(sound, "test.nls"));
  for (Buffer& buffer : program.devices[1].buffers) buffer.max.reset();
  EXPECT_FALSE(verify(program).ok());
  declare_maxima(program);
  EXPECT_TRUE(verify(program).ok());
  EXPECT_EQ(program.devices[1].buffers[0].max, std::nullopt);  // nobody reads it as a scalar
  EXPECT_EQ(program.devices[1].buffers[1].max, 9);
  EXPECT_EQ(program.devices[1].buffers[2].max, 10);
}

std::string bytes(const std::vector<int64_t>& values) { return raw_of(DType::i64, std::span<const int64_t>(values)); }

// Of both instructions that read scalars, in an execution.
struct Found {
  std::vector<int64_t> begin, lengths;
  std::vector<std::string> unknown;
};

Result<Found> found_in(const std::string& text, const GivenScalars& given) {
  const Program program = value_of(parse_program(text, "test.nls"));
  const Dependencies deps = value_of(verified(program));
  ASSIGN_OR_RETURN(const ScalarTable table, scalar_values(program, deps, given));
  Found found;
  found.unknown = table.unknown;
  for (uint32_t i = 0; i < deps.instances.size(); ++i) {
    const ScalarValues values = table.of(i);
    if (values.size() == 3) found.begin = values[2];
    if (values.size() == 4) found.lengths = values[3];
  }
  return found;
}

TEST(ScalarValues, AreCarriedFromStatesAndInputs) {
  const Found found = value_of(found_in(sound, {{{"more", bytes({1, 1})}}}));
  EXPECT_THAT(found.begin, ElementsAre(1));
  EXPECT_THAT(found.lengths, ElementsAre(1));
  EXPECT_THAT(found.unknown, IsEmpty());
}

TEST(ScalarValues, AreUnknownWhereNothingSaysThem) {
  const Found found = value_of(found_in(sound, {}));
  EXPECT_THAT(found.begin, IsEmpty());
  EXPECT_THAT(found.unknown, ElementsAre("device B buffer begin", "device B buffer lengths"));
  const std::string with_content = replaced(sound, "length i64[2] state max 9", "length i64[2] state max 9 content 1f");
  EXPECT_THAT(value_of(found_in(with_content, {{{"more", bytes({0, 1})}}})).unknown,
              ElementsAre("device B buffer begin", "device B buffer lengths"));
  GivenScalars given{{{"more", bytes({0, 1})}}, [](ContentId id) -> Result<std::string> {
                       return bytes({static_cast<int64_t>(id.value), 7});
                     }};
  EXPECT_THAT(value_of(found_in(with_content, given)).begin, ElementsAre(8));
  // From floats nothing follows.
  const std::string computed =
      replaced(replaced(sound, "  buffer y ", "  buffer f f32[1] state\n  buffer y "),
               "begin = pack(length) axis 0 begin 1 end 2", "begin = Cast(f) {to=\"i64\"} kernel generated_v2");
  EXPECT_THAT(value_of(found_in(computed, {})).unknown,
              ElementsAre("device B buffer begin", "device B buffer lengths"));
}

TEST(ScalarValues, MustBeInRange) {
  const auto refused = [](const GivenScalars& given) {
    const auto found = found_in(sound, given);
    return found.ok() ? "" : found.error().message;
  };
  const std::string large = refused({{{"more", bytes({0, 9})}}});
  EXPECT_THAT(large, HasSubstr("device B slot 0 (S.-) `keys = TensorScatter(keys, k, begin)"));
  EXPECT_THAT(large, HasSubstr("begin[0] is 9, outside 0 … 8"));
  EXPECT_THAT(refused({{{"more", bytes({0, -1})}}}), HasSubstr("begin[0] is -1, outside 0 … 8"));
  EXPECT_THAT(refused({{{"more", bytes({0})}}}),
              HasSubstr("device A buffer more has 16 B, and what it begins with 8 B"));
}

TEST(ListedIntegers, AreACommandLinesWords) {
  EXPECT_EQ(value_of(listed_integers(DType::i64, 2, "4,-2")), bytes({4, -2}));
  EXPECT_EQ(value_of(listed_integers(DType::i64, 2, "lengths.npy")), std::nullopt);
  for (const std::string wrong : {"4", "4,2,1", "4,", "4--2", "4,99999999999999999999"})
    EXPECT_FALSE(listed_integers(DType::i64, 2, wrong).ok()) << wrong;
  EXPECT_FALSE(listed_integers(DType::i32, 1, "2147483648").ok());
}

}  // namespace
}  // namespace nlsplit::testing
