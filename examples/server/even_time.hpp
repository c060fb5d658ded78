// EvenTime: how long recent replies took until a client saw anything of them, and such a time for an answer that was
// ready at once. Knows no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace kaiju::server {

// Of a stream the client sees the first text, of another answer the whole.
enum class AnswerForm : uint8_t { kStream, kWhole };

class EvenTime {
 public:
  explicit EvenTime(uint64_t seed) : random_(seed) {}

  void add(AnswerForm form, double seconds) {
    Recent& recent = recent_[static_cast<size_t>(form)];
    if (recent.seconds.size() < kMost)
      recent.seconds.push_back(seconds);
    else
      recent.seconds[recent.oldest] = seconds;
    recent.oldest = (recent.oldest + 1) % kMost;
  }
  // One of the newest times, each as likely as the others. Without any, kUnknown.
  double draw(AnswerForm form) {
    const std::vector<double>& seconds = recent_[static_cast<size_t>(form)].seconds;
    if (seconds.empty()) return kUnknown;
    return seconds[std::uniform_int_distribution<size_t>(0, seconds.size() - 1)(random_)];
  }

  static constexpr size_t kMost = 64;
  static constexpr double kUnknown = 0.2;

 private:
  struct Recent {
    std::vector<double> seconds;
    size_t oldest = 0;
  };
  std::array<Recent, 2> recent_;  // by AnswerForm
  std::mt19937_64 random_;
};

}  // namespace kaiju::server
