// Credentials: what makes two processes trust each other: certificates of one authority on both sides (mutual TLS), and
// a secret. A folder holds them: ca.crt, node.crt, node.key, secret. `nlbench certificates` makes it (certificates.h).
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace nlsplit::inline exec {

// The name in all certificates of a folder. Whoever has one of that authority is trusted, on any host.
inline constexpr const char* certificate_name = "nlsplit";

struct Credentials {
  std::shared_ptr<grpc::ServerCredentials> server;
  std::shared_ptr<grpc::ChannelCredentials> client;
  std::string secret;  // empty: without a folder
};

// folder empty: neither encrypted nor authenticated. Errors name the file: missing, unreadable, the key readable for
// others, a certificate that has expired.
Result<Credentials> read_credentials(const std::string& folder);

// Takes the same time wherever they differ.
bool same_secret(const std::string& a, const std::string& b);

// Error: it is no "host:port".
Status check_address(const std::string& address);
// Whether an address "host:port" is of this machine alone: 127.…, ::1, localhost.
bool is_loopback(const std::string& address);

}  // namespace nlsplit::inline exec
