// What must not depend on who executed a Program: the order of every stream, the bytes of every message, the arenas.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "exec/run.h"
#include "program/trace.h"

namespace nlsplit {

// One line a device and one a stream, each listing what ran there in order of time.
inline std::string digest(const Program& program, const Trace& trace) {
  using Stream = std::tuple<int, int, int>;  // device, peer (-1: compute), 1 for sends
  std::map<Stream, std::vector<Span>> streams;
  for (const Span& span : trace.spans) {
    const DeviceProgram& device = program.devices[static_cast<size_t>(span.device)];
    const Slot& slot = device.order[static_cast<size_t>(span.slot)];
    const Instr& instr = device.segments[static_cast<size_t>(slot.segment)].instrs[static_cast<size_t>(span.instr)];
    streams[{span.device, is_transfer(instr.opcode) ? instr.peer : -1, instr.opcode == Opcode::send}].push_back(span);
  }
  std::string out;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    out += fmt::format("device {} arena {}\n", program.devices[d].name, trace.peak_bytes[d].value());
  }
  for (auto& [stream, spans] : streams) {
    const auto [d, peer, sends] = stream;
    // Receives are posted ahead: what counts is in which order they were delivered. Ties are in the Program's order.
    const bool receives = peer >= 0 && sends == 0;
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return std::tie(a.slot, a.instr) < std::tie(b.slot, b.instr);
    });
    std::stable_sort(spans.begin(), spans.end(),
                     [&](const Span& a, const Span& b) { return receives ? a.finish < b.finish : a.start < b.start; });
    out += fmt::format("stream {} {} {}:", d, peer, sends);
    for (const Span& span : spans) {
      const DeviceProgram& device = program.devices[static_cast<size_t>(d)];
      const Slot& slot = device.order[static_cast<size_t>(span.slot)];
      const Instr& instr = device.segments[static_cast<size_t>(slot.segment)].instrs[static_cast<size_t>(span.instr)];
      out += fmt::format(" {}.{}", span.slot, span.instr);
      if (is_transfer(instr.opcode))
        out += fmt::format("({} B)", bytes_of(device, sends != 0 ? instr.reads[0] : instr.writes[0]).value());
    }
    out += "\n";
  }
  return out;
}

// Both halves make their inputs alike.
inline Result<std::vector<NamedTensor>> seeded_inputs(const Program& program, uint64_t seed) {
  ASSIGN_OR_RETURN(std::vector<NamedTensor> inputs, wanted_inputs(program));
  for (NamedTensor& input : inputs) {
    input.values.resize(static_cast<size_t>(element_count(input.type.shape)));
    fill_normal(seed++, input.values.data(), static_cast<int64_t>(input.values.size()));
  }
  return inputs;
}

}  // namespace nlsplit
