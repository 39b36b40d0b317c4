// Generated kernels from the cache: what is compiled and what is not, and that the code is the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/file.h"
#include "kernels/cache_folder.h"
#include "kernels/cpu.h"
#include "kernels/find_module.h"
#include "kernels/generated/compiled.h"
#include "kernels/generated/encode.h"
#include "kernels/generated/interpret.h"
#include "kernels/generated/lower.h"
#include "kernels/random_generated.h"
#include "kernels/signature.h"

namespace nlsplit::testing {
namespace {

TEST(EncodedLoops, AreEqualWhereLoopsAre) {
  std::vector<Loops> all;
  for (int i = 0; i < op_count; ++i) {
    Random random(static_cast<uint64_t>(i));
    for (int draw = 0; draw < 8; ++draw) {
      const auto desc = random_generated(static_cast<Op>(i), random);
      if (!desc || !refuse_lowering(*desc).empty()) continue;
      all.push_back(lower(*desc));
      EXPECT_EQ(encode(lower(*desc)), encode(all.back()));
      if (all.back() != all.back()) all.pop_back();  // it holds what is no number
    }
  }
  ASSERT_GT(all.size(), 300);
  for (const Loops& a : all) {
    const std::string encoded = encode(a);
    for (const Loops& b : all) ASSERT_EQ(encoded == encode(b), a == b) << to_text(a) << to_text(b);
  }
}

TEST(EncodedLoops, DifferInTheBitsOfNumbers) {
  Loops loops;
  loops.terms.push_back({.code = LoopCode::number, .type = Scalar::f64, .number = 0.0});
  const std::string zero = encode(loops);
  loops.terms[0].number = -0.0;
  EXPECT_NE(encode(loops), zero);
  loops.terms[0].number = std::bit_cast<double>(0x7ff8000000000001);
  const std::string nan = encode(loops);
  loops.terms[0].number = std::bit_cast<double>(0x7ff8000000000002);
  EXPECT_NE(encode(loops), nan);
}

TEST(EncodedLoops, DoNotRunTogether) {
  Loops one, other;
  one.extents = {1, 2};
  other.extents = {1};
  other.axes = 2;
  EXPECT_NE(encode(one), encode(other));
  one.tables = {{{7}, {}}};
  other = one;
  other.tables = {{{}, {std::bit_cast<double>(int64_t{7})}}};
  EXPECT_NE(encode(one), encode(other));
}

#ifdef NLS_LLVM

Loops loops_of(const std::string& signature) { return lower(parse_signature(signature).value()); }
Loops floor_loops() { return loops_of("Floor(f32[100]) -> f32[100]"); }

class CachedCode : public ::testing::Test {
 protected:
  bool compiles(const Loops& loops, Isa isa = supported_levels().front()) {
    const auto compiled = codegen_->compile(loops, isa, cache_.get());
    EXPECT_TRUE(compiled.ok()) << compiled.error().message;
    if (isa == supported_levels().front()) expect_right(loops, compiled->function);
    return !compiled->from_cache;
  }

  const CodegenModule* codegen_ = load_codegen(find_module(codegen_file).value()).value();
  const CacheFolder folder_;
  const std::unique_ptr<CodeCache> cache_ = CodeCache::open(folder_.path()).value();

