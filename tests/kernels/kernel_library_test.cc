#include "kernels/module/kernel_library.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <string>

#include "kernels/module/kernel_module.h"
#include "kernels/run_kernel.h"
#include "testing/paths.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

using ::testing::HasSubstr;

TEST(KernelLibrary, HasExactlyTheCataloguesKernels) {
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    const std::span<const KernelName> catalogue = kernels_of(isa);
    ASSERT_EQ(library.code().size(), catalogue.size());
    for (size_t k = 0; k < catalogue.size(); ++k) {
      const KernelCode& code = library.code()[k];
      EXPECT_NE(code.run, nullptr) << name_of(catalogue[k]);
      EXPECT_EQ(code.pack != nullptr, info_of(catalogue[k]).packed_bytes != nullptr) << name_of(catalogue[k]);
    }
  }
}

TEST(KernelLibrary, FindsById) {
  const Isa best = best_isa().value();
  EXPECT_EQ(best, supported_levels().back());
  const KernelLibrary library = KernelLibrary::load(best).value();
  EXPECT_EQ(library.find({KernelName::gemm, best}).value(), &library.code()[catalogue_index(KernelName::gemm)]);
  EXPECT_FALSE(library.find({KernelName::gemm, best == Isa::v2 ? Isa::v3 : Isa::v2}).ok()) << "another level's";
  EXPECT_FALSE(library.find({KernelName::gpu_gather, Isa::cuda}).ok());
  EXPECT_THAT(library.find(KernelName::none).error().message, HasSubstr("has no kernel \"none\""));
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  for (char buffer[4096]; size_t n = fread(buffer, 1, sizeof buffer, pipe);) text.append(buffer, n);
  return pclose(pipe) == 0 ? text : "";
}

// Results must not depend on what caches a CPU reports: no kernel can ask for them, neither the CPU nor the system.
TEST(KernelLibrary, NoKernelAsksForTheCaches) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "what no kernel calls stays in an instrumented module, too";
#endif
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    std::ifstream maps("/proc/self/maps");
    std::string path;
    for (std::string line; std::getline(maps, line);) {
      if (line.find(fmt::format("nlsplit_kernels_{}.so", name_of(isa))) != std::string::npos)
        path = line.substr(line.find('/'));
    }
    ASSERT_FALSE(path.empty());
    const std::string code = output_of(fmt::format("objdump --disassemble --no-show-raw-insn '{}'", path));
    ASSERT_THAT(code, HasSubstr("<nlsplit_kernel_module>:"));  // there it is, and objdump reads it
    for (const char* question : {"\tcpuid", "\tmrs ", "<sysconf@", "<fopen@", "<open@"}) {
      EXPECT_EQ(code.find(question), std::string::npos) << name_of(isa) << question;
    }
  }
}

TEST(KernelLibrary, SaysWhatIsMissing) {
  const Isa best = best_isa().value();
  const auto missing = KernelLibrary::load_file(best, "/nowhere/libnlsplit_kernels.so");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("/nowhere/libnlsplit_kernels.so"));
  const auto other = KernelLibrary::load_file(best, "libm.so.6");
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("libm.so.6 holds no kernels"));
}

// Each is a library with no kernel at all, built for the purpose.
TEST(KernelLibrary, RefusesLibrariesOfOtherVersionsAndLevels) {
  const Isa best = best_isa().value();
  for (const auto& [name, message] :
       {std::pair("version", fmt::format(" has interface {}, this program {}: build both together",
                                         kernel_interface + 1, kernel_interface)),
        std::pair("size", std::string(": build both together")),
        std::pair("level", fmt::format(" holds kernels of level of_nobody, not {}", name_of(best))),
        std::pair("list", std::string(" holds other kernels than this program's: build both together"))}) {
    const std::string path = fmt::format("{}/../lib/libfake_kernels_{}.so", NLS_BIN_DIR, name);
    const auto refused =
        KernelLibrary::load_file(name == std::string("list") ? supported_levels().front() : best, path);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(exit_code(refused.error()), 2);
    EXPECT_THAT(refused.error().message, ::testing::AllOf(HasSubstr(path), HasSubstr(message)));
  }
}

TEST(KernelLibrary, RefusesALevelTheCpuLacks) {
  // There always is one: no CPU has the levels of two architectures.
  int lacking = 0;
  for (Isa isa : all_levels()) {
    if (cpu_supports(isa)) continue;
    ++lacking;
    const auto refused = KernelLibrary::load_file(isa, "/nowhere/libnlsplit_kernels.so");
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("this CPU lacks the " + std::string(full_name_of(isa)) + " instr"));
  }
  EXPECT_GT(lacking, 0);
}

ComputeDesc with_kernel(ComputeDesc desc, Isa isa) {
  desc.kernel = choose_kernel(desc, isa).value();
  return desc;
}

// What a network gone wrong computes must show: a NaN stays one through the clamps, alone or in a register tile.
TEST(KernelLibrary, ClampsKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    Tensor x = random_tensor({DType::f32, {1, 37}}, 1);
    x.values[3] = x.values[36] = nan;
    ComputeDesc relu;
    relu.op = Op::Relu;
    relu.inputs = relu.outputs = {x.type};
    const Tensor y = run_kernel(library, with_kernel(relu, isa), {&x})[0];
    EXPECT_TRUE(std::isnan(y.values[3]) && std::isnan(y.values[36]));
    EXPECT_EQ(y.values[0], std::max(x.values[0], 0.0f));

    const Tensor w = random_tensor({DType::f32, {37, 50}}, 2);
    ComputeDesc gemm;
    gemm.op = Op::Gemm;
    gemm.attrs = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{0}}};
    gemm.weights = 0b10;
    gemm.inputs = {x.type, w.type};
    gemm.outputs = {{DType::f32, {1, 50}}};
    gemm.epilogue = {{Op::Clip, {{"max", 6.0}, {"min", 0.0}}}};
    const Tensor product = run_kernel(library, with_kernel(gemm, isa), {&x, &w})[0];
    for (float v : product.values) EXPECT_TRUE(std::isnan(v));
  }
}

// One chain of multiply-adds an element, whatever the kernel: those that compute the same thing agree to the bit.
TEST(KernelLibrary, ConvolutionsAgreeBitForBit) {
  using Ints = std::vector<int64_t>;
  const Tensor x = random_tensor({DType::f32, {2, 300, 9, 11}}, 1), w = random_tensor({DType::f32, {45, 300, 1, 1}}, 2),
               bias = random_tensor({DType::f32, {45}}, 3);
  ComputeDesc desc;
  desc.op = Op::Conv;
  desc.attrs = {{"dilations", Ints{1, 1}},
                {"group", int64_t{1}},
                {"kernel_shape", Ints{1, 1}},
                {"pads", Ints(4, 0)},
                {"strides", Ints{1, 1}}};
  desc.weights = 0b110;
  desc.inputs = {x.type, w.type, bias.type};
  desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
  desc.epilogue = {{Op::Relu, {}}};
  for (Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    const auto run = [&](KernelName name) {
      desc.kernel = {name, isa};
      return run_kernel(library, desc, {&x, &w, &bias})[0];
    };
    const Tensor direct = run(KernelName::conv_direct);
    expect_same_bits(run(KernelName::conv_1x1), direct);
    expect_same_bits(run(KernelName::conv), direct);
  }
}

}  // namespace
}  // namespace nlsplit::testing
