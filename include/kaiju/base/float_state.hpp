// FloatState: sets the floating-point mode of the numeric contract for the lifetime of the object: round to nearest,
// subnormals not flushed, no traps. The destructor restores the thread's previous mode. If the host flushes subnormals
// or traps inexact results, kaiju computes the same bits, and the host gets its own mode back. Every library call that
// computes with floats has a FloatState on its stack.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace kaiju {

class FloatState {
 public:
  FloatState(const FloatState&) = delete;
  FloatState& operator=(const FloatState&) = delete;

#if defined(__x86_64__) || defined(_M_X64)
  FloatState() : found_(_mm_getcsr()) { set(); }
  ~FloatState() { restore(); }

 private:
  void set() const { _mm_setcsr(kNearestMaskedKeepSubnormals); }
  void restore() const { _mm_setcsr(found_); }
  static constexpr unsigned kNearestMaskedKeepSubnormals = 0x1F80;  // MXCSR at processor reset: no FTZ, no DAZ
  unsigned found_;
#else
  FloatState() {
    std::fegetenv(&found_);
    set();
  }
  ~FloatState() { restore(); }

 private:
  void set() const { std::fesetenv(FE_DFL_ENV); }
  void restore() const { std::fesetenv(&found_); }
  std::fenv_t found_;
#endif

 public:
  // Calls host code (a callback) in the floating-point mode that the thread had before this FloatState.
  template <class Call>
  auto as_found(const Call& call) const {
    struct Found {
      explicit Found(const FloatState& state) : state(state) { state.restore(); }
      ~Found() { state.set(); }
      const FloatState& state;
    };
    const Found found(*this);
    return call();
  }
};

}  // namespace kaiju
