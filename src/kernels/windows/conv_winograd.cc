// Convolutions of 3x3 in blocks of channels, with weights that are transformed at load.
#include <algorithm>

#include "kernels/products/microkernel.h"
#include "kernels/windows/winograd.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t panel_width = tile_vectors * width;

void run(const KernelCall& call) {
  Epilogue epilogue(call);
  const EpilogueHead head = epilogue.take_head();
  const float* bias = call.desc->own_inputs() > 2 ? input(call, 2) : nullptr;
  winograd(call, window_of(*call.desc), {input(call, 0), input(call, 1), bias, output(call), workspace(call)}, head,
           epilogue);
}

// G g Gᵗ in double precision, rounded once; then vector panels over the channels for each of the 36.
void pack(const ComputeDesc& desc, size_t, const void* raw, void* packed) {
  constexpr double g[winograd_in_side][3] = {{1.0 / 4, 0, 0},
                                             {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                                             {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                                             {1.0 / 24, 1.0 / 12, 1.0 / 6},
                                             {1.0 / 24, -1.0 / 12, 1.0 / 6},
                                             {0, 0, 1}};
  const Window w = window_of(desc);
  const int64_t point_floats = w.channels * round_up(w.out_channels, width);
  const auto* weights = static_cast<const float*>(raw);
  auto* to = static_cast<float*>(packed);
  std::fill_n(to, Winograd::points * point_floats, 0.0f);
  for (int64_t f = 0; f < w.out_channels; ++f) {
    const int64_t f0 = f / panel_width * panel_width;
    const int64_t lanes = w.out_channels - f0 > width ? panel_width : width;
    for (int64_t c = 0; c < w.channels; ++c) {
      const float* filter = weights + (f * w.channels + c) * 9;
      double half[winograd_in_side][3];
      for (int i = 0; i < winograd_in_side; ++i) {
        for (int j = 0; j < 3; ++j)
          half[i][j] = g[i][0] * filter[j] + g[i][1] * filter[3 + j] + g[i][2] * filter[6 + j];
      }
      for (int i = 0; i < winograd_in_side; ++i) {
        for (int j = 0; j < winograd_in_side; ++j) {
          const double u = half[i][0] * g[j][0] + half[i][1] * g[j][1] + half[i][2] * g[j][2];
          to[(i * winograd_in_side + j) * point_floats + f0 * w.channels + c * lanes + f - f0] = static_cast<float>(u);
        }
      }
    }
  }
}

}  // namespace

const KernelCode code::conv_winograd = {run, pack};

}  // namespace nlsplit::inline kernels
