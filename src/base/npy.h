// NumPy's .npy files (format 1.0 and 2.0, little-endian, C order): arrays of numbers in, of float32 out.
// Format: numpy/lib/format.py, "NPY format version 1.0".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

// What an array's bytes begin with: what they are, and how many stand before the first value.
struct NpyHeader {
  std::string type;
  std::vector<int64_t> shape;
  size_t begin = 0;
  size_t element = 0;  // bytes of one
  size_t size = 0;     // bytes of all values
};
inline constexpr size_t most_npy_header = 1 << 16;  // bytes that suffice to read it
// `beginning`: all of the array's bytes, or the first most_npy_header of them. Errors: as read_npy_raw's, but for the
// size, and name `path`.
Result<NpyHeader> read_npy_header(std::string_view beginning, const std::string& path);

// Errors: not an .npy file, Fortran order, elements that are no plain numbers or big-endian, a size that does not fit
// the file.
Result<NpyRaw> read_npy_raw(const std::string& path);
Status write_npy(const std::string& path, const NpyArray& array);

}  // namespace nlsplit::inline base
