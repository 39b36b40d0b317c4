// Operators to the executions that they belong to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "traces/trace.h"

namespace nlsplit::inline traces {

struct ThreadEvent {
  OperatorTime event;
  int64_t thread = 0;
};

// Orders events by start, and leaves out those that lie within another one of their thread.
std::vector<OperatorTime> outermost(std::vector<ThreadEvent> events);

// Events to the executions they started in. Error: executions that overlap.
struct Execution {
  double start_s = 0, seconds = 0;
};
Result<std::vector<ProfiledRun>> in_runs(const std::string& file, std::vector<Execution> executions,
                                         std::vector<ThreadEvent> events);

// What a program marked by a name: a range of a thread's time, in others or around them.
struct TraceRange {
  std::string name;
  int64_t thread = 0;
  double start_s = 0, end_s = 0;
  size_t index = 0;  // whatever the caller knows it by
};

// Which ranges are around a moment of a thread.
class Ranges {
 public:
  explicit Ranges(std::vector<TraceRange> ranges);

  const TraceRange& operator[](int range) const { return ranges_[static_cast<size_t>(range)]; }
  bool empty() const { return ranges_.empty(); }
  // The innermost first.
  std::vector<int> around(int64_t thread, double at_s) const;

 private:
  std::vector<TraceRange> ranges_;  // by thread, then by start
  std::vector<int> outer_;          // [range]: the one that it lies in; -1: none
};

// An operator, and the moment in which a thread called it. On a GPU it is later that it runs.
struct Called {
  OperatorTime event;
  int64_t thread = 0;
  double at_s = 0;
};

// An execution is a range of the name `range`, or without one the outermost around an operator. "step#3" counts as
// "step". Names of the ranges within it are names of nodes. On a device an execution lasts from its first operator to
// the end of its last. Errors: no operator is in such a range; outermost ranges of several names; executions that
// overlap.
Result<std::vector<ProfiledRun>> in_ranges(const std::string& file, const Ranges& ranges, const std::string& range,
                                           std::vector<Called> operators, bool on_device);

}  // namespace nlsplit::inline traces
