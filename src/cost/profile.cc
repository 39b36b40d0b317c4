#include "cost/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kernels/signature.h"
#include "kernels/without_kernel.h"

namespace nlsplit::inline cost {

namespace {

constexpr std::string_view on = " on ", cores_word = " cores", moving = " moving ", bytes_word = " B";

std::string cores_text(int cores) { return fmt::format("{}{}{}", on, cores, cores_word); }

// Takes " moving 4096 B" off the end of `text`. Error: it is no number.
Result<std::optional<Bytes>> take_moved(std::string_view& text) {
  const size_t at = text.rfind(moving);
  if (at == text.npos || !text.ends_with(bytes_word)) return std::optional<Bytes>();
  const std::string_view number = text.substr(at + moving.size(), text.size() - bytes_word.size() - at - moving.size());
  int64_t value = -1;
  const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (failure != std::errc() || end != number.data() + number.size() || value < 0)
    return invalid_input(fmt::format("'{}' is not a number of bytes", number));
  text = text.substr(0, at);
  return std::optional(bytes(value));
}

Bytes traffic(const Work& work) { return work.bytes_read + work.bytes_written; }

// On the straight line from a to b, `part` of the way.
MeasuredCost along(const MeasuredCost& a, const MeasuredCost& b, double part) {
  const auto between = [&](Seconds from, Seconds to) { return from * (1 - part) + to * part; };
  MeasuredCost cost;
  cost.median = between(a.median, b.median);
  cost.spread = between(a.spread, b.spread);
  cost.repeats = std::min(a.repeats, b.repeats);
  if (a.beside.value() > 0 && b.beside.value() > 0) cost.beside = between(a.beside, b.beside);
  cost.mean = between(usual(a), usual(b));
  return cost;
}

// A movement within a device has no kernel in the catalogue (program/data_movement.h); its types must be sound all the
// same.
Status check_computation(const ComputeDesc& desc) {
  if (has_no_kernel(desc)) return verify_without_kernel(desc);
  const bool moves = desc.op == Op::Identity || desc.op == Op::Sum;
  if (is_in_catalogue(desc.kernel.name) || !moves) return verify(desc);
  if (!desc.kernel.empty() && desc.attrs.empty() && desc.epilogue.empty() && !desc.inputs.empty() &&
      desc.outputs.size() == 1)
    return ok_status();
  return invalid_input("this is neither a kernel's computation nor a movement of data");
}

std::string setting_of(const Profile& profile) {
  if (profile.beside == 0) return "alone";
  return fmt::format("beside {}", profile.beside == 1 ? std::string("a copy of the network")
                                                      : fmt::format("{} copies of the network", profile.beside));
}

}  // namespace

Seconds usual(const MeasuredCost& cost) { return cost.mean.value() > 0 ? cost.mean : cost.median; }

double uncertainty(const MeasuredCost& cost) {
  if (cost.repeats < 1 || cost.median.value() <= 0) return 0;
  return cost.spread / cost.median / std::sqrt(static_cast<double>(cost.repeats));
}

std::string profile_key(const ComputeDesc& desc, int cores, std::optional<Bytes> moved) {
  std::string key = signature(desc);
  if (moved) key += fmt::format("{}{}{}", moving, moved->value(), bytes_word);
  return cores == 1 ? key : key + cores_text(cores);
}

std::optional<MeasuredCost> cost_in(const Profile& profile, const ComputeDesc& desc, int cores, Bytes moved) {
  std::map<int64_t, const MeasuredCost*> known;  // by the bytes that were moved
  if (const auto full = profile.kernels.find(profile_key(desc, cores)); full != profile.kernels.end())
    known[traffic(work_of(desc)).value()] = &full->second;
  const std::string prefix = signature(desc) + std::string(moving);
  const std::string suffix = fmt::format("{}{}", bytes_word, cores == 1 ? "" : cores_text(cores));
  for (auto at = profile.kernels.lower_bound(prefix); at != profile.kernels.end() && at->first.starts_with(prefix);
       ++at) {
    const char *const begin = at->first.data() + prefix.size(), *const last = at->first.data() + at->first.size();
    int64_t moves = -1;
    const auto [end, failure] = std::from_chars(begin, last, moves);
    if (failure == std::errc() && std::string_view(end, last) == suffix) known[moves] = &at->second;
  }
  if (known.empty()) return std::nullopt;
  const auto above = known.lower_bound(moved.value());
  if (above == known.end()) return *known.rbegin()->second;
  if (above == known.begin() || above->first == moved.value()) return *above->second;
  const auto below = std::prev(above);
  const auto part =
      static_cast<double>(moved.value() - below->first) / static_cast<double>(above->first - below->first);
  return along(*below->second, *above->second, part);
}

Result<ProfileKey> parse_profile_key(std::string_view key) {
  ProfileKey parsed;
  std::string_view text = key;
  if (const size_t at = text.rfind(on); at != text.npos && text.ends_with(cores_word)) {
    const std::string_view number = text.substr(at + on.size(), text.size() - cores_word.size() - at - on.size());
    const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), parsed.cores);
    if (failure != std::errc() || end != number.data() + number.size() || parsed.cores < 2) {
      Error error = invalid_input(fmt::format("'{}' is not a number of cores", number));
      error.fragment = key;
      return error;
    }
    text = text.substr(0, at);
  }
  ASSIGN_OR_RETURN(parsed.moved, take_moved(text));
  ASSIGN_OR_RETURN(parsed.desc, parse_signature(text));
  RETURN_IF_ERROR(check_computation(parsed.desc));
  if (parsed.moved && info(parsed.desc.op).scalars == nullptr)
    return invalid_input(fmt::format("{} always moves the same number of bytes", name_of(parsed.desc.op)));
  return parsed;
}

