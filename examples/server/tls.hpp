// TLS: a certificate and its key, read from files.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

namespace kaiju::server {

// A server's context: TLS 1.2 or newer, with the certificate (PEM; its chain may follow it) and its key (PEM, without a
// passphrase). Throws std::runtime_error that names the file and what is wrong with it.
std::shared_ptr<boost::asio::ssl::context> tls_context(const std::string& certificate_file,
                                                       const std::string& key_file);

}  // namespace kaiju::server
