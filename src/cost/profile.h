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
  Seconds median;  // over undisturbed executions, if there are enough of them
  Seconds spread;  // half the distance between the quartiles
  int repeats = 0;
  // The mean while Profile::beside other devices compute; 0: not measured.
  Seconds beside{};
  // Median × (measured time ÷ sum of kernel medians), over all executions in which the kernel was measured. So it
  // includes disturbances by other programs. 0: no mean; the median stands for it.
  Seconds mean{};
};
Seconds usual(const MeasuredCost& cost);  // the mean, else the median
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

// The signature; the bytes that the computation moved, if that depends on scalars (program/scalars.h) that were not at
// their maximum; the number of cores, if several shared the computation.
std::string profile_key(const ComputeDesc& desc, int cores, std::optional<Bytes> moved = {});
struct ProfileKey {
  ComputeDesc desc;
  int cores = 1;
  std::optional<Bytes> moved = {};
};
// The measured cost of a computation that moves this many bytes: linear between two measurements of it, the nearest
// measurement outside of them. None: it was not measured.
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

// Several files for one device, of one machine and setting. If two have the same signature, or a choice for the same
// computation, the earlier file counts. Errors: different machines or numbers of copies beside. Expects at least one.
Result<Profile> join(std::vector<Profile> profiles);

// Sum of the means ÷ sum of the medians: how much disturbances lengthened the executions. 0: it has no means.
double slowness_of(const Profile& profile);

// How far two profiles of one machine differ in the kernels that both have.
struct Overlap {
  size_t kernels = 0;
  double median_difference = 0, largest_difference = 0;  // relative to the first
};
Overlap overlap_of(const Profile& first, const Profile& second);

}  // namespace nlsplit::inline cost
