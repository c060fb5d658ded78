#!/bin/sh
# compute-sanitizer over the CUDA backend's kernels, in cases small enough to end: a line for each case and tool, and how it went.
#
#   sh tests/sanitize_cuda.sh [--jobs N] [--seconds S] [--within S] [--logs DIR] [--programs DIR] [--tools "memcheck racecheck initcheck"] [CASE ...]
#
# Wants a GPU, compute-sanitizer, and the programs of `cmake --preset cuda && cmake --build --preset cuda`. So many runs as `--jobs` says are made at once (they share the GPU, and
# wait for the tool most of the time); each may take `--seconds`, all of them together `--within`. Without a CASE all are run. Fails unless all are clean.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cases="row-step decode forms gated attention-whole attention-split attention-mma serve sampling products cublaslt rows scaled-rows scaled-attention scaled-step scaled-chunks"

# Runs case $1 under tool $2, with fewer random inputs than the tests make by themselves.
sanitize() {
  tool=$2 random=10
  case $1 in
  attention-whole) set -- kaiju-bench-attention check whole 0 96 ;;
  attention-split) set -- kaiju-bench-attention check split 0 96 ;;
  attention-mma) set -- kaiju-bench-attention check mma 18 27 ;;
  products) set -- test_conformance "linear gives*,up gives*,up squares*,adding a matmul*,the down projection*,the longest rows*" ;;
  cublaslt) set -- test_conformance "matmuls of more rows*" ;;
  forms) set -- test_conformance "every form of a matmul*" ;;
  gated) random=1 && set -- test_conformance "every tile that gates*,gate and up have*" ;;
  rows) set -- test_conformance "embedding a token*,norm gives*,rotated queries*,positions below write_from*" ;;
  sampling) set -- test_conformance "sampling draws*" ;;
  row-step) set -- test_conformance "rows after a prompt*" ;;
  scaled-rows)
    random=6
    set -- test_conformance "a row is transformed*,a token's row of*,a norm with its gain*,the middle of a feed-forward*,outputs are added*,logits have*,queries are normed*"
    ;;
  scaled-attention) set -- test_conformance "attention with scales of long prompts*" ;;
  scaled-step) set -- kaiju-score "$logs/33.safetensors" --tokens "$logs/33.txt" --backend cuda ;;
  scaled-chunks) set -- kaiju-score "$logs/33.safetensors" --tokens "$logs/33.txt" --backend cuda --chunk 7 ;;
  decode) random=5 && set -- test_conformance "rows that a GPU takes*" ;;
  serve)
    set -- kaiju-bench serve "$root/examples/chat/model/kaiju-nano.safetensors" --backend cuda --conversations 2 --characters 1 --turns 1 --prompt-tokens 80 --user-tokens 10 \
      --reply-tokens 2 --step-tokens 64 --check 0
    ;;
  *) echo "there is no case $1" && return 2 ;;
  esac
  program=$programs/$1 && shift
  KAIJU_TEST_ISAS=cuda KAIJU_TEST_CASES=$random timeout -k 2 "$left" compute-sanitizer --error-exitcode 99 --tool "$tool" "$program" "$@"
}

if [ "${1:-}" = --one ]; then  # LOGS PROGRAMS SECONDS END TOOL:CASE
  logs=$2 programs=$3 seconds=$4 end=$5 tool=${6%:*} case=${6#*:} code=124
  log=$logs/$case-$tool.txt start=$(date +%s)
  left=$((end - start < seconds ? end - start : seconds))
  [ "$left" -le 0 ] || { code=0 && sanitize "$case" "$tool" >"$log" 2>&1 || code=$?; }
  case $code in
  0) if grep -aq 'SUMMARY: 0 ' "$log"; then result=clean; else result="no summary"; fi ;;
  99) result="found: $(grep -a 'SUMMARY: ' "$log" | tail -1 | sed 's/.*SUMMARY: //')" ;;
  124 | 137) result="out of time" ;;
  *) result="failed, exit status $code" ;;
  esac
  printf '%-16s %-10s %4d s  %s\n' "$case" "$tool" $(($(date +%s) - start)) "$result" | tee -a "$logs/table.txt"
  exit 0
fi

jobs=4 seconds=300 within=3600 logs=$root/build/sanitizer programs=$root/build/cuda/bin tools="memcheck racecheck initcheck"
refuse() { echo "sanitize_cuda.sh: $1" >&2 && exit 2; }
usage() { sed -n 's/^#   /usage: /p' "$0" && echo "cases: $cases"; }
value() { [ -n "${2:-}" ] || refuse "$1 wants a value"; }
number() { case ${2:-} in '' | *[!0-9]* | 0*) refuse "$1 wants a number from 1 up" ;; esac }
while [ $# -gt 0 ]; do
  case $1 in
  -h | --help) usage && exit 0 ;;
  --jobs) number "$@" && jobs=$2 && shift 2 ;;
  --seconds) number "$@" && seconds=$2 && shift 2 ;;
  --within) number "$@" && within=$2 && shift 2 ;;
  --logs) value "$@" && logs=$2 && shift 2 ;;
  --programs) value "$@" && programs=$2 && shift 2 ;;
  --tools) value "$@" && tools=$2 && shift 2 ;;
  -*) usage >&2 && refuse "there is no option $1" ;;
  *) break ;;
  esac
done
for case in "$@"; do
  case " $cases " in *" $case "*) ;; *) refuse "there is no case $case; there are: $cases" ;; esac
done
command -v compute-sanitizer >/dev/null || refuse "compute-sanitizer is not on the PATH; it comes with the CUDA toolkit"
mkdir -p "$logs" && : >"$logs/table.txt"
case "${*:-$cases}" in *scaled-step* | *scaled-chunks*)  # of the models of tests/golden/shapes.sh the one that has most kinds of rows
  python3 "$root/tests/golden/configs_2.py" "$logs"
  "$programs/kaiju-make" --config "$logs/33.json" --seed 233 --out "$logs/33.safetensors" >/dev/null
  ;;
esac
for case in ${*:-$cases}; do
  for tool in $tools; do echo "$tool:$case"; done
done | xargs -n 1 -P "$jobs" sh "$0" --one "$logs" "$programs" "$seconds" $(($(date +%s) + within))
unclean=$(grep -vc 'clean$' "$logs/table.txt" || true)
echo "$(grep -c . "$logs/table.txt") runs, $unclean not clean; what each printed: $logs"
[ -s "$logs/table.txt" ] && [ "$unclean" = 0 ]
