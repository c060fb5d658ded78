#!/bin/sh
# The Arm kernels under emulation: sh tests/arm/run.sh [BUILD_FOLDER [KAIJU_SCORE]]
# Cross-compiles (g++-aarch64-linux-gnu), compares a digest of the bundled model under qemu-user with that of this machine's kaiju-score (or, without
# one, of the emulated reference), and sees the backend refused by a processor without dot products. Exit code 77 and a reason where a tool is missing.
# KAIJU_ARM_ALL=1 runs the conformance tests of the kernels too (ten minutes).
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
build=${1:-$root/build/arm}
for tool in aarch64-linux-gnu-g++ qemu-aarch64 cmake; do
  command -v "$tool" >/dev/null || {
    echo "skipped: no $tool on this machine (Debian, Ubuntu: apt-get install g++-aarch64-linux-gnu qemu-user)"
    exit 77
  }
done
[ -f /usr/include/catch2/catch.hpp ] || {
  echo "skipped: Catch2 2 is needed, whose header alone is enough; version 3 would have to be installed for Arm"
  exit 77
}

cmake -S "$root/tests/arm" -B "$build" --toolchain "$root/cmake/aarch64-linux-gnu.cmake" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
target=kaiju-score
[ -z "${KAIJU_ARM_ALL:-}" ] || target=all
cmake --build "$build" --target $target >>"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
[ -z "${KAIJU_ARM_ALL:-}" ] || KAIJU_TEST_ISAS=i8mm,neon qemu-aarch64 -cpu max "$build/test_arm"

digest() { # command...
  printf '1 5 9 300 22 7 7 4000 12 511\n' | "$@" "$root/examples/chat/model/kaiju-nano.safetensors" --tokens - --threads 1 2>&1
}
emulated() { # processor, backend
  digest qemu-aarch64 -cpu "$1" "$build/kaiju-score" --backend "$2"
}
if [ -n "${2:-}" ]; then expected=$(digest "$2" | grep '^bits:'); else expected=$(emulated max reference | grep '^bits:'); fi
for run in "max i8mm" "max neon" "max portable" "neoverse-n1 auto" "cortex-a72 auto"; do
  # shellcheck disable=SC2086  # two words
  found=$(emulated $run | grep '^bits:') || found=nothing
  [ "$found" = "$expected" ] || {
    echo "$run: $found, not $expected" >&2
    exit 1
  }
done
if message=$(emulated cortex-a72 neon); then
  echo "a processor without dot products ran the neon backend" >&2
  exit 1
fi
case $message in
  *"lacks the instructions of neon"*) ;;
  *) echo "refused without saying why: $message" >&2 && exit 1 ;;
esac
echo "Arm: digests and refusal as they should be"
