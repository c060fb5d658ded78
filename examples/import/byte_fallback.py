"""Turns the tokenizer.json of a BPE with byte fallback, such as Gemma's, into the SentencePiece model that it was made
of. Its merges become scores: SentencePiece merges whatever two neighbours make a piece, the best score first."""

from collections.abc import Set
from typing import Any

import sentencepiece_file
from sentencepiece_file import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from tokenizer import Unsupported, around, name_of, steps_of

_SPACE = "\u2581"


def is_such(source: dict[str, Any]) -> bool:
    model = source.get("model")
    return isinstance(model, dict) and model.get("byte_fallback") is True


def _check_steps(source: dict[str, Any]) -> None:
    """Spaces are written as U+2581, and nothing else is changed."""
    for step in steps_of(source.get("normalizer"), "normalizers"):
        if name_of(step) != "Replace" or step["pattern"] != {"String": " "} or step["content"] != _SPACE:
            raise Unsupported(
                f"normalizer {name_of(step)} with byte fallback: kaiju has Replace of spaces by U+2581; use the model's "
                "tokenizer.model"
            )
    if not steps_of(source.get("normalizer"), "normalizers"):
        raise Unsupported("byte fallback without a normalizer that replaces spaces: use the model's tokenizer.model")
    for step in steps_of(source.get("pre_tokenizer"), "pretokenizers"):
        if name_of(step) != "Split" or step["pattern"] != {"String": " "}:  # there are no spaces left
            raise Unsupported(f"pre_tokenizer {name_of(step)} with byte fallback: use the model's tokenizer.model")


def _scores(merges: list[Any], vocabulary: Set[str], added: Set[str]) -> dict[str, int]:
    """piece -> number of pieces that are merged before it."""
    found: dict[str, int] = {}
    lefts: set[str] = set()  # of the last piece's merges
    last = None
    for merge in [*merges, ("", "")]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if left + right != last:
            if last is not None and last not in added:
                _check_merges(last, lefts, vocabulary)
            last, lefts = left + right, set()
            if last in found:
                raise Unsupported(f"merges of {last!r} at two places: use the model's tokenizer.model")
            found[last] = len(found)
        lefts.add(left)
    return found


def _check_merges(piece: str, lefts: Set[str], vocabulary: Set[str]) -> None:
    """SentencePiece merges exactly those two tokens to the piece that the merges name. `vocabulary` is without added
    tokens, which SentencePiece finds before it merges and leaves whole."""
    splits = {piece[:at] for at in range(1, len(piece)) if piece[:at] in vocabulary and piece[at:] in vocabulary}
    for left in splits ^ lefts:
        raise Unsupported(
            f"{'no merge' if left in splits else 'a merge'} of {left!r} and {piece[len(left):]!r} to the token {piece!r}, "
            "which SentencePiece would decide otherwise: use the model's tokenizer.model"
        )


def _kind(text: str, entry: dict[str, Any] | None, unknown: str | None) -> int:
    if text == unknown:
        return UNKNOWN
    if entry:
        return CONTROL if entry.get("special") else USER_DEFINED
    return BYTE if len(text) == 6 and text.startswith("<0x") and text.endswith(">") else NORMAL


def convert(source: dict[str, Any]) -> tuple[bytes, int | None, int | None]:
    """Of a parsed tokenizer.json: the model, and the tokens before and after a text."""
    model = source["model"]
    for field in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(field):
            raise Unsupported(f"BPE with byte fallback and {field}: use the model's tokenizer.model")
    _check_steps(source)
    added = {entry["content"]: entry for entry in source.get("added_tokens") or []}
    for text, entry in added.items():
        for flag in ("lstrip", "rstrip", "single_word"):
            if entry.get(flag):
                raise Unsupported(f"the added token {text!r} with {flag} beside byte fallback")
    ids = model["vocab"] | {text: entry["id"] for text, entry in added.items()}
    texts = [""] * (max(ids.values()) + 1)
    for text, id in ids.items():
        texts[id] = text
    if not all(texts):
        raise Unsupported(f"no token {texts.index('')}: use the model's tokenizer.model")
    unknown, ordinary = model.get("unk_token"), model["vocab"].keys() - added.keys()
    scores = _scores(model["merges"], ordinary, added.keys())
    pieces = [(text, -float(scores.get(text, 0)), _kind(text, added.get(text), unknown)) for text in texts]
    begin, end = around(source.get("post_processor"))
    for id in (begin, end):
        if id is not None and pieces[id][2] != CONTROL:
            raise Unsupported(f"token {id}, which is added around texts, is no special token: text could forge it")
    return sentencepiece_file.bpe_model(pieces, False), begin, end
