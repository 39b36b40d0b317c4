// Dropout in training, by numbers that only the element's place decides (graph/philox.h).
#include <algorithm>
#include <cmath>

#include "graph/philox.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t group = 4;            // elements that share a counter
constexpr int64_t piece_groups = 4096;  // what a worker takes at a time

void run_dropout(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const double ratio = attr_float(desc.attrs, "ratio");
  const DropoutNumbers numbers{
      static_cast<uint64_t>(attr_int(desc.attrs, "seed")), static_cast<uint32_t>(attr_int(desc.attrs, "stream")),
      static_cast<uint32_t>(whole_at(call, 1, 0)), static_cast<uint64_t>(std::llround(ratio * philox_numbers))};
  const auto scale = static_cast<float>(1 / (1 - ratio));
  const Shape& shape = desc.outputs[0].shape;
  const int64_t size = element_count(shape) / std::max<int64_t>(1, shape[0]);
  const int64_t pieces = (size + piece_groups * group - 1) / (piece_groups * group);
  parallel_for(call, shape[0] * pieces, [&](int64_t at) {
    const int64_t sample = at / pieces, begin = at % pieces * piece_groups * group;
    const int64_t end = std::min(size, begin + piece_groups * group);
    const auto number = static_cast<uint32_t>(whole_at(call, 2, sample));
    const float* x = input(call, 0) + sample * size;
    float* y = output(call) + sample * size;
    for (int64_t i = begin; i < end; i += group) {
      const std::array<uint32_t, 4> drawn = numbers.of(number, static_cast<uint32_t>(i / group));
      for (int64_t k = 0; k < std::min(group, end - i); ++k)
        y[i + k] = numbers.keeps(drawn[static_cast<size_t>(k)]) ? scale * x[i + k] : 0.0F;
    }
  });
}

}  // namespace

const KernelCode code::dropout = {run_dropout};

}  // namespace nlsplit::inline kernels
