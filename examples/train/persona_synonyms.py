"""Exchanges words and phrases of cards and questions for others that mean the same.

phrases/synonyms_*.txt, a group a line: members that may stand for each other in place, separated by |. No exchange brings in wording that is
kept for the held-out set: a result that contains a piece of it is dropped.
"""
import functools
import re

import persona_kinds
import persona_open
import persona_told
import persona_values as V
from persona_grammar import plain, surfaces
from persona_language import BASE, RICH, phrase_files

TOKEN = re.compile(r"[A-Za-z']+")
PIECE = 3  # words that make a run of held-out wording recognisable


def held_values():
    """Words of the values that are kept for the held-out set."""
    lists = [pair[1] for module in (V, persona_kinds, persona_open, persona_told) for pair in vars(module).values()
             if isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(side, list) for side in pair)]
    return {word for values in lists for value in values for word in TOKEN.findall(str(value).lower()) if V.held(word)}


def groups():
    held = held_values()
    for text in phrase_files("synonyms"):
        for line in text.splitlines():
            members = [m.strip() for m in line.split("|")]
            members = [m for m in members if m and held.isdisjoint(TOKEN.findall(m.lower()))]
            if len(members) > 1:
                yield members


def index_of(all_groups):
    """{words: group}, and the lengths of the phrases that begin with a word, the longest first."""
    index, lengths = {}, {}
    for group in all_groups:
        for member in group:
            words = tuple(member.lower().split())
            index[words] = group
            lengths.setdefault(words[0], set()).add(len(words))
    return index, {word: sorted(found, reverse=True) for word, found in lengths.items()}


INDEX, LENGTHS = index_of(groups())


def forms_of_side(language, side):
    for kinds in (language.kinds, language.told):
        for kind in {id(k): k for k in kinds.values()}.values():
            sides = [kind.v, kind.s, kind.T, kind.k] + [getattr(ask, name) for ask in kind.asks.values() for name in "qin"]
            for s in sides:
                for node in s.side(side):
                    yield from surfaces(node)
    for frames in (language.frame_i, language.frame_n, language.frame_u, language.frame_q):
        for node in frames.side(side):
            yield from surfaces(node)


def runs(form):
    """The runs of plain words between the slots of a form."""
    return [plain(part).split() for part in re.split(r"\{[^}]*\}", form)]


@functools.cache
def held_pieces():
    """What shows held-out wording: whole phrasings without a slot, and runs of three words that held-out phrasings have and training ones have not."""
    of, whole = [set(), set()], [set(), set()]
    for side, language in ((0, RICH), (1, BASE)):
        for form in forms_of_side(language, side):
            for words in runs(form):
                of[side].update(tuple(words[i:i + PIECE]) for i in range(len(words) - PIECE + 1))
            if "{" not in form:
                whole[side].add(tuple(plain(form).split()))
    pieces = of[1] - of[0] | {words for words in whole[1] - whole[0] if len(words) >= PIECE}
    return pieces, sorted({len(piece) for piece in pieces})


def held_in(text):
    words, (pieces, lengths) = plain(text).split(), held_pieces()
    return {tuple(words[i:i + n]) for n in lengths for i in range(len(words) - n + 1)} & pieces


def exchange(r, text, kept, rate, echo=""):
    """`text` with a share of its known phrases exchanged. What the pattern `kept` finds stays, and so do phrases that `echo`, the reply, repeats."""
    echo = echo.lower()
    fixed = [m.span() for m in kept.finditer(text)]
    tokens = list(TOKEN.finditer(text))
    lower = [m.group().lower() for m in tokens]
    out, at, i = [], 0, 0
    while i < len(tokens):
        step = 1
        for n in LENGTHS.get(lower[i], ()):
            group = INDEX.get(tuple(lower[i:i + n]))
            if not group or i + n > len(tokens):
                continue
            start, end = tokens[i].start(), tokens[i + n - 1].end()
            if text[start:end].count(" ") != n - 1 or echo and text[start:end].lower() in echo or any(a < end and start < b for a, b in fixed):
                continue
            if r() < rate:
                new = group[int(r() * len(group))]
                new = re.sub(r"\bi(?=\b(?!'s))", "I", new)
                if text[start].isupper() and lower[i] != "i":
                    new = new[0].upper() + new[1:]
                out += [text[at:start], new]
                at, step = end, n
            break
        i += step
    if not out:
        return text
    new = "".join(out) + text[at:]
    return text if held_in(new) - held_in(text) else new
