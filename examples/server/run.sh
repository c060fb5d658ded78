#!/bin/sh
# Serve the bundled model over HTTP: installs what is missing, builds, starts, prints the address. Arguments go to the server:
# sh examples/server/run.sh --help. With --model NAME, where NAME is one of those in ../chat/models.sh, an open model.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/program.sh"
check_model_name "$@"
need_packages $kaiju_packages $kaiju_server_packages
# On a terminal the build counts its steps.
[ -t 2 ] || [ -x "$build/bin/kaiju-server" ] || echo "building kaiju-server, once, a few minutes; what it does is in $build/build.log" >&2
# Structured replies want xgrammar, whose sources are on PyPI.
if xgrammar=$(sh "$root/examples/structured/fetch.sh" "$root/build/xgrammar"); then
  build_program kaiju-server "-DXGRAMMAR_SOURCE=$xgrammar"
else
  echo "going on without structured replies: xgrammar could not be fetched from PyPI" >&2
  build_program kaiju-server
fi
start_program kaiju-server "$@"
