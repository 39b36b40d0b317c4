#include "exec/run_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "exec/prepare.h"

namespace nlsplit::inline exec {
namespace {

// What every rank has allocated; other ranks than 0 know their own only.
Result<std::vector<Bytes>> gather_arenas(const Program& program, const Backend& own, Transport& transport,
                                         const Waiting& waiting) {
  const auto mine = static_cast<int64_t>(own.host().size());
  ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(transport, as_text(std::vector<int64_t>{mine}), waiting));
  std::vector<Bytes> arenas;
  for (const std::string& text : all) {
    const std::vector<int64_t> of_rank = from_text<int64_t>(text);
    if (of_rank.size() != 1) return give_up(transport, "a rank answered with other figures of its arena");
    arenas.push_back(bytes(of_rank[0]));
  }
  arenas.resize(program.devices.size(), bytes(0));
  arenas[static_cast<size_t>(transport.rank())] = bytes(mine);
  return arenas;
}

}  // namespace

double median(std::vector<double> values) {
  CHECK(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double last_finish(const std::vector<Interval>& times) {
  double last = 0;
  for (const Interval& interval : times) last = std::max(last, interval.finish);
  return last;
}

Result<size_t> choose_repeat(const std::vector<double>& makespans_s, size_t kept, Transport& transport,
                             const Waiting& waiting) {
  size_t best = kept - 1;
  if (transport.rank() == 0) {
    const double middle = median(makespans_s);
    const size_t skipped = makespans_s.size() - kept;
    double least = std::numeric_limits<double>::infinity();
    for (size_t r = skipped; r < makespans_s.size(); ++r) {
      const double distance = std::abs(makespans_s[r] - middle);
      if (distance >= least) continue;
      best = r - skipped;
      least = distance;
    }
  }
  std::string text = as_text(std::vector<uint64_t>{best});
  RETURN_IF_ERROR(broadcast(transport, &text, waiting));
  const std::vector<uint64_t> received = from_text<uint64_t>(text);
  if (received.size() != 1 || received[0] >= kept) return give_up(transport, "ranks disagree on the number of repeats");
  return static_cast<size_t>(received[0]);
}

Result<Trace> gather_trace(const Task& task, const std::vector<Interval>& own, const Backend& backend,
                           Transport& transport, const Waiting& waiting) {
  const Program& program = task.program();
  const Dependencies& deps = task.dependencies;
  Trace trace;
  trace.fingerprint = task.fingerprint;
  ASSIGN_OR_RETURN(trace.peak_bytes, gather_arenas(program, backend, transport, waiting));
  ASSIGN_OR_RETURN(std::vector<std::string> all, gather(transport, as_text(own), waiting));
  if (transport.rank() != 0) all.assign(program.devices.size(), "");
  for (size_t d = 0; d < program.devices.size(); ++d) {
    if (transport.rank() != 0 && static_cast<int>(d) != transport.rank()) continue;
    const std::vector<Interval> times = transport.rank() == 0 ? from_text<Interval>(all[d]) : own;
    if (times.size() != deps.device_begin[d + 1] - deps.device_begin[d]) {
      return give_up(transport,
                     fmt::format("device {} answered with another number of spans", program.devices[d].name));
    }
    for (size_t i = 0; i < times.size(); ++i) {
      const Instance& at = deps.instances[deps.device_begin[d] + i];
      trace.spans.push_back({at.device, at.slot, at.instr, times[i].start, times[i].finish});
    }
    trace.makespan = std::max(trace.makespan, last_finish(times));
  }
  return trace;
}

Result<std::vector<std::vector<int>>> gather_decided(const std::vector<int>& mine, Transport& transport,
                                                     const Waiting& waiting) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(transport, as_text(mine), waiting));
  std::vector<std::vector<int>> decided;
  for (const std::string& text : all) decided.push_back(from_text<int>(text));
  return decided;
}

Result<size_t> sum_of_all(size_t mine, Transport& transport, const Waiting& waiting) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   gather(transport, as_text(std::vector<uint64_t>{mine}), waiting));
  size_t sum = 0;
  for (const std::string& text : all) {
    for (const uint64_t one : from_text<uint64_t>(text)) sum += one;
  }
  return sum;
}

}  // namespace nlsplit::inline exec
