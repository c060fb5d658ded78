"""Version 2 of the arithmetic in numpy (reproduce_2.py) against the engine: equal bits of logits and of classifier scores.

    python3 compare_2.py FOLDER_OF_PROGRAMS [NUMBER]...        numbers of configs_2.py; a few without them"""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.dont_write_bytecode = True  # nothing is left in the source tree
import configs_2
import reproduce
import reproduce_2

programs = sys.argv[1]
numbers = [int(word) for word in sys.argv[2:]] or [3, 5, 7, 9, 12, 22, 33, 35]
np.seterr(over="ignore")
wrong = 0
with tempfile.TemporaryDirectory() as folder:
    def run(program, *arguments):
        subprocess.run([os.path.join(programs, program), *arguments], check=True, stdout=subprocess.DEVNULL)

    subprocess.run([sys.executable, configs_2.__file__, folder], check=True)
    for number in numbers:
        at = os.path.join(folder, "%02d" % number)
        run("kaiju-make", "--config", at + ".json", "--seed", str(200 + number), "--out", at + ".safetensors")
        checkpoint = reproduce.Checkpoint(at + ".safetensors", "2")
        ids = reproduce.read_tokens(at + ".txt", checkpoint)
        logits, scores = reproduce_2.Forward(checkpoint).rows(ids)
        outputs = ["--logits", at + ".npy"] + ([] if scores is None else ["--scores", at + ".scores.npy"])
        run("kaiju-score", at + ".safetensors", "--tokens", at + ".txt", *outputs)
        differ = int((logits.view(np.uint32) != np.load(at + ".npy").view(np.uint32)).sum())
        if scores is not None:
            differ += int((scores.view(np.uint32) != np.load(at + ".scores.npy").view(np.uint32)).sum())
        wrong += differ > 0
        print("%s, %4d tokens%s: %s" % (checkpoint.config["name"], len(ids), "" if scores is None else ", scores",
                                       "same bits" if differ == 0 else "%d of %d logits or scores differ" % (differ, logits.size)))
        os.remove(at + ".safetensors")
sys.exit(wrong > 0)
