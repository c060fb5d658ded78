// CosSin: the cosine and sine of a rotary angle. Plain data, as in row_args.hpp.
#pragma once

namespace kaiju::arith {

struct CosSin {
  float cos, sin;
};

}  // namespace kaiju::arith
