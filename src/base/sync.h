// What writing files and folders share: errors of the operating system, and waiting for the disk.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit::inline base {

// "cannot VERB 'PATH': No space left on device". `code` is an errno.
Error os_error(std::string_view verb, const std::string& path, int code);

std::string folder_of(const std::string& path);  // "." where PATH has no '/'

int write_all(int fd, std::string_view content);  // 0, or errno

// 0 once the file, or the names in the folder, are on disk; else errno. Below the system's folder for temporary files
// nothing is waited for: no system promises to keep that over a crash of its own, and programs hand each other hundreds
// of megabytes there.
int sync_file(int fd, const std::string& path);
int sync_folder(const std::string& folder);

}  // namespace nlsplit::inline base
