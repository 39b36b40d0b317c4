#include "tools/nlbench_worker_job.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/interrupts.h"

namespace nlsplit::inline tools {
namespace {

using nlohmann::json;

// One list for both ways. `field(name, member)`.
template <class Options, class Field>
void each_field(Options& options, const Field& field) {
  field("repeats", options.repeats);
  field("warmup", options.warmup);
  field("duration_s", options.duration_s);
  field("keep", options.keep);
  field("states", options.states);
  field("keep_states", options.keep_states);
  field("leave_states", options.leave_states);
  field("keep_choices", options.keep_choices);
  field("check_numbers", options.check_numbers);
  field("watchdog_s", options.watchdog_s);
  field("deadline_factor", options.deadlines.factor);
  field("deadline_floor_s", options.deadlines.floor_s);
  field("prepare_s", options.deadlines.prepare_s);
}

bool may_be(bool) { return true; }
bool may_be(int count) { return count >= 0; }
bool may_be(double s) { return std::isfinite(s) && s >= 0; }

}  // namespace

std::string to_string(const WorkerJob& job) {
  json text = {{"task", static_cast<int>(job.task)},
               {"agrees_on_failure", job.agrees_on_failure},
               {"patience_s", job.patience_s},
               {"gpu_may_be_missing", job.options.gpu.missing == GpuMissing::cpu},
               {"gpu_graphs", static_cast<int>(job.options.gpu.graphs)},
               {"gpu_messages", static_cast<int>(job.options.gpu.messages)}};
  each_field(job.options, [&](const char* name, const auto& value) { text[name] = value; });
  return text.dump();
}

Remote remote_of(Remote remote, const WorkerJob& job) {
  remote.job = to_string(job);
  remote.cancelled = interrupted;
  return remote;
}

Result<WorkerJob> parse_worker_job(const std::string& text) {
  WorkerJob job;
  std::string wrong;
  try {
    const json value = json::parse(text);
    const int task = value.at("task").get<int>();
    if (task < 0 || task > static_cast<int>(WorkerTask::turns)) wrong = "task";
    job.task = static_cast<WorkerTask>(task);
    job.agrees_on_failure = value.at("agrees_on_failure").get<bool>();
    job.patience_s = value.at("patience_s").get<double>();
    if (!may_be(job.patience_s)) wrong = "patience_s";
    job.options.gpu.missing = value.at("gpu_may_be_missing").get<bool>() ? GpuMissing::cpu : GpuMissing::error;
    const int graphs = value.at("gpu_graphs").get<int>();
    if (graphs < 0 || graphs > static_cast<int>(GpuGraphs::off)) wrong = "gpu_graphs";
    job.options.gpu.graphs = static_cast<GpuGraphs>(graphs);
    const int messages = value.at("gpu_messages").get<int>();
    if (messages < 0 || messages > static_cast<int>(GpuMessages::nccl)) wrong = "gpu_messages";
    job.options.gpu.messages = static_cast<GpuMessages>(messages);
    each_field(job.options, [&](const char* name, auto& member) {
      value.at(name).get_to(member);
      if (!may_be(member)) wrong = name;
    });
  } catch (const json::exception& error) {
    return invalid_input(fmt::format("a damaged job: {}", error.what()));
  }
  if (!wrong.empty()) return invalid_input(fmt::format("a job whose {} cannot be", wrong));
  return job;
}

}  // namespace nlsplit::inline tools
