// Files, whole: read, and write so that nobody ever sees half of one, also after a crash.
//
//   ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(path));   // what is too large to be held at once
//   RETURN_IF_ERROR(file.write(part));
//   RETURN_IF_ERROR(file.commit());
#pragma once

#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/result.h"

namespace nlsplit::inline base {

// The whole content. Errors: missing, a directory, unreadable, above 4 GiB; the message names the path.
Result<std::string> read_file(const std::string& path);

// Writes a new file, waits until it is on disk, then renames it: at any moment PATH holds the old content or all of the
// new. What a killed process leaves beside it (PATH.tmp.PID.0, in the moment before the rename) the next writer of PATH
// removes. Errors name the path.
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
  FileWriter(std::string path, std::string temporary, Descriptor file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

  std::string path_, temporary_;  // temporary_: empty while the new file has no name
  Descriptor file_;
};

}  // namespace nlsplit::inline base
