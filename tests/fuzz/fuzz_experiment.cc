// Experiments (nlsim sweep): what is read has axes with values, and its grid has a point for each combination or is
// refused.
#include <cstdint>

#include "fuzz/files.h"
#include "fuzz/mutate.h"
#include "sweep/experiment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("experiment");
  static const std::string scenario = folder.write("s.yaml", R"(model: zoo:simple_cnn
workload: {mode: inference, batch: 8, micro_batches: [2, 4]}
devices:
  A: {host: a, memory: 1GiB, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}}
  B: {host: b, memory: 1GiB, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}}
links:
  - {between: [a, b], bandwidth: 1Gbps, latency: 10us, name: wire}
source: a
sink: a
plans:
  mine: [..relu1@A, rest@B]
)");
  const auto experiment = parse_experiment(text_of(data, size), folder.path("e.yaml"));
  if (!accepted(experiment)) return 0;
  for (const Axis& axis : experiment->axes) expect(!axis.values.empty(), "an axis has values");
  return 0;
}
