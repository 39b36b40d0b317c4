// CostTable: how long each computation takes on each device. Measured, or a roofline where the user asked for one;
// never guessed.
//
//   roofline   max(flops / peak, bytes / memory bandwidth)      Williams, Waterman, Patterson, CACM 52(4), 2009
//   profile    the median measured by `nlbench profile` for exactly this signature (kernels/catalogue.h)
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cost/cluster.h"
#include "kernels/catalogue.h"

namespace nlsplit {

struct Roofline {
  FlopsPerSecond compute;
  BytesPerSecond memory;
  friend bool operator==(const Roofline&, const Roofline&) = default;
};

struct MeasuredCost {
  Seconds median;
  Seconds spread;  // half the distance between the quartiles
  int repeats = 0;
  Seconds beside{};  // median with other devices computing (Profile::beside of them); 0: not measured
};

// One machine's measurements: what `nlbench profile` writes and scenarios name.
struct Profile {
  std::string file;                             // where it was read from, for messages
  std::string model;                            // the graph's name it was made for
  std::string machine;                          // CPU model, cores, memory
  int beside = 0;                               // copies of the network that ran meanwhile, for MeasuredCost::beside
  std::map<std::string, MeasuredCost> kernels;  // by profile_key
  std::map<std::string, std::string> choices;   // the kernel that was fastest, its full id, by choice_key
};

// The signature, and how many cores shared the computation unless it was one.
std::string profile_key(const ComputeDesc& desc, int cores);

// JSON {"format": "nlsplit-profile", "version": 1, "model": …, "machine": …, "kernels": [{"signature", "median_s",
// "spread_s", "repeats", "beside_s"}], "choices": [{"computation", "kernel"}]}. Errors: not JSON, another format or version,
// missing or negative figures, duplicate signatures or computations, a choice of no such kernel; each names the file
// and entry.
Result<Profile> read_profile(const std::string& path);
Status write_profile(const std::string& path, const Profile& profile);

// A device nobody gave costs for: a bare model, which is run or profiled but cannot be planned for.
struct NoCosts {
  friend bool operator==(const NoCosts&, const NoCosts&) = default;
};

using CostSource = std::variant<Roofline, Profile, NoCosts>;

// The costs of a device so many times as slow.
CostSource slowed_down(CostSource source, double slowdown);

// Takes what was measured to be fastest: by the first of the profiles that tells, so that all devices of a level agree.
KernelPreference fastest_measured(std::span<const CostSource> sources);

// What the advice of errors names.
struct CostNames {
  std::string scenario;              // file, for the command that measures
  std::string model;                 // the graph's name; a profile of another model is then told apart
  std::vector<std::string> devices;  // of the cluster, in its order
  std::vector<int> cores = {};       // of each; none given: one
};

struct Cost {
  Seconds time;
  bool measured = false;
  // More for each other device of the same machine that computes meanwhile. 0: none, or not measured.
  Seconds company{};
};

class CostTable {
 public:
  // One source for each device of the cluster, in its order.
  CostTable(std::vector<CostSource> sources, CostNames names);
  CostTable(std::vector<CostSource> sources, std::string scenario);  // devices then go by their number in messages

  // Error: no measurement for this signature on this device; it names the layer (if given), the signature, the device
  // and the nlbench command that makes one.
  Result<Cost> cost(DeviceId device, const ComputeDesc& desc, std::string_view layer = {}) const;
  KernelPreference preference() const { return fastest_measured(sources_); }
  const CostSource& source(DeviceId device) const { return sources_[device.index()]; }

 private:
  std::vector<CostSource> sources_;
  CostNames names_;
};

}  // namespace nlsplit
