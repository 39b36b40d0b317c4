// Requests sent to a server as a trace says, whether or not it keeps up (open loop): what a server does under load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "serving/arrivals.h"
#include "serving/served.h"

namespace nlsplit::inline server {

struct ServerUrl {
  std::string host, port, path;  // path: in front of /v1/completions
};
// "http://127.0.0.1:8080". Error: no such URL; other schemes than http.
Result<ServerUrl> parse_url(const std::string& url);
// As a Host header has it: "localhost:8080", "[::1]:8080".
std::string host_and_port(const ServerUrl& url);

struct LoadOptions {
  ServerUrl url;
  std::string token;         // brought with each request; empty: none
  int64_t vocabulary = 256;  // prompts are of the tokens below
  double patience_s = 600;   // a request that has not ended so long after its arrival has failed
  bool (*cancelled)() = nullptr;
};

struct LoadResult {
  std::vector<ServedRequest> served;  // by arrival
  int64_t missing = 0;                // interrupted: so many had not ended, and are not among them
};
// Streams of POST /v1/completions, with `ignore_eos`, so that each answer has the length that the trace
// says. Errors: the host has no address.
Result<LoadResult> run_load(const RequestTrace& trace, const LoadOptions& options);

}  // namespace nlsplit::inline server
