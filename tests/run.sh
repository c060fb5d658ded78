#!/bin/sh
# Builds and runs all tests: installs what is missing first.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packages.sh"
need_packages $kaiju_packages catch2 python3 python3-numpy
need_packages clang tmux || echo "going on without: kaiju.h is read by gcc alone, or the chat not tried in tmux" >&2

build="$root/build/tests"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo
cmake --build "$build"
ctest --test-dir "$build" --output-on-failure -j2
