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
  // Contention: additional time for each other device of the machine that computes meanwhile. 0: none, or not measured.
  Seconds company{};
};

// Names for error messages.
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
  // The same with emulated compute: a computation takes its cost, whatever other devices of the machine do.
  virtual CostSourcePtr by_clock(double slowdown) const { return slowed(slowdown); }

  // Whether every computation certainly costs the same by both.
  virtual bool same_as(const CostSource& other) const = 0;

  // What was measured, for those who look beyond the times (the fastest kernels, copies, the machine); none: nullptr.
  virtual const Profile* profile() const { return nullptr; }
};

// max(flops / peak, bytes / memory bandwidth): S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
CostSourcePtr roofline(FlopsPerSecond compute, BytesPerSecond memory);

// The mean that `nlbench profile` measured for exactly this signature (kernels/catalogue.h), plus `dispatch`, the time
// between two computations. With Profile::predict a signature that was not measured is predicted from similar ones
// (cost/kernel_fit.h).
CostSourcePtr measured(Profile profile);

// A device without costs: of a model without a scenario, which can be run or profiled but not planned.
CostSourcePtr no_costs();

// The kernels measured to be fastest. For each computation the first profile that has a choice decides for all devices.
KernelPreference fastest_measured(std::span<const CostSourcePtr> sources);

}  // namespace nlsplit::inline cost
