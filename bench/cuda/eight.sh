#!/bin/sh
# One model over 1, 2, 4 and 8 GPUs of one host: the bits, then the times with shares of the floor and what the exchange
# costs beyond each GPU's own part.
#
#   bench/cuda/eight.sh PROGRAMS MODEL FOLDER [MOST [PRESETS]]
#
# PROGRAMS: a folder with kaiju-make, kaiju-score and kaiju-bench of a build with CUDA; nothing is built. MODEL: the
# bundled model. FOLDER gets the logs and table.md. MOST: no more GPUs than that; default: those that there are. PRESETS:
# default "small medium large". Models are written to $KAIJU_SCRATCH (default /dev/shm; large needs 110 GB there).
set -eu
programs=$1 model=$2 folder=$3
most=${4:-$(nvidia-smi --list-gpus | wc -l)}
presets=${5:-small medium large}
scratch=${KAIJU_SCRATCH:-/dev/shm}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"

first() { seq -s , 1 "$1"; }  # 1,2,...
counts=$(for n in 1 2 4 8; do if [ "$n" -le "$most" ]; then echo "$n"; fi; done)

# digest NAME FILE: the same on every number of GPUs, in chunks of every size
digest() {
  for n in $counts; do
    for chunk in 0 64 7; do
      bits=$("$programs/kaiju-score" "$2" --tokens "$folder/ids" --backend cuda --devices "$(first "$n")" --chunk $chunk |
        sed -n 's/^bits: //p')
      echo "$1, GPUs $n, chunk $chunk: $bits"
      [ "${expected:=$bits}" = "$bits" ] || { echo "eight.sh: $1 has other bits on $n GPUs: $bits, not $expected" >&2; exit 1; }
    done
  done
  expected=
}

# measure FILE DEVICES LOG
measure() {
  "$programs/kaiju-bench" step "$1" --backend cuda --devices "$2" --prompts 8192 --chunk 8192 --streams 1,64,256 \
    --context 4096 --seconds 0.2 --json > "$folder/$3.json" || echo "eight.sh: $3 was not measured" >&2
}

i=0; while [ $i -lt 600 ]; do echo $(((i * 37 + 11) % 4000)); i=$((i + 1)); done > "$folder/ids"
digest "bundled model" "$model"
"$programs/kaiju-make" --preset large --layers 2 --seed 1 --out "$scratch/eight.safetensors"
digest "large, 2 layers" "$scratch/eight.safetensors"
for preset in $presets; do
  for n in $counts; do  # a GPU's own part, alone: what a step would take without the exchange
    [ "$n" = 1 ] && continue
    "$programs/kaiju-make" --preset "$preset" --part "$n" --seed 1 --out "$scratch/eight.safetensors"
    measure "$scratch/eight.safetensors" 1 "$preset-part$n"
  done
  "$programs/kaiju-make" --preset "$preset" --seed 1 --out "$scratch/eight.safetensors"
  for n in $counts; do
    measure "$scratch/eight.safetensors" "$(first "$n")" "$preset-$n"
    echo "$preset on $n GPUs: done"
  done
done
rm "$scratch/eight.safetensors"
python3 "$here/eight_table.py" "$folder" | tee "$folder/table.md"
