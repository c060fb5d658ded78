// Records of replies as bytes, and replies computed again from records: the library's part of a flight recorder. Where
// the bytes are kept, and who may read them, is the host's to decide; kaiju-server keeps them in an encrypted journal.
//
// The bytes: "KREC", the size of a JSON object as 4 bytes (little-endian), the object with what differs from a record
// without options, and the tokens as LEB128 numbers. A salt is not among them, only its digest.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kaiju/engine/engine.hpp"
#include "kaiju/engine/reply_record.hpp"

namespace kaiju {

std::string encode_record(const ReplyRecord& record);
// kBadModel if the bytes are no record, or damaged; kUnsupported if a later version wrote them.
Result<ReplyRecord> decode_record(std::string_view bytes);
// The JSON object of a record's bytes, which says all but the tokens. The errors of decode_record.
Result<std::string> describe_record(std::string_view bytes);

// A reply that was computed again.
struct Replayed {
  bool same_model = false;                  // the engine has the model and the scales of the record
  std::vector<int32_t> reply;               // as far as it was compared, and one token further where the two differ
  int32_t differs_at = -1;                  // place in the reply of the first token that differs; -1: none does
  DoneReason reason = DoneReason::kNone;    // kCancelled where the recorded reply was cut off, and this one there too
  std::vector<LabelStatistics> statistics;  // of the classifier's labels, if the engine's model has one
  bool refused = false;  // a verdict would end the reply by the record's limits, as far as it was computed
};

// Computes the reply of a record again, alone. Steps the engine, which must have no requests: kBusy otherwise. A
// reply that was cut off (cancelled, past its deadline, ended by a verdict) is compared as far as it went. Verdicts
// are counted and end nothing here, but for beams, whose limits are those at the end of the recorded search.
//
// With the model of the record the replies are equal, on every backend. kUnsupported for a guided reply and for one
// with a logits hook, because the record does not have what the host did. The other errors are those of submit, such
// as kInvalidArgument for a prompt that the engine's context does not hold.
Result<Replayed> replay(Engine& engine, const ReplyRecord& record);

}  // namespace kaiju
