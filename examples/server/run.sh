#!/bin/sh
# Serve the bundled model over HTTP: installs what is missing, builds, starts, prints the address. Arguments go to the server:
# sh examples/server/run.sh --help. With --model NAME, where NAME is one of those in ../chat/models.sh, an open model.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/program.sh"
need_packages $kaiju_packages $kaiju_server_packages
build_program kaiju-server
start_program kaiju-server "$@"
