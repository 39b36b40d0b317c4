// The largest elements of each row, best first: those met so far are kept sorted, and an element that beats none of
// them costs one comparison.
#include <algorithm>

#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

// Of equal elements the first stands first, as in the reference.
void run_top_k(const KernelCall& call) {
  const Shape& shape = call.desc->inputs[0].shape;
  const int64_t columns = shape.back(), k = call.desc->outputs[0].shape.back();
  const int64_t rows = columns == 0 ? 0 : element_count(shape) / columns;
  parallel_for(call, k == 0 ? 0 : rows, [&](int64_t row) {
    const float* const x = input(call, 0) + row * columns;
    float* const best = output(call) + row * k;
    int64_t* const at = static_cast<int64_t*>(call.outputs[1]) + row * k;
    int64_t kept = 0;
    for (int64_t i = 0; i < columns; ++i) {
      if (kept == k && !(x[i] > best[k - 1])) continue;
      int64_t place = kept < k ? kept++ : k - 1;
      for (; place > 0 && x[i] > best[place - 1]; --place) {
        best[place] = best[place - 1];
        at[place] = at[place - 1];
      }
      best[place] = x[i];
      at[place] = i;
    }
  });
}

}  // namespace

const KernelCode code::top_k = {run_top_k};

}  // namespace nlsplit::inline kernels
