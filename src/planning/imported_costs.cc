#include "planning/imported_costs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "cost/samples.h"
#include "planning/messages_program.h"
#include "planning/regions.h"
#include "planning/saved_form.h"
#include "program/data_movement.h"
#include "scenario/read_model.h"

namespace nlsplit::inline planning {
namespace {

using Times = std::vector<double>;  // of executions

using TimesByLabel = std::map<std::string, Times, std::less<>>;  // of computations that have an event

// The network in one micro-batch of so many samples.
struct SizedNetwork {
  Program program;
  std::set<std::string> labels;    // of what it computes, without changes of layout
  std::vector<std::string> owner;  // [node of the original]: the label of what computes it; "": nothing does
};

// Where the network has one computation.
struct Places {
  std::vector<Times> timed;
  size_t untimed = 0;  // that cost nothing
};

double median_of(const Times& times) { return cost_of_samples(times).median.value(); }

void scale(Times& times, double factor) {
  for (double& time : times) time *= factor;
}

// What each computation took at one batch of the trace.
TimesByLabel times_of(const SizeTimes& size, const std::vector<std::string>& owner) {
  TimesByLabel times;
  for (size_t n = 0; n < owner.size(); ++n) {
    if (owner[n].empty() || size.nodes[n].empty()) continue;
    Times& sum = times[owner[n]];
    sum.resize(size.run_s.size(), 0);
    for (size_t r = 0; r < sum.size(); ++r) sum[r] += size.nodes[n][r];
  }
  return times;
}

int64_t date_of(const std::vector<OperatorTrace>& traces) {
  int64_t date = 0;
  for (const OperatorTrace& trace : traces) {
    struct stat status {};
    if (::stat(trace.file.c_str(), &status) == 0) date = std::max<int64_t>(date, status.st_mtime);
  }
  return date;
}

class Importer {
 public:
  Importer(const Loaded& loaded, const ProfileImport& options) : loaded_(loaded), options_(options) {}

  Result<ImportedCosts> run(const std::vector<OperatorTrace>& traces) {
    RETURN_IF_ERROR(check_workload());
    RETURN_IF_ERROR(choose_device());
    const Scenario& scenario = loaded_.scenario;
    ASSIGN_OR_RETURN(const Model original,
                     read_model(scenario.model, {scenario.input_shapes, scenario.dims}, scenario.weights_seed));
    original_ = &original.graph;
    ASSIGN_OR_RETURN(imported_.matched, match(traces, original.graph, options_.match));
    imported_.device = device_->name;
    RETURN_IF_ERROR(check_profiled_batches());
    const auto& matched = imported_.matched;
    if (matched.not_matched + imported_.without_computation > options_.most_unmatched) return too_much_unmatched();
    Profile& profile = imported_.profile;
    profile.models = {loaded_.model.graph.name};
    profile.machine = options_.machine.empty() ? traces[0].runtime : options_.machine;
    profile.measured_at = date_of(traces);
    for (const int64_t samples : wanted_sizes()) RETURN_IF_ERROR(add_size(samples));
    for (auto& [key, places] : places_) profile.kernels.emplace(key, cost_of_places(places));
    RETURN_IF_ERROR(add_moves());
    for (ImportCheck& check : imported_.checks) check.predicted_s = predicted(networks_.at(check.batch).program);
    return std::move(imported_);
  }

 private:
  Status check_workload() const {
    const Scenario& scenario = loaded_.scenario;
    if (!scenario.training && !scenario.generation && scenario.programs.empty()) return ok_status();
    return unsupported(
        "profiles of other runtimes are imported for inference alone: a scenario that trains, generates or has "
        "programs needs nlbench profile");
  }

  Status choose_device() {
    const std::vector<Device>& devices = loaded_.scenario.cluster.devices;
    if (!options_.device.empty()) {
      const auto found = std::ranges::find(devices, options_.device, &Device::name);
      if (found == devices.end())
        return invalid_input(fmt::format("--device: the scenario has no device '{}'", options_.device));
      device_ = &*found;
      return ok_status();
    }
    device_ = &devices[0];
    for (const Device& device : devices) {
      if (device.level == device_->level && device.cores == device_->cores) continue;
      return invalid_input(
          fmt::format("devices '{}' and '{}' have different kernels or cores: name the one that was "
                      "profiled with --device",
                      device_->name, device.name));
    }
    return ok_status();
  }

  std::set<int64_t> wanted_sizes() const {
    const Scenario& scenario = loaded_.scenario;
    std::set<int64_t> sizes;
    for (const int count : scenario.micro_batches) sizes.insert(scenario.batch / count);
    for (const UserPlan& own : scenario.plans) {
      for (const int count : own.micro_batches) {
        if (scenario.batch % count == 0) sizes.insert(scenario.batch / count);
      }
    }
    return sizes;
  }

