// A test that runs Programs on fake_gpu.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "exec/cuda/library.h"
#include "exec/fake_gpu/fake_gpu.h"
#include "exec/gpu_programs.h"
#include "testing/paths.h"

namespace nlsplit::testing {

inline const std::string library_folder = std::string(NLS_BIN_DIR) + "/../lib/";
inline const std::string fake_path = library_folder + "libfake_gpu.so";

template <class Function>
Function fake_function(const char* name) {
  void* handle = dlopen(fake_path.c_str(), RTLD_LOCAL | RTLD_NOW);
  EXPECT_NE(handle, nullptr) << dlerror();
  return reinterpret_cast<Function>(dlsym(handle, name));
}

inline void fake_fail(const char* function, int nth) { fake_function<FakeFail>("fake_gpu_fail")(function, nth); }
inline int fake_calls(const char* function) { return fake_function<FakeCalls>("fake_gpu_calls")(function); }

class FakeGpu : public ::testing::Test {
 protected:
  void SetUp() override { fake_fail("", 0); }
  void TearDown() override { fake_fail("", 0); }

  static RunOptions options() {
    RunOptions on_fake = test_options();
    on_fake.gpu = {fake_path, GpuMissing::error};
    return on_fake;
  }
};

}  // namespace nlsplit::testing
