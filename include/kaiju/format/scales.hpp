// Scales of keys and values: the clips of the KV cache in a file of their own (docs/checkpoint.md, "Scales").
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

// A set of scales, and the traffic that it was made from.
struct KvScales {
  struct Slot {
    std::vector<float> k_clip, v_clip;   // [kv_width] the value that byte 127 stands for
    std::vector<uint64_t> keys, values;  // [kv_width, bins] how many bytes had each magnitude (KvCounts), by channel
  };
  std::vector<Slot> slots;       // by KV slot
  std::vector<uint64_t> tokens;  // [vocab_size] how often each token was seen
};

// The error of all that is asked about the scales of a model without clips.
inline Status no_clips() {
  return {StatusCode::kUnsupported,
          "each key and value of this model has a scale of its own: there are no scales to change or to calibrate"};
}

// Returns the scales of a checkpoint. The counts are empty where no set was given to it, for a model's own file does
// not tell them. kUnsupported if the model's keys and values have scales of their own.
Result<KvScales> scales_of(const Checkpoint& checkpoint);

// Returns the checkpoint with the scales of a file in place of its own. Its digest stays, and its scale_epoch is that
// of the scales. Returns what Checkpoint::open returns if the file cannot be read or breaks a rule, and
// kInvalidArgument if the scales were made for another checkpoint.
Result<std::shared_ptr<const Checkpoint>> with_scales(std::shared_ptr<const Checkpoint> checkpoint,
                                                      const std::string& path, Verify verify = Verify::kFull);

// Writes scales for a checkpoint. An old file at `path` is replaced as a whole. kInvalidArgument if they do not fit.
Status write_scales(const Checkpoint& checkpoint, const KvScales& scales, const std::string& path);

}  // namespace kaiju
