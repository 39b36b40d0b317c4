// Profile: what `nlbench profile` measured on one machine, and scenarios name.
//
//   ASSIGN_OR_RETURN(Profile profile, read_profile("profiles/desk.json"));
//   profile.kernels.at(profile_key(desc, 1)).median
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cost/copies.h"
#include "kernels/catalogue.h"

namespace nlsplit::inline cost {

struct MeasuredCost {
  Seconds median;  // of a processor at its best, if it was that often enough
  Seconds spread;  // half the distance between the quartiles
  int repeats = 0;
  // The mean with other devices computing (Profile::beside of them); 0: not measured.
  Seconds beside{};
  // On the average, of a processor that others share: the median, times by how much longer than all medians say the
  // executions it was measured in took. 0: the median.
  Seconds mean{};
};
Seconds usual(const MeasuredCost& cost);  // the mean, or what stands for it
// How well the median is known: its standard error, taken as spread / sqrt(repeats), relative to it.
double uncertainty(const MeasuredCost& cost);

struct Profile {
  std::string file;                 // where it was read from, for messages; several joined: "a.json, b.json"
  std::vector<std::string> models;  // the graphs' names, in the order they were measured
  std::string machine;              // CPU model, cores, memory
  int beside = 0;                   // copies of the network that ran meanwhile, for MeasuredCost::beside
  int64_t measured_at = 0;          // seconds since 1970, when it was last added to; the oldest of those joined
  double calibration_s = 0;         // what base/calibration.h says of its processor at its best; 0: unknown
  MeasuredCost dispatch;            // from the end of one computation to the start of the next; no repeats: unknown
  std::map<std::string, MeasuredCost> kernels;  // by profile_key
  std::map<std::string, KernelId> choices;      // the kernel that was fastest, by choice_key
  std::optional<HostCopies> copies = {};        // of a GPU's machine
  bool predict = false;                         // the scenario allows predictions of what was not measured
};

// The signature; how many bytes its work moved, where that depends on scalars (program/scalars.h) and they were not the
// largest; and how many cores shared the computation unless it was one.
std::string profile_key(const ComputeDesc& desc, int cores, std::optional<Bytes> moved = {});
struct ProfileKey {
  ComputeDesc desc;
  int cores = 1;
  std::optional<Bytes> moved = {};
};
// What a computation is measured to cost whose work moves so many bytes: between two measurements of it a straight
// line, outside of all the nearest. None: it was not measured.
std::optional<MeasuredCost> cost_in(const Profile& profile, const ComputeDesc& desc, int cores, Bytes moved);
// Error: no key, or a computation that this program's kernels cannot do.
Result<ProfileKey> parse_profile_key(std::string_view key);

// JSON {"format": "nlsplit-profile", "version": 2, "models": […], "machine": …, "beside": …, "measured_at_s": …,
// "calibration_s": …, "dispatch": {"median_s", "spread_s", "repeats"}, "kernels": [{"signature", "median_s",
// "spread_s", "repeats", "beside_s", "mean_s"}], "choices": [{"computation", "kernel"}], "copies": {"gpu", "pinned":
// {"in": {"latency_s", "bytes_per_s", "largest_error"}, "out": {…}, "both_bytes_per_s"}, "pageable": {…}}}.
// "calibration_s", "dispatch", "choices", "copies", "beside_s" and "mean_s" may be absent. Errors: not JSON, cut short,
// another format or version, missing or negative figures, duplicate signatures or computations, a choice of no such
// kernel, copies without bandwidth; each names the file and entry.
Result<Profile> read_profile(const std::string& path);
Status write_profile(const std::string& path, const Profile& profile);

// Several files for one device, of one machine and setting: where two hold the same signature, or choose for the same
// computation, the earlier one counts. Errors: another machine, another number of copies beside; at least one is given.
Result<Profile> join(std::vector<Profile> profiles);

// All means by all medians; 0: it has no means.
double slowness_of(const Profile& profile);

// What two profiles of one machine say of the same kernels.
struct Overlap {
  size_t kernels = 0;
  double median_difference = 0, largest_difference = 0;  // relative to the first
};
Overlap overlap_of(const Profile& first, const Profile& second);

}  // namespace nlsplit::inline cost
