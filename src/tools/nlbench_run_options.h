// The options of `nlbench run`.
#pragma once

#include <string>

#include "exec/run.h"
#include "exec/transports/transports.h"
#include "tools/launch_options.h"
#include "tools/nlbench_job.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

struct RunArguments {
  JobArguments job;
  std::string output, json, trace, decisions, supervised, duration, polling = "auto";
  const TransportKind* transport = &all_transports().front();
  Remote remote;
  std::string flight;
  bool turn_traces = false;
  std::string turns;  // not empty: a file that says which plans of the set `job.what` run in turns: nlbench_turns.h
  std::string gpu_missing = "error", gpu_graphs = "on", gpu_messages = "auto", gpu_backend, nccl;
  bool check = false;
  HostsArguments hosts;
  double tolerance = -1;
  int repeats = 5, warmup = 1;
  int steps = 0;  // of training, one after the other; 0: each repeat is the first
  double watchdog_s = 10, heartbeat_s = 10, start_timeout_s = 60;
  Deadlines deadlines;
  double planning_s = 3600;
};

// Adds the command; it calls run(), whose answer is the exit code.
void add_run_options(CLI::App& app, int& code, int (*run)(const RunArguments&));

}  // namespace nlsplit::inline tools
