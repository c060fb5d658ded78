// See sealing.hpp.
#include "sealing.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <memory>

namespace kaiju::journal {
namespace {

struct Free {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, Free>;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }
int size_of(std::string_view text) { return static_cast<int>(text.size()); }

}  // namespace

Hash hmac(std::string_view key, std::string_view text) {
  Hash hash{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), size_of(key), bytes_of(text), text.size(), hash.data(), &size);
  return hash;
}

bool fill_randomly(unsigned char* bytes, size_t count) { return RAND_bytes(bytes, static_cast<int>(count)) == 1; }

std::string seal(const Key& key, std::string_view text, std::string_view beside) {
  std::string sealed(kNonceBytes + text.size() + kTagBytes, '\0');
  if (!fill_randomly(bytes_of(sealed), kNonceBytes)) return {};
  const Context context(EVP_CIPHER_CTX_new());
  unsigned char* const out = bytes_of(sealed) + kNonceBytes;
  int size = 0;
  const bool done = context &&
                    EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key.data(), bytes_of(sealed)) == 1 &&
                    EVP_EncryptUpdate(context.get(), nullptr, &size, bytes_of(beside), size_of(beside)) == 1 &&
                    EVP_EncryptUpdate(context.get(), out, &size, bytes_of(text), size_of(text)) == 1 &&
                    EVP_EncryptFinal_ex(context.get(), out + text.size(), &size) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, out + text.size()) == 1;
  return done ? sealed : std::string();
}

std::optional<std::string> open_sealed(const Key& key, std::string_view sealed, std::string_view beside) {
  if (sealed.size() < kSealBytes) return {};
  std::string text(sealed.size() - kSealBytes, '\0');
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  const Context context(EVP_CIPHER_CTX_new());
  int size = 0;
  const bool done = context &&
                    EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key.data(), bytes_of(sealed)) == 1 &&
                    EVP_DecryptUpdate(context.get(), nullptr, &size, bytes_of(beside), size_of(beside)) == 1 &&
                    EVP_DecryptUpdate(context.get(), bytes_of(text), &size, bytes_of(sealed) + kNonceBytes,
                                      static_cast<int>(text.size())) == 1 &&
                    EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
                    EVP_DecryptFinal_ex(context.get(), bytes_of(text) + text.size(), &size) == 1;
  return done ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace kaiju::journal
