// PyTorch's operators, and what a network that was exported from it has in their place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "traces/trace.h"

namespace nlsplit::inline traces {

struct TorchKind {
  std::vector<std::string> nodes;  // kinds of operators in the network, the likeliest first
  Beside beside = Beside::none;    // whose time it is where the network has none of these
  bool fused = false;              // its node is one of several that it stands for: their operands are others
};

// Of "aten::relu_": what ends in _ writes to its operand and is the same otherwise.
std::string_view torch_kind(std::string_view name);  // "relu"; "": no operator of PyTorch's own library
TorchKind network_kinds(std::string_view kind);

}  // namespace nlsplit::inline traces
