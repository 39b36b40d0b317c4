// A Program that verify accepts touches no byte outside the buffers it names: what is packed, workspaces, results in
// their operands' place, and sizes and counts that no machine has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/limits.h"
#include "program/complaint.h"
#include "program/part.h"

namespace nlsplit {
namespace {

using testing::complaint;
using ::testing::HasSubstr;
using testing::replaced;

// One device that does `work` with `buffers`, and an arena for them.
std::string text_of(const std::string& buffers, const std::string& work, const std::string& device = "memory 1048576") {
  return "nlsplit program 1\nprogram one batch 2 micro_batches 1\ndevice A cpu host a isa v2 " + device + "\n" +
         buffers + "  segment F stage 0 phase F\n" + work + "  order\n    F.0\n";
}

// A product with a packed weight (as many bytes as its type has) and a workspace.
const std::string buffers =
    "  buffer x f32[2,4] input\n"
    "  buffer w f32[4,8] weight content 1f packed_for matmul_packed_v2 input 1\n"
    "  buffer ws f32[0] scratch bytes 64\n"
    "  buffer y f32[2,8] output\n";
const std::string product = "    y = MatMul(x, w) kernel matmul_packed_v2 workspace ws\n";

TEST(VerifyPacked, AcceptsWhatItsKernelReads) { EXPECT_EQ(complaint(text_of(buffers, product)), ""); }

// The first of the three: its type would have been filled far beyond its bytes.
TEST(VerifyPacked, OnlyWeightsArePacked) {
  const std::string large =
      "nlsplit program 1\nprogram one batch 1 micro_batches 1\n"
      "device A cpu host a isa v2 memory 1048576 arena 256\n"
      "  buffer x f32[1,16777216] input bytes 64 at 0 packed_for none input 0\n"
      "  buffer y f32[1,16] output bytes 64 at 64\n"
      "  segment F stage 0 phase F\n    y = copy(x[0:16])\n  order\n    F.0\n";
  EXPECT_EQ(complaint(large), "test.nls: device A buffer x: only weights are packed for a kernel");
  for (const char* kind : {"output", "scratch", "comm", "stash", "state"}) {
    const std::string text = "  buffer z f32[1024] " + std::string(kind) + " bytes 64 packed_for unary_v2 input 0\n";
    EXPECT_THAT(complaint(text_of(buffers + text, product)),
                HasSubstr("device A buffer z: only weights are packed for a kernel"))
        << kind;
  }
  const std::string plain = replaced(large, " packed_for none input 0", "");
  EXPECT_EQ(complaint(plain), "test.nls: device A buffer x: fewer bytes than its type needs");
}

TEST(VerifyPacked, OnlyTheirKernelReadsThem) {
  const std::string more = buffers + "  buffer z f32[4,8] scratch\n";
  for (const char* work : {"    z = copy(w)\n", "    z = reduce(w, w)\n", "    z = pack(w) axis 0 begin 0 end 4\n",
                           "    z = unpack(w) axis 0 begin 0 end 4\n"}) {
    EXPECT_THAT(complaint(text_of(more, product + work)), HasSubstr("reads w, which is packed for matmul_packed_v2"))
        << work;
  }
  EXPECT_THAT(complaint(text_of(more, product + "    z = Relu(w) kernel unary_v2\n")),
              HasSubstr("operand 0 (w) is not packed as unary_v2 wants it"));
  EXPECT_THAT(complaint(text_of(buffers + "  buffer v f32[32] view of w\n  buffer z f32[32] scratch\n",
                                product + "    z = copy(v)\n")),
              HasSubstr("reads w, which is packed"));
  EXPECT_THAT(complaint(text_of(more, product + "    z[0:4] = copy(w[0:4])\n")),
              HasSubstr("a slice of a packed weight"));
  EXPECT_THAT(complaint(text_of(more, product + "    z = ReluGradient(w, w) kernel none\n")),
              HasSubstr("reads w, which is packed for"));
}

TEST(VerifyPacked, SomebodyReadsThem) {
  const std::string unread = buffers + "  buffer u f32[4,8] weight content 2f packed_for matmul_packed_v2 input 1\n";
  EXPECT_EQ(complaint(text_of(unread, product)),
            "device A buffer u: packed for matmul_packed_v2, which never reads it");
  EXPECT_THAT(
      complaint(text_of(
          replaced(unread, "matmul_packed_v2 input 1\n  buffer ws", "gemm_packed_v2 input 1\n  buffer ws"), product)),
      HasSubstr("operand 1 (w) is not packed as matmul_packed_v2 wants it"));
}

TEST(VerifyPacked, AsTheKernelPacks) {
  EXPECT_THAT(complaint(text_of(replaced(buffers, " content 1f packed", " bytes 192 content 1f packed"), product)),
              HasSubstr("operand 1 (w) is not packed"));
  EXPECT_THAT(complaint(text_of(replaced(buffers, "input 1\n", "input 0\n"), product)),
              HasSubstr("operand 1 (w) is not packed"));
  EXPECT_THAT(complaint(text_of(replaced(buffers, " packed_for matmul_packed_v2 input 1", ""), product)),
              HasSubstr("operand 1 (w) is not packed"));
}

// The second of the three: the slice began beyond the arena's end.
TEST(VerifyWorkspace, IsAWholeBuffer) {
  const std::string large = replaced(buffers, "f32[0] scratch bytes 64", "f32[423424] scratch");
  const std::string memory = "memory 4194304";
  EXPECT_EQ(complaint(text_of(large, product, memory)), "");
  EXPECT_THAT(complaint(text_of(large, replaced(product, "workspace ws", "workspace ws[423423:423424]"), memory)),
              HasSubstr("a workspace is a whole buffer, not a slice of one"));
  EXPECT_THAT(complaint(text_of(large, replaced(product, "workspace ws", "workspace ws[0:423424]"), memory)),
              HasSubstr("a workspace is a whole buffer"));
}

TEST(VerifyWorkspace, IsScratchOfItsOwn) {
  for (const char* kind : {"output", "stash", "comm", "state", "input", "weight content 3f"}) {
    EXPECT_THAT(
        complaint(text_of(replaced(buffers, "f32[0] scratch bytes 64", "f32[16] " + std::string(kind)), product)),
        HasSubstr("a workspace is a buffer of kind scratch"))
        << kind;
  }
  EXPECT_THAT(complaint(text_of(buffers + "  buffer big f32[16] scratch\n  buffer v f32[4,4] view of big\n",
                                replaced(product, "workspace ws", "workspace v"))),
              HasSubstr("and v is of kind view"));
  // One that is an operand, a result, or lies where one of them lies.
  const std::string scratch = buffers + "  buffer a f32[2,4] scratch bytes 64\n  buffer b f32[2,8] scratch\n";
  const std::string both =
      "    a = copy(x)\n    b = MatMul(a, w) kernel matmul_packed_v2 workspace ws\n    y = copy(b)\n";
  EXPECT_EQ(complaint(text_of(scratch, both)), "");
  EXPECT_THAT(complaint(text_of(scratch, replaced(both, "workspace ws", "workspace a"))),
              HasSubstr("a is its workspace and an operand"));
  EXPECT_THAT(complaint(text_of(scratch, replaced(both, "workspace ws", "workspace b"))),
              HasSubstr("b is its workspace and an operand"));
  const std::string viewed = scratch + "  buffer av f32[2,4] view of a\n";
  EXPECT_THAT(
      complaint(text_of(viewed, replaced(replaced(both, "MatMul(a,", "MatMul(av,"), "workspace ws", "workspace a"))),
      HasSubstr("a is its workspace and an operand"));
  for (const char* at : {"a f32[2,4] scratch bytes 64 at 1024", "b f32[2,8] scratch at 1024"}) {
    std::string aliased = replaced(scratch, "ws f32[0] scratch bytes 64", "ws f32[0] scratch bytes 64 at 1024");
    aliased = at[0] == 'a' ? replaced(aliased, "a f32[2,4] scratch bytes 64", at)
                           : replaced(aliased, "b f32[2,8] scratch", at);
    EXPECT_THAT(complaint(text_of(aliased, both)), HasSubstr("may still need")) << at;
  }
}

TEST(VerifyWorkspace, IsThereAndSuffices) {
  EXPECT_THAT(complaint(text_of(buffers, replaced(product, " workspace ws", ""))),
              HasSubstr("it needs 64 B of workspace and has 0 B"));
  const std::string cores = "cores 3 memory 1048576";
  EXPECT_THAT(complaint(text_of(buffers, product, cores)), HasSubstr("it needs 192 B of workspace and has 64 B"));
  EXPECT_EQ(complaint(text_of(replaced(buffers, "bytes 64\n", "bytes 192\n"), product, cores)), "");
  EXPECT_THAT(complaint(text_of(buffers + "  buffer z f32[4,8] scratch\n  buffer g f32[4,8] scratch\n",
                                product + "    z = ReluGradient(g, g) kernel none workspace ws\n")),
              HasSubstr("it has no kernel that needs a workspace"));
}

// Kernels may write a result before they have read their operands.
TEST(VerifyResults, LieApartFromOperandsOfTheSameBuffer) {
  const std::string state = "  buffer x f32[2,8] input\n  buffer a f32[2,8] scratch\n  buffer y f32[2,8] output\n";
  const auto with = [&](const std::string& work) {
    return complaint(text_of(state, "    a = copy(x)\n" + work + "    y = copy(a)\n"));
  };
  EXPECT_EQ(with("    a = Relu(a) kernel unary_v2\n"), "");
  EXPECT_EQ(with("    a = Add(x, a) kernel binary_v2\n"), "");
  EXPECT_EQ(with("    a = reduce(a, x)\n"), "");
  EXPECT_EQ(with("    a[0:8] = reduce(a[0:8], a[8:16])\n"), "");
  EXPECT_EQ(with("    a[0:8] = Relu(a[8:16]) kernel unary_v2\n"), "");
  EXPECT_THAT(with("    a = Softmax(a) {axis=1} kernel softmax_v2\n"), HasSubstr("result 0 lies where operand 0 does"));
  EXPECT_THAT(with("    a = Sum(x, a) kernel sum_v2\n"), HasSubstr("result 0 lies where operand 1 does"));
  EXPECT_THAT(with("    a = Relu(x) + Add(a) kernel unary_v2\n"), HasSubstr("result 0 lies where operand 1 does"));
  EXPECT_THAT(with("    a[0:8] = Relu(a[4:12]) kernel unary_v2\n"), HasSubstr("result 0 lies where operand 0 does"));
  EXPECT_THAT(with("    a[0:8] = reduce(a[4:12], x[0:8])\n"), HasSubstr("reduce writes a part of what it reads"));
}

TEST(VerifyResults, LieApartFromEachOther) {
  const std::string lstm =
      "  buffer x f32[1,1,4] input\n  buffer w f32[1,16,4] weight content 1f\n"
      "  buffer r f32[1,16,4] weight content 2f\n  buffer b f32[1,32] weight content 3f\n"
      "  buffer ws f32[4096] scratch\n  buffer h f32[1,1,1,4] scratch\n  buffer l f32[1,1,4] scratch\n"
      "  buffer c f32[1,1,4] scratch\n  buffer y f32[1,1,4] output\n";
  const auto with = [&](const std::string& results) {
    return complaint(text_of(lstm, "    " + results +
                                       " = LSTM(x, w, r, b) {direction=\"forward\"} kernel recurrent_v2 workspace ws\n"
                                       "    y = copy(c)\n"));
  };
  EXPECT_EQ(with("h, l, c"), "");
  EXPECT_THAT(with("h, c, c"), HasSubstr("results 1 and 2 share bytes"));
}

TEST(VerifyMoves, BetweenWhatFits) {
  const std::string moved =
      "  buffer x f32[4,8] input\n  buffer h f16[4,8] scratch\n  buffer n i32[4,8] scratch\n  buffer s f32[4,4] "
      "scratch\n"
      "  buffer b f32[1,8,2,2]c4 scratch\n  buffer c f32[1,8,2,2]c4 scratch\n  buffer p f32[32] scratch\n"
      "  buffer y f32[4,8] output\n";
  const auto with = [&](const std::string& work) { return complaint(text_of(moved, "    " + work + "\n")); };
  EXPECT_EQ(with("y = reduce(x, p)"), "");
  EXPECT_THAT(with("y = reduce(x, h)"), HasSubstr("reduce needs operands of its result's type"));
  EXPECT_THAT(with("n = reduce(n, n)"), HasSubstr("reduce needs operands of its result's type"));
  EXPECT_THAT(with("y = reduce(x, s)"), HasSubstr("as many elements as its result"));
  EXPECT_THAT(with("y = reduce(x, b)"), HasSubstr("as many elements as its result, in its layout"));
  EXPECT_EQ(with("c = copy(b)"), "");
  EXPECT_THAT(with("y = copy(s)"), HasSubstr("copy between different sizes"));
  EXPECT_THAT(with("y = copy(b)"), HasSubstr("copy between different layouts"));
  EXPECT_EQ(with("s = pack(x) axis 1 begin 4 end 8"), "");
  EXPECT_EQ(with("y = unpack(s) axis 1 begin 4 end 8"), "");
  EXPECT_THAT(with("s[0:8] = pack(b) axis 1 begin 0 end 2"),
              HasSubstr("a part of f32[1,8,2,2]c4, which is not row-major"));
  EXPECT_THAT(with("s = pack(x) axis 2 begin 4 end 8"), HasSubstr("no such axis"));
  EXPECT_THAT(with("s = pack(x) axis 1 begin 5 end 9"), HasSubstr("begin and end leave the axis"));
  EXPECT_THAT(with("s = pack(x) axis 1 begin 4 end 4"), HasSubstr("begin and end leave the axis"));
  EXPECT_THAT(with("s = pack(x) axis 1 begin 4 end 7"),
              HasSubstr("the part is f32[4,3], another size than its buffer"));
  EXPECT_THAT(with("y = unpack(s) axis 1 begin 4 end 7"), HasSubstr("another size than its buffer"));
  EXPECT_THAT(with("x = Relu(y) kernel unary_v2"), HasSubstr("writes a buffer of kind input"));
  EXPECT_THAT(with("x = copy(y)"), HasSubstr("writes a buffer of kind input"));
  EXPECT_THAT(with("y = Relu(x) kernel nonsense"), HasSubstr("there is no kernel \"nonsense\""));
}

// Kernels store whole registers.
TEST(VerifySlices, AKernelsResultBeginsWhereABufferMay) {
  const std::string flat = "  buffer x f32[2,4] input\n  buffer s f32[64] scratch\n  buffer y f32[2,4] output\n";
  const auto with = [&](const std::string& slice, const std::string& makes) {
    return complaint(text_of(
        flat, "    " + slice + " = Relu(x) kernel unary_v2 makes " + makes + "\n    y = copy(" + slice + ")\n"));
  };
  EXPECT_EQ(with("s[16:24]", "f32[2,4]"), "");
  EXPECT_THAT(with("s[17:25]", "f32[2,4]"), HasSubstr("result 0 begins at no multiple of 64 B"));
  EXPECT_THAT(with("s[16:25]", "f32[2,4]"), HasSubstr("result 0 is f32[9], but Relu makes f32[2,4]"));
}

// Where a slice holds an operand, the text says its type.
TEST(VerifySlices, AnOperandOfAnotherShapeHasAsManyElements) {
  const std::string flat = "  buffer x f32[2,4] input\n  buffer s f32[64] scratch\n  buffer y f32[2,4] output\n";
  const auto with = [&](const std::string& slice, const std::string& takes) {
    return complaint(
        text_of(flat, "    s[0:8] = copy(x)\n    y = Relu(" + slice + ") kernel unary_v2 takes " + takes + "\n"));
  };
  EXPECT_EQ(with("s[0:8]", "f32[2,4]"), "");
  EXPECT_THAT(with("s[0:9]", "f32[2,4]"), HasSubstr("operand 0 has another type"));
  EXPECT_THAT(with("s", "f32[2,4]"), HasSubstr("operand 0 has another type"));
}

TEST(VerifyTraining, OperandsFit) {
  const std::string trained =
      "  buffer x f32[2,4] input\n  buffer g f32[2,4] scratch\n  buffer l f32[4,2] scratch\n"
      "  buffer y f32[2,4] output\n";
  const auto with = [&](const std::string& work) { return complaint(text_of(trained, "    " + work + "\n")); };
  EXPECT_EQ(with("y = ReluGradient(x, g) kernel none"), "");
  EXPECT_THAT(with("y = ReluGradient(x) kernel none"), HasSubstr("1 inputs, ReluGradient takes 2"));
  EXPECT_THAT(with("y = ReluGradient(x, _) kernel none"), HasSubstr("operands cannot be left out"));
  EXPECT_THAT(with("y = ReluGradient(l, l) kernel none"), HasSubstr("results of other types"));
  EXPECT_THAT(with("y = ReluGradient(x, g) kernel none makes f32[4,2]"), HasSubstr("results of other types"));
  EXPECT_THAT(with("x = ReluGradient(x, g) kernel none"), HasSubstr("writes a buffer of kind input"));
}

TEST(VerifySlots, RunAsOftenAsTheirPhaseSays) {
  const auto with = [&](const std::string& phase, const std::string& slots) {
    const std::string text = replaced(text_of(buffers, product), "stage 0 phase F", phase);
    return complaint(replaced(text, "    F.0\n", slots));
  };
  EXPECT_THAT(with("stage 0 phase F", "    F.-\n"), HasSubstr("a segment of phase F needs a micro-batch"));
  EXPECT_THAT(with("stage 0 phase init", "    F.0\n"), HasSubstr("a segment of phase init has not a micro-batch"));
  EXPECT_EQ(with("stage 0 phase init", "    F.-\n"), "");
  EXPECT_THAT(with("stage 0 phase init", "    F.-\n    F.-\n"), HasSubstr("runs a second time"));
  EXPECT_THAT(with("stage io phase F", "    F.0\n    F.0\n"), HasSubstr("runs a second time"));
}

TEST(VerifyLimits, NoMachineHasMore) {
  const auto with = [&](const std::string& from, const std::string& to) {
    return complaint(replaced(text_of(buffers, product), from, to));
  };
  EXPECT_EQ(with("memory 1048576", "cores 1 memory 4611686018427387903"), "");
  EXPECT_THAT(with("memory 1048576", "cores 4097 memory 1048576"), HasSubstr("device A: cores must be 1 … 4096"));
  EXPECT_THAT(with("memory 1048576", "cores 1000000 memory 1048576"), HasSubstr("device A: cores must be 1 … 4096"));
  EXPECT_THAT(with("memory 1048576", "memory 4611686018427387904"), HasSubstr("impossible size of memory or arena"));
  EXPECT_THAT(with("memory 1048576", "memory 1048576 arena 1125899906842625"),
              HasSubstr("impossible size of memory or arena"));
  const auto workspace = [&](const std::string& to) {
    return complaint(replaced(text_of(buffers, product, "memory 1048576 arena 1048576"), "bytes 64", to));
  };
  EXPECT_EQ(workspace("bytes 64 instances 3 at 1024"), "");
  EXPECT_THAT(workspace("bytes 1125899906842625"), HasSubstr("device A buffer ws: impossible size"));
  EXPECT_THAT(workspace("bytes 64 instances 1048577"), HasSubstr("impossible number of instances"));
  EXPECT_THAT(workspace("bytes 1125899906842624 instances 2"), HasSubstr("device A buffer ws: too large"));
  EXPECT_THAT(workspace("bytes 64 at 1000"), HasSubstr("device A buffer ws: its place in the arena is not aligned"));
  EXPECT_THAT(workspace("bytes 1048640"), HasSubstr("device A buffer ws: leaves the arena"));
  EXPECT_THAT(workspace("bytes 64 instances 2 at 1048512"), HasSubstr("leaves the arena"));
  EXPECT_THAT(workspace("bytes 64 at 2305843009213693888"), HasSubstr("leaves the arena"));
  EXPECT_THAT(with("micro_batches 1", "micro_batches 1048577"), HasSubstr("1048577 micro-batches"));
}

TEST(VerifyLimits, DevicesAreCounted) {
  std::string text = "nlsplit program 1\nprogram many batch 1 micro_batches 1\n";
  for (int64_t d = 0; d <= most_devices; ++d)
    text += "device d" + std::to_string(d) + " host host a memory 0\n  order\n";
  EXPECT_THAT(complaint(text), HasSubstr("8193 devices; at most 8192 are supported"));
}

// The executor would take the first, the dependencies the last.
TEST(VerifyInstances, OneForEachBuffer) {
  const std::string two =
      replaced(text_of(buffers, product), "ws f32[0] scratch bytes 64", "ws f32[0] scratch bytes 64 instances 2");
  EXPECT_EQ(complaint(replaced(two, "    F.0\n", "    F.0 ws:1\n")), "");
  EXPECT_THAT(complaint(replaced(two, "    F.0\n", "    F.0 ws:1 ws:0\n")),
              HasSubstr("slot 0: two instances of buffer ws"));
}

Program given_to(const Program& whole, size_t device) {
  return in_outline(outline_of(whole), part_of(whole, device).program, device).value();
}

// A rank that has its own part alone finds what could touch a byte outside its buffers, and not what is wrong
// elsewhere.
TEST(VerifiedPart, JudgesItsOwnMemory) {
  const std::string pair = R"(nlsplit program 1
program pair batch 2 micro_batches 1
device A cpu host a isa v2 memory 4096
  buffer x f32[2,4] input
  buffer a f32[2,4] comm
  segment F stage 0 phase F
    a = Relu(x) kernel unary_v2
    send a to B tag 0
  order
    F.0
device B cpu host b isa v2 memory 4096
  buffer a f32[2,4] comm
  buffer s f32[2,4] scratch bytes 32 at 512
  buffer y f32[2,4] output
  segment G stage 1 phase F
    recv a from A tag 0
    s = Relu(a) kernel unary_v2
    y = copy(s)
  order
    G.0
)";
  const auto of = [](const std::string& text, size_t device) {
    const auto program = parse_program(text, "test.nls");
    EXPECT_TRUE(program.ok());
    const auto deps = verified_part(given_to(*program, device), device);
    return deps.ok() ? std::string() : deps.error().message;
  };
  EXPECT_EQ(of(pair, 0) + of(pair, 1), "");
  const std::string kernel = replaced(pair, "s = Relu(a) kernel unary_v2", "s = Relu(a) kernel softmax_v2");
  EXPECT_EQ(of(kernel, 0), "");
  EXPECT_THAT(of(kernel, 1), HasSubstr("device B segment G"));
  const std::string memory =
      replaced(pair, "device B cpu host b isa v2 memory 4096", "device B cpu host b isa v2 memory 64");
  EXPECT_EQ(of(memory, 0), "");
  EXPECT_THAT(of(memory, 1), HasSubstr("device B has 64 B of memory"));
  auto outside = parse_program(pair, "test.nls");
  ASSERT_TRUE(outside.ok());
  outside->devices[1].buffers[0].offset = 4096;
  EXPECT_TRUE(verified_part(given_to(*outside, 0), 0).ok());
  EXPECT_FALSE(verified_part(given_to(*outside, 1), 1).ok());
  EXPECT_THAT(verified_part(*outside, 2).error().message, HasSubstr("there is no device number 2"));
}

}  // namespace
}  // namespace nlsplit
