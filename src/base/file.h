// Files, whole: read, and write so that a reader never sees half of one.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit {

// The whole content. Errors: missing, a directory, unreadable; the message names the path.
Result<std::string> read_file(const std::string& path);

// Writes to PATH.tmp.PID, then renames: PATH holds the old content or all of the new. Errors name the path.
Status write_file(const std::string& path, std::string_view content);

}  // namespace nlsplit
