#include "exec/heartbeat/greeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

namespace nlsplit::inline exec {
namespace {

// Counts the changes of what ranks tell each other beside the Program's own messages.
constexpr const char* protocol = "nlsplit-ranks 3";

}  // namespace

std::string own_host() {
  char name[256] = "";
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

std::string to_string(const Greeting& greeting) {
  std::string text = fmt::format("{}\n{}\n{} {}", protocol, greeting.host, greeting.port, greeting.token);
  const std::string facts = "\n" + to_text(greeting.facts);
  for (const std::string& address : greeting.addresses) {
    if (text.size() + 1 + address.size() + facts.size() <= greeting_size) text += " " + address;
  }
  return text + facts;
}

Result<Greeting> parse_greeting(const std::string& text, int rank) {
  std::istringstream stream(text);
  std::string line;
  Greeting greeting;
  std::getline(stream, line);
  if (line != protocol) {
    return invalid_input(fmt::format(
        "rank {} speaks '{}', this one '{}': all ranks must run the same version of nlbench", rank, line, protocol));
  }
  std::getline(stream, greeting.host);
  std::getline(stream, line);
  std::istringstream words(line);
  words >> greeting.port >> greeting.token;
  if (!words || !stream) return invalid_input(fmt::format("the greeting of rank {} breaks off", rank));
  for (std::string address; words >> address;) greeting.addresses.push_back(address);
  if (!stream.eof()) greeting.facts = facts_from(std::string_view(text).substr(static_cast<size_t>(stream.tellg())));
  return greeting;
}

Status check_greetings(const std::vector<Greeting>& greetings) {
  std::vector<RankFacts> ranks;
  for (size_t r = 0; r < greetings.size(); ++r) {
    ranks.push_back({name_of(static_cast<int>(r), greetings[r]), greetings[r].facts});
  }
  return check_facts(ranks);
}

std::string name_of(int rank, const Greeting& greeting) {
  return fmt::format("rank {} on host {}", rank, greeting.host);
}

}  // namespace nlsplit::inline exec
