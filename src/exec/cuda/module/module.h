// What the module's host code shares: an opened GPU, a computation made ready, and answers.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nvrtc.h>

#include <functional>
#include <string>
#include <vector>

#include "exec/cuda/backend.h"
#include "exec/cuda/module/launch.h"
#include "kernels/catalogue.h"

namespace nlsplit::cuda {

struct Device {
  int number = 0;
  cudaStream_t streams[stream_count] = {};
  cublasLtHandle_t products = nullptr;
  cudnnHandle_t convolutions = nullptr;  // of the compute stream
  std::string text;
  std::string architecture;  // "sm_90"
  std::string bus_id;        // "0000:3b:00.0"
  bool capturing = false;    // of the thread that computes

  cudaStream_t stream(Stream which) const { return streams[static_cast<int>(which)]; }
  cudaStream_t compute() const { return stream(Stream::compute); }
};

struct Event {
  cudaEvent_t event = nullptr;
};

struct Graph {
  cudaGraphExec_t graph = nullptr;
};

using Run = std::function<Answer(Device&, const KernelCall&)>;
struct Kernel {
  Run run;
};

Answer refuse(std::string why);  // kept for this thread until its next one
Answer answer(cudaError_t status);
Answer answer(cublasStatus_t status);
Answer answer(cudnnStatus_t status);
Answer answer(nvrtcResult status);

#define RETURN_IF_REFUSED(call)                                                                      \
  do {                                                                                               \
    if (const ::nlsplit::cuda::Answer nls_why = ::nlsplit::cuda::answer(call); nls_why != nullptr) { \
      return nls_why;                                                                                \
    }                                                                                                \
  } while (false)

inline Answer answer(Answer why) { return why; }

inline const void* input(const KernelCall& call, size_t i) { return call.inputs[i]; }
inline void* output(const KernelCall& call) { return call.outputs[0]; }
Element element_of(DType type);  // of f32, f16 and bf16
inline Element element_of(const KernelCall& call) { return element_of(call.desc->outputs[0].dtype); }

// The epilogue of a call from step `first` on, in passes over `from`, which may be the output itself; `before` comes
// ahead of it in the first pass. Nothing to do: nothing is launched, unless `from` is elsewhere.
Answer run_epilogue(const Device& device, const KernelCall& call, const void* from,
                    const std::vector<Step>& before = {}, size_t first = 0);
// Behind a convolution whose result lies in the output: its bias, if it has one, and its epilogue, in as few passes as
// they take.
Answer run_bias(const Device& device, const KernelCall& call);
std::vector<Step> epilogue_steps(const KernelCall& call, size_t first = 0);
Step unary_step(Op op, const Attrs& attrs);
AttentionShape attention_shape_of(const ComputeDesc& desc);

// The kernels' code: what makes a computation ready. The desc outlives it; workspace: bytes that it will have.
using Prepare = Answer (*)(Device& device, const ComputeDesc& desc, uint64_t workspace, Run& run);
namespace code {  // a row of the catalogue (kernels/cuda/rows.cc) without code does not link
#define NLS_GPU_KERNEL(name) extern const Prepare name;
#include "kernels/kernels.def"
}  // namespace code

}  // namespace nlsplit::cuda
