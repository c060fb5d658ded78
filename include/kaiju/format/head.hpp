// Heads: the classifier of a model in a file of its own (docs/checkpoint.md, "Heads").
#pragma once

#include <memory>
#include <string>

#include "kaiju/base/status.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

// Returns the checkpoint with the head of another file in place of its own classifier, if it has one. Labels and scores
// are then those of the head. All else is the checkpoint's: its digest too, so that cached and saved KV stays valid.
// Returns what Checkpoint::open returns if the file cannot be read or breaks a rule, and kInvalidArgument if the head
// was made for another checkpoint.
Result<std::shared_ptr<const Checkpoint>> with_head(std::shared_ptr<const Checkpoint> checkpoint,
                                                    const std::string& path, Verify verify = Verify::kFull);

// Writes the classifier of a checkpoint as a head for that checkpoint. An old file at `path` is replaced as a whole.
// Returns kInvalidArgument if the checkpoint has no classifier.
Status write_head(const Checkpoint& checkpoint, const std::string& path);

}  // namespace kaiju
