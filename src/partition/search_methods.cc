#include "partition/search_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

namespace nlsplit::inline partition {
namespace {

constexpr double exhaustive_factor = 8;  // auto scores spaces up to so many times the wanted plans entirely

// Every sequence of groups with every choice of cuts.
void enumerate(const SearchSpace& space, size_t next_cut, DeviceSet used, std::vector<Stage>& stages,
               std::vector<std::vector<Stage>>& found) {
  const std::vector<DeviceSet> choices = space.groups->after(used);
  const std::vector<size_t>& cuts = space.cuts;
  const size_t begin = stages.empty() ? 0 : stages.back().end;
  for (const DeviceSet group : choices) {
    if (space.interrupted()) return;
    stages.push_back({begin, cuts.back(), space.groups->members(group)});
    found.push_back(stages);
    if (stages.size() < space.max_stages) {
      for (size_t c = next_cut; c + 1 < cuts.size(); ++c) {
        stages.back().end = cuts[c];
        enumerate(space, c + 1, used | group, stages, found);
      }
    }
    stages.pop_back();
  }
}

FoundPlans all_of(const SearchSpace& space) {
  FoundPlans found;
  std::vector<Stage> stages;
  enumerate(space, 0, 0, stages, found.plans);
  found.proved = true;
  return found;
}

Result<FoundPlans> search_auto(const SearchSpace& space) {
  if (space.plans <= exhaustive_factor * static_cast<double>(space.wanted)) return all_of(space);
  ASSIGN_OR_RETURN(FoundPlans found, search_orders(space));
  ASSIGN_OR_RETURN(FoundPlans more, search_beam(space));
  std::ranges::move(more.plans, std::back_inserter(found.plans));
  return found;
}

constexpr size_t any_number = std::numeric_limits<size_t>::max();

constexpr std::array<SearchMethod, 6> all_methods = {{
    {"auto", "exhaustive where the space is small, else orders and beam", search_auto, any_number},
    {"exhaustive", "every plan, or an error that says how many there are", search_exhaustive, most_grouped_devices},
    {"dp", "the best bound, proved, by dynamic programming over cuts and devices", search_dp, most_grouped_devices},
    {"orders", "devices in a few orders, cuts and replicas by dynamic programming", search_orders, any_number},
    {"beam", "the most promising partial plans, stage by stage", search_beam, most_grouped_devices},
    {"anneal", "simulated annealing: small changes to one plan", search_anneal, most_grouped_devices},
}};

}  // namespace

std::span<const SearchMethod> search_methods() { return all_methods; }

const SearchMethod* find_search_method(std::string_view name) {
  for (const SearchMethod& method : all_methods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

Result<FoundPlans> search_exhaustive(const SearchSpace& space) {
  if (space.plans <= most_exhaustive) return all_of(space);
  return unsupported(
      fmt::format("the space holds {:.2g} plans of {} micro-batches, and an exhaustive search looks at no more than "
                  "{:.2g}: narrow it (search.splits, max_stages, limits) or take another method",
                  space.plans, space.costs->micro_batches, most_exhaustive));
}

}  // namespace nlsplit::inline partition
