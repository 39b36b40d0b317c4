#include "exec/mpi/greeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <charconv>
#include <sstream>

namespace nlsplit {
namespace {

// Counts the changes of what ranks tell each other beside the Program's own messages.
constexpr const char* protocol = "nlsplit-ranks 1";

}  // namespace

std::string own_layout() {
  return fmt::format("{}-byte words, {}-endian", sizeof(size_t),
                     std::endian::native == std::endian::little ? "little" : "big");
}

std::string own_host() {
  char name[256] = "";
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

std::string to_string(const Greeting& greeting) {
  std::string text = fmt::format("{}\n{}\n{}\n{}\n{} {}", protocol, greeting.program, greeting.layout, greeting.host,
                                 greeting.port, greeting.token);
  for (const std::string& address : greeting.addresses) {
    if (text.size() + 1 + address.size() + 1 <= greeting_size) text += " " + address;
  }
  return text + "\n";
}

Result<Greeting> parse_greeting(const std::string& text, int rank) {
  std::istringstream stream(text);
  std::string first;
  Greeting greeting;
  std::getline(stream, first);
  std::getline(stream, greeting.program);
  if (first != protocol) {
    return invalid_input(fmt::format(
        "rank {} speaks '{}', this one '{}': all ranks must run the same version of nlbench", rank, first, protocol));
  }
  std::getline(stream, greeting.layout);
  std::getline(stream, greeting.host);
  stream >> greeting.port >> greeting.token;
  if (!stream) return invalid_input(fmt::format("the greeting of rank {} breaks off", rank));
  for (std::string address; stream >> address;) greeting.addresses.push_back(address);
  return greeting;
}

Status check_greetings(const std::vector<Greeting>& greetings) {
  for (size_t rank = 1; rank < greetings.size(); ++rank) {
    const Greeting &first = greetings[0], &other = greetings[rank];
    for (const auto& [mine, theirs] :
         {std::pair(first.program, other.program), std::pair(first.layout, other.layout)}) {
      if (mine == theirs) continue;
      return invalid_input(fmt::format("rank {} on host {} runs {}, rank 0 on host {} runs {}: all ranks must agree",
                                       rank, other.host, theirs, first.host, mine));
    }
  }
  return ok_status();
}

}  // namespace nlsplit
