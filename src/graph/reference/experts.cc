// A mixture of experts, row after row, in double.
#include <cmath>

#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

void experts(const Attrs& attrs, const Arrays& in, Array& out) {
  const Array &x = *in[0], &which = *in[1], &shares = *in[2], &gate = *in[3], &up = *in[4], &down = *in[5];
  const int64_t count = gate.type.shape[0], width = gate.type.shape[1], hidden = gate.type.shape[2];
  const int64_t used = which.type.shape.back(), first = attr_int(attrs, "first");
  const int64_t rows = hidden == 0 ? 0 : x.count() / hidden;
  parallel_for(rows, [&](int64_t row) {
    std::vector<double> sum(static_cast<size_t>(hidden), 0), inner(static_cast<size_t>(width));
    for (int64_t j = 0; j < used; ++j) {
      const int64_t expert = which.wholes[static_cast<size_t>(row * used + j)] - first;
      if (expert < 0 || expert >= count) continue;  // elsewhere
      for (int64_t i = 0; i < width; ++i) {
        double open = 0, value = 0;
        for (int64_t p = 0; p < hidden; ++p) {
          const double of_x = x.reals[static_cast<size_t>(row * hidden + p)];
          open += of_x * gate.reals[static_cast<size_t>((expert * width + i) * hidden + p)];
          value += of_x * up.reals[static_cast<size_t>((expert * width + i) * hidden + p)];
        }
        inner[static_cast<size_t>(i)] = open / (1 + std::exp(-open)) * value;
      }
      const double share = shares.reals[static_cast<size_t>(row * used + j)];
      for (int64_t o = 0; o < hidden; ++o) {
        double made = 0;
        for (int64_t i = 0; i < width; ++i)
          made += inner[static_cast<size_t>(i)] * down.reals[static_cast<size_t>((expert * hidden + o) * width + i)];
        sum[static_cast<size_t>(o)] += share * made;
      }
    }
    for (int64_t o = 0; o < hidden; ++o) out.set(row * hidden + o, sum[static_cast<size_t>(o)]);
  });
}

}  // namespace

NLS_REFERENCE(Experts, experts(attrs, in, out))

}  // namespace nlsplit::inline graph::reference
