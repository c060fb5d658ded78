#!/bin/sh
# A host that asks pkg-config: the C interface from the shared library, C and C++ from the static one. sh pkg_config.sh PREFIX SOURCE_FOLDER OUTPUT_FOLDER CC CXX
set -eu
prefix=$1 source=$2 out=$3 cc=$4 cxx=$5
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name kaiju.pc)")
export PKG_CONFIG_PATH
mkdir -p "$out"
flags() { pkg-config --cflags --libs "$1 >= 0.1"; }
# shellcheck disable=SC2046  # flags are words
{
  $cc "$source/c/main.c" -o "$out/shared" $(flags kaiju) "-Wl,-rpath,$(pkg-config --variable=libdir kaiju)"
  $cc "$source/c/main.c" -o "$out/static" $(flags kaiju-static)
  $cxx -std=c++20 -O0 "$source/cpp/main.cpp" -o "$out/cpp" $(flags kaiju-static)
}
"$out/shared" && "$out/static" && "$out/cpp"
readelf -d "$out/shared" | grep -q 'NEEDED.*libkaiju\.so\.0'
! readelf -d "$out/static" | grep -q 'NEEDED.*libkaiju'
