// Convolutions by cuDNN. Its interface of descriptors (deprecated in favour of its graphs, and all we need of it).
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>

#include "exec/cuda/module/module.h"
#include "kernels/layout.h"

namespace nlsplit::cuda {
namespace {

struct Convolution {
  cudnnTensorDescriptor_t in = nullptr, out = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t window = nullptr;
  cudnnConvolutionFwdAlgo_t algorithm{};
  size_t workspace = 0;

  Convolution() = default;
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;
  ~Convolution() {
    if (in != nullptr) static_cast<void>(cudnnDestroyTensorDescriptor(in));
    if (out != nullptr) static_cast<void>(cudnnDestroyTensorDescriptor(out));
    if (filter != nullptr) static_cast<void>(cudnnDestroyFilterDescriptor(filter));
    if (window != nullptr) static_cast<void>(cudnnDestroyConvolutionDescriptor(window));
  }
};

cudnnDataType_t data_type_of(DType type) {
  switch (type) {
    case DType::f16:
      return CUDNN_DATA_HALF;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;  // the catalogue lets nothing else here
  }
}

// Whatever lies in memory, sums are in float32.
Answer describe(const ComputeDesc& desc, cudnnMathType_t math, Convolution& conv) {
  const cudnnDataType_t type = data_type_of(desc.outputs[0].dtype);
  const Window w = window_of(desc);
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };  // the catalogue has seen to that
  RETURN_IF_REFUSED(cudnnCreateTensorDescriptor(&conv.in));
  RETURN_IF_REFUSED(cudnnCreateTensorDescriptor(&conv.out));
  RETURN_IF_REFUSED(cudnnCreateFilterDescriptor(&conv.filter));
  RETURN_IF_REFUSED(cudnnCreateConvolutionDescriptor(&conv.window));
  RETURN_IF_REFUSED(cudnnSetTensor4dDescriptor(conv.in, CUDNN_TENSOR_NCHW, type, narrow(w.batch), narrow(w.channels),
                                               narrow(w.h), narrow(w.w)));
  RETURN_IF_REFUSED(cudnnSetTensor4dDescriptor(conv.out, CUDNN_TENSOR_NCHW, type, narrow(w.batch),
                                               narrow(w.out_channels), narrow(w.out_h), narrow(w.out_w)));
  RETURN_IF_REFUSED(cudnnSetFilter4dDescriptor(conv.filter, type, CUDNN_TENSOR_NCHW, narrow(w.out_channels),
                                               narrow(w.channels / w.groups), narrow(w.kernel_h), narrow(w.kernel_w)));
  // ONNX's convolution does not turn the filter over: the field's "cross-correlation".
  RETURN_IF_REFUSED(cudnnSetConvolution2dDescriptor(conv.window, narrow(w.pad_top), narrow(w.pad_left),
                                                    narrow(w.stride_h), narrow(w.stride_w), narrow(w.dilation_h),
                                                    narrow(w.dilation_w), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  RETURN_IF_REFUSED(cudnnSetConvolutionGroupCount(conv.window, narrow(w.groups)));
  return answer(cudnnSetConvolutionMathType(conv.window, math));
}

// The first in cuDNN's order that gives the same bits every time, in the room there is, with the arithmetic asked for.
Answer choose(Device& device, uint64_t room, bool tensor_cores, Convolution& conv) {
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> known{};
  int count = 0;
  RETURN_IF_REFUSED(cudnnGetConvolutionForwardAlgorithm_v7(device.convolutions, conv.in, conv.filter, conv.window,
                                                           conv.out, static_cast<int>(known.size()), &count,
                                                           known.data()));
  for (int i = 0; i < count; ++i) {
    const cudnnConvolutionFwdAlgoPerf_t& one = known[static_cast<size_t>(i)];
    if (one.status != CUDNN_STATUS_SUCCESS || one.memory > room || one.determinism != CUDNN_DETERMINISTIC) continue;
    // Conversion means float16. Without tensor cores the convolution stays with the arithmetic it was described with.
    if (one.mathType == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) continue;
    if (!tensor_cores && one.mathType == CUDNN_TENSOR_OP_MATH) continue;
    conv.algorithm = one.algo;
    conv.workspace = one.memory;
    return tensor_cores ? answer(cudnnSetConvolutionMathType(conv.window, one.mathType)) : nullptr;
  }
  return refuse(fmt::format("cuDNN has no deterministic algorithm in {} B of workspace", room));
}

Answer run(Device& device, const KernelCall& call, const Convolution& conv) {
  // cuDNN's kernels read 16 bytes at a time. Whole buffers always allow that.
  for (const void* at : {call.inputs[0], call.inputs[1], static_cast<const void*>(call.outputs[0])}) {
    if (reinterpret_cast<uintptr_t>(at) % 16 != 0) return refuse("an operand is a part of a buffer at an odd place");
  }
  const float one = 1, zero = 0;
  RETURN_IF_REFUSED(cudnnConvolutionForward(device.convolutions, &one, conv.in, call.inputs[0], conv.filter,
                                            call.inputs[1], conv.window, conv.algorithm, call.workspace, conv.workspace,
                                            &zero, conv.out, call.outputs[0]));
  return run_bias(device, call);
}

Answer prepare_conv(Device& device, const ComputeDesc& desc, uint64_t workspace, Run& run_it) {
  auto conv = std::make_shared<Convolution>();  // std::function must be copyable
  const bool halves = desc.outputs[0].dtype != DType::f32, tf32 = desc.kernel.level.precision == Precision::tf32;
  // FMA: no tensor cores, so float32 throughout. DEFAULT: cuDNN may use TF32. TENSOR_OP: products of halves are exact.
  RETURN_IF_REFUSED(describe(desc, halves ? CUDNN_TENSOR_OP_MATH : tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH, *conv));
  RETURN_IF_REFUSED(choose(device, workspace, halves || tf32, *conv));
  run_it = [conv](Device& where, const KernelCall& call) { return run(where, call, *conv); };
  return nullptr;
}

}  // namespace

const Prepare code::conv_cudnn = prepare_conv;

}  // namespace nlsplit::cuda
