#include "ranking/traffic.h"

#include <algorithm>
#include <map>

#include "serving/batch.h"

namespace nlsplit::inline ranking {
namespace {

using CarriedByLane = std::map<size_t, Carried>;  // by lane_of

// Of one execution, and of the choice before it.
struct ExecutionTraffic {
  CarriedByLane execution, choice;
};

Result<ExecutionTraffic> traffic_of(const Cluster& cluster, const Session& session, int program,
                                    std::map<size_t, std::string>& names) {
  const Choice once[] = {{program, 1}};
  ASSIGN_OR_RETURN(const Sequence sequence, in_sequence(session, once, Choosing::messages));
  ExecutionTraffic traffic;
  for (const Instance& instance : sequence.dependencies.instances) {
    const Instr& instr = instr_of(sequence.program, instance);
    if (instr.opcode != Opcode::send) continue;
    const DeviceProgram& from = sequence.program.devices[static_cast<size_t>(instance.device)];
    const DeviceProgram& to = sequence.program.devices[static_cast<size_t>(instr.peer)];
    if (from.host == to.host) continue;
    ASSIGN_OR_RETURN(const Route route, find_path(cluster, cluster.find_host(from.host), cluster.find_host(to.host)));
    const int execution =
        sequence.execution_of[static_cast<size_t>(instance.device)][static_cast<size_t>(instance.slot)];
    CarriedByLane& lanes = execution < 0 ? traffic.choice : traffic.execution;
    for (const Hop& hop : route.hops) {
      const size_t lane = lane_of(cluster, hop);
      names.emplace(lane, name_of(cluster, hop));
      lanes[lane].bytes += static_cast<double>(bytes_of(from, instr.reads[0]).value());
      lanes[lane].messages += 1;
    }
  }
  return traffic;
}

Carried sum_at(const ExecutionTraffic& traffic, size_t lane, double executions, double choices) {
  Carried sum;
  const auto add = [&](const CarriedByLane& lanes, double times) {
    const auto at = lanes.find(lane);
    if (at == lanes.end()) return;
    sum.bytes += times * at->second.bytes;
    sum.messages += times * at->second.messages;
  };
  add(traffic.execution, executions);
  add(traffic.choice, choices);
  return sum;
}

}  // namespace

Result<Traffic> generation_traffic(const Scenario& scenario, const Session& session) {
  const Generation& of = scenario.generation.value();
  const bool in_chunks = session.programs.size() > 1;
  std::map<size_t, std::string> names;
  ASSIGN_OR_RETURN(const ExecutionTraffic prompts, traffic_of(scenario.cluster, session, 0, names));
  ASSIGN_OR_RETURN(const ExecutionTraffic tokens,
                   traffic_of(scenario.cluster, session, static_cast<int>(session.programs.size()) - 1, names));
  // Chunks are chosen several at once, and so are tokens of several micro-batches; the rest one by one (Batch::row).
  const int64_t most = std::min<int64_t>(executions_at_once, std::max<int64_t>(of.tokens - 1, 1));
  const double at_once = session.programs[0].micro_batches > 1 ? static_cast<double>(most) : 1;
  Traffic traffic;
  traffic.chunks = in_chunks ? (of.prompt + of.chunk - 1) / of.chunk : of.prompt;
  if (of.page > 0) traffic.chunks *= scenario.batch;  // prompts come one after the other
  const auto chunks = static_cast<double>(traffic.chunks);
  const int64_t rows = (traffic.chunks + executions_at_once - 1) / executions_at_once;
  for (const auto& [lane, name] : names)
    traffic.links.push_back({name, sum_at(tokens, lane, 1, 1 / at_once),
                             sum_at(prompts, lane, chunks, in_chunks ? static_cast<double>(rows) : chunks)});
  return traffic;
}

}  // namespace nlsplit::inline ranking
