#!/bin/sh
# kaiju.h in every language a host may speak, without a warning: sh c_header.sh CAPI_FOLDER CC CXX [CC CXX]...
set -eu
header=$1
shift
checked=0
try() { # compiler, language, standard
  printf '#include "kaiju.h"\n#include "kaiju.h"\nint main(void) { return kaiju_version() != KAIJU_VERSION; }\n' |
    "$1" -x "$2" "-std=$3" -fsyntax-only -pedantic -pedantic-errors -Wall -Wextra -Werror -I "$header" - || {
    echo "kaiju.h is not clean as $3 with $1" >&2
    exit 1
  }
  checked=$((checked + 1))
}
while [ $# -ge 2 ]; do
  if command -v "$1" >/dev/null && command -v "$2" >/dev/null; then
    for standard in c89 c99 c11 c17; do try "$1" c $standard; done
    for standard in c++11 c++14 c++17 c++20; do try "$2" c++ $standard; done
  else
    echo "skipped: no $1 or no $2 on this machine"
  fi
  shift 2
done
echo "kaiju.h: $checked compilations, no warning"
[ $checked -gt 0 ]
