// Plan files: what is read is written and read again alike, and its stages mean something on a network or are refused.
#include <cstdint>

#include "fuzz/files.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "partition/plan.h"
#include "scenario/scenario.h"

namespace nlsplit::fuzz {
namespace {

Cluster four_devices() {
  Cluster cluster;
  for (const char* name : {"A", "B", "C", "D"}) {
    Device device;
    device.name = name;
    device.host = HostId(cluster.hosts.size());
    cluster.hosts.push_back({name, false});
    cluster.devices.push_back(device);
  }
  return cluster;
}

}  // namespace
}  // namespace nlsplit::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("plan_file");
  static const Graph& graph = *new Graph(with_batch(zoo_model("simple_cnn")->graph, 4).value());
  static const Cluster& cluster = *new Cluster(four_devices());
  const auto plan = read_plan_file(folder.write("plan.yaml", text_of(data, size)));
  if (!accepted(plan)) return 0;
  const auto again = read_plan_file(folder.write("again.yaml", plan_file_text(*plan)));
  expect(again.ok(), "what is written is read: " + (again.ok() ? "" : again.error().to_string()));
  expect(
      again->stages == plan->stages && again->micro_batches == plan->micro_batches && again->schedule == plan->schedule,
      "and says the same");
  std::vector<PlanNote> notes;
  auto stages = parse_plan_stages(plan->stages, graph, cluster, &notes);
  if (!accepted(stages)) return 0;
  Plan whole;
  whole.stages = std::move(stages->stages);
  whole.prefill = std::move(stages->prefill);
  if (!accepted(check_plan(whole, graph, cluster, 4))) return 0;
  const auto parts = parse_plan_stages(stage_parts(whole, graph, cluster), graph, cluster, &notes);
  expect(parts.ok() && parts->stages == whole.stages && parts->prefill == whole.prefill,
         "stages are written as they are read");
  return 0;
}
