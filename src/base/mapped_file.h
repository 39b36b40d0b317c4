// A file's bytes where the operating system keeps them: read when they are looked at, given up when memory is short.
//
//   ASSIGN_OR_RETURN(const auto file, MappedFile::open("weights.bin"));
//   file->bytes().substr(offset, size);
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit::inline base {

class MappedFile {
 public:
  // Errors: missing, a directory, unreadable, too large for this process; the message names the path.
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return {static_cast<const char*>(address_), size_}; }

 private:
  MappedFile(void* address, size_t size, const std::string& path);

  void* address_;  // nullptr: an empty file
  size_t size_;
  struct Registered* registered_ = nullptr;
};

// The path of the file that is mapped there (its end, if it is long), nullptr if none is. For signal handlers: a file
// that is truncated while it is mapped ends in SIGBUS (base/memory_faults.h).
const char* mapped_file_at(const void* address);

// A part of one, which keeps the file mapped.
struct MappedBytes {
  std::shared_ptr<const MappedFile> file;  // nullptr: nothing
  size_t offset = 0, size = 0;
  // Fewer than `size` where the file ends before.
  std::string_view view() const {
    if (file == nullptr || offset > file->bytes().size()) return {};
    return file->bytes().substr(offset, size);
  }
};

}  // namespace nlsplit::inline base
