#!/bin/sh
# Fetches xgrammar's source package from PyPI and unpacks it: sh examples/structured/fetch.sh FOLDER
# Needs python3 with pip; another Python in $PYTHON.
# Prints the folder of the sources, which is the same at the next call.
set -eu
version=0.2.9
mkdir -p "$1"
folder=$(cd "$1" && pwd)
source="$folder/xgrammar-$version"
if [ ! -f "$source/CMakeLists.txt" ]; then
  # pip asks the package for its metadata, which needs the tools in pip's own environment, and no compiler.
  "${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary xgrammar --dest "$folder" "xgrammar==$version" >&2
  tar -xzf "$folder/xgrammar-$version.tar.gz" -C "$folder"
  rm "$folder/xgrammar-$version.tar.gz"
fi
echo "$source"
