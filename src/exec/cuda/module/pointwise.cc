// Convolutions of 1 x 1 as products by cuBLASLt: of the weights with the pixels of each sample, which lie side by side.
// With a stride the pixels that count are picked first.
#include <memory>

#include "exec/cuda/module/product.h"
#include "kernels/cuda/gpu.h"
#include "kernels/layout.h"

namespace nlsplit::cuda {
namespace {

struct Pointwise {
  Multiplication product;
  Walk picks{};        // axes 0: all pixels count
  int64_t picked = 0;  // elements
  int64_t element = 0;
};

Answer run(Device& device, const KernelCall& call, Pointwise& p) {
  const void* x = call.inputs[0];
  auto* workspace = static_cast<std::byte*>(call.workspace);
  if (p.picks.axes > 0) {
    RETURN_IF_REFUSED(launch_strided(x, workspace, 0, p.picked, p.picks, p.element, device.compute()));
    x = workspace;
    workspace += picked_pixels(*call.desc).value();
  }
  RETURN_IF_REFUSED(p.product.run(device, call.inputs[1], x, call.outputs[0], nullptr, 0, workspace));
  return run_bias(device, call);
}

Answer prepare_pointwise(Device& device, const ComputeDesc& desc, uint64_t workspace, Run& run_it) {
  auto p = std::make_shared<Pointwise>();  // std::function must be copyable
  const Window w = window_of(desc);
  const auto picked = static_cast<uint64_t>(picked_pixels(desc).value());
  if (picked > 0) {
    const int64_t extents[] = {w.batch * w.channels, w.out_h, w.out_w},
                  strides[] = {w.h * w.w, w.stride_h * w.w, w.stride_w};
    p->picks.axes = 3;
    p->picked = w.batch * w.channels * w.out_h * w.out_w;
    p->element = size_of(desc.inputs[0].dtype);
    for (int axis = 0; axis < p->picks.axes; ++axis) {
      p->picks.extent[axis] = extents[axis];
      p->picks.stride[0][axis] = strides[axis];
    }
  }
  MatrixProduct what;
  what.batch = w.batch;
  what.m = w.out_channels;
  what.n = w.out_h * w.out_w;
  what.k = w.channels;
  what.b_stride = what.k * what.n;
  what.factors = what.result = desc.outputs[0].dtype;
  what.tf32 = desc.kernel.level.precision == Precision::tf32;
  RETURN_IF_REFUSED(p->product.prepare(device, what, workspace < picked ? 0 : workspace - picked));
  run_it = [p](Device& where, const KernelCall& call) { return run(where, call, *p); };
  return nullptr;
}

}  // namespace

const Prepare code::conv_pointwise_cublaslt = prepare_pointwise;

}  // namespace nlsplit::cuda