Result<Profile> join(std::vector<Profile> profiles) {
  CHECK(!profiles.empty(), "nothing to join");
  Profile all = std::move(profiles[0]);
  const std::string first = all.file;
  for (size_t i = 1; i < profiles.size(); ++i) {
    Profile& next = profiles[i];
    if (next.machine != all.machine) {
      return invalid_input(fmt::format(
          "{} was measured on {}, {} on {}: a device's costs come from one machine; other machines are other "
          "devices, with costs of their own",
          first, all.machine, next.file, next.machine));
    }
    if (next.beside != all.beside) {
      return invalid_input(fmt::format("{} was measured {}, {} {}: they do not mix", first, setting_of(all), next.file,
                                       setting_of(next)));
    }
    all.file += ", " + next.file;
    for (std::string& model : next.models) {
      if (std::ranges::find(all.models, model) == all.models.end()) all.models.push_back(std::move(model));
    }
    all.measured_at = std::min(all.measured_at, next.measured_at);
    if (all.calibration_s == 0 || (next.calibration_s > 0 && next.calibration_s < all.calibration_s))
      all.calibration_s = next.calibration_s;
    if (all.dispatch.repeats == 0) all.dispatch = next.dispatch;
    if (!all.copies) all.copies = std::move(next.copies);
    all.kernels.merge(next.kernels);  // what is there stays
    all.choices.merge(next.choices);
  }
  return all;
}

double slowness_of(const Profile& profile) {
  Seconds means = seconds(0), medians = seconds(0);
  for (const auto& [key, cost] : profile.kernels) {
    if (cost.mean.value() <= 0) continue;
    means += cost.mean;
    medians += cost.median;
  }
  return medians.value() > 0 ? means / medians : 0;
}

Overlap overlap_of(const Profile& first, const Profile& second) {
  std::vector<double> differences;
  for (const auto& [key, cost] : first.kernels) {
    const auto other = second.kernels.find(key);
    if (other == second.kernels.end() || cost.median.value() <= 0) continue;
    differences.push_back(std::abs(other->second.median / cost.median - 1));
  }
  if (differences.empty()) return {};
  std::ranges::sort(differences);
  return {differences.size(), differences[differences.size() / 2], differences.back()};
}

}  // namespace nlsplit::inline cost
