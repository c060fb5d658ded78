// NFC: Unicode's canonical composition, in O(n log n).
#pragma once

#include <string>
#include <string_view>

namespace kaiju {

// True if every character is below U+0300: such a text is in NFC as it is.
bool is_plainly_nfc(std::string_view text);

// `text` in NFC. It must be UTF-8. The result has at most three times as many bytes.
std::string nfc(std::string_view text);

}  // namespace kaiju
