#!/bin/sh
# The libraries of kaiju and its tests for Arm, unpacked into a folder: sh tests/arm/libraries.sh [FOLDER]
# From this machine's own package sources (Debian 12: the names are its), with apt's lists of its own in the folder: nothing is installed, no root needed.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
folder=${1:-$root/build/arm64-root}
packages="libfmt-dev libfmt9 libsentencepiece-dev libsentencepiece0 libprotobuf-lite32 libutf8proc-dev libutf8proc2 libxxhash-dev libxxhash0 libssl-dev libssl3 nlohmann-json3-dev catch2 zlib1g"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial"
folder=$(CDPATH= cd -- "$folder" && pwd)
cd "$folder/apt/archives"
arm() { apt-get -q -oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oAPT::Sandbox::User=root -oDir::State::Lists="$folder/apt/lists" -oDir::State::status=/dev/null -oDir::Cache="$folder/apt" "$@"; }
arm update
# shellcheck disable=SC2086  # a list of words on purpose
arm download $packages
for package in *.deb; do dpkg-deb -x "$package" "$folder"; done
