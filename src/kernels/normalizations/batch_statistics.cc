// BatchNormalization in training: by the mean and the variance of each channel of the samples, and its gradient. A
// plane is summed in chains (chains.h), planes sample after sample in double, so that a channel's bits depend on
// neither the other channels nor the workers.
#include <algorithm>
#include <cmath>

#include "kernels/functions/epilogue.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/normalizations/chains.h"

namespace nlsplit::inline kernels {
namespace {

// The planes of a channel: [samples, channels, plane…].
struct ChannelPlanes {
  explicit ChannelPlanes(const Shape& x)
      : samples(x[0]), channels(x[1]), plane(element_count(x) / std::max<int64_t>(x[0] * x[1], 1)) {}
  int64_t samples, channels, plane;

  double count() const { return static_cast<double>(samples * plane); }
  int64_t at(int64_t sample, int64_t channel) const { return (sample * channels + channel) * plane; }
  // Σ of what f adds to its last argument, over all elements of a channel.
  template <class F, class... From>
  double sum(int64_t channel, F f, const From*... from) const {
    double total = 0;
    for (int64_t s = 0; s < samples; ++s)
      total += static_cast<double>(sum_in_chains(plane, f, (from + at(s, channel))...));
    return total;
  }
  template <class F, class... From>
  void map(int64_t channel, float* to, F f, const From*... from) const {
    for (int64_t s = 0; s < samples; ++s) map_row(to + at(s, channel), plane, f, (from + at(s, channel))...);
  }
};

// Two passes, since the mean of squares less the square of the mean cancels.
void run_batch_norm_training(const KernelCall& call) {
  const ChannelPlanes planes(call.desc->inputs[0].shape);
  const double epsilon = attr_float(call.desc->attrs, "epsilon");
  const float* x = input(call, 0);
  auto *means = static_cast<float*>(call.outputs[1]), *variances = static_cast<float*>(call.outputs[2]);
  parallel_for(call, planes.channels, [&](int64_t c) {
    const double sum = planes.sum(
        c, [](const Packet& v, const Packet& total) { return add(total, v); }, x);
    means[c] = static_cast<float>(sum / planes.count());
    const Packet mean = broadcast(means[c]);
    const double squares = planes.sum(
        c,
        [&](const Packet& v, const Packet& total) {
          const Packet off = subtract(v, mean);
          return multiply_add(off, off, total);
        },
        x);
    variances[c] = static_cast<float>(squares / planes.count());
    const double r = 1 / std::sqrt(static_cast<double>(variances[c]) + epsilon);
    const Packet scale = broadcast(static_cast<float>(static_cast<double>(input(call, 1)[c]) * r));
    const Packet shift = broadcast(input(call, 2)[c]);
    planes.map(
        c, output(call), [&](const Packet& v) { return multiply_add(subtract(v, mean), scale, shift); }, x);
  });
}

// dx = scale r (dy - mean(dy) - t mean(dy t)) with t = (x - mean) r and r = 1 / sqrt(variance + epsilon).
void run_batch_norm_training_gradient(const KernelCall& call) {
  const ChannelPlanes planes(call.desc->inputs[1].shape);
  const double epsilon = attr_float(call.desc->attrs, "epsilon");
  const float *dy = input(call, 0), *x = input(call, 1);
  const Epilogue epilogue(call);
  parallel_for(call, planes.channels, [&](int64_t c) {
    const Packet mean = broadcast(input(call, 3)[c]);
    const double r = 1 / std::sqrt(static_cast<double>(input(call, 4)[c]) + epsilon);
    const double sum = planes.sum(
        c, [](const Packet& g, const Packet& total) { return add(total, g); }, dy);
    const double product = planes.sum(
        c,
        [&](const Packet& g, const Packet& v, const Packet& total) {
          return multiply_add(g, subtract(v, mean), total);
        },
        dy, x);
    const Packet share = broadcast(static_cast<float>(sum / planes.count()));
    const Packet slope = broadcast(static_cast<float>(product * r * r / planes.count()));
    const Packet scale = broadcast(static_cast<float>(static_cast<double>(input(call, 2)[c]) * r));
    planes.map(
        c, output(call),
        [&](const Packet& g, const Packet& v) {
          return multiply(scale, subtract(subtract(g, share), multiply(subtract(v, mean), slope)));
        },
        dy, x);
    for (int64_t s = 0; s < planes.samples; ++s) epilogue.apply(output(call), planes.at(s, c), planes.plane);
  });
}

}  // namespace

const KernelCode code::batch_norm_training = {run_batch_norm_training};
const KernelCode code::batch_norm_training_gradient = {run_batch_norm_training_gradient};

}  // namespace nlsplit::inline kernels
