// Who keeps a weight that is trained: with ZeRO, stage 3, one of a stage's replicas (compile/gathers.h).
#pragma once

#include <map>
#include <string>
#include <vector>

namespace nlsplit::inline compiler {

// By the weight's name: devices of the Program.
using Holders = std::map<std::string, std::vector<int>>;

}  // namespace nlsplit::inline compiler
