#include "program/collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/limits.h"

namespace nlsplit::inline program {
namespace {

using enum CollectiveAlgorithm;
using enum CollectiveKind;

constexpr CollectiveKind kinds[] = {all_reduce, reduce_scatter, all_gather, all_to_all, broadcast};
constexpr CollectiveAlgorithm of_all_reduce[] = {ring, halving, doubling, direct, tree, two_level};
constexpr CollectiveAlgorithm of_reduce_scatter[] = {ring, halving, direct, tree, two_level};
constexpr CollectiveAlgorithm of_all_gather[] = {ring, doubling, direct, two_level};
constexpr CollectiveAlgorithm of_all_to_all[] = {ring, direct};
constexpr CollectiveAlgorithm of_broadcast[] = {ring, halving, direct, tree, two_level};

}  // namespace

std::span<const CollectiveKind> all_kinds() { return kinds; }

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case all_reduce:
      return "all-reduce";
    case reduce_scatter:
      return "reduce-scatter";
    case all_gather:
      return "all-gather";
    case all_to_all:
      return "all-to-all";
    case broadcast:
      return "broadcast";
  }
  CHECK(false, "unknown collective");
}

Result<CollectiveKind> parse_collective(std::string_view text) {
  std::vector<std::string_view> names;
  for (const CollectiveKind kind : kinds) {
    if (name_of(kind) == text) return kind;
    names.push_back(name_of(kind));
  }
  return invalid_input(fmt::format("unknown collective '{}'; there are {}", text, fmt::join(names, ", ")));
}

bool adds_up(CollectiveKind kind) { return kind == all_reduce || kind == reduce_scatter; }
bool is_whole(CollectiveKind kind) { return kind == all_reduce || kind == broadcast; }

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

std::span<const CollectiveAlgorithm> algorithms_of(CollectiveKind kind) {
  switch (kind) {
    case all_reduce:
      return of_all_reduce;
    case reduce_scatter:
      return of_reduce_scatter;
    case all_gather:
      return of_all_gather;
    case all_to_all:
      return of_all_to_all;
    case broadcast:
      return of_broadcast;
  }
  CHECK(false, "unknown collective");
}

Result<CollectiveAlgorithm> parse_algorithm(CollectiveKind kind, std::string_view text) {
  std::vector<std::string_view> names;
  for (const CollectiveAlgorithm algorithm : algorithms_of(kind)) {
    if (name_of(algorithm) == text) return algorithm;
    names.push_back(name_of(algorithm));
  }
  return invalid_input(
      fmt::format("{} has no algorithm '{}'; there are {}", name_of(kind), text, fmt::join(names, ", ")));
}

bool adds_in_order(CollectiveAlgorithm algorithm) { return algorithm == direct; }

int64_t value_elements(const Collective& collective) {
  return std::accumulate(collective.elements.begin(), collective.elements.end(), int64_t{0});
}

int64_t result_elements(const Collective& collective, size_t member) {
  if (collective.kind != all_to_all) return value_elements(collective);
  return collective.elements[member] * std::ssize(collective.group);
}

bool same_collective(const Collective& a, const Collective& b) {
  return a.kind == b.kind && a.algorithm == b.algorithm && a.group == b.group && a.elements == b.elements &&
         a.native.has_value() == b.native.has_value();
}

int64_t least_received(const Collective& collective, size_t member) {
  const int64_t all = value_elements(collective);
  switch (collective.kind) {
    case all_reduce:
      return all;
    case reduce_scatter:
      return collective.elements[member];
    case all_gather:
      return all - collective.elements[member];
    case all_to_all:
      return collective.elements[member] * (std::ssize(collective.group) - 1);
    case broadcast:
      return member == 0 ? 0 : all;
  }
  CHECK(false, "unknown collective");
}

Status check_collective(const Collective& collective, size_t devices) {
  std::vector<int> group = collective.group;
  std::ranges::sort(group);
  if (group.size() < 2 || std::ranges::adjacent_find(group) != group.end() || group.front() < 0 ||
      static_cast<size_t>(group.back()) >= devices)
    return invalid_input("the group of a collective needs two devices at least, each once");
  if (std::ranges::find(algorithms_of(collective.kind), collective.algorithm) == algorithms_of(collective.kind).end())
    return invalid_input(
        fmt::format("{} has no algorithm '{}'", name_of(collective.kind), name_of(collective.algorithm)));
  const size_t sizes = is_whole(collective.kind) ? 1 : group.size();
  if (collective.elements.size() != sizes) {
    return invalid_input(fmt::format("{} of {} devices with {} sizes; it has {}", name_of(collective.kind),
                                     group.size(), collective.elements.size(), sizes));
  }
  int64_t left = most_bytes;
  for (const int64_t elements : collective.elements) {
    if (elements < 0 || elements > left) return invalid_input("a collective of a value of an impossible size");
    left -= elements;
  }
  return ok_status();
}

}  // namespace nlsplit::inline program
