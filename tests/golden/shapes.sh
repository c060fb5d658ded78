#!/bin/sh
# Digests of the bundled model, of 24 random models of different shapes, and of 38 of version 2 of the arithmetic
# (configs_2.py), against those in shapes.txt beside it.
#
#   sh tests/golden/shapes.sh [--programs DIR] [--model NANO] [--backend NAME]... [--record]
#
# --programs: folder of kaiju-score and kaiju-make (build/tests/bin of the current folder by default).
# --model: the bundled checkpoint (examples/chat/model/kaiju-nano.safetensors of the current folder by default).
# --backend: one or several; without it all that this machine and build have.
# --record: writes shapes.txt anew, from the backend `reference`.
# Fails unless every digest (of the files, and of the logits however cut) is as recorded.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
programs=build/tests/bin nano=examples/chat/model/kaiju-nano.safetensors backends= record=
while [ $# -gt 0 ]; do
  case $1 in
  --programs) programs=$2 && shift 2 ;;
  --model) nano=$2 && shift 2 ;;
  --backend) backends="$backends $2" && shift 2 ;;
  --record) record=1 && shift ;;
  *) sed -n 's/^#   /usage: /p' "$0" >&2 && exit 2 ;;
  esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$work" <<'PY'
import json, random, sys
work = sys.argv[1]
random.seed(24)
# d_model, heads, kv heads, head_dim, d_ff, layers (s: sliding window, g: global; a number follows: the slot it shares), window, vocab
shapes = [
    (64, 2, 1, 64, 64, "sg", 8, 272), (128, 2, 1, 64, 192, "sgs0", 65, 272), (192, 3, 1, 64, 256, "gg0", 0, 512),
    (256, 4, 2, 64, 512, "ssg", 33, 1024), (320, 4, 4, 64, 192, "sg", 17, 304), (128, 1, 1, 128, 384, "sgg1", 5, 256),
    (256, 2, 1, 128, 320, "s", 40, 512), (256, 2, 2, 128, 64, "g", 0, 640), (256, 1, 1, 256, 512, "sg", 70, 272),
    (512, 2, 2, 256, 256, "gs", 9, 512), (64, 8, 1, 64, 128, "sss0g", 64, 4096), (384, 6, 3, 64, 768, "sgsg", 50, 288),
    (64, 5, 1, 64, 320, "s", 1, 16), (448, 7, 7, 64, 64, "g", 0, 48), (128, 12, 2, 64, 128, "gg0s", 20, 144),
    (512, 8, 1, 64, 1536, "sssg", 128, 2048), (640, 5, 1, 128, 448, "sg", 30, 800), (320, 3, 1, 256, 192, "sgs0g1", 12, 96),
    (1024, 16, 1, 64, 1024, "sg", 65, 272), (1024, 8, 1, 128, 1024, "gg0", 0, 1024), (1024, 16, 2, 64, 2048, "sgs0", 24, 512),
    (2048, 16, 1, 128, 1024, "g", 0, 256), (1024, 8, 2, 128, 3072, "sg", 33, 272), (1024, 16, 16, 64, 1024, "s", 65, 272),
]
for i, (d_model, heads, kv, head_dim, d_ff, text, window, vocab) in enumerate(shapes):
    layers, slots, at = [], 0, 0
    while at < len(text):
        kind = text[at]; at += 1
        if at < len(text) and text[at].isdigit():
            layers.append(dict(layers[[l["kv_slot"] for l in layers].index(int(text[at]))])); at += 1
        else:
            layers.append({"kind": "sliding", "window": window, "kv_slot": slots, "rope": 0} if kind == "s" else
                          {"kind": "global", "kv_slot": slots, "rope": 1 if "s" in text else 0}); slots += 1
    config = {"name": f"shape-{i:02}", "vocab_size": vocab, "d_model": d_model, "n_heads": heads, "n_kv_heads": kv,
              "head_dim": head_dim, "d_ff": d_ff, "context": 1024, "norm_eps": random.choice([1e-5, 1e-6, 0.01]), "layers": layers}
    if i % 3 == 1: config["classifier"] = {"labels": [f"l{n}" for n in range(1 + i)]}
    json.dump(config, open(f"{work}/{i:02}.json", "w"))
    # One in four reaches past a chunk of 512 keys.
    count = 530 if i in (0, 5, 8, 10) else 80
    open(f"{work}/{i:02}.txt", "w").write(" ".join(str(random.randrange(vocab)) for _ in range(count)))
open(f"{work}/nano.txt", "w").write(" ".join(str(random.randrange(4, 8000)) for _ in range(200)))
PY
score() { "$programs/kaiju-score" "$@"; }
bits() { sed -n 's/^bits: //p'; }
if [ -z "$backends" ]; then
  named=$(echo 1 | score "$nano" --tokens - --backend none 2>&1 | sed -n 's/.*choose one of: auto, \([^(]*\).*/\1/p' | tr -d ,)
  for backend in $named; do  # those of this machine and build
    if echo 1 | score "$nano" --tokens - --backend "$backend" >/dev/null 2>&1; then backends="$backends $backend"; fi
  done
fi
[ -n "$record" ] && : >"$here/shapes.txt"
unequal=0
check() { # name file tokens
  if [ -n "$record" ]; then
    out=$(score "$2" --tokens "$3" --backend reference)
    echo "$1 $(echo "$out" | sed -n 's/^model: [^ ]* //p') $(echo "$out" | bits)" >>"$here/shapes.txt"
    return
  fi
  expected=$(sed -n "s/^$1 //p" "$here/shapes.txt")
  for backend in $backends; do
    ways="--chunk=0 --chunk=7"
    [ "$backend" = reference ] && ways=--chunk=0
    [ "$backend" = cuda ] && ways="--chunk=0 --chunk=64 --chunk=7 --chunk=1 --batch=3"
    for way in $ways; do
      out=$(score "$2" --tokens "$3" --backend "$backend" "$way") || out=
      found="$(echo "$out" | sed -n 's/^model: [^ ]* //p') $(echo "$out" | bits)"
      [ "$found" = "$expected" ] || { echo "$1, $backend $way: $found, not $expected"; unequal=1; }
    done
  done
}
for i in 00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23; do
  "$programs/kaiju-make" --config "$work/$i.json" --seed "1$i" --out "$work/$i.safetensors" >/dev/null
  check "$i" "$work/$i.safetensors" "$work/$i.txt"
  rm -f "$work/$i.safetensors"
done
check nano "$nano" "$work/nano.txt"
mkdir "$work/2"
python3 "$here/configs_2.py" "$work/2"
for config in "$work"/2/*.json; do
  i=$(basename "$config" .json)
  "$programs/kaiju-make" --config "$config" --seed "2$i" --out "$work/2/$i.safetensors" >/dev/null
  check "2-$i" "$work/2/$i.safetensors" "$work/2/$i.txt"
  rm -f "$work/2/$i.safetensors"
done
[ "$unequal" = 0 ] && echo "all as recorded:$backends"
exit $unequal
