#include "planning/messages_program.h"

#include "base/limits.h"
#include "compile/compile.h"
#include "partition/cuts.h"
#include "program/verify.h"

namespace nlsplit::inline planning {

Result<Program> messages_program(const Scenario& scenario, const KernelGraph& kernels, int micro_batches,
                                 const Device& like, bool row_major) {
  Cluster cluster;
  cluster.messages = scenario.cluster.messages;
  cluster.hosts.push_back({scenario.cluster.hosts[like.host.index()].name, false});
  cluster.devices.push_back(like);
  cluster.devices[0].host = HostId(0);
  cluster.devices[0].memory = bytes(unlimited_memory);
  Plan plan;
  plan.micro_batches = micro_batches;
  if (kernels.training) plan.schedule = "gpipe";  // one device may have all stages
  const Graph& graph = kernels.graph;
  size_t begin = kernels.input_parts;
  for (const size_t end : find_cuts(graph)) {
    if (end > begin) plan.stages.push_back({begin, end, {DeviceId(0)}});
    begin = std::max(begin, end);
  }
  CompileOptions options;
  options.row_major_messages = row_major;
  options.convert_always = true;
  ASSIGN_OR_RETURN(Compiled compiled, compile(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, options));
  Program program = std::move(compiled.program);
  RETURN_IF_ERROR(verify(program));
  return program;
}

}  // namespace nlsplit::inline planning
