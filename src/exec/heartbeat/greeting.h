// Greeting: the first message between ranks: the facts that must be equal, and the addresses at which they listen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/heartbeat/facts.h"

namespace nlsplit::inline exec {

struct Greeting {
  std::vector<Fact> facts;  // that all must agree on
  std::string host;
  uint16_t port = 0;
  std::string token;                   // random, to authenticate the peers of this run
  std::vector<std::string> addresses;  // loopback first
  friend bool operator==(const Greeting&, const Greeting&) = default;
};

// Greetings are messages of this size in every version, so that ranks of different versions can read each other's.
inline constexpr size_t greeting_size = 2048;

std::string own_host();
std::string to_string(const Greeting& greeting);  // at most greeting_size; addresses that find no room are left out
Result<Greeting> parse_greeting(const std::string& text, int rank);

// By rank. Error: two of them must not run together.
Status check_greetings(const std::vector<Greeting>& greetings);

// "rank 1 on host b"
std::string name_of(int rank, const Greeting& greeting);

}  // namespace nlsplit::inline exec
