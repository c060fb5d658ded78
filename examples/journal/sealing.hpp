// Sealing: AES-256-GCM and HMAC-SHA-256, by libcrypto.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace kaiju::journal {

inline constexpr size_t kNonceBytes = 12, kTagBytes = 16, kSealBytes = kNonceBytes + kTagBytes;
using Key = std::array<unsigned char, 32>;
using Hash = std::array<unsigned char, 32>;

Hash hmac(std::string_view key, std::string_view text);
// False where the system has no random bytes.
bool fill_randomly(unsigned char* bytes, size_t count);
// A random nonce, the sealed text and the tag; `beside` is sealed and not in it. Empty: libcrypto failed.
std::string seal(const Key& key, std::string_view text, std::string_view beside);
// Nothing where the bytes are not what seal gave for this key and `beside`.
std::optional<std::string> open_sealed(const Key& key, std::string_view sealed, std::string_view beside);

}  // namespace kaiju::journal
