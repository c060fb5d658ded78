"""What the tests of examples/gate share: argv is SOURCE_FOLDER MODEL. Skipped without the packages that the gate needs.

The environment says where the kaiju library is (KAIJU_LIBRARY)."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # nothing is left in the source tree
SOURCE, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
FOLDER = os.path.join(SOURCE, "examples", "gate")
sys.path[:0] = [FOLDER, os.path.join(SOURCE, "capi", "python")]
for package in "matplotlib", "scipy", "sklearn":  # which take seconds to load
    if not importlib.util.find_spec(package):
        print(f"skipped: {package} is missing: pip install -r examples/gate/requirements.txt")
        sys.exit(77)

FROZEN = [
    os.path.join(SOURCE, "examples", "train", "eval", f"safety_{name}.jsonl") for name in ("adversarial", "intense")
]


def run(*arguments):
    """(exit code, what it printed, what it complained of) of kaiju-gate."""
    done = subprocess.run(
        [sys.executable, "-B", os.path.join(FOLDER, "kaiju-gate"), *map(str, arguments)], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class Case(unittest.TestCase):
    """With a folder of its own."""

    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls._folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls._folder.name, name)

    @classmethod
    def write(cls, name, rows):
        with open(cls.path(name), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return cls.path(name)

    def refused(self, words, *arguments):
        code, out, err = run(*arguments)
        self.assertEqual(code, 2, out + err)
        self.assertIn(words, err)
        self.assertNotIn("Traceback", err)


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
