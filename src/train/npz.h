// The arrays of an .npz file: a zip archive of .npy files, as numpy.savez writes it.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/npy.h"

namespace nlsplit::inline train {

// One array, whose bytes are read where they are asked for. Stored members stay in the file; compressed ones are held
// in memory once they are opened.
class NpzArray {
 public:
  virtual ~NpzArray() = default;
  const std::string& name() const { return name_; }  // without ".npy"
  const NpyHeader& header() const { return header_; }
  // Of its values. Errors: the file cannot be read, or ends before. One thread at a time.
  virtual Status read(size_t offset, std::span<std::byte> bytes) const = 0;

 protected:
  std::string name_;
  NpyHeader header_;
};

// Those of these names that the archive has. Errors name the file and the member: no zip archive, an array that
// read_npy_header refuses, a size that does not fit its shape, compressed bytes that are damaged. What has another name
// is not looked at. `there`: told the names of all members.
Result<std::vector<std::unique_ptr<NpzArray>>> open_npz(const std::string& path, const std::set<std::string>& names,
                                                        std::vector<std::string>& there);

}  // namespace nlsplit::inline train