  // The network at a batch, with its computations; made once.
  Result<SizedNetwork*> network(int64_t samples) {
    const auto known = networks_.find(samples);
    if (known != networks_.end()) return &known->second;
    Scenario one = loaded_.scenario;
    one.batch = samples;
    ASSIGN_OR_RETURN(const PreparedModel prepared, prepare_model(one, loaded_.model.graph, 1));
    const KernelGraph& kernels = prepared.kernels;
    SizedNetwork made;
    ASSIGN_OR_RETURN(made.program, on_one_device(one, kernels, 1, *device_));
    for (size_t n = 0; n < kernels.labels.size(); ++n) {
      if (kernels.computed[n]) made.labels.insert(kernels.labels[n]);
    }
    for (const int by : regions_of(*original_, kernels))
      made.owner.push_back(by < 0 ? std::string() : kernels.labels[static_cast<size_t>(by)]);
    const std::vector<Device>& devices = one.cluster.devices;
    const bool mixed =
        std::ranges::any_of(devices, [&](const Device& device) { return device.level != device_->level; });
    if (mixed || one.cluster.messages != DType::f32) {
      ASSIGN_OR_RETURN(const Program messages, messages_program(one, kernels, 1, *device_, mixed));
      for_each_computation(
          messages, [&](const std::string&, std::string key, const ComputeDesc&) { moves_.insert(std::move(key)); });
    }
    return &networks_.emplace(samples, std::move(made)).first->second;
  }

  Status check_profiled_batches() {
    double all = 0, lost = 0;
    for (const SizeTimes& size : imported_.matched.sizes) {
      ASSIGN_OR_RETURN(SizedNetwork* const at, network(size.batch));
      profiled_[size.batch] = times_of(size, at->owner);
      for (size_t n = 0; n < at->owner.size(); ++n) {
        for (const double time : size.nodes[n]) (at->owner[n].empty() ? lost : all) += time;
      }
      imported_.checks.push_back(
          {size.batch, static_cast<int>(size.run_s.size()), size.left_out, 0, median_of(size.run_s)});
    }
    const double matched = 1 - imported_.matched.not_matched;
    if (all + lost > 0) imported_.without_computation = matched * lost / (all + lost);
    return look_for_untimed();
  }

  template <typename Visit>  // Visit(label, key, desc)
  void for_each_computation(const Program& program, const Visit& visit) const {
    const DeviceProgram& device = program.devices[0];
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (is_transfer(instr.opcode)) continue;
        const bool computes = instr.opcode == Opcode::compute;
        const ComputeDesc desc =
            computes ? program.descs[static_cast<size_t>(instr.desc)] : movement_desc(device, instr);
        visit(computes ? instr.label : std::string(), profile_key(desc, device.cores), desc);
      }
    }
  }

  // Computations that no profiled batch has a time of. Error: they are too much of the network.
  Status look_for_untimed() {
    const auto& times = profiled_.begin()->second;
    const SizedNetwork& at = networks_.at(profiled_.begin()->first);
    double all = 0, without = 0;
    for_each_computation(at.program, [&](const std::string& label, const std::string&, const ComputeDesc& desc) {
      if (!at.labels.contains(label)) return;
      const double operations = work_of(desc).flops.value();
      ++imported_.nodes;
      all += operations;
      if (times.contains(label)) return;
      without += operations;
      imported_.untimed.push_back({label, operations});
    });
    for (UntimedNode& node : imported_.untimed) node.share = all > 0 ? node.share / all : 0;
    std::ranges::stable_sort(imported_.untimed, std::ranges::greater(), &UntimedNode::share);
    if (all <= 0 || without / all <= options_.most_unmatched) return ok_status();
    return invalid_input(fmt::format(
        "{} of the network's {} computations have no time in the profile, and {:.1f} % of its operations: first '{}'; "
        "at most {:.3g} % may be missing (--max-unmatched)",
        imported_.untimed.size(), imported_.nodes, 100 * without / all, imported_.untimed[0].label,
        100 * options_.most_unmatched));
  }

  Error too_much_unmatched() const {
    const Matched& matched = imported_.matched;
    std::string message = fmt::format("{:.1f} % of the profile's time belongs to no node of the network",
                                      100 * (matched.not_matched + imported_.without_computation));
    if (!matched.events.empty()) {
      const UnmatchedEvent& first = matched.events[0];
      message += fmt::format(": {} kind{} of event, the longest '{}' ({}, {:.1f} %)", matched.events.size(),
                             matched.events.size() == 1 ? "" : "s", first.name, first.op, 100 * first.share);
    }
    return invalid_input(
        fmt::format("{}; at most {:.3g} % may (--max-unmatched)", message, 100 * options_.most_unmatched));
  }

