#include "traces/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/json_place.h"

namespace nlsplit::inline traces {
namespace {

// Times were microseconds with three digits behind the point, and since some far beginning: 2^-10 us apart as doubles.
constexpr double rounding_s = 2e-9;

Status check_apart(const std::string& file, const std::vector<Execution>& sorted) {
  for (size_t r = 1; r < sorted.size(); ++r) {
    if (sorted[r].start_s >= sorted[r - 1].start_s + sorted[r - 1].seconds - rounding_s) continue;
    return in_file(file, invalid_input(fmt::format(
                             "executions {} and {} overlap: their operators slowed each other down and cannot be told "
                             "apart; profile one after the other",
                             r, r + 1)));
  }
  return ok_status();
}

// "ProfilerStep#3" → "ProfilerStep".
std::string_view without_count(std::string_view name) {
  const size_t at = name.rfind('#');
  if (at == name.npos || at == 0 || name.find_first_not_of("0123456789", at + 1) != name.npos) return name;
  return name.substr(0, at);
}

}  // namespace

std::vector<OperatorTime> outermost(std::vector<ThreadEvent> events) {
  // Of two that start together the longer one is around the other.
  std::ranges::stable_sort(events, [](const ThreadEvent& a, const ThreadEvent& b) {
    if (a.event.start_s != b.event.start_s) return a.event.start_s < b.event.start_s;
    return a.event.seconds > b.event.seconds;
  });
  std::map<int64_t, double> ends;  // by thread
  std::vector<OperatorTime> kept;
  for (ThreadEvent& one : events) {
    const double end = one.event.start_s + one.event.seconds;
    const auto [last, first] = ends.try_emplace(one.thread, end);
    if (!first && end <= last->second + rounding_s && one.event.start_s < last->second) continue;
    last->second = end;
    kept.push_back(std::move(one.event));
  }
  return kept;
}

Result<std::vector<ProfiledRun>> in_runs(const std::string& file, std::vector<Execution> executions,
                                         std::vector<ThreadEvent> events) {
  std::ranges::sort(executions, {}, &Execution::start_s);
  RETURN_IF_ERROR(check_apart(file, executions));
  std::vector<std::vector<ThreadEvent>> parts(executions.size());
  for (ThreadEvent& one : events) {
    const auto after = std::ranges::upper_bound(executions, one.event.start_s, {}, &Execution::start_s);
    if (after == executions.begin()) continue;
    const auto r = static_cast<size_t>(after - executions.begin()) - 1;
    if (one.event.start_s <= executions[r].start_s + executions[r].seconds) parts[r].push_back(std::move(one));
  }
  std::vector<ProfiledRun> runs;
  for (size_t r = 0; r < parts.size(); ++r) runs.push_back({executions[r].seconds, outermost(std::move(parts[r]))});
  return runs;
}

Ranges::Ranges(std::vector<TraceRange> ranges) : ranges_(std::move(ranges)), outer_(ranges_.size(), -1) {
  std::ranges::stable_sort(ranges_, [](const TraceRange& a, const TraceRange& b) {
    if (a.thread != b.thread) return a.thread < b.thread;
    if (a.start_s != b.start_s) return a.start_s < b.start_s;
    return a.end_s > b.end_s;
  });
  std::vector<int> open;
  for (size_t r = 0; r < ranges_.size(); ++r) {
    const TraceRange& one = ranges_[r];
    while (!open.empty() &&
           ((*this)[open.back()].thread != one.thread || (*this)[open.back()].end_s <= one.start_s + rounding_s))
      open.pop_back();
    if (!open.empty()) outer_[r] = open.back();
    open.push_back(static_cast<int>(r));
  }
}

std::vector<int> Ranges::around(int64_t thread, double at_s) const {
  const auto after = std::ranges::upper_bound(ranges_, std::pair(thread, at_s), {}, [](const TraceRange& range) {
    return std::pair(range.thread, range.start_s);
  });
  std::vector<int> found;
  for (int at = static_cast<int>(after - ranges_.begin()) - 1; at >= 0; at = outer_[static_cast<size_t>(at)]) {
    if ((*this)[at].thread != thread) break;
    if ((*this)[at].end_s >= at_s) found.push_back(at);
  }
  return found;
}

namespace {

class InRanges {
 public:
  InRanges(const std::string& file, const Ranges& ranges, const std::string& range, bool on_device)
      : file_(file), ranges_(ranges), range_(range), on_device_(on_device) {}

  Status add(Called one) {
    const std::vector<int> around = ranges_.around(one.thread, one.at_s);
    const auto execution = std::find_if(around.rbegin(), around.rend(), [&](int candidate) {
      const std::string& name = ranges_[candidate].name;
      return range_.empty() || name == range_ || without_count(name) == range_;
    });
    if (execution == around.rend()) return ok_status();
    if (range_.empty()) RETURN_IF_ERROR(check_name(ranges_[*execution].name));
    for (auto name = around.begin(); name != execution.base() - 1; ++name)
      one.event.nodes.push_back(ranges_[*name].name);
    runs_[*execution].push_back(std::move(one.event));
    return ok_status();
  }

  Result<std::vector<ProfiledRun>> runs() && {
    if (runs_.empty()) {
      return in_file(
          file_, invalid_input(fmt::format("no operator is in a range{}: mark each execution by one (docs/profiles.md)",
                                           range_.empty() ? std::string() : fmt::format(" called '{}'", range_))));
    }
    std::vector<std::pair<Execution, std::vector<OperatorTime>>> sorted;
    for (auto& [range, events] : runs_) {
      std::ranges::stable_sort(events, {}, &OperatorTime::start_s);
      sorted.emplace_back(time_of(ranges_[range], events), std::move(events));
    }
    std::ranges::stable_sort(sorted, {}, [](const auto& run) { return run.first.start_s; });
    std::vector<Execution> executions;
    std::vector<ProfiledRun> runs;
    for (auto& [execution, events] : sorted) {
      executions.push_back(execution);
      runs.push_back({execution.seconds, std::move(events)});
    }
    RETURN_IF_ERROR(check_apart(file_, executions));
    return runs;
  }

 private:
  Status check_name(std::string_view name) {
    const std::string_view base = without_count(name);
    if (outermost_.empty()) outermost_ = base;
    if (outermost_ == base) return ok_status();
    return in_file(file_, invalid_input(fmt::format(
                              "operators are in ranges called '{}' and '{}': say with --range NAME which of them is an "
                              "execution",
                              outermost_, base)));
  }

  Execution time_of(const TraceRange& range, const std::vector<OperatorTime>& events) const {
    if (!on_device_) return {range.start_s, range.end_s - range.start_s};
    double end = events[0].start_s;
    for (const OperatorTime& event : events) end = std::max(end, event.start_s + event.seconds);
    return {events[0].start_s, end - events[0].start_s};
  }

  const std::string& file_;
  const Ranges& ranges_;
  const std::string& range_;
  bool on_device_;
  std::string outermost_;
  std::map<int, std::vector<OperatorTime>> runs_;  // by range
};

}  // namespace

Result<std::vector<ProfiledRun>> in_ranges(const std::string& file, const Ranges& ranges, const std::string& range,
                                           std::vector<Called> operators, bool on_device) {
  InRanges found(file, ranges, range, on_device);
  for (Called& one : operators) RETURN_IF_ERROR(found.add(std::move(one)));
  return std::move(found).runs();
}

}  // namespace nlsplit::inline traces
