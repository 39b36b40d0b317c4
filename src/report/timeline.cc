#include "report/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace nlsplit::inline reports {

using nlohmann::json;

std::string timeline_json(const Program& program, const Trace& trace) {
  json devices = json::array(), bars = json::array();
  for (const DeviceProgram& device : program.devices) devices.push_back(device.name);
  struct Bar {
    int device = -1, slot = -1;
    double start = 0, finish = 0;
  } open;
  const auto add = [&](int device, int slot, int lane, double start, double finish) {
    const DeviceProgram& on = program.devices[static_cast<size_t>(device)];
    const Slot& at = on.order[static_cast<size_t>(slot)];
    bars.push_back({device, lane, at.micro_batch, on.segments[static_cast<size_t>(at.segment)].stage, start, finish});
  };
  const auto close = [&] {
    if (open.finish > open.start) add(open.device, open.slot, 0, open.start, open.finish);
  };
  for (const Span& span : trace.spans) {  // by device, slot, instruction
    const DeviceProgram& device = program.devices[static_cast<size_t>(span.device)];
    const Slot& slot = device.order[static_cast<size_t>(span.slot)];
    const Opcode opcode =
        device.segments[static_cast<size_t>(slot.segment)].instrs[static_cast<size_t>(span.instr)].opcode;
    if (opcode == Opcode::send) {
      add(span.device, span.slot, 1, span.start, span.finish);
    } else if (opcode != Opcode::recv) {
      if (open.device != span.device || open.slot != span.slot) {
        close();
        open = {span.device, span.slot, span.start, span.finish};
      }
      open.start = std::min(open.start, span.start);
      open.finish = std::max(open.finish, span.finish);
    }
  }
  close();
  return json{{"devices", devices}, {"makespan_s", trace.makespan}, {"bars", bars}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

}  // namespace nlsplit::inline reports
