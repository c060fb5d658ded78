#!/bin/sh
# One model over 1, 2, 4 and 8 GPUs of one host: the bits, then the times with shares of the floor, then what the
# exchange costs beyond each GPU's own part.
#
#   sh bench/cuda/eight.sh PROGRAMS MODEL FOLDER [MOST [PRESETS]]
#
# PROGRAMS  a folder with kaiju-make, kaiju-score and kaiju-bench of a build with CUDA; nothing is built
# MODEL     the bundled model
# FOLDER    gets table.md, digests, the JSON of every run, and `failed` with a line for everything that failed
# MOST      no more GPUs than that; default: all of the host. A host of two or four GPUs makes a dry run.
# PRESETS   default "large medium small", in this order
#
# Needs nvidia-smi, python3, and two GPUs or more that reach each other's memory. Models are written to $KAIJU_SCRATCH,
# one at a time: 110 GB for large, 34 for medium, 13 for small. The default is /dev/shm, which is memory of the host.
# One GPU alone must hold each model too; large fits one H200.
# Time: everything has not been run yet. Digests and small took 87 s on two H200s; making large takes some 200 s on 16
# cores.
#
# What is most worth comes first, for the time may end: the digests, which take little, then whole models from the
# first preset and most GPUs on, then the parts. Each line of the table is printed as soon as it is measured. On exit,
# also by a signal, the models are removed and the whole table is printed. The status is 0 if all digests are there and
# equal and everything was measured. (After kill -9, remove kaiju-eight.* from the scratch folder.)
set -eu
refuse() { echo "eight.sh: $1" >&2; exit 2; }
[ $# -ge 3 ] || refuse "usage: eight.sh PROGRAMS MODEL FOLDER [MOST [PRESETS]]"
programs=$1 model=$2 folder=$3
for program in kaiju-make kaiju-score kaiju-bench; do
  [ -x "$programs/$program" ] || refuse "there is no $program in $programs"
done
gpus=$(nvidia-smi --list-gpus | grep -c '^GPU') || refuse "nvidia-smi lists no GPU"
most=${4:-$gpus}
presets=${5:-large medium small}
here=$(cd "$(dirname "$0")" && pwd)
several=  # numbers of GPUs above one, the most first
for n in 8 4 2; do if [ "$n" -le "$most" ] && [ "$n" -le "$gpus" ]; then several="$several $n"; fi; done
[ "$several" ] || refuse "two GPUs are needed, and there are $gpus, of which at most $most are to be used"

mkdir -p "$folder"
rm -f "$folder/table.md" "$folder/digests" "$folder/failed"
for preset in $presets; do rm -f "$folder/$preset"-*.json; done
scratch=$(mktemp -d "${KAIJU_SCRATCH:-/dev/shm}/kaiju-eight.XXXXXX")
made=$scratch/model.safetensors
child=
finish() {
  status=$?
  trap '' HUP INT PIPE TERM
  if [ "$child" ]; then kill -KILL "$child" 2>/dev/null || :; fi
  rm -rf "$scratch"
  python3 "$here/eight_table.py" "$folder" "$presets" "1$several" > "$folder/table.md" || status=1
  cat "$folder/table.md" || :
  if [ -e "$folder/failed" ] && [ "$status" = 0 ]; then status=1; fi
  exit "$status"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM

fail() { echo "eight.sh: $1" >&2; echo "$1" >> "$folder/failed"; }
first() { seq -s , 1 "$1"; }  # 1,2,...

# run FILE COMMAND...: standard output to FILE, which is empty if the command fails. In the background, for a shell
# answers signals while it waits, but not while it runs a command itself.
run() {
  output=$1; shift
  "$@" > "$output" &
  child=$!
  ran=0; wait "$child" || ran=$?
  child=
  if [ "$ran" != 0 ]; then : > "$output"; fi
  return "$ran"
}

# make WHAT OPTIONS...: the model $made, the one before removed first: 110 GB are not there twice
make() {
  what=$1; shift
  rm -f "$made"
  if run "$scratch/said" "$programs/kaiju-make" "$@" --seed 1 --out "$made"; then return 0; fi
  fail "$what: the model was not made"
  return 1
}

# digest NAME FILE: the same on every number of GPUs, in chunks of every size
digest() {
  expected=
  for n in 1 $several; do
    for chunk in 0 64 7; do
      what="$1 on $n GPUs in chunks of $chunk"
      run "$scratch/said" "$programs/kaiju-score" "$2" --tokens "$folder/ids" --backend cuda \
        --devices "$(first "$n")" --chunk $chunk || :
      bits=$(sed -n 's/^bits: //p' "$scratch/said")
      if [ ! "$bits" ]; then fail "$what: no digest"; continue; fi
      echo "$what: $bits" | tee -a "$folder/digests"
      if [ "$bits" != "${expected:=$bits}" ]; then fail "$what: the digest is $bits, not $expected"; fi
    done
  done
}

# measure NAME DEVICES: $made, into NAME.json; prints its line of the table
measure() {
  echo "$1 ..."
  run "$folder/$1.json" "$programs/kaiju-bench" step "$made" --backend cuda --devices "$2" --prompts 8192 --chunk 8192 \
    --streams 1,64,256 --context 4096 --seconds 0.2 --json || :
  python3 "$here/eight_table.py" "$folder" "$presets" "1$several" "$1" || fail "$1: not measured"
}

i=0; while [ $i -lt 600 ]; do echo $(((i * 37 + 11) % 4000)); i=$((i + 1)); done > "$folder/ids"
digest "the bundled model" "$model"
if make "large, 2 layers" --preset large --layers 2; then digest "large, 2 layers," "$made"; fi
for preset in $presets; do
  if make "$preset" --preset "$preset"; then
    for n in $several 1; do measure "$preset-$n" "$(first "$n")"; done
  fi
done
for preset in $presets; do  # a GPU's own part, alone: what a step would take without the exchange
  for n in $several; do
    if make "$preset-part$n" --preset "$preset" --part "$n"; then measure "$preset-part$n" 1; fi
  done
done
