#include "cost/cost_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace nlsplit::inline cost {
namespace {

class NoCosts final : public CostSource {
 public:
  Result<Cost> cost(const CostRequest& request) const override {
    Error error = invalid_input(
        fmt::format("device {} has no costs, so {} has none; measure on that machine with: nlbench profile {} -o "
                    "profile.json",
                    request.device_name(), request.what(), request.names.scenario));
    error.fragment = profile_key(request.desc, request.cores());
    return error;
  }
  CostSourcePtr slowed(double) const override { return no_costs(); }
  bool same_as(const CostSource& other) const override { return dynamic_cast<const NoCosts*>(&other) != nullptr; }
};

}  // namespace

int CostRequest::cores() const { return names.cores.empty() ? 1 : names.cores[device.index()]; }

std::string CostRequest::device_name() const {
  return names.devices.empty() ? fmt::format("{}", device.index()) : fmt::format("'{}'", names.devices[device.index()]);
}

std::string CostRequest::what() const { return layer.empty() ? "a layer" : fmt::format("layer '{}'", layer); }

CostSourcePtr no_costs() { return std::make_shared<const NoCosts>(); }

KernelPreference fastest_measured(std::span<const CostSourcePtr> sources) {
  std::map<std::string, KernelId> choices;
  for (const CostSourcePtr& source : sources) {
    if (const Profile* profile = source->profile())
      choices.insert(profile->choices.begin(), profile->choices.end());  // the first one stays
  }
  if (choices.empty()) return {};
  return [choices = std::move(choices)](const ComputeDesc& desc, std::span<const KernelId> candidates) -> size_t {
    const auto choice = choices.find(choice_key(desc, candidates[0].level));
    if (choice == choices.end()) return 0;
    const auto found = std::ranges::find(candidates, choice->second);
    return found == candidates.end() ? 0 : static_cast<size_t>(found - candidates.begin());
  };
}

}  // namespace nlsplit::inline cost
