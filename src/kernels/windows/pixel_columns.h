// The right operand of a convolution that is computed as a product: a row for each channel and tap, a column for each
// pixel of the result. It lies nowhere as such ("implicit GEMM"; S. Chetlur et al., "cuDNN: efficient primitives for
// deep learning", 2014): panels are packed from images of the planes.
#pragma once

#include "kernels/products/product.h"

namespace nlsplit::inline kernels {

struct PixelColumns : PanelPacker {
  const float* image = nullptr;      // what pixel (0, 0) of the first sample reads at offset 0
  const int64_t* offsets = nullptr;  // of each row, in floats
  int64_t rows = 0, row = 0;         // pixels of a sample: `rows` times `row`
  int64_t pitch = 0, sample = 0;     // floats from row to row of an image, and from sample to sample
  bool exact = false;                // nothing behind the last pixel may be read; else widest_vector floats

  PixelColumns();
};

}  // namespace nlsplit::inline kernels
