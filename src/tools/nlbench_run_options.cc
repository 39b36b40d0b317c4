#include "tools/nlbench_run_options.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/exit.h"
#include "tools/launch_options.h"
#include "tools/nlbench_check.h"

namespace nlsplit::inline tools {
namespace {

// What is run, on which inputs.
void add_work_options(CLI::App& command, RunArguments& arguments) {
  command
      .add_option("WHAT", arguments.job.what,
                  "A folder saved by `nlsim lower --save`; a scenario (.yaml); a model (.onnx, .gguf, a safetensors "
                  "folder, zoo:NAME)")
      ->required();
  CLI::Option* plan = command.add_option(
      "--plan", arguments.job.plan, "For a scenario: number in its ranking, or name of one of its plans (default 1)");
  command.add_option("--plan-file", arguments.job.plan_file, "For a scenario: a plan in a file of its own")
      ->excludes(plan);
  command.add_option("--batch", arguments.job.batch, "For a model: samples (default: those of --input, else 1)")
      ->check(above_zero());
  command.add_option("--isa", arguments.job.isa,
                     "For a model: kernels of this instruction level (v2, v3, v4, neon; cuda, tf32: a GPU's; default: "
                     "this\nmachine's)");
  command.add_option("--precision", arguments.job.precision,
                     "For a model: float16 or bfloat16 instead of float32, except for inputs and outputs");
  add_check_options(command, arguments.check, arguments.tolerance);
  command
      .add_option("--input", arguments.job.inputs,
                  "X.npy, or NAME=X.npy, once for each input; of integers also a list, as 504,3575 (default: random "
                  "normal values, and valid random indices)")
      ->allow_extra_args(false);
  command.add_option("--output", arguments.output, "Write the network's output to Y.npy");
  command.add_option("--seed", arguments.job.seed, "Seed of the default input (default 1)");
}

// How devices of kind cuda compute.
void add_gpu_options(CLI::App& command, RunArguments& arguments) {
  command
      .add_option(
          "--gpu-missing", arguments.gpu_missing,
          "Devices of kind cuda where no GPU can be used. error: the run is refused (default); cpu: the CPU computes "
          "in their\nplace, and its times are not the scenario's")
      ->check(CLI::IsMember({"error", "cpu"}));
  command
      .add_option(
          "--gpu-graphs", arguments.gpu_graphs,
          "How a GPU gets computations that no transfer interrupts. on: as one CUDA graph, with the times of "
          "each (default);\n"
          "untimed: a graph without them, so a trace shows all of its time at its first computation; off: one by "
          "one")
      ->check(CLI::IsMember({"on", "untimed", "off"}));
  command
      .add_option(
          "--gpu-messages", arguments.gpu_messages,
          "auto: messages go directly from and to a GPU's memory if the MPI library says that it is CUDA-aware "
          "(default); mirror:\nalways through the host's memory; nccl: those between two GPUs over NVIDIA's NCCL, "
          "all others by --transport. Each\ndevice of kind cuda then needs a GPU of its own")
      ->check(CLI::IsMember({"auto", "mirror", "nccl"}));
  command
      .add_option("--nccl", arguments.nccl,
                  "With --gpu-messages nccl: NCCL's library (default: libnccl.so.2, where the loader finds it)")
      ->type_name("FILE");
  command.add_option("--gpu-backend", arguments.gpu_backend,
                     "Module that computes on GPUs (default: libbackend_cuda.so beside nlbench)");
}

// How often, and what is written of it.
void add_measuring_options(CLI::App& command, RunArguments& arguments) {
  CLI::Option* steps =
      command
          .add_option("--steps", arguments.steps,
                      "For a training scenario: this many steps on the same batch, each with the weights of the one "
                      "before, without a barrier\nbetween them. Prints the loss of the first and the last, --json has "
                      "all (default: every repeat is the first step)")
          ->type_name("COUNT")
          ->check(above_zero());
  command.add_option("--repeats", arguments.repeats, "Measured executions, at least (default 5)")
      ->check(above_zero())
      ->excludes(steps);
  command.add_option("--warmup", arguments.warmup, "Executions before these, not measured (default 1)")
      ->check(not_negative())
      ->excludes(steps);
  command.add_option("--duration", arguments.duration, "Measure for at least this time, such as 5s or 500ms")
      ->excludes(steps);
  command.add_option("--json", arguments.json, "Write all figures to FILE");
  command
      .add_option("--trace", arguments.trace,
                  "Write a trace of the median execution to FILE, for https://ui.perfetto.dev")
      ->excludes(steps);
  command
      .add_option("--decisions", arguments.decisions,
                  "Write the order of each device's slots in the median execution, as PyTorch's pipeline CSV: an "
                  "online plan\ncan `replay` it (docs/schedules.md)")
      ->excludes(steps);
}

// How long what may take.
void add_limit_options(CLI::App& command, RunArguments& arguments) {
  command
      .add_option("--watchdog", arguments.watchdog_s,
                  "End with exit code 3 when no device computes and nothing is sent or received for this many seconds, "
                  "and say what is\nmissing; 0: never (default 10)")
      ->check(not_negative());
  command
      .add_option("--heartbeat", arguments.heartbeat_s,
                  "When a rank has died, is stopped or cut off, all others end within this many seconds, with exit "
                  "code 3. 0: never,\nand no TCP connections for it (default 10)")
      ->check(not_negative());
  command
      .add_option("--start-timeout", arguments.start_timeout_s,
                  "Seconds that all ranks may take to start and to connect; 0: for ever (default 60)")
      ->check(not_negative());
  command.add_option("--flight", arguments.flight,
                     "Folder for each rank's last instructions and messages, if the run fails: for nlbench "
                     "explain-failure\n(default: FILE.flight with --json FILE, else nlbench.flight)");
  command
      .add_option("--deadline-factor", arguments.deadlines.factor,
                  "A computation may take --deadline-floor plus this many times its device's predicted computing time "
                  "of an execution, or the\nlongest execution so far; then the run ends with exit code 3 (default 10). "
                  "Time in which it waits for a core\ndoes not count")
      ->check(not_negative());
  command
      .add_option("--deadline-floor", arguments.deadlines.floor_s,
                  "Seconds that any computation may take; the whole deadline of the first execution where nothing is "
                  "predicted; 0: for ever (default 120)")
      ->check(not_negative());
  command
      .add_option("--prepare-limit", arguments.deadlines.prepare_s,
                  "End with exit code 3 when planning, reading or distributing the weights, or writing the results "
                  "makes no progress\nfor this many seconds; 0: never (default 300)")
      ->check(not_negative());
  command
      .add_option("--planning-limit", arguments.planning_s,
                  "Seconds of processor time that nlsim may use for planning; 0: no limit (default 3600)")
      ->check(not_negative());
}

// For programs that start the ranks.
void add_starter_options(CLI::App& command, RunArguments& arguments) {
  command
      .add_option("--supervised", arguments.supervised,
                  "Say on stderr when all ranks have met and how they ended, in lines that hold TOKEN: for a program "
                  "that starts\nthe ranks and waits for them")
      ->type_name("TOKEN");
  command
      .add_option(
          "--turns", arguments.turns,
          "WHAT is a folder of plans: run them interleaved on these ranks, as FILE says. For `nlbench validate`, "
          "which writes FILE")
      ->type_name("FILE");
  command.add_flag("--turn-traces", arguments.turn_traces, "With --turns: a trace of each, too. For `nlbench network`");
}

}  // namespace

void add_run_options(CLI::App& app, int& code, int (*run)(const RunArguments&)) {
  CLI::App* command = app.add_subcommand(
      "run",
      "Run a plan with one rank for each of its devices, and measure it.\n"
      "  mpirun -np 4 nlbench run scenarios/quickstart.yaml --plan 1 --check\n"
      "  mpirun -np 4 nlbench run DIR --duration 10s --json result.json --trace trace.json\n"
      "  nlbench run DIR --transport grpc --workers b:7000,c:7000 --tls keys\n"
      "  nlbench run zoo:resnet18 --batch 8 --output y.npy\n"
      "Rank r runs the r-th device of the plan. Rank 0 reads all files and distributes the weights; "
      "other ranks need no files (if they see the folder, they read their weights themselves).\n"
      "Over TCP messages up to 16 MiB leave without waiting for the receiver (docs/running.md, Open MPI "
      "settings).");
  const auto a = std::make_shared<RunArguments>();
  add_work_options(*command, *a);
  add_gpu_options(*command, *a);
  add_measuring_options(*command, *a);
  add_transport_option(*command, a->transport);
  add_remote_options(*command, a->remote);
  add_polling_option(*command, a->polling);
  add_limit_options(*command, *a);
  add_starter_options(*command, *a);
  add_hosts_options(*command, a->hosts);
  command->add_option("--nlsim", a->job.nlsim,
                      "Path of nlsim, which plans scenarios and reads models (default: beside nlbench)");
  command->footer(
      "Of a scenario with `mode: training` every repeat is the same step, from the same weights: --check compares the "
      "weights and the optimizer's tensors after the step, --output writes them. Without --input the labels are "
      "drawn.");
  command->callback([a, &code, run] { code = run(*a); });
}

}  // namespace nlsplit::inline tools
