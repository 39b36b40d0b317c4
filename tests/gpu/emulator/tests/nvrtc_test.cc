// NVRTC itself, where it is installed: it compiles without a GPU.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nvrtc.h>

#include <string>
#include <vector>

#include "kernels/generated/cuda_source.h"
#include "kernels/generated/lower.h"
#include "kernels/random_generated.h"

namespace nlsplit::testing {
namespace {

// "" or what NVRTC says, of its own library and not of the emulator's.
class InstalledNvrtc {
 public:
  explicit InstalledNvrtc(const char* path) : handle_(dlopen(path, RTLD_LOCAL | RTLD_NOW)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }

  std::string says(const std::string& source) const {
    const std::vector<const char*> options = {"--gpu-architecture=sm_90", "--fmad=false", "--prec-div=true",
                                              "--prec-sqrt=true",         "--ftz=false",  "--disable-warnings"};
    nvrtcProgram program = nullptr;
    EXPECT_EQ(
        find(nvrtcCreateProgram, "nvrtcCreateProgram")(&program, source.c_str(), "generated.cu", 0, nullptr, nullptr),
        NVRTC_SUCCESS);
    std::string said;
    if (find(nvrtcCompileProgram, "nvrtcCompileProgram")(program, static_cast<int>(options.size()), options.data()) !=
        NVRTC_SUCCESS) {
      size_t bytes = 0;
      find(nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize")(program, &bytes);
      said.resize(bytes);
      find(nvrtcGetProgramLog, "nvrtcGetProgramLog")(program, said.data());
    }
    find(nvrtcDestroyProgram, "nvrtcDestroyProgram")(&program);
    return said;
  }

 private:
  template <class Function>
  Function* find(Function&, const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  void* handle_;
};

TEST(Nvrtc, CompilesTheLoopsOfEveryOperator) {
#ifndef NLS_NVRTC
  GTEST_SKIP() << "NVRTC's library is not installed";
#else
  const InstalledNvrtc nvrtc(NLS_NVRTC);
  int compiled_ops = 0;
  for (int i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    Random random(static_cast<uint64_t>(i) + 5);
    for (int tried = 0; has_loops(op) && tried < 40; ++tried) {
      const std::optional<ComputeDesc> desc = random_generated(op, random);
      if (!desc || !refuse_lowering(*desc).empty()) continue;
      const Loops loops = lower(*desc);
      if (loops.output.count == 0) continue;
      const std::string source = cuda_source(loops).text;
      EXPECT_EQ(nvrtc.says(source), "") << signature(*desc) << "\n" << source;
      ++compiled_ops;
      break;
    }
  }
  EXPECT_GT(compiled_ops, 80);
#endif
}

}  // namespace
}  // namespace nlsplit::testing
