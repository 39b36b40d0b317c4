// FolderWriter: a folder that is replaced as a whole, as FileWriter replaces a file.
//
//   ASSIGN_OR_RETURN(FolderWriter folder, FolderWriter::open("out/plan1"));
//   RETURN_IF_ERROR(write_file(folder.path() + "/figures.json", text));
//   RETURN_IF_ERROR(folder.commit());
#pragma once

#include <string>

#include "base/output_lock.h"
#include "base/result.h"

namespace nlsplit::inline base {

class FolderWriter {
 public:
  // `exchange`: whether the file system can exchange two names at once; false is for tests.
  // Also removes what a killed run left behind here. Errors: another run writes to PATH; it cannot be written.
  static Result<FolderWriter> open(const std::string& path, bool exchange = true);
  FolderWriter(FolderWriter&&) noexcept;
  FolderWriter& operator=(FolderWriter&&) = delete;
  ~FolderWriter();  // without a commit PATH stays as it was

  const std::string& path() const { return temporary_; }  // of the new folder, whose files the caller writes
  // The new folder's names are on disk, then it has the name PATH, then the old one is removed. Where the file system
  // cannot exchange names, a crash between two renames leaves the old one as PATH.nlsplit-old, which the next open()
  // puts back.
  Status commit();

 private:
  FolderWriter(std::string path, OutputLock lock, bool exchange)
      : path_(std::move(path)), lock_(std::move(lock)), exchange_(exchange) {}

  std::string path_, temporary_;  // temporary_: empty when it is gone
  OutputLock lock_;
  bool exchange_;
};

}  // namespace nlsplit::inline base
