// nlbench: runs plans and measures. Its commands are in nlbench_*.cc.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "exec/transports/transports.h"
#include "tools/exit.h"
#include "tools/nlbench_commands.h"

namespace {

// All ranks of a launch read the same command line; one complaint about it is enough.
bool is_first_rank() { return nlsplit::find_transport("mpi")->launched_as().rank == 0; }

// Open MPI asks hwloc for the devices of this machine, and hwloc's GL plugin looks for ten X displays, each by the name
// localhost. Where there is no /etc/hosts and the name server does not answer, MPI_Init then takes most of a minute.
void look_for_no_displays() { ::setenv("HWLOC_COMPONENTS", "-gl", 0); }

}  // namespace

int main(int argc, char** argv) {
  using namespace nlsplit;
  begin_program();
  look_for_no_displays();  // here, so that an mpirun we start looks for none either
  CLI::App app(
      "nlbench runs split plans for real, measures them, and says how far the prediction was off.\n\n"
      "  mpirun -np 3 nlbench run SCENARIO --plan 1 --check   plan 1 of the scenario's ranking, compared with the "
      "unsplit network\n"
      "  mpirun -np 3 nlbench run DIR                         a plan saved by `nlsim lower SCENARIO --plan 1 --save "
      "DIR`\n"
      "  nlbench run DIR --transport threads                  the same in one process, without mpirun\n"
      "  nlbench run MODEL.onnx --input X.npy --output Y.npy  a network on this machine alone\n"
      "  nlbench profile SCENARIO -o profile.json             measure the network's kernels on this machine, for "
      "planning\n"
      "  nlbench network SCENARIO -o network.json             measure what messages take between the hosts\n"
      "  mpirun -np 4 nlbench survey -o survey.json           what these machines are, for `nlsim init`\n"
      "  nlbench validate SCENARIO -o DIR                     run the best plans and some others: was the ranking "
      "right?\n"
      "  nlbench session X.session --sequence \"init step*9\"   several Programs over the same states\n"
      "  nlbench generate SCENARIO --prompt \"Once upon\"      text from a language model, token by token\n"
      "  nlbench serve SCENARIO --port 8080                   a language model for other programs, over HTTP\n"
      "  nlbench load --url http://HOST:8080 --rate 2/s …     requests to it, and how long they took\n"
      "  nlbench worker --listen HOST:PORT --tls DIR          wait for runs that another machine starts, without MPI\n"
      "  nlbench explain-failure DIR                          why a run ended early: which rank waited for which\n",
      "nlbench");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 fine, 1 the work failed (--check found a difference), 2 bad input or usage (also too many or too "
      "few ranks), 3 a\n"
      "rank died, hangs, is stopped or cut off, 130 interrupted. mpirun returns the first code other than 0 of a rank, "
      "or 128 + the\n"
      "signal that killed a rank. docs/running.md says more.\n"
      "NLSPLIT_CODE_CACHE=FOLDER or off: where compiled code of generated kernels is kept (docs/generated.md).");
  app.set_version_flag("--version", "nlbench " NLS_VERSION);

  int code = 0;
  add_run_command(app, code);
  add_profile_command(app, code);
  add_network_command(app, code);
  add_survey_command(app, code);
  add_overlap_command(app, code);
  add_validate_command(app, code);
  add_session_command(app, code);
  add_train_command(app, code);
  add_generate_command(app, code);
  add_serve_command(app, code);
  add_load_command(app, code);
#ifdef NLS_GRPC
  add_worker_command(app, code);
  add_certificates_command(app, code);
#endif
  add_explain_command(app, code);
  app.failure_message(usage_error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream nowhere;
    std::ostream& out = is_first_rank() ? std::cout : nowhere;
    std::ostream& complaints = is_first_rank() ? std::cerr : nowhere;
    return app.exit(error, out, complaints) == 0 ? 0 : 2;
  } catch (const std::exception& trouble) {
    return report_fault(trouble);
  }
  const int flushed = flush_output();
  return flushed != 0 ? flushed : code;
}
