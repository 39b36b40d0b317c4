// CostSource: how long computations take on one device. Scenarios name it in `costs:` (scenario/parse_costs.cc has one
// row for each kind).
//
//   CostSourcePtr costs = roofline(flops_per_second(60e9), bytes_per_second(10e9));
//   costs = costs->slowed(2);
//   ASSIGN_OR_RETURN(const Cost cost, costs->cost({desc, DeviceId(0), names, "conv1"}));
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost/cluster.h"
#include "cost/profile.h"
#include "kernels/catalogue.h"

namespace nlsplit::inline cost {

// Predicted: from measurements of other computations (or of other machines). Formula: from no measurement of kernels,
// as a roofline's.
enum class CostOrigin : uint8_t { measured, predicted, formula };

struct Cost {
  Seconds time;
  CostOrigin origin = CostOrigin::formula;
  // Relative to the time. Measured: half the distance between the quartiles. Predicted: what 9 of 10 such predictions
  // stay within. A formula has none to offer.
  double spread = 0;
  // More for each other device of the same machine that computes meanwhile. 0: none, or not measured.
  Seconds company{};
};

// What the advice of errors names.
struct CostNames {
  std::string scenario;              // file, for the command that measures
  std::string model;                 // the graph's name; a profile of another model is then told apart
  std::vector<std::string> devices;  // of the cluster, in its order; none given: they go by their number
  std::vector<int> cores = {};       // of each; none given: one
};

struct CostRequest {
  const ComputeDesc& desc;
  DeviceId device;
  const CostNames& names;
  std::string_view layer = {};  // may be empty
  ScalarValues scalars = {};    // what it reads as lengths, offsets and counts; none: the largest

  int cores() const;
  std::string device_name() const;  // "'A'"; "0" without names
  std::string what() const;         // "layer 'conv1'"; "a layer"
};

class CostSource;
using CostSourcePtr = std::shared_ptr<const CostSource>;

class CostSource {
 public:
  virtual ~CostSource() = default;

  // Error: this source does not know; it names the layer, the signature, the device and what to do about it.
  virtual Result<Cost> cost(const CostRequest& request) const = 0;

  // Of a device so many times as slow.
  virtual CostSourcePtr slowed(double slowdown) const = 0;
  // The same with emulated compute: it takes its time whatever else its processor does, and whoever computes beside it.
  virtual CostSourcePtr by_clock(double slowdown) const { return slowed(slowdown); }

  // Whether every computation costs the same by both, for certain.
  virtual bool same_as(const CostSource& other) const = 0;

  // What was measured, for those who look beyond the times (the fastest kernels, copies, the machine); none: nullptr.
  virtual const Profile* profile() const { return nullptr; }
};

// max(flops / peak, bytes / memory bandwidth): S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
CostSourcePtr roofline(FlopsPerSecond compute, BytesPerSecond memory);

// The mean measured by `nlbench profile` for exactly this signature (kernels/catalogue.h), and what it takes to get
// from one computation to the next. With Profile::predict what measured neighbours say of a signature that was not
// measured (cost/kernel_fit.h).
CostSourcePtr measured(Profile profile);

// A device nobody gave costs for: a bare model, which is run or profiled but cannot be planned for.
CostSourcePtr no_costs();

// Takes what was measured to be fastest: by the first of the profiles that tells, so that all devices of a level agree.
KernelPreference fastest_measured(std::span<const CostSourcePtr> sources);

}  // namespace nlsplit::inline cost
