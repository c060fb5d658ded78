#!/bin/sh
# Chat with the bundled model: installs what is missing, builds, starts. Arguments go to the chat: sh examples/chat/run.sh --help
# With --model NAME, where NAME is one of those in models.sh, an open model: downloads and imports it first.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/program.sh"
check_model_name "$@"
need_packages $kaiju_packages
tell_of_build kaiju-chat
build_program kaiju-chat
start_program kaiju-chat "$@"
