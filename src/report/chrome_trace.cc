#include "report/chrome_trace.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "program/text.h"

namespace nlsplit::inline reports {
namespace {

using nlohmann::json;

json metadata(const char* what, size_t process, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

std::string stream_name(const Program& program, const Instr& instr) {
  if (!is_transfer(instr.opcode)) return "compute";
  const std::string& peer = program.devices[static_cast<size_t>(instr.peer)].name;
  return instr.opcode == Opcode::send ? "send to " + peer : "receive from " + peer;
}

std::string event_name(const Program& program, const DeviceProgram& device, const Instr& instr) {
  if (!instr.label.empty()) return instr.label;
  if (instr.opcode == Opcode::compute) return std::string(name_of(program.descs[static_cast<size_t>(instr.desc)].op));
  if (is_transfer(instr.opcode)) {
    const Operand& moved = instr.opcode == Opcode::send ? instr.reads[0] : instr.writes[0];
    return fmt::format("{} {}", name_of(instr.opcode), device.buffer(moved.buffer).name);
  }
  return std::string(name_of(instr.opcode));
}

}  // namespace

std::string chrome_trace(const Program& program, const Trace& trace) {
  json events = json::array();
  // Threads in order of first use, the compute stream first.
  std::vector<std::map<std::string, int>> threads(program.devices.size());
  for (size_t d = 0; d < program.devices.size(); ++d) {
    events.push_back(
        metadata("process_name", d, 0, fmt::format("{} on {}", program.devices[d].name, program.devices[d].host)));
    events.push_back(metadata("thread_name", d, 0, "compute"));
    threads[d]["compute"] = 0;
  }
  for (const Span& span : trace.spans) {
    const auto d = static_cast<size_t>(span.device);
    const DeviceProgram& device = program.devices[d];
    const Slot& slot = device.order[static_cast<size_t>(span.slot)];
    const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
    const Instr& instr = segment.instrs[static_cast<size_t>(span.instr)];
    const std::string stream = stream_name(program, instr);
    const auto [thread, added] = threads[d].try_emplace(stream, static_cast<int>(threads[d].size()));
    if (added) events.push_back(metadata("thread_name", d, thread->second, stream));
    json args = {{"slot", slot_name(device, slot)},
                 {"phase", name_of(segment.phase)},
                 {"instruction", to_string(program, device, instr)}};
    if (slot.micro_batch >= 0) args["micro_batch"] = slot.micro_batch;
    if (is_transfer(instr.opcode)) {
      args["bytes"] = bytes_of(device, instr.opcode == Opcode::send ? instr.reads[0] : instr.writes[0]).value();
    }
    events.push_back({{"ph", "X"},
                      {"name", event_name(program, device, instr)},
                      {"cat", name_of(instr.opcode)},
                      {"pid", d},
                      {"tid", thread->second},
                      {"ts", span.start * 1e6},
                      {"dur", (span.finish - span.start) * 1e6},
                      {"args", std::move(args)}});
  }
  const json file = {
      {"displayTimeUnit", "ms"},
      {"otherData",
       {{"program", program.name}, {"fingerprint", hex16(trace.fingerprint)}, {"makespan_s", trace.makespan}}},
      {"traceEvents", std::move(events)}};
  // Names come from models: bytes that are no UTF-8 are replaced rather than thrown at.
  return file.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace nlsplit::inline reports
