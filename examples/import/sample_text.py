"""Token ids of a short text (sample.txt), on which an import is measured, balanced, and `--kv constant` calibrated, or of
another text. Nothing depends on how exactly a text is split, so words are found with Python's regular expressions instead
of the model's."""

import json
import os
import re
import struct

import numpy as np

import sentencepiece_file
import tokenizer
from refused import Refused, shown

TOKENS_OF_A_PART = 160  # of each part but the last, which is what the check is on
_OWN_BYTES, _OWN_TOKENS, _OWN_PART = 1 << 16, 4096, 512  # of a text that somebody brings: read, used, in a part
_WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d{1,3}| ?(?:[^\w\s]|_)+|\s+(?!\S)|\s+")


def _merged(word: list[int], ranks: dict[tuple[int, int], tuple[int, int]]) -> list[int]:
    while len(word) > 1:
        best = min(range(len(word) - 1), key=lambda i: ranks.get((word[i], word[i + 1]), (1 << 62, 0))[0])
        pair = word[best], word[best + 1]
        if pair not in ranks:
            break
        word[best : best + 2] = [ranks[pair][1]]
    return word


def _byte_bpe(stored: bytes, texts: list[str]) -> list[list[int]]:
    form = json.loads(stored)
    special = {*form["control"], *form["visible"], *form["literal"]}
    ids = {text: id for id, text in enumerate(form["tokens"]) if id not in special}
    tokens, ranks = form["tokens"], {}
    for rank, (left, right) in enumerate(zip(form["merges"][::2], form["merges"][1::2])):
        ranks[left, right] = rank, ids[tokens[left] + tokens[right]]
    found = []
    for text in texts:
        words = ([ids[byte] for byte in tokenizer.show(word) if byte in ids] for word in _WORDS.findall(text))
        found.append([id for word in words for id in _merged(word, ranks)])
    control = [id for id in form["control"][:8] if tokens[id]]
    return [control * (number == 1) + part for number, part in enumerate(found)]


def _sentencepiece(model: bytes, texts: list[str]) -> list[list[int]]:
    """The longest piece that fits, again and again."""
    ids = {piece: id for id, piece in enumerate(sentencepiece_file.piece_texts(model)) if piece}
    longest = max(map(len, ids))
    found = []
    for text in texts:
        part, rest, at = [], text.replace(" ", "\u2581"), 0
        while at < len(rest):
            size = next((n for n in range(min(longest, len(rest) - at), 0, -1) if rest[at : at + n] in ids), 0)
            part += [ids[rest[at : at + size]]] if size else []
            at += max(size, 1)
        found.append(part)
    return found


def _encoded(stored: bytes, texts: list[str]) -> list[list[int]]:
    return _byte_bpe(stored, texts) if stored[:1] == b"{" else _sentencepiece(stored, texts)


def own_texts(path: str, stored: bytes | None, vocab_size: int) -> list[np.ndarray]:
    """The beginning of a file's text, in parts, to balance and calibrate with instead of the sample's."""
    if stored is None:
        raise Refused(f"{shown(path)}: the source has no tokenizer, so no text can be read; leave out --text")
    try:
        with open(path, "rb") as file:
            text = file.read(_OWN_BYTES).decode(errors="ignore")
    except OSError as problem:
        raise Refused(f"{shown(path)} cannot be read: {problem.strerror}") from None
    ids = [id for id in _encoded(stored, [text])[0] if id < vocab_size][:_OWN_TOKENS]
    if len(ids) < TOKENS_OF_A_PART:
        raise Refused(f"{shown(path)} has a text of {len(ids)} tokens; at least {TOKENS_OF_A_PART} are needed")
    return np.array_split(np.array(ids), -(-len(ids) // _OWN_PART))


def sample_texts(stored: bytes | None, vocab_size: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Texts to calibrate with, and one to check with, of the stored tokenizer; without one, ids from all over the
    vocabulary."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample.txt"), encoding="utf-8") as file:
        texts = file.read().split("\n%%\n")
    parts: list[list[int]] = []
    if stored:
        try:
            parts = _encoded(stored, texts)
        except (ValueError, KeyError, IndexError, struct.error):
            parts = []
    found = [np.array(part[:TOKENS_OF_A_PART]) for part in parts if part and max(part) < vocab_size]
    if len(found) < 2:
        spread = np.arange(3 * TOKENS_OF_A_PART, dtype=np.int64) * 2654435761 % 2**32 * vocab_size >> 32
        found = np.split(spread, 3)
    return found[:-1], found[-1]
