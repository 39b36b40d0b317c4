#include "cost/cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kernels/without_kernel.h"

namespace nlsplit {

namespace {

// S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009: bound by arithmetic or by memory, whichever is
// slower.
Seconds roofline_time(const Roofline& roofline, const Work& work) {
  const Seconds arithmetic = work.flops / roofline.compute;
  const Seconds traffic = (work.bytes_read + work.bytes_written) / roofline.memory;
  return std::max(arithmetic, traffic);
}

// What each device that computes beside it adds.
Seconds company_of(const Profile& profile, Seconds alone, Seconds beside) {
  return profile.beside > 0 && beside > alone ? (beside - alone) / profile.beside : seconds(0);
}

}  // namespace

CostSource slowed_down(CostSource source, double slowdown) {
  if (auto* roofline = std::get_if<Roofline>(&source)) {
    roofline->compute = flops_per_second(roofline->compute.value() / slowdown);
    roofline->memory = bytes_per_second(roofline->memory.value() / slowdown);
  } else if (auto* profile = std::get_if<Profile>(&source)) {
    const auto slow = [&](MeasuredCost& cost) {
      cost.median = cost.median * slowdown;
      cost.spread = cost.spread * slowdown;
      cost.beside = cost.beside * slowdown;
      cost.mean = cost.mean * slowdown;
    };
    for (auto& [key, cost] : profile->kernels) slow(cost);
    slow(profile->dispatch);
  }
  return source;
}

CostSource by_clock(CostSource source, double slowdown) {
  source = slowed_down(std::move(source), slowdown);
  if (auto* profile = std::get_if<Profile>(&source)) {
    for (auto& [key, cost] : profile->kernels) cost.beside = cost.mean = {};
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
    : sources_(std::move(sources)), fits_(sources_.size()), names_(std::move(names)) {
  CHECK(names_.devices.empty() || names_.devices.size() == sources_.size(), "as many names as sources");
  CHECK(names_.cores.empty() || names_.cores.size() == sources_.size(), "as many numbers of cores as sources");
  for (size_t d = 0; d < sources_.size(); ++d) {
    const Profile* profile = std::get_if<Profile>(&sources_[d]);
    if (profile != nullptr && profile->predict) fits_[d].emplace(*profile);
  }
}

CostTable::CostTable(std::vector<CostSource> sources, std::string scenario)
    : CostTable(std::move(sources), CostNames{std::move(scenario), {}, {}}) {}

Result<Cost> CostTable::cost(DeviceId device, const ComputeDesc& desc, std::string_view layer) const {
  CHECK(device.valid() && device.index() < sources_.size(), "cost on an unknown device");
  const CostSource& source = sources_[device.index()];
  if (const Roofline* roofline = std::get_if<Roofline>(&source)) {
    return Cost{roofline_time(*roofline, work_of(desc)), CostOrigin::roofline};
  }
  const int cores = names_.cores.empty() ? 1 : names_.cores[device.index()];
  const std::string key = profile_key(desc, cores);
  const Profile* profile = std::get_if<Profile>(&source);
  if (profile != nullptr) {
    const auto found = profile->kernels.find(key);
    if (found != profile->kernels.end()) {
      const MeasuredCost& cost = found->second;
      const double spread = cost.median.value() > 0 ? cost.spread / cost.median : 0;
      return Cost{usual(cost) + profile->dispatch.median, CostOrigin::measured, spread,
                  company_of(*profile, usual(cost), cost.beside)};
    }
  }
  if (const std::optional<KernelFit>& fit = fits_[device.index()]) {
    if (const std::optional<KernelPrediction> prediction = fit->predict(desc, cores))
      return Cost{prediction->time + profile->dispatch.median, CostOrigin::predicted, prediction->spread,
                  company_of(*profile, prediction->time, prediction->beside)};
  }
  constexpr int64_t word = 8;  // bytes: a credit's copy is a load and a store, and all its time is the dispatch
  if (profile != nullptr && desc.kernel == "copy" && size_of(desc.outputs[0]).value() <= word)
    return Cost{profile->dispatch.median, CostOrigin::measured};
  return missing(device, desc, key, layer);
}

Error CostTable::missing(DeviceId device, const ComputeDesc& desc, const std::string& key,
                         std::string_view layer) const {
  const Profile* profile = std::get_if<Profile>(&sources_[device.index()]);
  const std::string name =
      names_.devices.empty() ? fmt::format("{}", device.index()) : fmt::format("'{}'", names_.devices[device.index()]);
  const std::string what = layer.empty() ? std::string("a layer") : fmt::format("layer '{}'", layer);
  std::string message;
  if (profile == nullptr) {
    message = fmt::format("device {} has no costs, so {} has none", name, what);
  } else {
    message = fmt::format("{} has no measurement of {} for device {}", profile->file, what, name);
    if (!names_.model.empty() && std::ranges::find(profile->models, names_.model) == profile->models.end()) {
      message += fmt::format("; it was measured for {}, not for {}", fmt::join(profile->models, ", "), names_.model);
    }
    if (profile->predict) message += ", and too few of its kind to predict it from";
  }
  Error error = invalid_input({});
  error.fragment = key;
  if (has_no_kernel(desc)) {  // nothing runs them, so nothing can measure them
    error.message = fmt::format(
        "{}; no kernel computes it yet: give the device a roofline, or put a time you know under this signature into "
        "the profile",
        message);
    return error;
  }
  if (profile != nullptr && !profile->predict && desc.kernel == "reduce") {
    // As large as the gradients of any stage that a plan may have: no profile holds them all.
    error.message = fmt::format(
        "{}; sums of replicas' gradients have the size of a stage, which depends on the plan: let them be predicted "
        "from what was measured: costs: {{profile: ..., predict: true}}",
        message);
    return error;
  }
  // The first file of a list: the others serve other models too.
  const std::string files = profile == nullptr ? "" : profile->file;
  const std::string file = files.empty() ? "profile.json" : files.substr(0, files.find(", "));
  message += fmt::format("; measure on that machine with: nlbench profile {} -o {}", names_.scenario, file);
  if (profile != nullptr && !profile->predict)
    message += ", or let it be predicted from what was measured: costs: {profile: ..., predict: true}";
  error.message = std::move(message);
  return error;
}

}  // namespace nlsplit
