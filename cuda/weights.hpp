// Copies a model's weights to the memory of a GPU.
#pragma once

#include "device.hpp"
#include "kaiju/model/weights.hpp"
#include "memory.hpp"
#include "split.hpp"

namespace kaiju::cuda {

// Copies every matrix and constant, on `stream`, to one piece of the GPU's memory and turns the views of `weights`
// there. In version 1 of the arithmetic, what a layer computes from the same input (q, and k and v where it owns its
// slot) lies in one piece: it sets LayerWeights::packed. Afterwards the checkpoint is no longer needed. The frequencies
// of `rope` stay on the host. Of a model that several GPUs share it copies this one's part alone, and sets the
// dimensions to those of the part.
Status upload(Weights& weights, const Split& split, cudaStream_t stream, DeviceBuffer<std::byte>& memory);

// Copies other weights of the same config over those in `memory`, and turns the views of `weights` there: every address
// stays what it was.
Status overwrite(Weights& weights, const Split& split, cudaStream_t stream, DeviceBuffer<std::byte>& memory);

// Whether two models have equal constants of those that kernels take by value: in recorded graphs they are fixed.
bool same_scalars(const Weights& a, const Weights& b);

// Copies the classifier of `from`, which is in host memory, to the place of the one of `to` on the GPU. Waits for the
// stream.
Status copy_classifier(const Weights& from, Weights& to, cudaStream_t stream);

// The same for the scales of keys and values, of version 1 of the arithmetic. Leaves of the vectors of `from`, which
// are those of the whole model, this GPU's part.
Status copy_kv_scales(Weights& from, const Split& split, const Weights& to, cudaStream_t stream);

}  // namespace kaiju::cuda
