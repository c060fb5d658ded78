#!/bin/sh
# Builds kaiju-structured: fetches xgrammar's source package from PyPI, builds its C++ library, and then the program.
# Usage: sh examples/structured/build.sh [build folder]   (needs python3 with pip, CMake 3.22 and what kaiju needs)
# In kaiju's sources it builds kaiju too; the copy in PREFIX/share/doc/kaiju uses the kaiju that is installed there.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
if [ -f "$source/CMakeLists.txt" ]; then
  build=${1:-$source/build/structured}
else
  build=${1:-kaiju-structured}
fi
xgrammar=$(sh "$source/examples/structured/fetch.sh" "$build")
cmake -S "$source/examples/structured" -B "$build/program" -DCMAKE_BUILD_TYPE=Release -DXGRAMMAR_SOURCE="$xgrammar"
cmake --build "$build/program" --target kaiju-structured --parallel "${JOBS:-2}"
echo "built $build/program/kaiju-structured"
