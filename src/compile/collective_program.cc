#include "compile/collective_program.h"

#include <fmt/format.h>

#include <numeric>

#include "compile/collectives.h"
#include "compile/lowering.h"
#include "program/append_buffer.h"

namespace nlsplit::inline compiler {
Program collective_program(Collective collective, std::span<const DeviceId> members, const Cluster& cluster,
                           bool native) {
  Program program;
  std::vector<HostId> hosts;
  for (const DeviceId id : members) {
    const Device& device = cluster.device(id);
    hosts.push_back(device.host);
    add_device(device, cluster, program);
  }
  program.name = fmt::format("{} {}", name_of(collective.kind), name_of(collective.algorithm));
  program.eager_limit = cluster.eager_limit;
  program.nic_window = cluster.nic_window;
  collective.group.resize(members.size());
  std::iota(collective.group.begin(), collective.group.end(), 0);
  const std::vector<Rounds> of_members = rounds_of_members(rounds_of(collective, hosts), members.size());
  const int64_t elements = value_elements(collective);
  for (size_t m = 0; m < members.size(); ++m) {
    DeviceProgram& out = program.devices[m];
    CollectivePlaces places;
    const BufferId value = append_buffer(out, "value_" + out.name, {DType::f32, {elements}}, BufferKind::state);
    places.value = places.result = {value, 0, elements};
    if (collective.kind == CollectiveKind::all_to_all) {
      const int64_t shares = collective.elements[m] * static_cast<int64_t>(members.size());
      places.result = {append_buffer(out, "result_" + out.name, {DType::f32, {shares}}, BufferKind::state), 0, shares};
    }
    const int member = static_cast<int>(m);
    if (const int64_t received = received_elements(of_members[m], member); received > 0)
      places.received = append_buffer(out, "received", {DType::f32, {received}}, BufferKind::comm);
    Segment& segment = out.segments.emplace_back();
    segment.name = "step0";
    segment.phase = Phase::step;
    for (const std::vector<Piece>& round : of_members[m]) {
      const RoundInstrs instrs = instructions_of(round, collective.group, member, places);
      segment.instrs.insert(segment.instrs.end(), instrs.begin.begin(), instrs.begin.end());
      segment.instrs.insert(segment.instrs.end(), instrs.finish.begin(), instrs.finish.end());
    }
    for (Instr& instr : segment.instrs) instr.collective = 0;
    if (!segment.instrs.empty()) segment.collectives.push_back(collective);
    if (native && !segment.instrs.empty()) segment.collectives[0].native = {places.value, places.result};
    out.order.push_back({0, -1, {}});
  }
  return program;
}

}  // namespace nlsplit::inline compiler
