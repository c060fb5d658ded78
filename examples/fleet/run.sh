#!/bin/sh
# Three servers of the bundled model behind HAProxy on loopback, and a load: installs what is missing, builds, and prints what
# caches find by character, in turn, and in one big cache. --stay: leaves the fleet running for your own requests.
# --router vllm, first: measures vllm-router from PyPI, too, which is told of the caches over ZeroMQ.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/program.sh"
need_packages $kaiju_packages $kaiju_server_packages haproxy python3
[ -t 2 ] || [ -x "$build/bin/kaiju-server" ] || echo "building kaiju-server, once, a few minutes; what it does is in $build/build.log" >&2
build_program kaiju-server
if [ "${1:-}" = --router ] && [ "${2:-}" = vllm ]; then
  shift 2
  need_packages python3-venv
  [ -x "$root/build/fleet/bin/vllm-router" ] || { python3 -m venv "$root/build/fleet" && "$root/build/fleet/bin/pip" install -q vllm-router==0.1.17; }
  set -- --vllm-router "$root/build/fleet/bin/vllm-router" "$@"
fi
exec python3 "$root/examples/fleet/loopback.py" "$build/bin/kaiju-server" "$@"