 private:
  static void expect_right(const Loops& loops, LoopFunction function) {
    std::vector<float> in(static_cast<size_t>(loops.inputs[0].count));
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) * 0.37F - 9;
    std::vector<float> made(static_cast<size_t>(loops.output.count), -1), wanted = made;
    const void* inputs[] = {in.data()};
    function(inputs, made.data(), 0, parts_of(loops).count);
    interpret(loops, inputs, wanted.data(), 0, rows_of(loops));
    EXPECT_EQ(made, wanted);
  }
};

TEST_F(CachedCode, IsCompiledOnce) {
  EXPECT_TRUE(compiles(floor_loops()));
  EXPECT_FALSE(compiles(floor_loops()));
  EXPECT_EQ(folder_.files().size(), 1);
}

TEST_F(CachedCode, IsCompiledEachTimeWithoutACache) {
  for (int i = 0; i < 2; ++i) {
    const auto compiled = codegen_->compile(floor_loops(), supported_levels().front(), nullptr);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    EXPECT_FALSE(compiled->from_cache);
  }
}

TEST_F(CachedCode, IsOfItsLoopsAndItsLevel) {
  EXPECT_TRUE(compiles(floor_loops()));
  EXPECT_TRUE(compiles(loops_of("Ceil(f32[100]) -> f32[100]")));
  EXPECT_TRUE(compiles(loops_of("Floor(f32[101]) -> f32[101]")));
  size_t levels = 0;
  for (const Isa isa : supported_levels()) {
    ++levels;
    EXPECT_EQ(compiles(floor_loops(), isa), isa != supported_levels().front());
    EXPECT_FALSE(compiles(floor_loops(), isa));
  }
  EXPECT_EQ(folder_.files().size(), levels + 2);
}

// Its name, or its size, as another network has it: loops are all that counts.
TEST_F(CachedCode, IsSharedByComputationsThatAreAlike) {
  EXPECT_TRUE(compiles(loops_of("Floor(f32[4,25]) -> f32[4,25]")));
  EXPECT_FALSE(compiles(loops_of("Floor(f32[25,4]) -> f32[25,4]")));
}

TEST_F(CachedCode, IsMadeAnewWhereItsFileIsDamaged) {
  ASSERT_TRUE(compiles(floor_loops()));
  const std::string file = folder_.only_file(), whole = read_file(file).value();
  std::string changed = whole;
  changed.back() ^= 1;
  for (const std::string& content : {whole.substr(0, whole.size() / 2), changed, std::string("from elsewhere")}) {
    folder_.overwrite(file, content);
    EXPECT_TRUE(compiles(floor_loops()));
    EXPECT_FALSE(compiles(floor_loops()));
    EXPECT_EQ(read_file(file).value(), whole) << "replaced by the same code";
  }
}

// What verifies and still is no object: as if another build had written it.
TEST_F(CachedCode, IsMadeAnewWhereItCannotBeLinked) {
  ASSERT_TRUE(compiles(floor_loops()));
  const std::string content = read_file(folder_.only_file()).value();
  constexpr size_t header = 48, sizes = 16;
  uint64_t key_bytes = 0;
  std::memcpy(&key_bytes, content.data() + sizes, sizeof(key_bytes));
  const std::string key = content.substr(header, key_bytes), object = content.substr(header + key_bytes);
  ASSERT_EQ(cache_->find(key), object);
  for (const std::string& wrong : {std::string("no object"), object.substr(0, 64), std::string()}) {
    cache_->keep(key, wrong);
    EXPECT_TRUE(compiles(floor_loops())) << wrong.size() << " bytes";
    EXPECT_EQ(cache_->find(key), object);
  }
}

// A process of its own asks for the user's cache: what it says on stderr, and whether there is one.
void ask_for_the_users_cache(const char* folder) {
  ::setenv("NLSPLIT_CODE_CACHE", folder, 1);
  const CodegenModule* codegen = load_codegen(find_module(codegen_file).value()).value();
  const bool first = codegen->user_cache() != nullptr, second = codegen->user_cache() != nullptr;
  ::_exit(first != second ? 3 : first ? 1 : 0);
}

TEST(CachedCodeDeathTest, TheUsersFolderIsSwitchedOffOrRefusedWithOneWarning) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string warning = "^generated kernels are compiled anew by every process: ";
  EXPECT_EXIT(ask_for_the_users_cache("off"), ::testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(ask_for_the_users_cache("/proc/no/such"), ::testing::ExitedWithCode(0),
              warning + "cannot make '/proc/no/such': [^\n]*\n$");
  // Of root, and everybody's.
  EXPECT_EXIT(ask_for_the_users_cache("/tmp"), ::testing::ExitedWithCode(0), warning + "[^\n]*'/tmp'[^\n]*\n$");
}

#endif

}  // namespace
}  // namespace nlsplit::testing
