"""The contract's text, put into numpy by someone who had not read the code (reproduce.py), against the engine: equal bits. And the
worked example of docs/arithmetic.md against both.

    python3 compare.py FOLDER_OF_PROGRAMS BUNDLED_MODEL"""
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.dont_write_bytecode = True  # nothing is left in the source tree
import reproduce

programs, bundled = sys.argv[1], sys.argv[2]
here = os.path.dirname(os.path.abspath(__file__))
wrong = 0
with tempfile.TemporaryDirectory() as folder:
    def at(name):
        return os.path.join(folder, name)

    cases = [("bundled", bundled, 150)]
    for seed, layers, count in ((1, 2, 40), (2, 4, 1100)):
        path = at("random%d.safetensors" % seed)
        subprocess.run([os.path.join(programs, "kaiju-make"), "--preset", "nano", "--layers", str(layers), "--seed", str(seed), "--out", path], check=True)
        cases.append(("nano, %d layers, seed %d" % (layers, seed), path, count))
    for name, model, count in cases:
        tokens = at("tokens.txt")
        with open(tokens, "w") as f:
            f.write(" ".join(str(random.Random(count + i).randrange(8192)) for i in range(count)))
        subprocess.run([sys.executable, os.path.join(here, "reproduce.py"), model, "--tokens", tokens, "--logits", at("text.npy")], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([os.path.join(programs, "kaiju-score"), model, "--tokens", tokens, "--logits", at("engine.npy"), "--logprobs", at("logprobs.npy")],
                       check=True, stdout=subprocess.DEVNULL)
        text, engine = (np.load(at(n)).view(np.uint32).reshape(count, -1) for n in ("text.npy", "engine.npy"))
        differ = int((text != engine).sum())
        ids = [int(word) for word in open(tokens).read().split()]
        said = np.array([reproduce.logprob(row, token) for row, token in zip(np.load(at("text.npy")), ids[1:51])], np.float32)
        differ += int((said.view(np.uint32) != np.load(at("logprobs.npy"))[:50].view(np.uint32)).sum())
        wrong += differ > 0
        print("%-28s %5d tokens  %s" % (name, count, "same bits" if differ == 0 else "%d of %d logits or log-probabilities differ" % (differ, text.size)))

    # The worked example: what the page says, from the text and from the engine.
    page = open(os.path.join(here, "..", "..", "docs", "arithmetic.md"), encoding="utf-8").read()
    block = page[page.index("## 10. A worked example"):].split("```text\n")[1].split("```")[0]
    said = dict(line.split(": ", 1) for line in block.splitlines())
    ids = [int(word) for word in said["tokens"].split()]
    xs = []
    rows = reproduce.logits(reproduce.Checkpoint(bundled), np.array(ids), lambda layer, x: xs.append(x))
    scored = subprocess.run([os.path.join(programs, "kaiju-score"), bundled, "--tokens", "-", "--backend", "reference", "--logits", at("example.npy")],
                            input=said["tokens"], text=True, check=True, stdout=subprocess.PIPE).stdout
    engine = np.load(at("example.npy"))
    last = len(ids) - 1
    found = {"x[%d]" % p: [" ".join(map(str, row[:4]))] for p, row in enumerate(xs[0])}
    found["x.sha256"] = [reproduce.sha256(xs[0])]
    found["logits[%d]" % last] = [" ".join(map(str, of[last, :4])) for of in (rows, engine)]
    found["logits.sha256"] = [reproduce.sha256(of) for of in (rows, engine)]
    found["bits"] = re.findall("^bits: (.*)$", scored, re.M)
    for name in sorted(found.keys() | said.keys() - {"tokens"}):
        right = name in said and found.get(name) == [said[name]] * len(found.get(name, ()))
        wrong += not right
        if not right:
            print("worked example, %s: docs/arithmetic.md says %s, found %s" % (name, said.get(name), found.get(name)))
    print("worked example: %d values" % len(found))
sys.exit(wrong > 0)
