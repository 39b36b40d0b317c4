#include "exec/grpc/certificates.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/file.h"
#include "base/folder_writer.h"
#include "exec/grpc/credentials.h"

namespace nlsplit::inline exec {
namespace {

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* it) const { Free(it); }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
struct FreeBio {
  void operator()(BIO* it) const { BIO_free_all(it); }
};
using Text = std::unique_ptr<BIO, FreeBio>;

Error openssl_error(const char* what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  return failed(fmt::format("OpenSSL: {}: {}", what, text.data()));
}

bool add_extension(X509* certificate, X509* authority, int what, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, authority, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, what, value);
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// Signed by `authority`, or by itself where there is none.
Result<Certificate> sign(const char* name, int days, EVP_PKEY* key, X509* authority, EVP_PKEY* signer) {
  Certificate made(X509_new());
  std::array<unsigned char, 16> serial{};
  if (!made || RAND_bytes(serial.data(), static_cast<int>(serial.size())) != 1) return openssl_error("a certificate");
  serial[0] &= 0x7f;  // a positive number
  const std::unique_ptr<BIGNUM, Freed<BIGNUM, BN_free>> number(
      BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr));
  constexpr long day_s = 24 * 3600, clocks_differ_s = 3600;
  X509_NAME* subject = X509_get_subject_name(made.get());
  const bool is_authority = authority == nullptr;
  X509* issuer = is_authority ? made.get() : authority;
  const bool fine =
      X509_set_version(made.get(), 2) == 1 &&  // version 3
      number != nullptr && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(made.get())) != nullptr &&
      X509_gmtime_adj(X509_getm_notBefore(made.get()), -clocks_differ_s) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(made.get()), days * day_s) != nullptr &&
      X509_set_pubkey(made.get(), key) == 1 &&
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name), -1, -1,
                                 0) == 1 &&
      X509_set_issuer_name(made.get(), X509_get_subject_name(issuer)) == 1 &&
      add_extension(made.get(), issuer, NID_basic_constraints,
                    is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE") &&
      add_extension(made.get(), issuer, NID_key_usage,
                    is_authority ? "critical,keyCertSign" : "critical,digitalSignature") &&
      (is_authority ||
       (add_extension(made.get(), issuer, NID_ext_key_usage, "serverAuth,clientAuth") &&
        add_extension(made.get(), issuer, NID_subject_alt_name, fmt::format("DNS:{}", certificate_name).c_str()))) &&
      X509_sign(made.get(), signer, EVP_sha256()) > 0;
  if (!fine) return openssl_error("a certificate");
  return made;
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

Status make_private(const std::string& path, mode_t mode) {
  if (::chmod(path.c_str(), mode) != 0) return io_error(fmt::format("{}: {}", path, std::strerror(errno)));
  return ok_status();
}

}  // namespace

Status make_credentials(const std::string& folder, int days) {
  const Key authority_key(EVP_EC_gen("P-256")), key(EVP_EC_gen("P-256"));
  if (!authority_key || !key) return openssl_error("a key");
  ASSIGN_OR_RETURN(const Certificate authority,
                   sign("nlsplit authority", days, authority_key.get(), nullptr, authority_key.get()));
  ASSIGN_OR_RETURN(const Certificate node,
                   sign(certificate_name, days, key.get(), authority.get(), authority_key.get()));
  const Text authority_text(BIO_new(BIO_s_mem())), node_text(BIO_new(BIO_s_mem())), key_text(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(authority_text.get(), authority.get()) != 1 ||
      PEM_write_bio_X509(node_text.get(), node.get()) != 1 ||
      PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return openssl_error("a certificate's text");
  std::array<unsigned char, 32> random{};
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) return openssl_error("a secret");
  std::string secret;
  for (const unsigned char byte : random) secret += fmt::format("{:02x}", byte);
  ASSIGN_OR_RETURN(FolderWriter writer, FolderWriter::open(folder));
  RETURN_IF_ERROR(write_file(writer.path() + "/ca.crt", text_of(authority_text.get())));
  RETURN_IF_ERROR(write_file(writer.path() + "/node.crt", text_of(node_text.get())));
  RETURN_IF_ERROR(make_private(writer.path(), S_IRWXU));  // before there is anything to hide
  RETURN_IF_ERROR(write_file(writer.path() + "/node.key", text_of(key_text.get())));
  RETURN_IF_ERROR(write_file(writer.path() + "/secret", secret + "\n"));
  RETURN_IF_ERROR(make_private(writer.path() + "/node.key", S_IRUSR | S_IWUSR));
  RETURN_IF_ERROR(make_private(writer.path() + "/secret", S_IRUSR | S_IWUSR));
  return writer.commit();
}

}  // namespace nlsplit::inline exec
