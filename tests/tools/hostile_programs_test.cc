// Small files that once ended the process: refused with a place, or run safely.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/onnx_file.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

class HostileProgram : public ::testing::Test {
 protected:
  // A saved folder by hand: no weights.
  Outcome run(const std::string& program, const std::string& unsplit) const {
    std::filesystem::create_directories(scratch_ / "saved");
    scratch_.write("saved/program.nls", program);
    scratch_.write("saved/unsplit.nls", unsplit);
    scratch_.write("saved/weights.idx", "nlsplit-weights 2\n");
    scratch_.write("saved/weights.bin", "");
    return nlbench("run " + (scratch_ / "saved") + " --transport threads --repeats 1 --check");
  }
  Outcome run(const std::string& program) const { return run(program, program); }
  void refuse(const std::string& program, const std::string& why) const {
    const Outcome outcome = run(program);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("saved/program.nls: "));
    EXPECT_THAT(outcome.err, HasSubstr(why));
    const Outcome other = run(good_, program);
    EXPECT_EQ(other.code, 2) << other.err;
    EXPECT_THAT(other.err, HasSubstr("saved/unsplit.nls: "));
    EXPECT_THAT(other.err, HasSubstr(why));
  }

  const std::string good_ = R"(nlsplit program 1
program good batch 1 micro_batches 1
device A cpu host a isa v2 memory 4194304
  buffer a f32[16,16] input
  buffer b f32[16,16] input
  buffer ws f32[423424] scratch
  buffer y f32[16,16] output
  segment F stage 0 phase F
    y = MatMul(a, b) kernel matmul_v2 workspace ws
  order
    F.0
)";
  Scratch scratch_;
};

TEST_F(HostileProgram, TheGoodOneRuns) {
  const Outcome outcome = run(good_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(HostileProgram, AnInputWithFewerBytesThanItsType) {
  refuse(R"(nlsplit program 1
program large batch 1 micro_batches 1
device A cpu host a isa v2 memory 4194304 arena 256
  buffer x f32[1,16777216] input bytes 64 at 0 packed_for none input 0
  buffer y f32[16] output bytes 64 at 64
  segment F stage 0 phase F
    y = copy(x[0:16])
  order
    F.0
)",
         "device A buffer x: only weights are packed for a kernel");
}

TEST_F(HostileProgram, AWorkspaceThatIsASlice) {
  refuse(with(good_, "workspace ws", "workspace ws[423423:423424]"),
         "device A segment F `y = MatMul(a, b) kernel matmul_v2 workspace ws[423423:423424]`: a workspace is a whole "
         "buffer");
}

// What looks at a Program before it runs relies on the same: inputs are made for what gathers by them.
TEST_F(HostileProgram, AnOperatorWithoutItsAttributes) {
  refuse(with(good_, "y = MatMul(a, b) kernel matmul_v2 workspace ws", "y = Gather(a, b) kernel gather_v2"),
         "device A segment F");
}

TEST_F(HostileProgram, MoreOfAnythingThanMachinesHave) {
  refuse(with(good_, "memory 4194304", "cores 1000000 memory 4194304"), "device A: cores must be 1 … 4096");
  refuse(with(good_, "memory 4194304", "memory 9000000000000000000"), "impossible size of memory or arena");
  const std::string wide = "memory 4611686018427387903";
  const Outcome arena = run(with(with(good_, "memory 4194304", wide), "f32[423424] scratch",
                                 "f32[423424] scratch bytes 1099511627776 instances 512"));
  EXPECT_EQ(arena.code, 2) << arena.err;
  EXPECT_THAT(arena.err, HasSubstr("cannot allocate an arena of 512 TiB: this machine has"));
  const Outcome input =
      run(with(with(good_, "memory 4194304", wide), "  buffer ws", "  buffer c f32[1099511627776] input\n  buffer ws"));
  EXPECT_EQ(input.code, 2) << input.err;
  EXPECT_THAT(input.err, HasSubstr("input c is f32[1099511627776], 4 TiB: this machine has"));
}

// Strides of 2^20 over one pixel of 2^22 channels: the image that fast kernels slide over would have 2^62 floats.
TEST(HostileModel, AStrideFarBeyondTheImage) {
  const Scratch scratch;
  OnnxFile file(13);
  file.input("x", {1, 1 << 22, 1, 1});
  file.integers("shape", {1, 1 << 22, 1, 1});
  onnx::NodeProto& weights = file.node("ConstantOfShape", {"shape"}, "w", "weights");
  onnx::AttributeProto& value = *weights.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
  value.mutable_t()->add_dims(1);
  value.mutable_t()->add_float_data(0.5f);
  set(file.node("Conv", {"x", "w"}, "y", "conv"), "strides", std::vector<int64_t>{1 << 20, 1 << 20});
  file.output("y");
  const std::string model = scratch.write("c.onnx", file.bytes());
  EXPECT_LT(file.bytes().size(), 400u);
  for (const char* isa : {"v2", "v3"}) {
    const Outcome outcome = nlbench(fmt::format("run {} --isa {} --transport threads --repeats 1 --check", model, isa));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("bit for bit"));
  }
}

}  // namespace
}  // namespace nlsplit
