// LayerNormalization and InstanceNormalization: rows brought to mean 0 and variance 1, then scaled and shifted.
#include <algorithm>

#include "kernels/functions/epilogue.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"
#include "kernels/normalizations/chains.h"

namespace nlsplit::inline kernels {
namespace {

// f(row) for all rows, several at a time, so that short ones are worth handing out.
template <class F>
void for_rows(const KernelCall& call, int64_t rows, int64_t row_floats, const F& f) {
  constexpr int64_t piece_floats = 8192;
  const int64_t at_once = std::max<int64_t>(1, piece_floats / std::max<int64_t>(row_floats, 1));
  parallel_for(call, (rows + at_once - 1) / at_once, [&](int64_t piece) {
    for (int64_t row = piece * at_once; row < std::min(rows, (piece + 1) * at_once); ++row) f(row);
  });
}

void run_layer_norm(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const int64_t n = element_count(desc.inputs[1].shape), total = element_count(desc.outputs[0].shape);
  if (total == 0) return;
  const Epilogue epilogue(call);
  const double epsilon = attr_float(desc.attrs, "epsilon");
  const float* scale = input(call, 1);
  const float* bias = desc.own_inputs() > 2 ? input(call, 2) : nullptr;
  for_rows(call, total / n, n, [&](int64_t row) {
    const float* from = input(call, 0) + row * n;
    float* to = output(call) + row * n;
    const Moments m = moments_of(from, n, epsilon);
    const Packet mean = broadcast(m.mean), inverse = broadcast(m.inverse);
    const auto normal = [&](const Packet& x) { return multiply(subtract(x, mean), inverse); };
    if (bias == nullptr) {
      map_row(
          to, n, [&](const Packet& x, const Packet& s) { return multiply(normal(x), s); }, from, scale);
    } else {
      map_row(
          to, n, [&](const Packet& x, const Packet& s, const Packet& b) { return multiply_add(normal(x), s, b); }, from,
          scale, bias);
    }
    epilogue.apply(output(call), row * n, n);
  });
}

void run_instance_norm(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Shape& shape = desc.inputs[0].shape;
  const int64_t total = element_count(shape);
  if (total == 0) return;
  const int64_t planes = shape[0] * shape[1], n = total / planes;
  const Epilogue epilogue(call);
  const double epsilon = attr_float(desc.attrs, "epsilon");
  for_rows(call, planes, n, [&](int64_t plane) {
    const float* from = input(call, 0) + plane * n;
    const int64_t channel = plane % shape[1];
    const Moments m = moments_of(from, n, epsilon);
    const Packet mean = broadcast(m.mean), scale = broadcast(m.inverse * input(call, 1)[channel]),
                 bias = broadcast(input(call, 2)[channel]);
    map_row(
        output(call) + plane * n, n, [&](const Packet& x) { return multiply_add(subtract(x, mean), scale, bias); },
        from);
    epilogue.apply(output(call), plane * n, n);
  });
}

}  // namespace

const KernelCode code::layer_norm = {run_layer_norm};
const KernelCode code::instance_norm = {run_instance_norm};

}  // namespace nlsplit::inline kernels
