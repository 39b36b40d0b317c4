// Arrays of float32 that tests compare: the counterpart of write_npy. The programs read arrays of any type
// (read_npy_raw).
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/npy.h"

namespace nlsplit {

// Errors: read_npy_raw's, and another type than '<f4'.
inline Result<NpyArray> read_npy(const std::string& path) {
  ASSIGN_OR_RETURN(NpyRaw read, read_npy_raw(path));
  if (read.type != "<f4")
    return unsupported(fmt::format("'{}' holds values of type '{}'; we read '<f4' (float32)", path, read.type));
  NpyArray array{std::move(read.shape), std::vector<float>(read.raw.size() / sizeof(float))};
  if (!read.raw.empty()) std::memcpy(array.values.data(), read.raw.data(), read.raw.size());
  return array;
}

}  // namespace nlsplit
