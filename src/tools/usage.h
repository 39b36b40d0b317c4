// One-line errors for a wrong command line:
//
//   error: nlsim has no command 'rnk': did you mean 'rank'? (nlsim --help)
//   error: nlsim rank has no option --plan (nlsim rank --help)
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "base/text_reader.h"

namespace nlsplit::inline tools {

inline bool is_option(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

// "" or ": did you mean 'rank'?"
inline std::string meant(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : ": did you mean '" + near + "'?";
}

inline std::string unknown_command(const std::string& program, const std::string& word, const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return program + " has no command '" + word + "'" + meant(word, names);
}

// What nothing takes: the first option of it, else the first word.
inline std::string unexpected(const std::string& program, const std::vector<std::string>& rest, const CLI::App& app) {
  const auto option = std::find_if(rest.begin(), rest.end(), is_option);
  if (option == rest.end()) return program + " takes no '" + rest.front() + "'";
  const std::string word = option->substr(0, option->find('='));
  std::vector<std::string> names;
  for (const CLI::Option* known : app.get_options()) {
    for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  }
  return program + " has no option " + word + meant(word, names);
}

inline std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  std::string program = app->get_name(), what;
  const std::vector<std::string> rest = app->remaining(true);
  const std::vector<CLI::App*> chosen = app->get_subcommands();
  if (chosen.empty() && !rest.empty()) {
    what = is_option(rest.front()) ? unexpected(program, rest, *app) : unknown_command(program, rest.front(), *app);
  } else {
    const CLI::App& command = chosen.empty() ? *app : *chosen.back();
    if (!chosen.empty()) program += " " + command.get_name();
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && !rest.empty())
      what = unexpected(program, rest, command);
    else
      what = program + ": " + error.what();
  }
  return "error: " + what + " (" + program + " --help)\n";
}

}  // namespace nlsplit::inline tools
