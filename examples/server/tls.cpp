#include "tls.hpp"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <fstream>
#include <stdexcept>

namespace kaiju::server {

namespace ssl = boost::asio::ssl;

namespace {

// OpenSSL's message for a file that cannot be opened does not name it, and a folder opens but cannot be read.
void check_readable(const std::string& file) {
  std::ifstream in(file);
  if (!in || in.peek() == std::ifstream::traits_type::eof())
    throw std::runtime_error(file + ": cannot be read, or is empty");
}

}  // namespace

std::shared_ptr<ssl::context> tls_context(const std::string& certificate_file, const std::string& key_file) {
  check_readable(certificate_file);
  check_readable(key_file);
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  boost::system::error_code error;
  // Without this OpenSSL asks the terminal for the passphrase of a key that has one.
  context->set_password_callback([](size_t, ssl::context::password_purpose) { return std::string(); }, error);
  context->use_certificate_chain_file(certificate_file, error);
  if (error)
    throw std::runtime_error(
        fmt::format("{}: no certificate in PEM could be read: {}", certificate_file, error.message()));
  context->use_private_key_file(key_file, ssl::context::pem, error);
  const bool other = error.value() == static_cast<int>(ERR_PACK(ERR_LIB_X509, 0, X509_R_KEY_VALUES_MISMATCH));
  // A key of another kind than the certificate's is taken beside it, and is found by the second check.
  if (other || (!error && SSL_CTX_check_private_key(context->native_handle()) != 1))
    throw std::runtime_error(fmt::format("{} is not the key of the certificate {}", key_file, certificate_file));
  if (error)
    throw std::runtime_error(
        fmt::format("{}: no key in PEM without a passphrase could be read: {}", key_file, error.message()));
  return context;
}

}  // namespace kaiju::server
