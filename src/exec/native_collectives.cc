#include "exec/native_collectives.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "program/text.h"

namespace nlsplit::inline exec {
namespace {

Status check_native(const DeviceProgram& device, const Collective& collective, Transport& transport) {
  if (transport.collectives() == nullptr)
    return unsupported("this transport has no collectives of its own: run with MPI, or choose another all_reduce");
  if (device.kind != DeviceKind::cpu)
    return unsupported("the transport's own collectives reach the memory of devices of kind cpu only");
  return transport.collectives()->accepts(collective, type_of(device, collective.native->value).dtype);
}

}  // namespace

Status join_native_groups(const Program& program, Transport& transport, const Waiting& waiting) {
  const DeviceProgram& device = program.devices[static_cast<size_t>(transport.rank())];
  std::set<std::vector<int>> groups;
  Status accepted;
  for (const Segment& segment : device.segments) {
    for (const Collective& collective : segment.collectives) {
      if (!collective.native || !accepted.ok()) continue;
      groups.insert(collective.group);
      accepted = check_native(device, collective, transport);
      if (accepted.ok()) continue;
      Error why = accepted.error();
      why.message = fmt::format("device {} segment {} `{}`: {}", device.name, segment.name,
                                to_string(program, device, collective), why.message);
      accepted = why;
    }
  }
  RETURN_IF_ERROR(agree(transport, accepted, waiting));
  // In the same order on all ranks: so no member waits for one that waits in another group.
  if (!groups.empty()) transport.collectives()->join(std::vector<std::vector<int>>(groups.begin(), groups.end()));
  return ok_status();
}

}  // namespace nlsplit::inline exec
