// Begun replies: a reply that another server began, and did not end, is continued from its tokens so far.
//
// A reply is a function of the prompt's tokens, the seed and the samplers. So any server with the same checkpoint
// continues it bit for bit. A stream with return_token_ids tells the tokens of prompt and reply. The same request with
// these tokens, as prompt_token_ids and reply_token_ids, answers the whole reply from its beginning on, and computes
// what is new.
#pragma once

#include <span>
#include <vector>

#include "openai.hpp"

namespace kaiju::server {

// The field reply_token_ids. Throws Failure where they cannot be continued.
std::vector<int32_t> read_begun(const Fields& fields, const Wanted& wanted, int32_t vocabulary);

// The field prompt_token_ids in the place of the tokens that this server makes of the messages, `own`; those without
// the field. Throws Failure unless both are tokens of the same text: a gate judges the messages.
std::vector<int32_t> read_prompt_tokens(const Fields& fields, const Service& service, std::vector<int32_t> own);

// Appends what is begun to the prompt, tells it to the guide, and cuts max_tokens to what is left. The last token of it
// is generated again: so what ends a reply is judged here, and check_begun compares.
std::vector<int32_t> begin_reply(const Asked& asked, RequestOptions& options, Guide* guide);

// Throws Failure if the reply's newest token should be the last one that was begun, and is another: the tokens are none
// of this request.
void check_begun(const Run& run);

}  // namespace kaiju::server
