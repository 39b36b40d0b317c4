// The subcommands of nlsim, one file each. Each adds itself to the app and, when chosen, leaves its exit code in
// `code`.
#pragma once

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

void add_init_command(CLI::App& app, int& code);
void add_rank_command(CLI::App& app, int& code);
void add_check_command(CLI::App& app, int& code);
void add_show_command(CLI::App& app, int& code);
void add_export_command(CLI::App& app, int& code);
void add_lower_command(CLI::App& app, int& code);
void add_hostfile_command(CLI::App& app, int& code);
void add_simulate_command(CLI::App& app, int& code);
void add_session_command(CLI::App& app, int& code);
void add_serve_command(CLI::App& app, int& code);
void add_collectives_command(CLI::App& app, int& code);
void add_schedule_command(CLI::App& app, int& code);
void add_sweep_command(CLI::App& app, int& code);
void add_profile_command(CLI::App& app, int& code);
void add_tokenize_command(CLI::App& app, int& code);
void add_zoo_command(CLI::App& app, int& code);

}  // namespace nlsplit::inline tools
