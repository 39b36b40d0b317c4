// What stands in files and pages about the machine that made them.
#pragma once

#include <string>

namespace nlsplit::inline tools {

// This one: "AMD EPYC, 2 cores, 23.4 GiB".
std::string describe_machine();

}  // namespace nlsplit::inline tools
