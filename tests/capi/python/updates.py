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


def learners_model(folder):
    """Makes a small model there; its path."""
    config, path = os.path.join(folder, "config.json"), os.path.join(folder, "model.safetensors")
    with open(config, "w") as out:
        json.dump({"name": "learner", "vocab_size": 256, "d_model": 128, "n_heads": 2, "n_kv_heads": 1,
                   "head_dim": 64, "d_ff": 192, "context": 256, "norm_eps": 1e-5, "layers": LAYERS}, out)
    subprocess.run([MAKE, "--config", config, "--seed", "3", "--out", path], check=True, stdout=subprocess.DEVNULL)
    return path


class Updates(Test):
    def follow(self, *arguments):
        ran = subprocess.run([sys.executable, PROGRAM, *arguments, "--threads", "1"],
                             env=dict(os.environ, PYTHONPATH=PACKAGE), capture_output=True, text=True, timeout=250)
        if ran.returncode == 77:
            self.skipTest(ran.stdout)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("equal to the file", ran.stdout)
        return ran.stdout

    def test_an_engine_follows_a_learner_until_it_equals_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.follow(learners_model(folder), "--updates", "60", "--clips", "--whole")

    def test_an_engine_follows_a_folder_that_a_run_and_its_second_half_have_written(self):
        sys.path.append(os.path.dirname(PROGRAM))
        try:
            import check_stream
        except SystemExit:
            self.skipTest("no numpy")
        stream = check_stream.weight_stream
        with tempfile.TemporaryDirectory() as folder:
            learner, updates = check_stream.Learner(learners_model(folder), 3), os.path.join(folder, "updates")
            for half in range(2):
                # Where the second half begins, the last updates of the first are not known to it: it goes back.
                begin = {name: (kind, array.copy()) for name, (kind, array) in learner.tensors.items()}
                out = stream.Folder(updates, learner.config, learner.tensors, learner.arithmetic)
                out.next(learner.tensors)
                for number in range(6):
                    learner.next(clips=number == 2, whole=number == 4)
                    out.next(learner.tensors)
                    out.next(learner.tensors)  # nothing has changed
                if half == 0:
                    learner.tensors = begin
            final = os.path.join(folder, "final.safetensors")
            learner.write(final)
            self.assertEqual(len(os.listdir(updates)), 1 + 6 + 1 + 6)
            said = self.follow(os.path.join(updates, "first.safetensors"), "--folder", updates, "--final", final)
            self.assertIn("13 updates", said)
            with self.assertRaisesRegex(ValueError, "another model"):
                stream.Folder(updates, learner.config + " ", learner.tensors, learner.arithmetic)
            with open(out.file(5), "rb") as file:
                whole = file.read()
            with open(out.file(5), "wb") as file:
                file.write(whole[:-1] + bytes([whole[-1] ^ 1]))
            with self.assertRaisesRegex(ValueError, "00000005.update is damaged"):
                stream.Folder(updates, learner.config, learner.tensors, learner.arithmetic)

    def test_what_is_no_update_is_refused(self):
        with made_model().engine(threads=1) as engine:
            with self.assertRaises(TypeError):
                engine.update_weights("an update")
            for wrong in (b"", b"KAIJUUPD", bytes(500)):
                with self.assertRaises(kaiju.BadModel):
                    engine.update_weights(wrong)


if __name__ == "__main__":
    main()
