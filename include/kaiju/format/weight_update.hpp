// Weight updates: how the weights of a checkpoint change from one state of a training run to the next, as a stream of
// small messages (docs/checkpoint.md, "Weight updates"). A step of -1, 0 or 1 of each int8 weight takes a fifth of a
// byte, and so does one of a row's scale. Character.AI named such ternary updates and their 1.6 bits a parameter; the
// form of the message, and the steps of scales, are ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kaiju/base/status.hpp"
#include "kaiju/format/checkpoint.hpp"

namespace kaiju {

// What the head of an update says.
struct WeightUpdateHead {
  uint64_t number = 0;  // the one after that of the update before
  std::string parent;   // root digest of the checkpoint that it changes
  std::string after;    // root digest of what that becomes
};

// Reads the head and checks that the bytes are whole and undamaged. kBadModel otherwise, kUnsupported for another
// version of the format.
Result<WeightUpdateHead> read_weight_update(std::span<const std::byte> update);

// Returns the checkpoint that an update makes of `checkpoint`, with the root digest that the update names: the same
// tensors as a file of the new weights has. `checkpoint` stays as it was; tensors that do not change are shared with
// it. `update` is not kept. Takes memory for the changed tensors, and about a second for 2 GB of them.
//
// kInvalidArgument if the update was made for other weights, or if `checkpoint` is itself the result of an update and
// this one does not have the next number. kUnsupported if the checkpoint has a head or scales of another file: update
// the one without. kBadModel if the update is damaged, or breaks a rule of docs/checkpoint.md.
Result<std::shared_ptr<const Checkpoint>> with_update(const std::shared_ptr<const Checkpoint>& checkpoint,
                                                      std::span<const std::byte> update);

// Writes the update that makes `after` of `before`. A matrix whose weights change by at most 1 each is written in
// ternary form, a float32 tensor whose values change by a 128th of them each in scaled form, every other tensor that
// changes as a whole. kInvalidArgument if the two are not of one shape: config,
// rotary frequencies and tokenizer must be equal.
Result<std::vector<std::byte>> make_weight_update(const Checkpoint& before, const Checkpoint& after, uint64_t number);

}  // namespace kaiju
