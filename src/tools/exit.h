// What both programs do at their edges: usage errors are exit code 2, errors go to stderr, Ctrl-C is asked for
// politely.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "base/interrupts.h"
#include "base/memory_faults.h"
#include "base/result.h"
#include "tools/usage.h"

namespace nlsplit::inline tools {

// Prints "error: …" and answers the exit code.
inline int report(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.to_string().c_str());
  return exit_code(error);
}

// For options that are counts; CLI11's own validators answer with all digits of the largest double.
inline CLI::Validator at_least(int64_t least) {
  return CLI::Validator(
      [least](std::string& text) {
        int64_t value = 0;
        const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (failure == std::errc() && end == text.data() + text.size() && value >= least) return std::string();
        return "'" + text + "' is not an integer from " + std::to_string(least) + " on";
      },
      ">=" + std::to_string(least));
}

// For options that are numbers.
inline CLI::Validator number_where(bool (*holds)(double), const std::string& what) {
  return CLI::Validator(
      [holds, what](std::string& text) {
        double value = 0;
        const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (failure == std::errc() && end == text.data() + text.size() && holds(value)) return std::string();
        return "'" + text + "' is not a number " + what;
      },
      what);
}
inline CLI::Validator above_zero() {
  return number_where([](double value) { return value > 0; }, "> 0");
}
inline CLI::Validator not_negative() {
  return number_where([](double value) { return value >= 0; }, ">= 0");
}

// What a program does before anything else: memory that is gone ends it with a message, and a file that may not grow
// is an error of the write, not a signal.
inline void begin_program() {
  catch_memory_faults();
  std::signal(SIGXFSZ, SIG_IGN);
}

// What the system refuses in the middle of the work (threads, memory): a fault.
inline int report_fault(const std::exception& trouble) {
  std::fprintf(stderr, "error: %s\n", trouble.what());
  return exit_of_a_fault;
}

inline int report_output_failure() { return report(io_error("cannot write to standard output")); }

inline int flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  return report_output_failure();
}

// Parses, runs the chosen subcommand's callback, answers the exit code.
inline int parse_and_run(CLI::App& app, int argc, char** argv, const int& code) {
  app.failure_message(usage_error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version are "errors" with code 0; every other one is bad usage.
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& trouble) {
    if (std::ferror(stdout) != 0) return report_output_failure();  // fmt::print throws
    return report_fault(trouble);
  }
  const int flushed = flush_output();
  return flushed != 0 ? flushed : code;
}

}  // namespace nlsplit::inline tools
