#!/bin/sh
# Serve the bundled model over HTTP: installs what is missing, builds, starts, prints the address. Arguments go to the server:
# sh examples/server/run.sh --help. With --model NAME, where NAME is one of those in ../chat/models.sh, an open model.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/program.sh"
check_model_name "$@"
need_packages $kaiju_packages $kaiju_server_packages
tell_of_build kaiju-server
# Structured replies want xgrammar, whose sources are on PyPI.
if xgrammar=$(sh "$root/examples/structured/fetch.sh" "$root/build/xgrammar"); then
  build_program kaiju-server "-DXGRAMMAR_SOURCE=$xgrammar"
else
  echo "going on without structured replies: xgrammar could not be fetched from PyPI" >&2
  build_program kaiju-server
fi
start_program kaiju-server "$@"
