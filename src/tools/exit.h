// What both programs do at their edges: usage errors are exit code 2, errors go to stderr, Ctrl-C is asked for politely.
#pragma once

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "base/result.h"

namespace nlsplit {

inline constexpr int exit_interrupted = 130;

// Prints "error: …" and answers the exit code.
inline int report(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.to_string().c_str());
  return exit_code(error);
}

// Parses, runs the chosen subcommand's callback, answers the exit code.
inline int parse_and_run(CLI::App& app, int argc, char** argv, const int& code) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version are "errors" with code 0; every other one is bad usage.
    return app.exit(error) == 0 ? 0 : 2;
  }
  return code;
}

}  // namespace nlsplit
