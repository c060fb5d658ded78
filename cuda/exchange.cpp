// Exchange: buffers, and launches of the kernels. See exchange.hpp.
#include "exchange.hpp"

#include <algorithm>
#include <string>

#include "cuda.hpp"
#include "exchange_sizes.hpp"

namespace kaiju::cuda {

Result<int64_t> exchange_bytes(const ModelConfig& config, int32_t count, int32_t step_tokens, int32_t slot_count) {
  KAIJU_TRY(check_split(config, count));
  return count == 1 ? 0 : most_exchange_bytes(config, count, step_tokens, logit_rows_of(slot_count, step_tokens));
}

Result<std::shared_ptr<LostFlag>> LostFlag::make() {
  auto flag = std::make_shared<LostFlag>();
  KAIJU_TRY(take(flag->memory_, sizeof(int32_t), "a flag that GPUs share"));
  return flag;
}

Result<std::unique_ptr<Exchange>> Exchange::make(std::shared_ptr<Device> device, const Split& split,
                                                 const ModelConfig& config, int32_t rows, int32_t logit_rows,
                                                 std::shared_ptr<LostFlag> lost) {
  std::unique_ptr<Exchange> made(new Exchange(std::move(device), std::move(lost)));
  made->width_ = config.d_model;
  const ExchangeSizes sizes = exchange_sizes(config, split, rows, logit_rows);
  made->result_ = sizes.result;
  made->part_ = sizes.part;
  for (DeviceBuffer<int32_t>& sums : made->sums_)
    KAIJU_TRY(take(sums, static_cast<size_t>(sizes.sums), "the sums of several GPUs"));
  Peers& peers = made->peers_;
  peers.count = split.count, peers.rank = split.rank;
  for (int32_t p = 0; p <= split.count; ++p) peers.first_column[p] = split.part(config.vocab_size, kVocabUnit, p).first;
  KAIJU_TRY(take(made->logits_, static_cast<size_t>(sizes.logits), "the logits"));
  KAIJU_TRY(take(made->arrived_, static_cast<size_t>(sizes.arrived), "what GPUs tell each other"));
  KAIJU_TRY(take(made->state_, static_cast<size_t>(sizes.state), "what GPUs tell each other"));
  peers.state = made->state_.data();
  peers.lost = made->lost_->address();
  if (!made->device_->check(Event::make(made->turn_ended_), "an event of several GPUs")) return made->device_->status();
  if (config.arithmetic() == 1) return made;
  SharedMost& most = made->most_;
  most.count = split.count, most.rank = split.rank, most.rows = rows;
  KAIJU_TRY(take(made->most_there_, static_cast<size_t>(sizes.largest), "what GPUs tell each other of rows"));
  most.state = made->state_.data() + 2;
  most.lost = peers.lost;
  return made;
}

// So that kernels of the current GPU, `own`, write to the memory of GPU `other`.
static Status reach(Device& own, int32_t other) {
  const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
  if (error == cudaSuccess) return {};
  if (error == cudaErrorPeerAccessAlreadyEnabled || error == cudaErrorPeerAccessUnsupported ||
      error == cudaErrorTooManyPeers)
    cudaGetLastError();  // it stays as the thread's last error otherwise
  if (error == cudaErrorPeerAccessAlreadyEnabled) return {};
  const std::string who = "GPUs " + std::to_string(own.index()) + " and " + std::to_string(other);
  if (error == cudaErrorPeerAccessUnsupported || error == cudaErrorTooManyPeers)
    return {StatusCode::kUnsupported,
            who + " do not reach each other's memory (" + cudaGetErrorString(error) + "): create an engine for each"};
  own.check(error, ("access between " + who).c_str());
  return own.status();
}

Status Exchange::connect(std::span<Exchange* const> all, std::span<const Rooms> rooms) {
  for (Exchange* const own : all) {
    const int32_t index = own->device_->index();
    const CurrentDevice current(index);
    for (size_t p = 0; p < all.size(); ++p) {
      const int32_t other = all[p]->device_->index();
      if (other != index) KAIJU_TRY(reach(*own->device_, other));
      own->peers_.arrived[p] = all[p]->arrived_.data();
      for (int32_t turn = 0; turn < 2; ++turn)
        own->sums_of_[turn][p] = all[p]->sums_[turn].data() + own->part_ * own->peers_.rank;
      own->peers_.logits[p] = all[p]->logits_.data();
      own->peers_.x[p] = rooms[p].stream;
      own->peers_.a[p] = rooms[p].bytes;
      own->peers_.floats[p] = rooms[p].floats;
      own->most_.of[p] = all[p]->most_there_.data();
    }
  }
  return {};
}

SumTargets Exchange::begin(int32_t rows, const float* scale) {
  begun_ = {sums_[turn_].data(), part_, rows, width_, spreads(rows, width_, peers_.count, result_), scale};
  SumTargets targets;
  std::copy_n(sums_of_[turn_], kMostGpus, targets.to);
  targets.count = peers_.count, targets.spread = begun_.spread;
  turn_ = 1 - turn_;
  return targets;
}

void Exchange::finish_norm(const NormArgs& norm) {
  begun_.eps = norm.eps, begun_.inverse_scale = norm.inverse_scale;
  add_sums(ReceivedSums::To::kNorm);
}

void Exchange::finish_stream() {
  if (has_begun()) add_sums(ReceivedSums::To::kStream);
}

void Exchange::finish_floats() { add_sums(ReceivedSums::To::kFloats); }

void Exchange::add_sums(ReceivedSums::To to) {
  begun_.to = to;
  device_->attempt("the sums of several GPUs",
                   [&] { return add_sums_of_all(device_->stream(), device_->chip(), peers_, begun_); });
  begun_ = {};
}

void Exchange::gather_logits(int32_t rows, float* logits) {
  device_->attempt("the logits of several GPUs",
                   [&] { return cuda::gather_logits(device_->stream(), device_->chip(), peers_, rows, logits); });
}

void Exchange::wait_for(Mark mark) {
  device_->attempt("a turn of several GPUs",
                   [&] { return cudaStreamWaitEvent(device_->stream(), static_cast<cudaEvent_t>(mark), 0); });
}

Mark Exchange::mark() {
  device_->attempt("a turn of several GPUs", [&] { return cudaEventRecord(turn_ended_.get(), device_->stream()); });
  return turn_ended_.get();
}

void Exchange::look_for_lost() {
  if (lost_->is_set()) device_->fail("a step that several GPUs share", "one of them did not come");
}

}  // namespace kaiju::cuda
