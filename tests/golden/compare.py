"""The contract's text, put into numpy by someone who had not read the code (reproduce.py), against the engine: equal bits.

    python3 compare.py FOLDER_OF_PROGRAMS BUNDLED_MODEL"""
import os
import random
import subprocess
import sys
import tempfile

import numpy as np

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
        subprocess.run([os.path.join(programs, "kaiju-score"), model, "--tokens", tokens, "--logits", at("engine.npy")], check=True, stdout=subprocess.DEVNULL)
        text, engine = (np.load(at(n)).view(np.uint32).reshape(count, -1) for n in ("text.npy", "engine.npy"))
        differ = int((text != engine).sum())
        wrong += differ > 0
        print("%-28s %5d tokens  %s" % (name, count, "same bits" if differ == 0 else "%d of %d logits differ" % (differ, text.size)))
sys.exit(wrong > 0)
