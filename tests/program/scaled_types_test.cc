// Buffers of q8_0 and q4_0: weights alone, by whole blocks.
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
  EXPECT_THAT(with("x f32[2,64]", "x q8_0[2,64]"), HasSubstr("device A buffer x: only weights are q8_0"));
  EXPECT_THAT(with("q q8_0[2,64] weight content 2f", "q q8_0[4,32] view of w"), HasSubstr("only weights are q8_0"));
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

}  // namespace
}  // namespace nlsplit
