#!/bin/sh
# Chat with the bundled model: installs what is missing, builds, starts. Arguments go to the chat: sh examples/chat/run.sh --help
# With --model NAME, where NAME is one of those in models.sh, an open model: downloads and imports it first.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packages.sh"
. "$root/examples/chat/models.sh"
need_packages $kaiju_packages

build="$root/build/chat"
log="$build/build.log"
mkdir -p "$build"
# Progress on a terminal only; a pipe gets the chat and nothing else. What went wrong is shown either way.
say() { if [ -t 2 ]; then printf '%s' "$1" >&2; fi; }
fail() {
  say '
'
  grep -E 'error|Error|FAILED' "$log" | head -n 20 >&2 || true
  echo "the build failed; all of it is in $log" >&2
  exit 1
}
[ -x "$build/bin/kaiju-chat" ] || say 'Building, once, a few minutes ... '
: >"$log"
# Later runs skip this: Ninja configures again by itself when a CMake file changed.
[ -f "$build/build.ninja" ] || cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKAIJU_BUILD_TESTS=OFF >"$log" 2>&1 || fail
if [ -t 2 ]; then
  # Ninja's "[3/40] ..." as one line that counts.
  { cmake --build "$build" --target kaiju-chat 2>&1 || echo BUILD_FAILED; } | tee -a "$log" | sed -un 's/^\[\([0-9]*\/[0-9]*\)\].*/\1/p' | while read -r count; do
    printf '\rBuilding, once, a few minutes ... %s ' "$count" >&2
  done
  printf '\r                                              \r' >&2
  if grep -q BUILD_FAILED "$log"; then fail; fi
else
  cmake --build "$build" --target kaiju-chat >>"$log" 2>&1 || fail
fi
# --model NAME becomes --model FILE.
count=$#
previous=
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  name=
  case "$previous $argument" in
  *" --model="*) name=${argument#--model=} ;;
  "--model "*) name=$argument ;;
  esac
  for known in $models; do
    if [ "$name" = "$known" ] && [ ! -e "$name" ]; then
      file=$(model_file "$name" "$root/build/models") || { echo "the model $name could not be had; see above" >&2; exit 1; }
      argument=${argument%"$name"}$file
    fi
  done
  previous=$argument
  set -- "$@" "$argument"
done
exec "$build/bin/kaiju-chat" "$@"
