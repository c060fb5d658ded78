#!/bin/sh
# Every public C++ header (those in detail/ are no promise) compiles alone, and twice in one file: sh headers.sh COMPILER INCLUDE_FOLDER
set -eu
compiler=$1
export compiler include="$2"
cd "$include"
find kaiju -name '*.hpp' -not -path '*/detail/*' | sort | xargs -P 2 -n 1 sh -c '
  printf "#include \"%s\"\n#include \"%s\"\n" "$0" "$0" | $compiler -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I "$include" -x c++ - || {
    echo "kaiju: $0 does not compile alone, or not twice" >&2
    exit 255
  }'
