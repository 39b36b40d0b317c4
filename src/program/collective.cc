#include "program/collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace nlsplit::inline program {
namespace {

using enum CollectiveAlgorithm;
constexpr CollectiveAlgorithm algorithms[] = {ring, halving, doubling, direct, tree, two_level};

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return "all-reduce";
  }
  CHECK(false, "unknown collective");
}

std::string_view name_of(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case ring:
      return "ring";
    case halving:
      return "halving";
    case doubling:
      return "doubling";
    case direct:
      return "direct";
    case tree:
      return "tree";
    case two_level:
      return "two_level";
  }
  CHECK(false, "unknown algorithm");
}

std::span<const CollectiveAlgorithm> all_algorithms() { return algorithms; }

Result<CollectiveAlgorithm> parse_algorithm(std::string_view text) {
  std::vector<std::string_view> names;
  for (const CollectiveAlgorithm algorithm : algorithms) {
    if (name_of(algorithm) == text) return algorithm;
    names.push_back(name_of(algorithm));
  }
  return invalid_input(fmt::format("unknown algorithm '{}'; there are {}", text, fmt::join(names, ", ")));
}

}  // namespace nlsplit::inline program
