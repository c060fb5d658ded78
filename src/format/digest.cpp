// Computes digests: see digest.hpp.
#include "digest.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <new>

namespace kaiju::format {
namespace {

std::string canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes.digest) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

XXH3_state_t* raw(void* state) { return static_cast<XXH3_state_t*>(state); }

}  // namespace

Digest::Digest() : state_(reinterpret_cast<State*>(XXH3_createState())) {
  if (!state_) throw std::bad_alloc();
  restart();
}

void Digest::Free::operator()(State* state) const { XXH3_freeState(raw(state)); }
void Digest::restart() { XXH3_128bits_reset(raw(state_.get())); }
void Digest::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(raw(state_.get()), bytes.data(), bytes.size());
}
std::string Digest::text() const { return canonical(XXH3_128bits_digest(raw(state_.get()))); }

bool is_digest(std::string_view text) {
  return text.size() == 32 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string root_digest(std::string_view arithmetic, std::string_view config, const std::vector<TensorInfo>& sorted) {
  std::string text = fmt::format("{}\n{}\n", arithmetic, config);
  for (const TensorInfo& tensor : sorted)
    text += fmt::format("{} {} {} {}\n", tensor.name, dtype_name(tensor.dtype), fmt::join(tensor.shape, ","),
                        tensor.digest);
  return canonical(XXH3_128bits(text.data(), text.size()));
}

}  // namespace kaiju::format

namespace kaiju {

std::unique_ptr<TensorDigest> make_tensor_digest() { return std::make_unique<format::Digest>(); }

}  // namespace kaiju
