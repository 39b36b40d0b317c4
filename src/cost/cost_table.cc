#include "cost/cost_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace nlsplit {

namespace {

// S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009: bound by arithmetic or by memory, whichever is
// slower.
Seconds roofline_time(const Roofline& roofline, const Work& work) {
  const Seconds arithmetic = work.flops / roofline.compute;
  const Seconds traffic = (work.bytes_read + work.bytes_written) / roofline.memory;
  return std::max(arithmetic, traffic);
}

}  // namespace

std::string profile_key(const ComputeDesc& desc, int cores) {
  return cores == 1 ? signature(desc) : fmt::format("{} on {} cores", signature(desc), cores);
}

CostSource slowed_down(CostSource source, double slowdown) {
  if (auto* roofline = std::get_if<Roofline>(&source)) {
    roofline->compute = flops_per_second(roofline->compute.value() / slowdown);
    roofline->memory = bytes_per_second(roofline->memory.value() / slowdown);
  } else if (auto* profile = std::get_if<Profile>(&source)) {
    for (auto& [key, cost] : profile->kernels) {
      cost.median = seconds(cost.median.value() * slowdown);
      cost.spread = seconds(cost.spread.value() * slowdown);
      cost.beside = {};  // a device clock keeps time whoever computes beside it
    }
  }
  return source;
}

KernelPreference fastest_measured(std::span<const CostSource> sources) {
  std::map<std::string, std::string> choices;
  for (const CostSource& source : sources) {
    if (const Profile* profile = std::get_if<Profile>(&source))
      choices.insert(profile->choices.begin(), profile->choices.end());  // the first one stays
  }
  if (choices.empty()) return {};
  return [choices = std::move(choices)](const ComputeDesc& desc, std::span<const std::string> candidates) -> size_t {
    const auto choice = choices.find(choice_key(desc, isa_of(candidates[0])));
    if (choice == choices.end()) return 0;
    const auto found = std::ranges::find(candidates, choice->second);
    return found == candidates.end() ? 0 : static_cast<size_t>(found - candidates.begin());
  };
}

CostTable::CostTable(std::vector<CostSource> sources, CostNames names)
    : sources_(std::move(sources)), names_(std::move(names)) {
  CHECK(names_.devices.empty() || names_.devices.size() == sources_.size(), "as many names as sources");
  CHECK(names_.cores.empty() || names_.cores.size() == sources_.size(), "as many numbers of cores as sources");
}

CostTable::CostTable(std::vector<CostSource> sources, std::string scenario)
    : CostTable(std::move(sources), CostNames{std::move(scenario), {}, {}}) {}

Result<Cost> CostTable::cost(DeviceId device, const ComputeDesc& desc, std::string_view layer) const {
  CHECK(device.valid() && device.index() < sources_.size(), "cost on an unknown device");
  const CostSource& source = sources_[device.index()];
  if (const Roofline* roofline = std::get_if<Roofline>(&source)) {
    return Cost{roofline_time(*roofline, work_of(desc)), false};
  }
  const std::string key = profile_key(desc, names_.cores.empty() ? 1 : names_.cores[device.index()]);
  const Profile* profile = std::get_if<Profile>(&source);
  if (profile != nullptr) {
    const auto found = profile->kernels.find(key);
    if (found != profile->kernels.end()) {
      const MeasuredCost& cost = found->second;
      const double more = cost.beside.value() - cost.median.value();
      return Cost{cost.median, true, seconds(profile->beside > 0 && more > 0 ? more / profile->beside : 0)};
    }
  }

  const std::string name =
      names_.devices.empty() ? fmt::format("{}", device.index()) : fmt::format("'{}'", names_.devices[device.index()]);
  const std::string what = layer.empty() ? std::string("a layer") : fmt::format("layer '{}'", layer);
  std::string message;
  if (profile == nullptr) {
    message = fmt::format("device {} has no costs, so {} has none", name, what);
  } else {
    message = fmt::format("{} has no measurement of {} for device {}", profile->file, what, name);
    if (!names_.model.empty() && profile->model != names_.model) {
      message += fmt::format("; it was measured for {}, not for {}", profile->model, names_.model);
    }
  }
  const std::string file = profile != nullptr && !profile->file.empty() ? profile->file : std::string("profile.json");
  message += fmt::format("; measure on that machine with: nlbench profile {} -o {}", names_.scenario, file);
  Error error = invalid_input(std::move(message));
  error.fragment = key;
  return error;
}

}  // namespace nlsplit
