// Buffers of q8_0 and q4_0, by whole blocks: weights, and of q8_0 messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/complaint.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using testing::complaint;
using ::testing::HasSubstr;
using testing::replaced;

const std::string scaled_program = R"(nlsplit program 1
program scaled batch 2 micro_batches 1
device A cpu host a isa v2 memory 65536
  buffer x f32[2,64] input
  buffer w q4_0[64,32] weight content 1f
  buffer q q8_0[2,64] weight content 2f
  buffer y f32[2,32] output
  segment F stage 0 phase F
    y = MatMul(x, w) {} kernel reference_v2
  order
    F.0
)";

TEST(ScaledBuffers, HaveTheBytesOfTheirBlocks) {
  EXPECT_EQ(complaint(scaled_program), "");
  const Program program = value_of(parse_program(scaled_program, "scaled"));
  EXPECT_EQ(program.devices[0].buffers[1].bytes.value(), 64 * 18);
  EXPECT_EQ(program.devices[0].buffers[2].bytes.value(), 4 * 34);
  EXPECT_EQ(value_of(parse_program(to_string(program), "again")), program);
}

TEST(ScaledBuffers, AreRefusedWhereBlocksWouldBeCut) {
  const auto with = [](const std::string& from, const std::string& to) {
    return complaint(replaced(scaled_program, from, to));
  };
  EXPECT_THAT(with("w q4_0[64,32]", "w q4_0[64,30]"), HasSubstr("32 elements of q4_0 share a scale"));
  EXPECT_THAT(with("x f32[2,64]", "x q8_0[2,64]"), HasSubstr("device A buffer x: only weights and messages are q8_0"));
  EXPECT_THAT(with("q q8_0[2,64] weight content 2f", "q q8_0[4,32] view of w"),
              HasSubstr("only weights and messages are q8_0"));
  EXPECT_THAT(with("w q4_0[64,32] weight", "w q4_0[64,32] weight bytes 1151"), HasSubstr("fewer bytes than its type"));
  EXPECT_THAT(with("MatMul(x, w)", "MatMul(x, w[0:48])"),
              HasSubstr("slice 0:48 of buffer w, of which 32 elements share a scale"));
  EXPECT_THAT(with("y = MatMul(x, w) {} kernel reference_v2", "y = copy(w[16:64])"),
              HasSubstr("slice 16:64 of buffer w, of which 32 elements share a scale"));
  EXPECT_THAT(with("y = MatMul(x, w) {} kernel reference_v2", "y = pack(w) axis 0 begin 0 end 2"),
              HasSubstr("a part of q4_0[64,32], whose elements share scales"));
  EXPECT_THAT(with("MatMul(x, w) {} kernel reference_v2", "MatMul(x, w) {} kernel matmul_packed_v2"),
              HasSubstr("q4_0[64,32]"));
  EXPECT_THAT(with("y = MatMul(x, w) {} kernel reference_v2", "y = Add(x, q) {} kernel reference_v2"),
              HasSubstr("Add does not read q8_0[2,64], whose elements share scales"));
}

TEST(ScaledBuffers, MessagesAreOfOneType) {
  const std::string messages = R"(nlsplit program 1
program messages batch 2 micro_batches 1
device A cpu host a isa v2 memory 65536
  buffer x f32[2,64] input
  buffer x_q8_0 q8_0[2,64] comm
  buffer y f32[2,64] output
  segment F stage 0 phase F
    x_q8_0 = Cast(x) {to="q8_0"} kernel cast_blocks_v2
    y = Cast(x_q8_0) {to="f32"} kernel cast_blocks_v2
  order
    F.0
)";
  EXPECT_EQ(complaint(messages), "");
  EXPECT_EQ(value_of(parse_program(messages, "messages")).devices[0].buffers[1].bytes.value(), 4 * 34);
  const auto with = [&](const std::string& from, const std::string& to) {
    return complaint(replaced(messages, from, to));
  };
  EXPECT_THAT(with("x_q8_0 q8_0[2,64]", "x_q8_0 q4_0[2,64]"), HasSubstr("buffer x_q8_0: only weights are q4_0"));
  EXPECT_THAT(with("x_q8_0 q8_0[2,64] comm", "x_q8_0 q8_0[2,64] state"),
              HasSubstr("buffer x_q8_0: only weights and messages are q8_0"));
  EXPECT_THAT(with("x_q8_0 q8_0[2,64]", "x_q8_0 q8_0[2,48]"), HasSubstr("32 elements of q8_0 share a scale"));
  EXPECT_THAT(with("Cast(x) {to=\"q8_0\"} kernel cast_blocks_v2", "Cast(x) {to=\"q8_0\"} kernel cast_v2"),
              HasSubstr("it casts between f32, f16 and bf16"));
  EXPECT_THAT(with("y = Cast(x_q8_0) {to=\"f32\"} kernel cast_blocks_v2", "y = pack(x_q8_0) axis 0 begin 0 end 1"),
              HasSubstr("whose elements share scales"));
}

}  // namespace
}  // namespace nlsplit
