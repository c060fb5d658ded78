"""A gate's scores are those that its statement in numpy gives (examples/train/message_gate.py), bit for bit, for texts of
every kind; with the time of one, which nothing checks.

    gate.py LIBKAIJU MODEL KAIJU_MAKE"""

import json
import os
import random
import sys
import time
import unicodedata

from support import Test, kaiju, main

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is missing")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
for folder in ("examples/train", "tests/golden"):
    sys.path.append(os.path.join(ROOT, folder))
import message_gate  # noqa: E402
import reproduce  # noqa: E402


def probability(score):
    """arith/logistic.hpp: of a float32, with the contract's own power of two."""
    power = np.float32(-abs(float(score)) * 1.4426950408889634)
    small = 0.0 if power < -126 else float(reproduce.exp2(np.array(power)))
    return np.float32((small if score < 0 else 1.0) / (1.0 + small))


def shown(character):
    """Whether this Python's Unicode has the character; a later one may have given it a meaning."""
    return unicodedata.category(character) not in ("Cn", "Cs")


class Gates(Test):
    @classmethod
    def setUpClass(cls):
        cls.gate = kaiju.Gate()
        cls.stated = message_gate.Gate.load(cls.gate.path)

    def check(self, text):
        wanted = [probability(score) for score in self.stated.log_odds(text)]
        found = self.gate.score(text)
        self.assertEqual(list(found), self.stated.labels)
        self.assertEqual(list(found.values()), [float(each) for each in wanted], repr(text))

    def test_the_frozen_texts(self):
        for name in "safety_adversarial", "safety_intense":
            with open(os.path.join(ROOT, "examples/train/eval", name + ".jsonl")) as file:
                for line in file:
                    self.check(json.loads(line)["turns"][-1][1])

    def test_every_character(self):
        characters = [chr(code) for code in range(0x110000) if shown(chr(code)) and not 0xAC00 <= code < 0xD7A4
                      and not 0x3400 <= code < 0xA000 and not 0x20000 <= code < 0x40000]
        for at in range(0, len(characters), 20):
            self.check("".join("a" + each for each in characters[at:at + 20]))
            self.check(" ".join(each + each for each in characters[at:at + 20]))

    def test_random_texts(self):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        draw = random.Random(seed)
        pieces = ["kill", "love", "the", "robot", "I", "k", "1", "!", "$", "@", "'", "\u2019", "don't", " ", "  ", ".", "-",
                  "\u0301", "\u200b", "\u00df", "\u0130", "\u0430", "\u03c2", "\ufdfa", "\U0001f600", "a" * 63, "\u4e16" * 40]
        for _ in range(2000):
            self.check("".join(draw.choice(pieces) for _ in range(draw.randrange(1 << draw.randrange(9)))))
        for _ in range(200):
            self.check(" ".join(draw.choice(pieces) for _ in range(draw.randrange(400))))

    def test_a_text_of_200_words(self):
        with open(os.path.join(ROOT, "examples/train/eval/safety_intense.jsonl")) as file:
            words = " ".join(json.loads(line)["turns"][-1][1] for line in file).split()[:200]
        text, best = " ".join(words), 1.0
        for _ in range(2000):
            begin = time.perf_counter()
            self.gate.score(text)
            best = min(best, time.perf_counter() - begin)
        print(f"{len(text)} bytes, 200 words: {best * 1e6:.0f} microseconds")

    def test_what_is_wrong_is_said(self):
        self.assertEqual(repr(self.gate), "Gate(violence, sexual, self_harm, harassment, dangerous, distress)")
        with self.assertRaisesRegex(kaiju.InputOutput, "no-such-gate"):
            kaiju.Gate("no-such-gate")
        with self.assertRaisesRegex(kaiju.BadModel, "not a gate"):
            kaiju.Gate(kaiju.model_path())
        with self.assertRaises(kaiju.WrongType):
            self.gate.score(b"bytes")
        with kaiju.Gate() as gate:
            gate.score("")
        with self.assertRaises(kaiju.Closed):
            gate.score("")


if __name__ == "__main__":
    main()
