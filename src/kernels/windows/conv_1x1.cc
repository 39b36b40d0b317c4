// A 1x1 convolution is a product for each sample and group: filters × planes, or images of planes where it is strided
// or padded.
#include "kernels/layout.h"
#include "kernels/module/run.h"
#include "kernels/products/product.h"
#include "kernels/windows/image.h"

namespace nlsplit::inline kernels {
namespace {

void run(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Window w = window_of(desc);
  const int64_t pixels = w.out_pixels(), k = w.channels / w.groups, filters = w.out_channels / w.groups;
  Epilogue epilogue(call);
  Finish finish;
  const EpilogueHead head = epilogue.take_head();
  finish.head = head;
  float* scratch = workspace(call) + round_up(conv_image_floats(w), widest_vector);
  for (int64_t sample = 0; sample < w.batch; ++sample) {
    const float* images = input(call, 0) + sample * w.channels * w.h * w.w;
    if (!w.in_place) {
      for (int64_t c = 0; c < w.channels; ++c)
        make_image(w, images + c * w.h * w.w, 0, workspace(call) + c * w.image_stride());
      images = workspace(call);
    }
    for (int64_t g = 0; g < w.groups; ++g) {
      const int64_t at = (sample * w.out_channels + g * filters) * pixels;
      if (desc.own_inputs() > 2) finish.row_bias = input(call, 2) + g * filters;
      if (head.operand != nullptr) finish.head.operand = head.operand + at;
      product(filters, pixels, k, {input(call, 1) + g * filters * k, 0, 0, true},
              {images + g * k * w.image_stride(), w.image_stride(), 1}, output(call) + at, finish, scratch);
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

const KernelCode code::conv_1x1 = {run, pack};

}  // namespace nlsplit::inline kernels
