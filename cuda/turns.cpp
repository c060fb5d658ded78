// Turns: locks the GPUs of a group, and keeps who was last on each. See turns.hpp.
#include "turns.hpp"

#include <algorithm>

namespace kaiju::cuda {

std::shared_ptr<TurnBoard> TurnBoard::of_process() {
  static std::mutex mutex;
  static std::weak_ptr<TurnBoard> board;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<TurnBoard> found = board.lock();
  if (!found) board = found = std::make_shared<TurnBoard>();
  return found;
}

TurnBoard::Place& TurnBoard::of(int32_t gpu) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return places_[gpu];
}

Turns::Turns(std::shared_ptr<TurnBoard> board, std::span<const int32_t> gpus) : board_(std::move(board)) {
  for (const int32_t gpu : gpus) places_.push_back(&board_->of(gpu));
  std::vector<int32_t> sorted(gpus.begin(), gpus.end());
  std::sort(sorted.begin(), sorted.end());
  for (const int32_t gpu : sorted) in_order_.push_back(&board_->of(gpu));
}

Turns::Turn Turns::begin() {
  Turn turn;
  turn.turns_ = this;
  for (size_t i = 0; i < in_order_.size(); ++i) {
    TurnBoard::Place& place = *in_order_[i];
    turn.locks_[i] = std::unique_lock(place.launching);
    if (place.group && place.group != this) turn.before_[static_cast<size_t>(turn.before_count_++)] = place.mark;
  }
  return turn;
}

void Turns::Turn::end(std::span<const Mark> marks) {
  if (!turns_) return;
  for (size_t rank = 0; rank < turns_->places_.size(); ++rank) {
    TurnBoard::Place& place = *turns_->places_[rank];
    if (!marks.empty())
      place.group = turns_, place.mark = marks[rank];
    else if (place.group == turns_)
      place.group = nullptr;
  }
  for (std::unique_lock<std::recursive_mutex>& lock : locks_)
    if (lock) lock.unlock();
  turns_ = nullptr;
}

QuietGpu::QuietGpu(int32_t gpu) : board_(TurnBoard::of_process()), launching_(board_->of(gpu).launching) {}

}  // namespace kaiju::cuda
