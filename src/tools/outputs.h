// Files that a command will write.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline tools {

// Before minutes are spent on an answer: can it be written to each of these files? Empty paths and "-", standard
// output, are not asked for. Errors: there is no such folder, or nothing may be written there; a folder has the file's
// name.
Status check_outputs(const std::vector<std::string>& paths);

}  // namespace nlsplit::inline tools
