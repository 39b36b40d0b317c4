// Hello and welcome: what the two ends of a stream tell each other first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/heartbeat/facts.h"

namespace nlsplit::inline exec {

struct AboutRank {
  std::string host, machine;  // machine: the same for all processes between two starts of a machine
  friend bool operator==(const AboutRank&, const AboutRank&) = default;
};
AboutRank about_this_process();

// Of the rank that opens the stream.
struct Hello {
  std::string secret;
  std::string run;  // random: which run this is
  int from = 0, to = 0;
  AboutRank about;
  std::vector<Fact> facts;  // that both must agree on
  // From rank 0 alone.
  std::vector<std::string> addresses = {};  // [rank]; of rank 0 empty
  double heartbeat_s = 0, start_timeout_s = 0;
  std::string job = {};
  friend bool operator==(const Hello&, const Hello&) = default;
};

std::string to_string(const Hello& hello);
std::string to_string(const AboutRank& about);
// Errors: no hello; ranks or addresses that cannot be.
Result<Hello> parse_hello(const std::string& text);
Result<AboutRank> parse_welcome(const std::string& text);

}  // namespace nlsplit::inline exec
