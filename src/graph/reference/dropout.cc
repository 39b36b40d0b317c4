#include <algorithm>
#include <cmath>

#include "graph/philox.h"
#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

void dropout_training(const Attrs& attrs, const Arrays& in, Array& out) {
  const double ratio = attr_float(attrs, "ratio");
  const DropoutNumbers numbers{
      static_cast<uint64_t>(attr_int(attrs, "seed")), static_cast<uint32_t>(attr_int(attrs, "stream")),
      static_cast<uint32_t>(in[1]->wholes[0]), static_cast<uint64_t>(std::llround(ratio * philox_numbers))};
  const int64_t samples = out.type.shape[0], size = out.count() / std::max<int64_t>(1, samples);
  for (int64_t s = 0; s < samples; ++s) {
    const auto sample = static_cast<uint32_t>(in[2]->wholes[static_cast<size_t>(s)]);
    for (int64_t i = 0; i < size; ++i) {
      const uint32_t number = numbers.of(sample, static_cast<uint32_t>(i / 4))[static_cast<size_t>(i % 4)];
      out.set(s * size + i, numbers.keeps(number) ? in[0]->number(s * size + i) / (1 - ratio) : 0);
    }
  }
}

}  // namespace

NLS_REFERENCE(Dropout, out.reals = in[0]->reals)
NLS_REFERENCE(DropoutTraining, dropout_training(attrs, in, out))

}  // namespace nlsplit::inline graph::reference
