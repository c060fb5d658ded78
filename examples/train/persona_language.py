"""The phrasings of the generator: kinds of facts, frames around questions, evasions.

BASE is what the held-out set was made from and never changes. RICH adds the phrasings of phrases/*.txt, all for training: as
many ways as we could write to state and to ask the same things, so that understanding is cheaper to learn than a list of templates.
"""
import glob
import os

import persona_open
import persona_told
from persona_grammar import parse_kinds, parse_lines

FRAMES = ("FRAME_I", "FRAME_N", "FRAME_U", "FRAME_Q", "DEFLECT", "UNKNOWN")
PHRASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "phrases")


def phrase_file(name):
    """Contents of phrases/NAME.txt without its empty lines."""
    with open(os.path.join(PHRASES, name + ".txt"), encoding="ascii") as f:
        return "\n".join(line for line in f.read().splitlines() if line)


def phrase_files(name):
    """Contents of phrases/NAME_*.txt, in order of their names."""
    for path in sorted(glob.glob(os.path.join(PHRASES, name + "_*.txt"))):
        yield phrase_file(os.path.basename(path)[:-len(".txt")])


class Language:
    def __init__(self, rich):
        self.kinds = {}
        for name in ("base_kinds", "base_open", "base_more"):
            parse_kinds(phrase_file(name), self.kinds)
        self.told = parse_kinds(phrase_file("base_told"))
        frames = {name: parse_lines(getattr(persona_told, name)) for name in FRAMES}
        if rich:
            for text in phrase_files("kinds"):
                parse_kinds(text, self.kinds)
            for text in phrase_files("told"):
                parse_kinds(text, self.told)
            for text in phrase_files("frames"):
                for section in text.split("# ")[1:]:
                    name, lines = section.split("\n", 1)
                    for line in lines.strip().splitlines():
                        frames[name].add(line)
        self.kinds.update({copy: self.kinds[of] for copy, of in persona_open.COPIES.items()})
        self.frame_i, self.frame_n, self.frame_u, self.frame_q, self.deflect, self.unknown = (frames[name] for name in FRAMES)


BASE, RICH = Language(False), Language(True)
