// FloatState: the floating-point mode the contract assumes (round to nearest, subnormals kept, nothing trapped), for
// the length of a scope. What the thread had before comes back at its end, so a host that flushes subnormals neither
// changes our bits nor notices us.
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
  FloatState() : found_(_mm_getcsr()) { _mm_setcsr(kNearestMaskedKeepSubnormals); }
  ~FloatState() { _mm_setcsr(found_); }

 private:
  static constexpr unsigned kNearestMaskedKeepSubnormals = 0x1F80;  // MXCSR as the processor starts: no FTZ, no DAZ
  unsigned found_;
#else
  FloatState() {
    std::fegetenv(&found_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatState() { std::fesetenv(&found_); }

 private:
  std::fenv_t found_;
#endif
};

}  // namespace kaiju
