#!/bin/sh
# The digests of kaiju-score on a GPU and on the processor: the bundled model, and two layers at the widths of `small` and `large`, cut and batched in five ways.
#
#   sh tests/digests_cuda.sh [--models DIR] [--programs DIR] [MODEL ...]
#
# MODEL is nano, small or large; all of them otherwise. Random models are made in DIR (5 GB; a temporary folder that goes again, without it), and used again where they are there.
# Wants a GPU and the programs of `cmake --preset cuda && cmake --build --preset cuda`. Fails unless all are equal.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
programs=$root/build/cuda/bin models=
refuse() { echo "digests_cuda.sh: $1" >&2 && exit 2; }
usage() { sed -n 's/^#   /usage: /p' "$0"; }
folder() { [ -n "${2:-}" ] || refuse "$1 wants a folder"; }
while [ $# -gt 0 ]; do
  case $1 in
  -h | --help) usage && exit 0 ;;
  --models) folder "$@" && models=$2 && shift 2 ;;
  --programs) folder "$@" && programs=$2 && shift 2 ;;
  -*) usage >&2 && refuse "there is no option $1" ;;
  *) break ;;
  esac
done
for name in "$@"; do
  case $name in nano | small | large) ;; *) refuse "there is no model $name; there are: nano small large" ;; esac
done
for program in kaiju-score kaiju-make; do
  [ -x "$programs/$program" ] || refuse "no $program in $programs: cmake --preset cuda && cmake --build --preset cuda, or --programs DIR"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
models=${models:-$work}

python3 -c '
import random, sys
random.seed(7)
for count in (600, 200):
    open(f"{sys.argv[1]}/{count}.txt", "w").write(" ".join(str(random.randrange(4, 8000)) for _ in range(count)))' "$work"
digest() { "$programs/kaiju-score" "$@" | sed -n 's/^bits: //p'; }

unequal=0
for name in ${*:-nano small large}; do
  case $name in
  nano) model=$root/examples/chat/model/kaiju-nano.safetensors count=600 ;;
  small | large)
    model=$models/$name-2-layers.safetensors count=200
    [ -f "$model" ] || "$programs/kaiju-make" --preset "$name" --layers 2 --seed 3 --out "$model" >/dev/null
    ;;
  esac
  expected=$(digest "$model" --tokens "$work/$count.txt" --backend portable)
  echo "$name, $count tokens, processor: $expected"
  for way in "--chunk 0" "--chunk 64" "--chunk 7" "--chunk 1" "--chunk 7 --batch 8"; do
    # shellcheck disable=SC2086  # two words, or four
    found=$(digest "$model" --tokens "$work/$count.txt" --backend cuda $way)
    if [ -z "$found" ]; then verdict=failed unequal=1; elif [ "$found" = "$expected" ]; then verdict=equal; else verdict=DIFFERS unequal=1; fi
    printf '%s, cuda, %-19s %s %s\n' "$name" "$way:" "$found" "$verdict"
  done
done
exit $unequal
