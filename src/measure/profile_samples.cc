#include "measure/profile_samples.h"

#include <algorithm>
#include <cmath>

#include "base/calibration.h"
#include "base/check.h"
#include "cost/samples.h"
#include "program/data_movement.h"

namespace nlsplit::inline measure {
namespace {

// The largest values of each scalar that a computation reads.
std::vector<std::vector<int64_t>> largest_scalars(const ComputeDesc& desc) {
  const Types inputs = std::span(desc.inputs).first(desc.own_inputs());
  std::vector<std::vector<int64_t>> largest(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (const auto value = info(desc.op).scalars->largest(inputs, desc.attrs, i))
      largest[i].assign(static_cast<size_t>(element_count(inputs[i].shape)), *value);
  }
  return largest;
}

// Movements too. scalars: of that execution; none: the largest.
Measurable measurable_of(const DeviceProgram& device, ComputeDesc desc, bool computes, ScalarValues scalars) {
  const auto moved = [&](ScalarValues values) {
    const Work work = work_of(desc, values);
    return work.bytes_read + work.bytes_written;
  };
  std::optional<Bytes> part;
  if (!scalars.empty() && moved(scalars) != moved(largest_scalars(desc))) part = moved(scalars);
  std::string key = profile_key(desc, device.cores, part);
  return {std::move(key), std::move(desc), computes, part.has_value()};
}

// A kernel that seldom pays must be so much faster to be chosen: measurements of equals differ by less.
constexpr double clearly = 0.97;

}  // namespace

bool settled(const MeasuredCost& cost) {
  return cost.repeats >= least_repeats && uncertainty(cost) <= settled_uncertainty;
}

void keep_surer(MeasuredCost& known, const MeasuredCost& cost) {
  if (known.repeats != 0 && uncertainty(cost) > uncertainty(known)) return;
  const Seconds beside = known.beside;
  known = cost;
  known.beside = beside;
}

MeasuredCost pooled(const MeasuredCost& one, const MeasuredCost& other) {
  const double all = one.repeats + other.repeats;
  const auto mean = [&](Seconds a, Seconds b) { return (a * one.repeats + b * other.repeats) / all; };
  MeasuredCost both = one;
  both.median = mean(one.median, other.median);
  both.spread = mean(one.spread, other.spread);
  both.mean = mean(usual(one), usual(other));
  both.repeats = one.repeats + other.repeats;
  return both;
}

bool Samples::enough(size_t measurable) const { return samples_[measurable].size() >= least_repeats; }

bool Samples::undisturbed(size_t execution) const {
  return !best_->slow(calibrations_[execution]) &&
         (execution + 1 == calibrations_.size() || !best_->slow(calibrations_[execution + 1]));
}

std::vector<double> Samples::clean(size_t measurable) const {
  std::vector<double> clean;
  for (const Sample& sample : samples_[measurable]) {
    if (undisturbed(sample.execution)) clean.push_back(sample.seconds);
  }
  return clean;
}

bool Samples::settled_here(size_t measurable) const {
  std::vector<double> seconds = clean(measurable);
  return seconds.size() >= least_repeats && settled(cost_of_samples(std::move(seconds)));
}

MeasuredCost Samples::cost(size_t measurable) const {
  std::vector<double> seconds = clean(measurable);
  if (seconds.size() >= least_repeats) return cost_of_samples(std::move(seconds));
  seconds.clear();
  for (const Sample& sample : samples_[measurable]) seconds.push_back(sample.seconds);
  return cost_of_samples(std::move(seconds));
}

size_t Samples::disturbed() const {
  size_t count = 0;
  for (size_t e = 0; e < calibrations_.size(); ++e) count += undisturbed(e) ? 0 : 1;
  return count;
}

Samples::Samples(const Program& program, const std::vector<ScalarTable>& fills, std::set<std::string>& taken,
                 BestCalibration& best)
    : program_(program), best_(&best) {
  CHECK(program.devices.size() == 1, "the unsplit network has one device");
  auto deps = dependencies(program);
  CHECK(deps.ok(), "one device exchanges no messages");
  deps_ = std::move(*deps);
  const DeviceProgram& device = program.devices[0];
  std::map<std::string, int> own;
  for (const ScalarTable& scalars : fills) {
    std::vector<int>& index = index_.emplace_back(deps_.instances.size(), -1);
    for (uint32_t i = 0; i < deps_.instances.size(); ++i) {
      const Instr& instr = instr_of(program, deps_.instances[i]);
      if (is_transfer(instr.opcode)) continue;
      const bool computes = instr.opcode == Opcode::compute;
      Measurable what = measurable_of(
          device, computes ? program.descs[static_cast<size_t>(instr.desc)] : movement_desc(device, instr), computes,
          computes ? scalars.of(i) : ScalarValues());
      const auto known = own.find(what.key);
      if (known != own.end()) {
        index[i] = known->second;
      } else if (taken.insert(what.key).second) {
        index[i] = static_cast<int>(measurables_.size());
        own.emplace(what.key, index[i]);
        measurables_.push_back(std::move(what));
      }
    }
  }
  samples_.resize(measurables_.size());
}

void Samples::add(const std::vector<Interval>& times, double calibration_s, size_t fill) {
  const size_t execution = calibrations_.size();
  calibrations_.push_back(calibration_s);
  best_->add(calibration_s);
  const Interval* before = nullptr;
  for (size_t i = 0; i < times.size(); ++i) {
    const Instance& at = deps_.instances[i];
    if (is_transfer(instr_of(program_, at).opcode)) continue;
    const int index = index_[fill][i];
    if (index >= 0) samples_[static_cast<size_t>(index)].push_back({times[i].finish - times[i].start, execution});
    if (before != nullptr) gaps_.push_back(times[i].start - before->finish);
    before = &times[i];
  }
}

bool Samples::all_settled(const Profile& profile) const {
  for (size_t i = 0; i < measurables_.size(); ++i) {
    if (settled_here(i)) continue;
    const auto known = profile.kernels.find(measurables_[i].key);
    if (known == profile.kernels.end() || !settled(known->second)) return false;
  }
  return true;
}

double Samples::slowness() const {
  double took = 0, expected = 0;
  for (size_t i = 0; i < measurables_.size(); ++i) {
    if (!enough(i)) continue;
    const double median_s = cost(i).median.value();
    for (const Sample& sample : samples_[i]) {
      if (!std::isfinite(calibrations_[sample.execution])) continue;
      took += sample.seconds;
      expected += median_s;
    }
  }
  return expected > 0 ? took / expected : 1;
}

namespace {

const MeasuredCost* find_in(const Profile* profile, const std::string& key) {
  if (profile == nullptr) return nullptr;
  const auto found = profile->kernels.find(key);
  return found == profile->kernels.end() ? nullptr : &found->second;
}

}  // namespace

void Samples::write_to(Profile& profile, const Profile* before) const {
  const double slower = slowness();
  for (size_t i = 0; i < measurables_.size(); ++i) {
    if (!enough(i)) continue;
    MeasuredCost measured = cost(i);
    measured.mean = measured.median * slower;
    const std::string& key = measurables_[i].key;
    if (const MeasuredCost* known = find_in(before, key)) {
      const Seconds beside = profile.kernels[key].beside;
      profile.kernels[key] = pooled(*known, measured);
      profile.kernels[key].beside = beside;
    } else {
      keep_surer(profile.kernels[key], measured);
    }
  }
}

bool Samples::beside_settled(const Profile& profile) const {
  for (size_t i = 0; i < measurables_.size(); ++i) {
    if (settled_here(i)) continue;
    const auto known = profile.kernels.find(measurables_[i].key);
    const bool before = known != profile.kernels.end() && known->second.beside.value() > 0 && !enough(i);
    if (!before) return false;
  }
  return true;
}

void Samples::write_beside_to(Profile& profile, const Profile* before) const {
  const double slower = slowness();
  for (size_t i = 0; i < measurables_.size(); ++i) {
    const auto known = profile.kernels.find(measurables_[i].key);
    if (known == profile.kernels.end() || !enough(i)) continue;
    const MeasuredCost now = cost(i);
    known->second.beside = now.median * slower;
    const MeasuredCost* earlier = find_in(before, measurables_[i].key);
    if (earlier != nullptr && earlier->beside.value() > 0) {  // as many samples alone as beside copies
      const double share = static_cast<double>(now.repeats) / (now.repeats + earlier->repeats);
      known->second.beside = known->second.beside * share + earlier->beside * (1 - share);
    }
  }
}

std::map<std::string, KernelId> fastest_kernels(const std::vector<Measurable>& usual_first, const Profile& profile) {
  struct Alternative {
    KernelId kernel;
    std::map<int64_t, double> by_batch;  // median seconds
  };
  std::map<std::string, std::vector<Alternative>> computations;  // by choice_key
  for (const auto& [key, desc, computes, in_part] : usual_first) {
    const auto known = profile.kernels.find(key);
    if (!computes || in_part || known == profile.kernels.end() || desc.inputs[0].shape.empty()) continue;
    std::vector<Alternative>& kernels = computations[choice_key(desc, desc.kernel.level)];
    auto kernel = std::ranges::find(kernels, desc.kernel, &Alternative::kernel);
    if (kernel == kernels.end()) kernel = kernels.insert(kernels.end(), {desc.kernel, {}});
    kernel->by_batch[desc.inputs[0].shape[0]] = known->second.median.value();
  }
  std::map<std::string, KernelId> choices;
  for (const auto& [computation, kernels] : computations) {
    if (kernels.size() < 2) continue;
    const auto total = [](const Alternative& kernel) {
      double sum = 0;
      for (const auto& [batch, cost] : kernel.by_batch) sum += cost;
      return sum;
    };
    const Alternative* best = kernels.data();
    for (const Alternative& kernel : kernels) {
      if (kernel.by_batch.size() == best->by_batch.size() && total(kernel) < clearly * total(*best)) best = &kernel;
    }
    choices.emplace(computation, best->kernel);
  }
  return choices;
}

}  // namespace nlsplit::inline measure