  // The times of a size that was not profiled come from the nearest one, times a factor for each computation.
  Result<ImportedSize> choose_sources(int64_t samples) const {
    const auto above = profiled_.lower_bound(samples);
    if (above != profiled_.end() && above->first == samples) return ImportedSize{samples, {samples}};
    if (above != profiled_.end() && above != profiled_.begin())
      return ImportedSize{samples, {std::prev(above)->first, above->first}};
    const int64_t nearest = above == profiled_.end() ? profiled_.rbegin()->first : profiled_.begin()->first;
    if (options_.scale) return ImportedSize{samples, {nearest}};
    std::string batches;
    for (const auto& [batch, times] : profiled_) batches += fmt::format("{}{}", batches.empty() ? "" : ", ", batch);
    return invalid_input(fmt::format(
        "the scenario has micro-batches of {} sample{}, and the profile is of batch {}: profile that batch too, leave "
        "the count out of micro_batches, or assume with --scale that times are in proportion to samples",
        samples, samples == 1 ? "" : "s", batches));
  }

  TimesByLabel times_at(const ImportedSize& size) const {
    TimesByLabel times = profiled_.at(size.from[0]);
    if (size.from.size() == 1) {
      const double factor = static_cast<double>(size.samples) / static_cast<double>(size.from[0]);
      for (auto& [label, one] : times) scale(one, factor);
      return times;
    }
    const TimesByLabel& above = profiled_.at(size.from[1]);
    const double part =
        static_cast<double>(size.samples - size.from[0]) / static_cast<double>(size.from[1] - size.from[0]);
    for (auto& [label, one] : times) {
      const auto high = above.find(label);
      const double low = median_of(one);
      if (high != above.end() && low > 0) scale(one, 1 + part * (median_of(high->second) / low - 1));
    }
    return times;
  }

  Status add_size(int64_t samples) {
    ASSIGN_OR_RETURN(const ImportedSize size, choose_sources(samples));
    ASSIGN_OR_RETURN(SizedNetwork* const at, network(samples));
    add_places(*at, times_at(size));
    imported_.sizes.push_back(size);
    return ok_status();
  }

  void add_places(const SizedNetwork& at, const TimesByLabel& times) {
    for_each_computation(at.program, [&](const std::string& label, std::string key, const ComputeDesc&) {
      if (const auto known = times.find(label); known != times.end())
        places_[std::move(key)].timed.push_back(known->second);
      else if (at.labels.contains(label))
        ++places_[std::move(key)].untimed;
      else
        moves_.insert(std::move(key));
    });
  }

  // A computation that the network has in several places: its mean is that of their medians, so that all of them
  // together take what they took.
  MeasuredCost cost_of_places(const Places& places) const {
    if (places.timed.empty()) return nothing();
    Times all;
    double sum = 0;
    for (const Times& place : places.timed) {
      all.insert(all.end(), place.begin(), place.end());
      sum += median_of(place);
    }
    MeasuredCost cost = cost_of_samples(std::move(all));
    cost.mean = seconds(sum / static_cast<double>(places.timed.size() + places.untimed));
    return cost;
  }

  MeasuredCost nothing() const {
    return {seconds(0), seconds(0), static_cast<int>(imported_.matched.sizes[0].run_s.size())};
  }

  // Changes of layout that only nlsplit has cost nothing; and the time between operators is shared by all computations.
  Status add_moves() {
    Profile& profile = imported_.profile;
    for (const std::string& key : moves_) imported_.moves += profile.kernels.emplace(key, nothing()).second ? 1 : 0;
    const SizeTimes& smallest = imported_.matched.sizes[0];
    double computations = 0;
    for_each_computation(networks_.at(smallest.batch).program,
                         [&](const std::string&, const std::string&, const ComputeDesc&) { ++computations; });
    Times gaps = smallest.between_s;
    scale(gaps, 1 / std::max(1.0, computations));
    profile.dispatch = cost_of_samples(std::move(gaps));
    return ok_status();
  }

  double predicted(const Program& program) const {
    const Profile& profile = imported_.profile;
    double sum = 0;
    for_each_computation(program, [&](const std::string&, const std::string& key, const ComputeDesc&) {
      const auto known = profile.kernels.find(key);
      if (known != profile.kernels.end()) sum += usual(known->second).value();
      sum += profile.dispatch.median.value();
    });
    return sum;
  }

  const Loaded& loaded_;
  const ProfileImport& options_;
  const Device* device_ = nullptr;
  const Graph* original_ = nullptr;
  ImportedCosts imported_;
  std::map<int64_t, SizedNetwork> networks_;  // by samples
  std::map<int64_t, TimesByLabel> profiled_;  // by batch
  std::map<std::string, Places> places_;      // by signature
  std::set<std::string> moves_;               // signatures
};

}  // namespace

Result<ImportedCosts> import_costs(const Loaded& loaded, const std::vector<OperatorTrace>& traces,
                                   const ProfileImport& options) {
  return Importer(loaded, options).run(traces);
}

}  // namespace nlsplit::inline planning
