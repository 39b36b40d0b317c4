// A 1x1 convolution without stride or padding is a product for each sample and group: filters × planes.
#include "exec/kernels/product.h"
#include "exec/kernels/run.h"
#include "kernels/layout.h"

namespace nlsplit {
namespace {

void run(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Window w = window_of(desc);
  const int64_t pixels = w.out_pixels(), k = w.channels / w.groups, filters = w.out_channels / w.groups;
  Epilogue epilogue(call);
  Finish finish;
  const EpilogueHead head = epilogue.take_head();
  finish.head = head;
  for (int64_t sample = 0; sample < w.batch; ++sample) {
    for (int64_t g = 0; g < w.groups; ++g) {
      const float* planes = input(call, 0) + (sample * w.channels + g * k) * pixels;
      const int64_t at = (sample * w.out_channels + g * filters) * pixels;
      if (desc.own_inputs() > 2) finish.row_bias = input(call, 2) + g * filters;
      if (head.operand != nullptr) finish.head.operand = head.operand + at;
      product(filters, pixels, k, {input(call, 1) + g * filters * k, 0, 0, true}, {planes, pixels, 1},
              output(call) + at, finish, workspace(call));
      if (!epilogue.empty()) epilogue.apply(output(call), at, filters * pixels);
    }
  }
}

void pack(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  const Window w = window_of(desc);
  const int64_t k = w.channels / w.groups, filters = w.out_channels / w.groups;
  for (int64_t g = 0; g < w.groups; ++g) {
    pack_left({static_cast<const float*>(raw) + g * filters * k, k, 1}, filters, k,
              static_cast<float*>(packed) + g * filters * k);
  }
}

}  // namespace

const KernelEntry conv_1x1 = {"conv_1x1", run, pack};

}  // namespace nlsplit
