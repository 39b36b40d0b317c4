// nlsim: plans and simulates. Its commands are in nlsim_*.cc.
#include <CLI/CLI.hpp>

#include "tools/commands.h"
#include "tools/exit.h"

// jemalloc's settings, where it is linked. A ranking fills hundreds of megabytes: in huge pages it has few faults, and
// children that simulate are forked with few pages to copy. Freed memory is kept, also that of large arrays
// (oversize_threshold): the kernel clears each page that it gives again.
extern "C" const char* malloc_conf;
const char* malloc_conf = "thp:always,dirty_decay_ms:-1,oversize_threshold:0";

int main(int argc, char** argv) {
  using namespace nlsplit;
  begin_program();
  CLI::App app(
      "nlsim plans and simulates neural networks that are split over machines: which layers belong on which machine,\n"
      "how fast that is, whether it fits, and whether splitting pays at all.\n\n"
      "  nlsim init --hosts a,b,c -o mine.yaml          a scenario of your own machines, measured\n"
      "  nlsim rank scenarios/quickstart.yaml           rank split plans\n"
      "  nlsim check SCENARIO --plan-file mine.yaml     what is wrong with a plan of your own, or how good it is\n"
      "  nlsim simulate SCENARIO --plan 1 --trace t.json  one plan in time, for https://ui.perfetto.dev\n"
      "  nlsim lower SCENARIO --plan 1                  what every machine will do, instruction by instruction\n"
      "  nlsim hostfile SCENARIO --plan 1               which host each rank belongs on, for mpirun\n"
      "  nlsim schedule 1f1b --micro-batches 8          a schedule drawn, with its bubble and memory\n"
      "  nlsim session X.session --on SCENARIO          several Programs over the same states, one after the other\n"
      "  nlsim serve SCENARIO --rate 2/s --requests 500  how a server of a language model would fare with requests\n"
      "  nlsim collectives SCENARIO --size 64MiB        all-reduce, all-gather and others, by every algorithm\n"
      "  nlsim sweep EXPERIMENT.yaml                    a grid of schedules, link speeds, noise: one CSV and a page\n"
      "  nlsim show zoo:resnet50 --fused                a network as text; --costs, --memory, --dot\n"
      "  nlsim profile show desk.json                   what nlbench measured, and how well it predicts other kernels\n"
      "  nlsim export zoo:resnet50 -o resnet50.onnx     the same for other runtimes\n"
      "  nlsim tokenize tokenizer.json --text 'Hello'   text to the tokens of a language model, and back\n",
      "nlsim");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 fine, 1 the work failed, 2 bad input or usage, 130 interrupted. docs/scenario.md explains "
      "scenarios.");
  app.set_version_flag("--version", "nlsim " NLS_VERSION);

  int code = 0;
  add_init_command(app, code);
  add_rank_command(app, code);
  add_check_command(app, code);
  add_show_command(app, code);
  add_export_command(app, code);
  add_lower_command(app, code);
  add_hostfile_command(app, code);
  add_simulate_command(app, code);
  add_session_command(app, code);
  add_serve_command(app, code);
  add_collectives_command(app, code);
  add_schedule_command(app, code);
  add_sweep_command(app, code);
  add_profile_command(app, code);
  add_zoo_command(app, code);
  add_tokenize_command(app, code);
  return parse_and_run(app, argc, argv, code);
}
