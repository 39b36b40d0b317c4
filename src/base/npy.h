// NumPy's .npy files (format 1.0 and 2.0, little-endian, C order): float32 tensors in and out.
// Format: numpy/lib/format.py, "NPY format version 1.0".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace nlsplit {

struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Errors: not an .npy file, another type than '<f4', Fortran order, a size that does not fit the file.
Result<NpyArray> read_npy(const std::string& path);
Status write_npy(const std::string& path, const NpyArray& array);

}  // namespace nlsplit
