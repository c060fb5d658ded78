#!/bin/sh
# A program in Rust over what bindgen reads in kaiju.h, without hand work: rust.sh LIBRARY CHECKPOINT FOLDER
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
bindgen=$(command -v bindgen) && rustc=$(command -v /usr/bin/rustc || command -v rustc) || { echo "skipped: bindgen or rustc is missing"; exit 77; }
mkdir -p "$3"
size_t=  # older bindgen reads size_t as u64 unless told
"$bindgen" --help | grep -q -- ' --size_t-is-usize' && size_t=--size_t-is-usize
"$bindgen" $size_t "$here/../../../capi/kaiju.h" -o "$3/kaiju.rs"
KAIJU_BINDINGS=$3 "$rustc" --edition 2021 -D warnings -o "$3/two_streams" "$here/two_streams.rs" -L "$(dirname "$1")" -l dylib=kaiju
LD_LIBRARY_PATH=$(dirname "$1") "$3/two_streams" "$2"
