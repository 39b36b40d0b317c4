// Times of activities → times of instructions.
#include "program/text.h"
#include "sim/senders.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

Trace to_trace(const Program& program, const Dependencies& dependencies, const TimedGraph& graph,
               const Timing& timing) {
  Trace trace;
  trace.fingerprint = fingerprint(program);
  trace.makespan = timing.makespan;
  for (const DeviceProgram& device : program.devices) trace.peak_bytes.push_back(device.arena);
  trace.spans.reserve(dependencies.instances.size());
  for (const Instance& at : dependencies.instances) trace.spans.push_back({at.device, at.slot, at.instr, 0, 0});
  const auto set = [&](uint32_t instance, double start, double finish) {
    trace.spans[instance].start = start;
    trace.spans[instance].finish = finish;
  };
  for (size_t i = 0; i < graph.activities.size(); ++i) {
    const Activity& activity = graph.activities[i];
    if (activity.is_transfer) {
      const uint32_t send = activity.first_instance;
      const double done = sender_done(graph, timing, static_cast<uint32_t>(i));
      set(send, timing.start[i], activity.eager ? timing.start[i] : done);
      set(dependencies.match[send], timing.posted[i], timing.finish[i]);
      continue;
    }
    // What made the block longer than its kernels, company or messages, made all of them longer.
    const double took = timing.finish[i] - timing.start[i];
    const double stretch = activity.duration > 0 ? took / activity.duration : 1;
    for (uint32_t m = 0; m < activity.count; ++m) {
      const size_t member = activity.first_instance + m;
      const bool last = m + 1 == activity.count;
      set(graph.members[member], timing.start[i] + stretch * graph.member_offset[member],
          last ? timing.finish[i] : timing.start[i] + stretch * graph.member_offset[member + 1]);
    }
  }
  return trace;
}

}  // namespace nlsplit::inline sim
