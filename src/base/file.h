// Files, whole: read, and write so that a reader never sees half of one.
//
//   ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(path));   // what is too large to be held at once
//   RETURN_IF_ERROR(file.write(part));
//   RETURN_IF_ERROR(file.commit());
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit {

// The whole content. Errors: missing, a directory, unreadable, above 4 GiB; the message names the path.
Result<std::string> read_file(const std::string& path);

// Writes to PATH.tmp.PID, then renames: PATH holds the old content or all of the new. Errors name the path.
Status write_file(const std::string& path, std::string_view content);

// The same piece by piece. Without a commit PATH stays as it was.
class FileWriter {
 public:
  static Result<FileWriter> open(const std::string& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();

  Status write(std::string_view content);
  Status commit();

 private:
  FileWriter(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

  std::string path_, temporary_;
  int descriptor_;  // -1: nothing is to be done any more
};

}  // namespace nlsplit
