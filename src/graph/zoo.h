// Networks the program builds itself, with seeded weights, so that nothing needs downloading. Layer names are
// torchvision's.
#pragma once

#include <span>
#include <string_view>

#include "graph/weights.h"

namespace nlsplit {

struct ZooEntry {
  std::string_view name;
  std::string_view what;  // one line: paper, input
  Result<Model> (*build)(uint64_t seed);
};

std::span<const ZooEntry> zoo();
// Batch 1. Error: unknown name (with the nearest and the list).
Result<Model> zoo_model(std::string_view name, uint64_t seed = 1);

}  // namespace nlsplit
