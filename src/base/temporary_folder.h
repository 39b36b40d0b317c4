// TemporaryFolder: files for other programs, gone when nobody needs them any more.
#pragma once

#include <string>

#include "base/descriptor.h"
#include "base/result.h"

namespace nlsplit::inline base {

// A new folder under the system's place for temporary files; gone with this value. If the process is killed, the next
// one that needs such a folder removes it: a lock on the folder says whether its owner lives.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept;
  ~TemporaryFolder();
  void remove();
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder() = default;
  std::string path_;
  Descriptor lock_;
};

}  // namespace nlsplit::inline base
