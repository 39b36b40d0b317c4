#include "exec/cuda/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nlsplit::inline exec {

using cuda::Answer;
using cuda::Event;
using cuda::Stream;

namespace {

// A graph's moments are overwritten when it is launched again. So many of one run may be under way before the times of
// the oldest are read.
constexpr size_t most_under_way = 4;

}  // namespace

Status gpu_status(std::string_view device, std::string_view asked, Answer why) {
  if (why == nullptr) return ok_status();
  return failed(fmt::format("device {} (GPU): {}: {}", device, asked, why));
}

struct Launches::Captured {
  cuda::Graph* graph = nullptr;
  std::vector<Event*> moments;  // within it: the start of the first computation and the end of each; untimed: none
  bool under_way = false;       // its moments have not been read; or it is new, and what it was captured from has not
};

Launches::Launches(const cuda::Backend& backend, cuda::Device* device, std::string name, GpuGraphs graphs)
    : backend_(backend), device_(device), name_(std::move(name)), graphs_(graphs) {}

Launches::~Launches() {
  for (auto& [key, same] : captured_) {
    for (const auto& run : same) discard(*run);
  }
  for (Event* event : events_.all) backend_.destroy_event(device_, event);
}

Status Launches::check(Answer why, std::string_view asked) const { return gpu_status(name_, asked, why); }

Result<Event*> Launches::take() {
  Event* event = nullptr;
  if (!events_.free.empty()) {
    event = events_.free.back();
    events_.free.pop_back();
    return event;
  }
  RETURN_IF_ERROR(check(backend_.create_event(device_, &event), "cannot make an event"));
  events_.all.push_back(event);
  return event;
}

Status Launches::record(Event* event) {
  return check(backend_.record(device_, Stream::compute, event), "cannot record an event");
}

void Launches::discard(Captured& run) {
  if (run.graph != nullptr) backend_.destroy_graph(device_, std::exchange(run.graph, nullptr));
  events_.free.insert(events_.free.end(), run.moments.begin(), run.moments.end());
  run.moments.clear();
}

Status Launches::restart() {
  while (!begun_.empty()) forget_first();  // of a run that was broken off
  times_.clear();
  if (zero_ == nullptr) {
    ASSIGN_OR_RETURN(zero_, take());
  }
  RETURN_IF_ERROR(record(zero_));
  return check(backend_.wait(device_, zero_), "cannot begin");
}

Status Launches::settle() {
  ASSIGN_OR_RETURN(Event * event, take());
  Status status = record(event);
  if (status.ok()) status = check(backend_.wait(device_, event), "the work before failed");
  events_.free.push_back(event);
  return status;
}

Status Launches::begin_one(uint32_t tag, const Work& work, size_t i) {
  Begun& now = begun_.emplace_back(Begun{{tag}});
  for (int moment = 0; moment < 2; ++moment) {
    ASSIGN_OR_RETURN(Event * event, take());
    now.events.push_back(event);
  }
  RETURN_IF_ERROR(record(now.events[0]));
  RETURN_IF_ERROR(work(i));
  return record(now.events[1]);
}

// The first time a run is begun one by one, so that libraries have loaded what they need when it is captured.
Status Launches::begin(std::span<const uint32_t> tags, const Key& key, const Work& work) {
  const bool captures = graphs_ != GpuGraphs::off && tags.size() > 1;
  std::vector<std::unique_ptr<Captured>>* same = captures ? &captured_[key] : nullptr;
  if (captures) {
    ASSIGN_OR_RETURN(Captured * known, idle(*same));
    if (known != nullptr) return launch(*known, tags);
  }
  for (size_t i = 0; i < tags.size(); ++i) RETURN_IF_ERROR(begin_one(tags[i], work, i));
  if (!captures) return ok_status();
  auto made = std::make_unique<Captured>();
  if (const Status status = capture(*made, tags.size(), work); !status.ok()) {
    // Nothing has been lost: what cannot be done at all fails again without a capture, and ends the run then.
    discard(*made);
    graphs_ = GpuGraphs::off;
    no_graphs_ = status.error().message;
    return ok_status();
  }
  // As many are needed at a time in the repeats that follow.
  if (graphs_ == GpuGraphs::timed) {
    begun_.back().captured = made.get();
    made->under_way = true;
  }
  same->push_back(std::move(made));
  return ok_status();
}

