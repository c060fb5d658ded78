// Byte-level BPE, the tokenizer of Llama 3, Qwen, GPT-2 and others: text is split into words, and the bytes of a word
// are merged by rank. The data and its rules are in byte_bpe_data.hpp.
#pragma once

#include <memory>

#include "byte_bpe_data.hpp"
#include "kaiju/text/tokenizer.hpp"

namespace kaiju {

// `data` as read_byte_bpe() checked it.
std::shared_ptr<const Tokenizer> make_byte_bpe(ByteBpeData data, int32_t vocab_size);

}  // namespace kaiju
