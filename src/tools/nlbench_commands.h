// The subcommands of nlbench, one file each. Each adds itself to the app and, when chosen, leaves its exit code in
// `code`.
#pragma once

#include "base/result.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

// The exit code of a command that catches Ctrl-C; says what went wrong.
int end_command(const Status& status);

void add_run_command(CLI::App& app, int& code);
void add_profile_command(CLI::App& app, int& code);
void add_network_command(CLI::App& app, int& code);
void add_survey_command(CLI::App& app, int& code);
void add_overlap_command(CLI::App& app, int& code);
void add_validate_command(CLI::App& app, int& code);
void add_session_command(CLI::App& app, int& code);
void add_train_command(CLI::App& app, int& code);
void add_generate_command(CLI::App& app, int& code);
void add_serve_command(CLI::App& app, int& code);
void add_load_command(CLI::App& app, int& code);
#ifdef NLS_GRPC
void add_worker_command(CLI::App& app, int& code);
void add_certificates_command(CLI::App& app, int& code);
#endif
void add_explain_command(CLI::App& app, int& code);

}  // namespace nlsplit::inline tools
