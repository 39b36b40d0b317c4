// Inputs that are no floats: tokens, which point into tables.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "exec/fill_inputs.h"
#include "exec/programs.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// Two micro-batches of three tokens, looked up in tables of 50 and 5 rows; four flags that index nothing.
Program tokens_program() {
  auto program = parse_program(R"(nlsplit program 1
program tokens batch 2 micro_batches 2

device A cpu host a isa v2 memory 1048576
  buffer tokens i64[1,3] input instances 2
  buffer flags i32[4] input
  buffer large f32[50,2] weight content 1
  buffer small f32[5,2] weight content 2
  buffer one f32[1,3,2] scratch
  buffer two f32[1,3,2] scratch
  buffer y f32[1,3,2] output instances 2
  segment F stage 0 phase F
    one = Gather(large, tokens) {axis=0} kernel gather_v2 as "one"
    two = Gather(small, tokens) {axis=0} kernel gather_v2 as "two"
    y = reduce(one, two)
  order
    F.0 tokens:0 y:0
    F.1 tokens:1 y:1
)",
                               "tokens.nls");
  EXPECT_TRUE(program.ok()) << program.error().to_string();
  return std::move(program).value();
}

template <class T>
std::vector<T> numbers(const NamedTensor& tensor) {
  std::vector<T> values(tensor.raw.size() / sizeof(T));
  std::memcpy(values.data(), tensor.raw.data(), tensor.raw.size());
  return values;
}

TEST(Inputs, SeededTokensPointIntoTheSmallestTable) {
  const Program program = tokens_program();
  std::set<int64_t> seen;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::vector<NamedTensor> inputs = wanted_inputs(program).value();
    ASSERT_EQ(inputs.size(), 2u);
    EXPECT_EQ(to_string(inputs[0].type), "i64[2,3]");
    fill_inputs(program, seed, inputs);
    for (const int64_t token : numbers<int64_t>(inputs[0])) seen.insert(token);
    EXPECT_EQ(inputs[1].raw.size(), 16u);
    for (const int32_t flag : numbers<int32_t>(inputs[1])) EXPECT_TRUE(flag == 0 || flag == 1);
    const std::vector<NamedTensor> before = inputs;
    fill_inputs(program, seed + 1, inputs);
    EXPECT_EQ(inputs[0].raw, before[0].raw) << "what is there stays";
  }
  EXPECT_EQ(seen, (std::set<int64_t>{0, 1, 2, 3, 4}));
}

// What a step with dropout calls its samples' numbers is another input's own name where nothing drops.
TEST(Inputs, CalledSamplesAreTheNetworksWhereNothingDrops) {
  Program program = tokens_program();
  std::vector<NamedTensor> inputs = wanted_inputs(program).value();
  inputs[0].name = "samples";
  for (DeviceProgram& device : program.devices) {
    for (Buffer& buffer : device.buffers) buffer.name = buffer.name == "tokens" ? "samples" : buffer.name;
  }
  fill_inputs(program, 2, inputs);
  for (const int64_t token : numbers<int64_t>(inputs[0])) EXPECT_LT(token, 5);
  EXPECT_NE(numbers<int64_t>(inputs[0]), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Inputs, ScalarsArePartsOfTheirMaxima) {
  Program program = tokens_program();
  const auto of_tokens = std::ranges::find(program.devices[0].buffers, "tokens", &Buffer::name);
  ASSERT_NE(of_tokens, program.devices[0].buffers.end());
  std::vector<NamedTensor> inputs = wanted_inputs(program).value();
  fill_inputs(program, 1, inputs);
  EXPECT_FALSE(fill_scalars(program, 0.5, inputs)) << "none has a maximum";
  of_tokens->max = 4;
  const std::string others = inputs[1].raw;
  for (const auto& [part, value] : std::vector<std::pair<double, int64_t>>{{1, 4}, {0.5, 2}, {0.875, 4}, {0, 0}}) {
    EXPECT_TRUE(fill_scalars(program, part, inputs));
    EXPECT_EQ(numbers<int64_t>(inputs[0]), std::vector<int64_t>(6, value)) << part;
  }
  EXPECT_EQ(inputs[1].raw, others);
}

TEST(Inputs, TokensRun) {
  const Program program = tokens_program();
  Job job;
  job.contents = seeded_contents(program);
  job.inputs = wanted_inputs(program).value();
  fill_inputs(program, 3, job.inputs);
  const auto result = run_threads(program, job, test_options());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  const std::vector<int64_t> tokens = numbers<int64_t>(job.inputs[0]);
  const std::vector<float> large = content_values(1, 100), small = content_values(2, 10);
  const std::vector<float>& made = output_of(*result, "y");
  ASSERT_EQ(made.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    const auto at = static_cast<size_t>(tokens[i / 2]) * 2 + i % 2;
    EXPECT_EQ(made[i], large[at] + small[at]);
  }
}

TEST(Inputs, OfAnotherTypeAreRefused) {
  const Program program = tokens_program();
  Job job;
  job.contents = seeded_contents(program);
  job.inputs = wanted_inputs(program).value();
  fill_inputs(program, 3, job.inputs);
  job.inputs[0].raw.pop_back();
  const auto shorter = run_threads(program, job, test_options());
  ASSERT_FALSE(shorter.ok());
  EXPECT_THAT(shorter.error().message, HasSubstr("input tokens must be i64[2,3]"));
  job.inputs[0] = {"tokens", {DType::f32, {2, 3}}, std::vector<float>(6), {}};
  const auto floats = run_threads(program, job, test_options());
  ASSERT_FALSE(floats.ok());
  EXPECT_THAT(floats.error().message, HasSubstr("but f32[2,3] with 24 B was given"));
}

}  // namespace
}  // namespace nlsplit
