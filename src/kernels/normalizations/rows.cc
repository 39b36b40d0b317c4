// Normalizations, softmax and means: what their kernels accept.
#include "kernels/rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit::inline kernels {
namespace {

// The labels are integers.
std::string refuse_cross_entropy(const ComputeDesc& desc) {
  const DType type = desc.outputs[0].dtype;
  if (type != DType::f32) return fmt::format("{} is not f32", to_string(desc.outputs[0]));
  const TensorType& labels = desc.inputs[desc.op == Op::SoftmaxCrossEntropy ? 1 : 2];
  return labels.dtype == DType::i32 || labels.dtype == DType::i64
             ? ""
             : fmt::format("{} is not i32 or i64", to_string(labels));
}

}  // namespace

const KernelInfo rows::batch_norm_blocked = {.what = "one scale and shift a channel, vectors of channels",
                                             .ops = computes<Op::BatchNormalization>,
                                             .layouts = Layouts::own,
                                             .refuses = refuse_unless_blocked,
                                             .exact_axes = image_axes,
                                             .in_place = over_first};

const KernelInfo rows::batch_norm = {.what = "one scale and shift a plane",
                                     .ops = computes<Op::BatchNormalization>,
                                     .exact_axes = image_axes,
                                     .in_place = over_first};

const KernelInfo rows::layer_norm = {.what = "mean, then variance, then scale and shift, row by row",
                                     .ops = computes<Op::LayerNormalization>,
                                     .exact_axes = exact::batch | exact::channels | exact::height | exact::tokens};

const KernelInfo rows::instance_norm = {.what = "mean, then variance, then scale and shift, plane by plane",
                                        .ops = computes<Op::InstanceNormalization>,
                                        .exact_axes = exact::batch | exact::channels};

const KernelInfo rows::lrn_blocked = {.what = "sum of squares over neighbouring channels, vectors of channels",
                                      .ops = computes<Op::LRN>,
                                      .layouts = Layouts::own,
                                      .refuses = refuse_unless_blocked,
                                      .exact_axes = exact::batch | exact::height | exact::width};

const KernelInfo rows::lrn = {.what = "sum of squares over neighbouring channels, vectors of pixels",
                              .ops = computes<Op::LRN>,
                              .exact_axes = exact::batch | exact::height | exact::width};

const KernelInfo rows::softmax = {
    .what = "largest, exponentials, sum, along one axis", .ops = computes<Op::Softmax>, .exact_axes = exact::all};

const KernelInfo rows::batch_norm_training = {.what = "mean, then variance, then scale and shift, channel by channel",
                                              .ops = computes<Op::BatchNormalizationTraining>};

const KernelInfo rows::batch_norm_training_gradient = {.what = "two sums, channel by channel",
                                                       .ops = computes<Op::BatchNormalizationTrainingGradient>};

const KernelInfo rows::batch_norm_scale_gradient = {.what = "a sum for each channel, sample after sample",
                                                    .ops = computes<Op::BatchNormalizationScaleGradient>};

const KernelInfo rows::layer_norm_gradient = {
    .what = "mean and variance again, two sums, row by row",
    .ops = computes<Op::LayerNormalizationGradient>,
    .exact_axes = exact::batch | exact::channels | exact::height | exact::tokens};

const KernelInfo rows::softmax_gradient = {.what = "a sum and a product along one axis",
                                           .ops = computes<Op::SoftmaxGradient, Op::LogSoftmaxGradient>,
                                           .exact_axes = exact::all};

const KernelInfo rows::cross_entropy = {.what = "largest, sum of exponentials, row by row",
                                        .ops = computes<Op::SoftmaxCrossEntropy, Op::SoftmaxCrossEntropyGradient>,
                                        .refuses = refuse_cross_entropy,
                                        .any_type = true};

const KernelInfo rows::reduce_sum = {.what = "sums in the order of the reduced axes",
                                     .ops = computes<Op::ReduceSum>,
                                     .refuses = refuse_many_axes,
                                     .exact_axes = exact::all};

const KernelInfo rows::reduce_mean = {.what = "sums in the order of the reduced axes",
                                      .ops = computes<Op::ReduceMean>,
                                      .refuses = refuse_many_axes,
                                      .exact_axes = exact::all};

}  // namespace nlsplit::inline kernels
