#include "tools/nlbench_run_options.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/launch_options.h"
#include "tools/nlbench_check.h"

namespace nlsplit::inline tools {

void add_run_options(CLI::App& app, int& code, int (*run)(const RunArguments&)) {
  CLI::App* command =
      app.add_subcommand("run",
                         "Run a plan on as many ranks as it has devices, and measure it.\n"
                         "  mpirun -np 4 nlbench run scenarios/quickstart.yaml --plan 1 --check\n"
                         "  mpirun -np 4 nlbench run DIR --duration 10s --json result.json --trace trace.json\n"
                         "  nlbench run DIR --transport grpc --workers b:7000,c:7000 --tls keys\n"
                         "  nlbench run zoo:resnet18 --batch 8 --output y.npy\n"
                         "Rank r runs the r-th device of the plan. Rank 0 reads all files and hands out the weights; "
                         "the others need none (of a folder they see as well they read their weights themselves).\n"
                         "Open MPI starts messages up to 64 KiB without waiting for the receiver over TCP, larger ones "
                         "after a handshake;\n"
                         "mpirun --mca btl_tcp_eager_limit 16777216 makes it one protocol, often faster.");
  const auto a = std::make_shared<RunArguments>();
  command
      ->add_option("WHAT", a->job.what,
                   "A folder saved by `nlsim lower --save`; a scenario (.yaml); a model (.onnx, .gguf, a safetensors "
                   "folder, zoo:NAME)")
      ->required();
  CLI::Option* plan = command->add_option(
      "--plan", a->job.plan, "Of a scenario: number in its ranking, or name of one of its plans (default 1)");
  command->add_option("--plan-file", a->job.plan_file, "Of a scenario: a plan in a file of its own")->excludes(plan);
  command->add_option("--batch", a->job.batch, "Of a model: samples (default: as many as --input has, else 1)")
      ->check(CLI::PositiveNumber);
  command->add_option(
      "--isa", a->job.isa,
      "Of a model: kernels of this instruction level (v2, v3, v4, neon; cuda, tf32: a GPU's; default: this\n"
      "machine's)");
  command->add_option("--precision", a->job.precision,
                      "Of a model: float16 or bfloat16 instead of float32, but for inputs and outputs");
  add_check_options(*command, a->check, a->tolerance);
  command
      ->add_option(
          "--input", a->job.inputs,
          "X.npy, or NAME=X.npy, once for each input; of integers also a list, as 504,3575 (default: seeded normal "
          "values, and indices into what they index)")
      ->allow_extra_args(false);
  command->add_option("--output", a->output, "Write the network's output to Y.npy");
  command->add_option("--seed", a->job.seed, "Of the default input (default 1)");
  command
      ->add_option(
          "--gpu-missing", a->gpu_missing,
          "Devices of kind cuda where no GPU can be used. error: the run is refused (default); cpu: the CPU computes "
          "in their\nplace, and its times are not the scenario's")
      ->check(CLI::IsMember({"error", "cpu"}));
  command
      ->add_option(
          "--gpu-graphs", a->gpu_graphs,
          "How a GPU gets computations that no transfer interrupts. on: as one CUDA graph, with the times of "
          "each (default);\n"
          "untimed: a graph without them, so a trace shows all of its time at its first computation; off: one by "
          "one")
      ->check(CLI::IsMember({"on", "untimed", "off"}));
  command
      ->add_option("--gpu-messages", a->gpu_messages,
                   "auto: messages go from and to a GPU's memory where the MPI library says that it is CUDA-aware "
                   "(default); mirror:\n"
                   "always by the host's memory")
      ->check(CLI::IsMember({"auto", "mirror"}));
  command->add_option("--gpu-backend", a->gpu_backend,
                      "What computes on GPUs (default: libbackend_cuda.so beside nlbench)");
  CLI::Option* steps =
      command
          ->add_option("--steps", a->steps,
                       "Of a training scenario: so many steps on the same batch, each with the weights that the one "
                       "before left, one after\n"
                       "the other without a barrier; the loss of the first and the last, --json has all (default: "
                       "every repeat is the first step)")
          ->type_name("COUNT")
          ->check(CLI::PositiveNumber);
  command->add_option("--repeats", a->repeats, "Measured executions, at least (default 5)")
      ->check(CLI::PositiveNumber)
      ->excludes(steps);
  command->add_option("--warmup", a->warmup, "Executions before, not measured (default 1)")
      ->check(CLI::NonNegativeNumber)
      ->excludes(steps);
  command->add_option("--duration", a->duration, "Go on measuring for at least so long, such as 5s or 500ms")
      ->excludes(steps);
  command->add_option("--json", a->json, "Write all figures to FILE");
  command->add_option("--trace", a->trace, "Write the median execution to FILE, for https://ui.perfetto.dev")
      ->excludes(steps);
  command
      ->add_option(
          "--decisions", a->decisions,
          "Write which slots every device ran in which order in the median execution, as PyTorch's pipeline CSV: an "
          "online plan\n"
          "can `replay` it (docs/schedules.md)")
      ->excludes(steps);
  add_transport_option(*command, a->transport);
  add_remote_options(*command, a->remote);
  add_polling_option(*command, a->polling);
  command
      ->add_option(
          "--watchdog", a->watchdog_s,
          "Give up, with exit code 3, when no device computes and nothing is sent or received for so many seconds, and "
          "say what is\n"
          "missing; 0: never (default 10)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--heartbeat", a->heartbeat_s,
                   "So many seconds after a rank has died, is stopped or cut off, all others have ended, with exit "
                   "code 3. 0: never,\n"
                   "and no TCP connections for it (default 10)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--start-timeout", a->start_timeout_s,
                   "So many seconds all ranks may take to start and to find each other; 0: for ever (default 60)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--flight", a->flight,
                      "Folder for what each rank did last, if the run ends before its time: for nlbench "
                      "explain-failure\n"
                      "(default: FILE.flight with --json FILE, else nlbench.flight)");
  command
      ->add_option("--deadline-factor", a->deadlines.factor,
                   "A computation may take so many times what its device is predicted to compute in an execution, or "
                   "the longest\n"
                   "execution so far took, and --deadline-floor more; then the run ends with exit code 3 (default 10). "
                   "Time in\n"
                   "which a busy machine does not let it run does not count")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--deadline-floor", a->deadlines.floor_s,
                   "Seconds; alone where nothing is predicted and in the first execution; 0: computations may take for "
                   "ever (default 120)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option(
          "--prepare-limit", a->deadlines.prepare_s,
          "Give up, with exit code 3, when planning, reading or handing out the weights, or writing the results "
          "makes no progress\n"
          "for so many seconds; 0: never (default 300)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--planning-limit", a->planning_s,
                   "Seconds of processor time that nlsim may use for planning; 0: any (default 3600)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--supervised", a->supervised,
                   "Say on stderr when all ranks have met and how they ended, in lines that hold TOKEN: for a program "
                   "that starts\nthe ranks and waits for them")
      ->type_name("TOKEN");
  command
      ->add_option("--turns", a->turns,
                   "WHAT is a folder of plans: run them in turns on these ranks, as FILE says. For `nlbench validate`, "
                   "which writes FILE")
      ->type_name("FILE");
  command->add_flag("--turn-traces", a->turn_traces, "With --turns: a trace of each, too. For `nlbench network`");
  add_hosts_options(*command, a->hosts);
  command->add_option("--nlsim", a->job.nlsim,
                      "Where nlsim is, which plans scenarios and reads models (default: beside nlbench)");
  command->footer(
      "Of a scenario with `mode: training` every repeat is the same step, from the same weights: --check compares the "
      "weights and the optimizer's tensors after the step, --output writes them. Without --input the labels are "
      "drawn.");
  command->callback([a, &code, run] { code = run(*a); });
}

}  // namespace nlsplit::inline tools
