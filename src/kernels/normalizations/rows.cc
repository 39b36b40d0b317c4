// Normalizations, softmax and means: what their kernels accept.
#include "kernels/rows.h"

namespace nlsplit::inline kernels {

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

const KernelInfo rows::reduce_mean = {.what = "sums in the order of the reduced axes",
                                      .ops = computes<Op::ReduceMean>,
                                      .refuses = refuse_many_axes,
                                      .exact_axes = exact::all};

}  // namespace nlsplit::inline kernels
