"""Weight updates in Python: a learner in numpy, whose updates an engine takes under load until it equals the learner's file.

    updates.py LIBKAIJU MODEL KAIJU_MAKE"""

import json
import os
import subprocess
import sys
import tempfile

from support import MAKE, PACKAGE, ROOT, Test, kaiju, made_model, main

PROGRAM = os.path.join(ROOT, "examples", "train", "check_stream.py")
LAYERS = [{"kind": "sliding", "window": 64, "kv_slot": 0, "rope": 0}, {"kind": "global", "kv_slot": 1, "rope": 1},
          {"kind": "sliding", "window": 64, "kv_slot": 0, "rope": 0}]


class Updates(Test):
    def test_an_engine_follows_a_learner_until_it_equals_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            config, path = os.path.join(folder, "config.json"), os.path.join(folder, "model.safetensors")
            with open(config, "w") as out:
                json.dump({"name": "learner", "vocab_size": 256, "d_model": 128, "n_heads": 2, "n_kv_heads": 1,
                           "head_dim": 64, "d_ff": 192, "context": 256, "norm_eps": 1e-5, "layers": LAYERS}, out)
            subprocess.run([MAKE, "--config", config, "--seed", "3", "--out", path], check=True, stdout=subprocess.DEVNULL)
            ran = subprocess.run([sys.executable, PROGRAM, path, "--updates", "60", "--threads", "1", "--clips", "--whole"],
                                 env=dict(os.environ, PYTHONPATH=PACKAGE), capture_output=True, text=True, timeout=50)
        if ran.returncode == 77:
            self.skipTest(ran.stdout)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("equal to the file", ran.stdout)

    def test_what_is_no_update_is_refused(self):
        with made_model().engine(threads=1) as engine:
            with self.assertRaises(TypeError):
                engine.update_weights("an update")
            for wrong in (b"", b"KAIJUUPD", bytes(500)):
                with self.assertRaises(kaiju.BadModel):
                    engine.update_weights(wrong)


if __name__ == "__main__":
    main()
