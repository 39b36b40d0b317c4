// A scenario without a fault, which tests of errors spoil.
#pragma once

#include <string_view>

namespace nlsplit {

inline constexpr std::string_view good = R"(model: zoo:simple_cnn
workload: {mode: inference, batch: 16, micro_batches: [1, 4]}
devices:
  A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}
  B: {host: b, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}
links:
  - {between: [a, b], bandwidth: 1Gbps, latency: 50us}
source: a
sink: b
plans:
  mine: [..relu1@A, rest@B]
)";

}  // namespace nlsplit
