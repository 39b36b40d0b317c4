// Which host each rank of a Program belongs on: rank r runs its r-th device.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace nlsplit::inline program {

// places: of a device behind a bus its place of its own in an emulated cluster ("a.A"), not the machine ("a").
std::vector<std::string> rank_hosts(const Program& program, bool places = false);

}  // namespace nlsplit::inline program