// One that is not under way; nullptr: there is none yet, or more may be made.
Result<Launches::Captured*> Launches::idle(std::vector<std::unique_ptr<Captured>>& same) {
  while (true) {
    const auto found = std::ranges::find(same, false, [](const auto& run) { return run->under_way; });
    if (found != same.end()) return found->get();
    if (same.size() < most_under_way) return static_cast<Captured*>(nullptr);
    RETURN_IF_ERROR(check(backend_.wait(device_, begun_.front().events.back()), "a computation failed"));
    RETURN_IF_ERROR(read_first());
  }
}

Status Launches::capture(Captured& run, size_t count, const Work& work) {
  const bool timed = graphs_ == GpuGraphs::timed;
  for (size_t moment = 0; timed && moment <= count; ++moment) {
    ASSIGN_OR_RETURN(Event * event, take());
    run.moments.push_back(event);
  }
  RETURN_IF_ERROR(check(backend_.begin_capture(device_), "cannot capture a graph"));
  Status status = timed ? record(run.moments[0]) : ok_status();
  for (size_t i = 0; i < count && status.ok(); ++i) {
    status = work(i);
    if (status.ok() && timed) status = record(run.moments[i + 1]);
  }
  const Answer why = backend_.end_capture(device_, &run.graph);  // in any case
  return status.ok() ? check(why, "cannot capture a graph") : status;
}

// Whether an event within a graph is reached cannot be asked before the graph has run: an event behind it says so.
Status Launches::launch(Captured& run, std::span<const uint32_t> tags) {
  const bool timed = !run.moments.empty();
  Begun& now = begun_.emplace_back(Begun{{tags.begin(), tags.end()}});
  for (int moment = timed ? 1 : 0; moment < 2; ++moment) {
    ASSIGN_OR_RETURN(Event * event, take());
    now.events.push_back(event);
  }
  if (!timed) RETURN_IF_ERROR(record(now.events[0]));
  RETURN_IF_ERROR(check(backend_.launch_graph(device_, run.graph), "cannot launch a graph"));
  if (timed) {
    now.captured = &run;
    now.has_moments = run.under_way = true;
  }
  return record(now.events.back());
}

Result<std::vector<GpuTime>> Launches::finish() {
  if (!begun_.empty())
    RETURN_IF_ERROR(check(backend_.wait(device_, begun_.back().events.back()), "a computation failed"));
  while (!begun_.empty()) RETURN_IF_ERROR(read_first());
  return std::exchange(times_, {});
}

// Of finished work. An untimed graph's first computation has all of the graph's time: the others' times are not known.
Status Launches::read_first() {
  const Begun& first = begun_.front();
  const std::vector<Event*>& moments = first.has_moments ? first.captured->moments : first.events;
  std::vector<double> at(moments.size());
  for (size_t m = 0; m < moments.size(); ++m)
    RETURN_IF_ERROR(check(backend_.elapsed(device_, zero_, moments[m], &at[m]), "cannot read its clock"));
  for (size_t i = 0; i < first.tags.size(); ++i) {
    const size_t last = at.size() - 1;
    times_.push_back({first.tags[i], at[std::min(i, last)], at[std::min(i + 1, last)]});
  }
  forget_first();
  return ok_status();
}

void Launches::forget_first() {
  Begun& first = begun_.front();
  if (first.captured != nullptr) first.captured->under_way = false;
  events_.free.insert(events_.free.end(), first.events.begin(), first.events.end());
  begun_.pop_front();
}

}  // namespace nlsplit::inline exec
