// NumPy's .npy files (format 1.0 and 2.0, little-endian, C order): float32 tensors in and out, others in.
// Format: numpy/lib/format.py, "NPY format version 1.0".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline base {

struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Elements of any type, as they stand in the file.
struct NpyRaw {
  std::string type;  // NumPy's name: "<f4", "<i8", "|b1"
  std::vector<int64_t> shape;
  std::string raw;
};

// Errors: not an .npy file, Fortran order, elements that are no plain numbers or big-endian, a size that does not fit
// the file.
Result<NpyRaw> read_npy_raw(const std::string& path);
// Errors: not an .npy file, another type than '<f4', Fortran order, a size that does not fit the file.
Result<NpyArray> read_npy(const std::string& path);
Status write_npy(const std::string& path, const NpyArray& array);

}  // namespace nlsplit::inline base
