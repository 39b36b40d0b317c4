#include "program/trace.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>

namespace nlsplit::inline program {
namespace {

const Segment& segment_of(const Program& program, const Span& span) {
  const DeviceProgram& device = program.devices[static_cast<size_t>(span.device)];
  return device.segments[static_cast<size_t>(device.order[static_cast<size_t>(span.slot)].segment)];
}

// Length of the union of intervals.
double covered(std::vector<std::pair<double, double>>& intervals) {
  std::sort(intervals.begin(), intervals.end());
  double total = 0, end = -std::numeric_limits<double>::infinity();
  for (const auto& [start, finish] : intervals) {
    if (finish <= end) continue;
    total += finish - std::max(start, end);
    end = finish;
  }
  return total;
}

}  // namespace

bool is_training(const Program& program) {
  return std::ranges::any_of(program.devices, [](const DeviceProgram& device) {
    return std::ranges::any_of(device.segments, [](const Segment& segment) {
      return segment.phase == Phase::input_gradient || segment.phase == Phase::weight_gradient;
    });
  });
}

std::vector<DeviceTimes> device_times(const Program& program, const Trace& trace) {
  std::vector<DeviceTimes> times(program.devices.size());
  std::vector<std::vector<std::pair<double, double>>> transfers(program.devices.size());
  for (const Span& span : trace.spans) {
    const auto d = static_cast<size_t>(span.device);
    const Instr& instr = segment_of(program, span).instrs[static_cast<size_t>(span.instr)];
    // A recv is posted long before its message comes, so only sends say when bytes move; both ends are busy then.
    if (instr.opcode == Opcode::send) {
      transfers[d].emplace_back(span.start, span.finish);
      transfers[static_cast<size_t>(instr.peer)].emplace_back(span.start, span.finish);
    } else if (instr.opcode != Opcode::recv) {
      times[d].compute += span.finish - span.start;
    }
  }
  for (size_t d = 0; d < times.size(); ++d) {
    times[d].communicate = covered(transfers[d]);
    times[d].wait = std::max(0.0, trace.makespan - times[d].compute);
  }
  return times;
}

double message_seconds(const Program& program, const Trace& trace) {
  // Of one sender, receiver and tag the first send belongs to the first recv, and so on.
  std::map<std::pair<int, int>, std::vector<std::array<double, 2>>> between;  // both ready, delivered
  std::map<std::tuple<int, int, int>, std::pair<std::vector<const Span*>, std::vector<const Span*>>> messages;
  for (const Span& span : trace.spans) {
    const Instr& instr = segment_of(program, span).instrs[static_cast<size_t>(span.instr)];
    if (instr.opcode == Opcode::send) messages[{span.device, instr.peer, instr.tag}].first.push_back(&span);
    if (instr.opcode == Opcode::recv) messages[{instr.peer, span.device, instr.tag}].second.push_back(&span);
  }
  for (const auto& [key, ends] : messages) {
    const auto& [sends, recvs] = ends;
    for (size_t i = 0; i < std::min(sends.size(), recvs.size()); ++i) {
      between[{std::get<0>(key), std::get<1>(key)}].push_back(
          {std::max(sends[i]->start, recvs[i]->start), recvs[i]->finish});
    }
  }
  double sum = 0;
  for (auto& [ends, times] : between) {
    std::ranges::sort(times, {}, [](const auto& time) { return time[1]; });
    double before = 0;
    for (const auto& [ready, delivered] : times) {
      sum += std::max(0.0, delivered - std::max(ready, before));
      before = delivered;
    }
  }
  return sum;
}

Latency latency_of(const Program& program, const Trace& trace) {
  const auto count = static_cast<size_t>(program.micro_batches);
  std::vector<double> first(count, std::numeric_limits<double>::infinity()), last(count, 0);
  for (const Span& span : trace.spans) {
    const DeviceProgram& device = program.devices[static_cast<size_t>(span.device)];
    const int m = device.order[static_cast<size_t>(span.slot)].micro_batch;
    if (m < 0) continue;
    const Instr& instr = segment_of(program, span).instrs[static_cast<size_t>(span.instr)];
    const auto index = static_cast<size_t>(m);
    if (instr.opcode != Opcode::recv) first[index] = std::min(first[index], span.start);  // posted early is not begun
    last[index] = std::max(last[index], span.finish);
  }
  Latency latency;
  for (size_t m = 0; m < count; ++m) {
    if (first[m] > last[m]) continue;
    latency.mean += (last[m] - first[m]) / static_cast<double>(count);
    latency.max = std::max(latency.max, last[m] - first[m]);
  }
  return latency;
}

}  // namespace nlsplit::inline program
