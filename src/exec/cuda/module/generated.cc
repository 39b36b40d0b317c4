// Generated kernels: loops as CUDA C, compiled by NVRTC once for all computations that are alike, and kept as CPUs' are
// (kernels/generated/code_cache.h).
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "base/build_of.h"
#include "exec/cuda/module/module.h"
#include "kernels/generated/code_cache.h"
#include "kernels/generated/cuda_source.h"
#include "kernels/generated/lower.h"

namespace nlsplit::cuda {
namespace {

// A multiply-add only where one is written, and IEEE 754's divisions and roots, which are NVRTC's defaults.
std::vector<std::string> options_for(const Device& device) {
  return {"--gpu-architecture=" + device.architecture,
          "--fmad=false",
          "--prec-div=true",
          "--prec-sqrt=true",
          "--ftz=false",
          "--disable-warnings"};
}

struct Destroy {
  void operator()(nvrtcProgram program) const { static_cast<void>(nvrtcDestroyProgram(&program)); }
};

Answer compile(const std::string& source, const std::vector<std::string>& options, std::string& code) {
  nvrtcProgram created = nullptr;
  RETURN_IF_REFUSED(nvrtcCreateProgram(&created, source.c_str(), "generated.cu", 0, nullptr, nullptr));
  const std::unique_ptr<std::remove_pointer_t<nvrtcProgram>, Destroy> program(created);
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  const nvrtcResult result = nvrtcCompileProgram(created, static_cast<int>(words.size()), words.data());
  if (result != NVRTC_SUCCESS) {
    size_t bytes = 0;
    std::string log;
    if (nvrtcGetProgramLogSize(created, &bytes) == NVRTC_SUCCESS && bytes > 0) {
      log.resize(bytes);
      static_cast<void>(nvrtcGetProgramLog(created, log.data()));
      log.pop_back();  // its end is written, too
    }
    return refuse(fmt::format("NVRTC: {} ({}): {}", nvrtcGetErrorString(result), fmt::join(options, " "), log));
  }
  size_t bytes = 0;
  RETURN_IF_REFUSED(nvrtcGetCUBINSize(created, &bytes));
  code.resize(bytes);
  RETURN_IF_REFUSED(nvrtcGetCUBIN(created, code.data()));
  return nullptr;
}

// What the source and everything else that decides its code are, and the kernel that this is. Kernels stay loaded until
// the process ends.
class Loaded {
 public:
  Answer find(const Device& device, const std::string& source, cudaKernel_t& kernel) {
    const std::vector<std::string> options = options_for(device);
    static const std::string compiler = build_of(reinterpret_cast<const void*>(&nvrtcCompileProgram));
    const std::string key = fmt::format("{}\n{}\n{}", compiler, fmt::join(options, " "), source);
    const std::lock_guard lock(mutex_);
    const auto known = kernels_.find(key);
    if (known != kernels_.end()) {
      kernel = known->second;
      return nullptr;
    }
    static CodeCache* const user_cache = open_user_cache().release();
    CodeCache* const cache = compiler.empty() ? nullptr : user_cache;
    if (cache != nullptr) {
      if (const auto code = cache->find(key)) {
        if (load(*code, kernel) == cudaSuccess) return keep(key, kernel);
        static_cast<void>(cudaGetLastError());  // one that cannot be loaded is made anew
      }
    }
    std::string code;
    RETURN_IF_REFUSED(compile(source, options, code));
    RETURN_IF_REFUSED(load(code, kernel));
    if (cache != nullptr) cache->keep(key, code);
    return keep(key, kernel);
  }

 private:
  static cudaError_t load(const std::string& code, cudaKernel_t& kernel) {
    cudaLibrary_t library = nullptr;
    const cudaError_t status = cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    return status == cudaSuccess ? cudaLibraryGetKernel(&kernel, library, cuda_function) : status;
  }
  Answer keep(const std::string& key, cudaKernel_t kernel) {
    kernels_[key] = kernel;
    return nullptr;
  }

  std::mutex mutex_;
  std::map<std::string, cudaKernel_t> kernels_;
};

Answer prepare_generated(Device& device, const ComputeDesc& desc, uint64_t, Run& run) {
  const Loops loops = lower(desc);
  if (const Status sound = verify(loops); !sound.ok()) return refuse(sound.error().message);
  if (loops.output.count == 0) {
    run = [](Device&, const KernelCall&) -> Answer { return nullptr; };
    return nullptr;
  }
  static Loaded loaded;
  const CudaSource source = cuda_source(loops);
  cudaKernel_t kernel = nullptr;
  RETURN_IF_REFUSED(loaded.find(device, source.text, kernel));
  const dim3 blocks(blocks_for(source.threads, source.block_threads));
  const dim3 threads(static_cast<unsigned>(source.block_threads));
  run = [kernel, blocks, threads](Device& on, const KernelCall& call) {
    std::vector<const void*> operands(call.inputs, call.inputs + call.desc->inputs.size());
    operands.push_back(call.outputs[0]);
    std::vector<void*> arguments;
    for (const void*& operand : operands) arguments.push_back(static_cast<void*>(&operand));
    return answer(cudaLaunchKernel(kernel, blocks, threads, arguments.data(), 0, on.compute()));
  };
  return nullptr;
}

}  // namespace

const Prepare code::generated = prepare_generated;

}  // namespace nlsplit::cuda
