// The commands under `nlsim profile` that have files of their own.
#pragma once

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

void add_profile_import_command(CLI::App& profile, int& code);

}  // namespace nlsplit::inline tools
