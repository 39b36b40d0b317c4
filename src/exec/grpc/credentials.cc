#include "exec/grpc/credentials.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/file.h"

namespace nlsplit::inline exec {
namespace {

Status check_private(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return invalid_input(fmt::format("{}: others than its owner may use it; chmod 600 {}", path, path));
  return ok_status();
}

Status check_certificate(const std::string& path, const std::string& text) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
                                                      BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr),
                                                                X509_free);
  if (!certificate) return invalid_input(path + ": no certificate (PEM)");
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0)
    return invalid_input(path + ": this certificate has expired: nlbench certificates makes a new folder");
  return ok_status();
}

}  // namespace

Result<Credentials> read_credentials(const std::string& folder) {
  ::setenv("GRPC_VERBOSITY", "NONE", 0);  // it has words of its own for what ends up in our errors
  if (folder.empty()) return Credentials{grpc::InsecureServerCredentials(), grpc::InsecureChannelCredentials(), ""};
  ASSIGN_OR_RETURN(const std::string authority, read_file(folder + "/ca.crt"));
  ASSIGN_OR_RETURN(const std::string certificate, read_file(folder + "/node.crt"));
  ASSIGN_OR_RETURN(const std::string key, read_file(folder + "/node.key"));
  ASSIGN_OR_RETURN(std::string secret, read_file(folder + "/secret"));
  RETURN_IF_ERROR(check_private(folder + "/node.key"));
  RETURN_IF_ERROR(check_private(folder + "/secret"));
  RETURN_IF_ERROR(check_certificate(folder + "/ca.crt", authority));
  RETURN_IF_ERROR(check_certificate(folder + "/node.crt", certificate));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (secret.size() < 16) return invalid_input(folder + "/secret: a secret has at least 16 characters");
  grpc::SslServerCredentialsOptions server(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  server.pem_root_certs = authority;
  server.pem_key_cert_pairs.push_back({key, certificate});
  const grpc::SslCredentialsOptions client{authority, key, certificate};
  return Credentials{grpc::SslServerCredentials(server), grpc::SslCredentials(client), std::move(secret)};
}

bool same_secret(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Status check_address(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  int number = -1;
  const auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (colon == 0 || failure != std::errc() || end != port.data() + port.size() || number < 0 || number > 65535)
    return invalid_input(fmt::format("'{}' is no HOST:PORT", address));
  return ok_status();
}

bool is_loopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  in_addr parsed{};
  constexpr uint32_t net = 127, shift = 24;
  const bool is_number = ::inet_pton(AF_INET, host.c_str(), &parsed) == 1;
  return host == "localhost" || host == "[::1]" || (is_number && ntohl(parsed.s_addr) >> shift == net);
}

}  // namespace nlsplit::inline exec
