// Nanoseconds and TimePoint: time as plain numbers. Public headers use these types because <chrono> would add 8,000
// lines to each file that includes them. The durations and time points of std::chrono convert to these types
// implicitly.
#pragma once

#include <compare>
#include <cstdint>
#include <type_traits>

namespace kaiju {

// A Nanoseconds object is a duration. A duration that does not fit into 64 bits (292 years) is clamped to the largest
// or smallest one that fits.
struct Nanoseconds {
  int64_t count = 0;

  constexpr Nanoseconds() = default;
  constexpr explicit Nanoseconds(int64_t nanoseconds) : count(nanoseconds) {}
  // Converts from a std::chrono::duration.
  template <class Duration>
    requires requires(const Duration& duration) {
      duration.count();
      Duration::period::num;
      Duration::period::den;
    }
  constexpr Nanoseconds(const Duration& duration) {
    constexpr int64_t kSecond = 1'000'000'000;
    using Period = typename Duration::period;
    if constexpr (std::is_integral_v<typename Duration::rep> && kSecond % Period::den == 0) {
      const int64_t ticks = static_cast<int64_t>(duration.count());
      if (__builtin_mul_overflow(ticks, Period::num * (kSecond / Period::den), &count))
        count = ticks < 0 ? INT64_MIN : INT64_MAX;
    } else {
      const double value = static_cast<double>(duration.count()) * kSecond * Period::num / Period::den;
      count = value >= 9.2e18 ? INT64_MAX : value <= -9.2e18 ? INT64_MIN : static_cast<int64_t>(value);
    }
  }
  friend constexpr auto operator<=>(const Nanoseconds&, const Nanoseconds&) = default;
};

// A TimePoint object is a point in time: nanoseconds since the epoch of a steady clock.
struct TimePoint {
  int64_t nanoseconds = 0;

  constexpr TimePoint() = default;
  constexpr explicit TimePoint(int64_t since_beginning) : nanoseconds(since_beginning) {}
  // Converts from a std::chrono::time_point of the same clock.
  template <class Point>
    requires requires(const Point& point) {
      Nanoseconds(point.time_since_epoch());
      typename Point::clock;
    }
  constexpr TimePoint(const Point& point) : nanoseconds(Nanoseconds(point.time_since_epoch()).count) {}

  friend constexpr auto operator<=>(const TimePoint&, const TimePoint&) = default;
  friend constexpr TimePoint operator+(TimePoint point, Nanoseconds by) {
    int64_t sum = 0;
    if (__builtin_add_overflow(point.nanoseconds, by.count, &sum)) sum = by.count < 0 ? INT64_MIN : INT64_MAX;
    return TimePoint(sum);
  }
  friend constexpr TimePoint operator-(TimePoint point, Nanoseconds by) {
    int64_t difference = 0;
    if (__builtin_sub_overflow(point.nanoseconds, by.count, &difference))
      difference = by.count < 0 ? INT64_MAX : INT64_MIN;
    return TimePoint(difference);
  }
  friend constexpr Nanoseconds operator-(TimePoint a, TimePoint b) {
    int64_t difference = 0;
    if (__builtin_sub_overflow(a.nanoseconds, b.nanoseconds, &difference)) difference = a < b ? INT64_MIN : INT64_MAX;
    return Nanoseconds(difference);
  }
};

}  // namespace kaiju
