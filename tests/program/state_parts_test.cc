// States in parts: what verify wants of them, and how whole tensors are cut and put together.
#include "program/state_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "program/text.h"
#include "program/verify.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

// A and B have a state each, which nothing computes with.
std::string program_of(const std::string& a, const std::string& b) {
  const std::string head = "nlsplit program 1\nprogram parts batch 1 micro_batches 1\n";
  return head + "device A cpu host a isa v3 memory 4096\n  buffer " + a +
         "\n  order\ndevice B cpu host b isa v3 memory 4096\n  buffer " + b + "\n  order\n";
}

Status check(const std::string& a, const std::string& b) {
  const Result<Program> program = parse_program(program_of(a, b), "parts.nls");
  if (!program.ok()) return program.error();
  EXPECT_EQ(to_string(parse_program(to_string(*program), "again.nls").value()), to_string(*program));
  return check_state_parts(*program);
}
std::string trouble(const std::string& a, const std::string& b) {
  const Status status = check(a, b);
  return status.ok() ? "none" : status.error().message;
}

TEST(StateParts, AreTheWholeTensorTogether) {
  EXPECT_EQ(trouble("\"w#0-2\" f32[3,2] state part of w axis 1 begin 0 extent 5",
                    "\"w#2-5\" f32[3,3] state part of w axis 1 begin 2 extent 5"),
            "none");
  const std::string half = "\"w#0-2\" f32[3,2] state part of w axis 1 begin 0 extent 5";
  EXPECT_THAT(trouble(half, "\"w#3-5\" f32[3,2] state part of w axis 1 begin 3 extent 5"),
              HasSubstr("the parts of state w lack the elements from 2 on"));
  EXPECT_THAT(trouble(half, "\"w#2-4\" f32[3,2] state part of w axis 1 begin 2 extent 5"),
              HasSubstr("the parts of state w lack the elements from 4 on"));
  EXPECT_THAT(trouble(half, "\"w#1-5\" f32[3,4] state part of w axis 1 begin 1 extent 5"),
              HasSubstr("the parts of state w overlap at element 1"));
  EXPECT_THAT(trouble(half, "\"w#2-5\" f32[2,3] state part of w axis 1 begin 2 extent 5"),
              HasSubstr("the parts of state w are of different tensors"));
  EXPECT_THAT(trouble(half, "w f32[3,5] state"), HasSubstr("state w is whole on one device and in parts"));
  EXPECT_THAT(trouble(half, "\"w#0-2\" f32[3,3] state part of w axis 1 begin 2 extent 5"),
              HasSubstr("state w#0-2 is not the same part on all devices"));
}

TEST(StateParts, AreWithinTheirTensor) {
  EXPECT_THAT(trouble("\"w#0-2\" f32[3,2] state part of w axis 2 begin 0 extent 5", "v f32[1] state"),
              HasSubstr("a part along an axis that it has not"));
  EXPECT_THAT(trouble("\"w#0-2\" f32[3,2] state part of w axis 1 begin 4 extent 5", "v f32[1] state"),
              HasSubstr("a part that is not within its tensor"));
  EXPECT_THAT(trouble("\"w#0-2\" f32[3,2] stash part of w axis 1 begin 0 extent 5", "v f32[1] state"),
              HasSubstr("only a state with one instance is part of a tensor"));
}

Buffer state(std::string name, Shape shape) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.type = {DType::f32, std::move(shape)};
  buffer.kind = BufferKind::state;
  return buffer;
}

TEST(StateParts, AreCutFromTheWholeAndPutTogetherAgain) {
  const std::string bytes = "aaaabbbbccccddddeeeeffff";  // f32[2,3]
  Buffer left = state("w#0-1", {2, 1}), right = state("w#1-3", {2, 2});
  left.part = StatePart{"w", 1, 0, 3};
  right.part = StatePart{"w", 1, 1, 3};
  EXPECT_EQ(cut_part(left, bytes), "aaaadddd");
  EXPECT_EQ(cut_part(right, bytes), "bbbbcccceeeeffff");
  PartsJoined joined;
  std::vector<PartsJoined::Whole> wholes;
  joined.add(right, cut_part(right, bytes), wholes);
  EXPECT_TRUE(wholes.empty());
  joined.add(state("b", {1}), "gggg", wholes);
  joined.add(left, cut_part(left, bytes), wholes);
  ASSERT_EQ(wholes.size(), 2u);
  EXPECT_EQ(wholes[0].name, "b");
  EXPECT_EQ(wholes[1].name, "w");
  EXPECT_EQ(wholes[1].type, (TensorType{DType::f32, {2, 3}}));
  EXPECT_EQ(wholes[1].bytes, bytes);
}

}  // namespace
}  // namespace nlsplit
