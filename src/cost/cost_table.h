// CostTable: how long each computation takes on each device. Measured; predicted from measurements where the user
// allows it; or a roofline where the user asked for one. Never guessed.
//
//   roofline   max(flops / peak, bytes / memory bandwidth)      Williams, Waterman, Patterson, CACM 52(4), 2009
//   profile    the mean measured by `nlbench profile` for exactly this signature (kernels/catalogue.h), and what it
//              takes to get from one computation to the next
//   predicted  what measured neighbours say of a signature that was not measured (cost/kernel_fit.h)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cost/cluster.h"
#include "cost/kernel_fit.h"
#include "cost/profile.h"
#include "kernels/catalogue.h"

namespace nlsplit {

struct Roofline {
  FlopsPerSecond compute;
  BytesPerSecond memory;
  friend bool operator==(const Roofline&, const Roofline&) = default;
};

// A device nobody gave costs for: a bare model, which is run or profiled but cannot be planned for.
struct NoCosts {
  friend bool operator==(const NoCosts&, const NoCosts&) = default;
};

using CostSource = std::variant<Roofline, Profile, NoCosts>;

// The costs of a device so many times as slow.
CostSource slowed_down(CostSource source, double slowdown);
// The same with a device clock: it keeps time whatever else its processor does, and whoever computes beside it.
CostSource by_clock(CostSource source, double slowdown);

// Takes what was measured to be fastest: by the first of the profiles that tells, so that all devices of a level agree.
KernelPreference fastest_measured(std::span<const CostSource> sources);

// What the advice of errors names.
struct CostNames {
  std::string scenario;              // file, for the command that measures
  std::string model;                 // the graph's name; a profile of another model is then told apart
  std::vector<std::string> devices;  // of the cluster, in its order
  std::vector<int> cores = {};       // of each; none given: one
};

enum class CostOrigin : uint8_t { measured, predicted, roofline };

struct Cost {
  Seconds time;
  CostOrigin origin = CostOrigin::roofline;
  // Relative to the time. Measured: half the distance between the quartiles. Predicted: what 9 of 10 such predictions
  // stay within. A roofline has none to offer.
  double spread = 0;
  // More for each other device of the same machine that computes meanwhile. 0: none, or not measured.
  Seconds company{};
};

class CostTable {
 public:
  // One source for each device of the cluster, in its order.
  CostTable(std::vector<CostSource> sources, CostNames names);
  CostTable(std::vector<CostSource> sources, std::string scenario);  // devices then go by their number in messages

  // Error: no measurement for this signature on this device, and no prediction (not asked for, or too few neighbours);
  // it names the layer (if given), the signature, the device and the nlbench command that makes one.
  Result<Cost> cost(DeviceId device, const ComputeDesc& desc, std::string_view layer = {}) const;
  KernelPreference preference() const { return fastest_measured(sources_); }
  const CostSource& source(DeviceId device) const { return sources_[device.index()]; }

 private:
  Error missing(DeviceId device, const ComputeDesc& desc, const std::string& key, std::string_view layer) const;

  std::vector<CostSource> sources_;
  std::vector<std::optional<KernelFit>> fits_;  // of the sources that may be predicted from
  CostNames names_;
};

}  // namespace nlsplit
