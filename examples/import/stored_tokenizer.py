"""The tokenizer of a source in the form that a checkpoint stores: tokenizer.py's conversion, with what it does not
expect of a damaged source turned into a refusal."""

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import byte_fallback
import sentencepiece_file
import tokenizer
from refused import Refused, shown

_MOST_ADDED = 1 << 14  # added tokens; Tekken has 1,000, the most of those seen
_LARGEST = 1 << 27  # bytes of a tokenizer.json


@dataclasses.dataclass(frozen=True)
class StoredTokenizer:
    data: bytes  # byte-level BPE as JSON, or a SentencePiece model
    begin: int | None = None  # the token that the model expects before a text
    end: int | None = None  # and after it
    notes: tuple[str, ...] = ()  # what was changed on the way


@contextlib.contextmanager
def _refusing(where: str) -> Iterator[None]:
    """What a conversion says of a tokenizer."""
    try:
        yield
    except tokenizer.Unsupported as problem:
        raise Refused(f"{where}: the tokenizer: {problem}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, StopIteration) as problem:
        raise Refused(f"{where}: the tokenizer is damaged: {type(problem).__name__}: {shown(problem)}") from None


def _of_byte_fallback(source: dict[str, Any], where: str) -> StoredTokenizer:
    with _refusing(where):
        data, begin, end = byte_fallback.convert(source)
    return StoredTokenizer(data, begin, end)


def _converted(
    convert: Callable[[Any], tokenizer.Converted], source: Any, vocab_size: int, where: str
) -> StoredTokenizer:
    with _refusing(where):
        found = convert(source)
        data = found.data()
    if len(found.stored["tokens"]) > vocab_size:
        raise Refused(
            f"{where}: the tokenizer has the token {len(found.stored['tokens']) - 1}, but the model's embedding has "
            f"{vocab_size} rows"
        )
    return StoredTokenizer(data, found.begin, found.end, found.notes)


def _check_ids(source: dict[str, Any], vocab_size: int, where: str) -> None:
    """Token ids are rows of the embedding. (What is no list or dict, the conversion refuses.)"""
    model, added = source.get("model"), source.get("added_tokens")
    ids = list(model["vocab"].values()) if isinstance(model, dict) and isinstance(model.get("vocab"), dict) else []
    ids += [entry.get("id") for entry in added if isinstance(entry, dict)] if isinstance(added, list) else []
    for id in ids:
        if type(id) is not int or not 0 <= id < vocab_size:
            raise Refused(
                f"{where}: the tokenizer has the token {shown(id)}, but the model's embedding has {vocab_size} rows"
            )


def _check_added(count: int, where: str) -> None:
    if count > _MOST_ADDED:
        raise Refused(f"{where}: the tokenizer has {count} added tokens; at most {_MOST_ADDED} are imported")


def from_gguf(metadata: dict[str, Any], vocab_size: int, where: str) -> StoredTokenizer:
    """Of a GGUF file's metadata."""
    kinds, tokens = metadata.get("tokenizer.ggml.token_type"), metadata.get("tokenizer.ggml.tokens")
    if isinstance(kinds, list):
        _check_added(sum(kind in (3, 4) for kind in kinds), where)
    if not isinstance(tokens, list) or not isinstance(kinds, list) or len(tokens) != len(kinds):
        raise Refused(
            f"{where}: the tokenizer is damaged: tokenizer.ggml.tokens and .token_type must be lists of one length"
        )
    if metadata.get("tokenizer.ggml.model") == "llama":
        return _sentencepiece(metadata, vocab_size, where)
    return _converted(tokenizer.from_gguf, metadata, vocab_size, where)


def _sentencepiece(metadata: dict[str, Any], vocab_size: int, where: str) -> StoredTokenizer:
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    scores, damaged = metadata.get("tokenizer.ggml.scores"), f"{where}: the tokenizer is damaged:"
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise Refused(f"{damaged} tokenizer.ggml.scores must be a list as long as tokenizer.ggml.tokens")
    if len(tokens) > vocab_size:
        raise Refused(
            f"{where}: the tokenizer has the token {len(tokens) - 1}, but the model's embedding has {vocab_size} rows"
        )
    for id, (text, score, kind) in enumerate(zip(tokens, scores, kinds)):
        if not isinstance(text, str) or not text or not isinstance(score, float) or not math.isfinite(score):
            raise Refused(f"{damaged} token {id} has no text, or a score that is no number")
        if kind not in range(1, 7):
            raise Refused(f"{damaged} token {id} has the type {shown(kind)}; there are 1 to 6")
    begin, prefix = metadata.get("tokenizer.ggml.bos_token_id"), metadata.get("tokenizer.ggml.add_space_prefix", True)
    if metadata.get("tokenizer.ggml.add_bos_token", True) is not True:
        begin = None
    if begin is not None and (type(begin) is not int or not 0 <= begin < len(tokens)):
        raise Refused(f"{damaged} tokenizer.ggml.bos_token_id is {shown(begin)}, which is no token")
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    pieces = (
        sentencepiece_file.piece_of_gguf(text, score, kind, id == unknown)
        for id, (text, score, kind) in enumerate(zip(tokens, scores, kinds))
    )
    return StoredTokenizer(sentencepiece_file.bpe_model(pieces, prefix is True), begin)


def from_folder(folder: str, vocab_size: int) -> StoredTokenizer | None:
    """Of a Hugging Face folder: its tokenizer.json or, where that is none that kaiju reads, its tokenizer.model."""
    path, pieces = os.path.join(folder, "tokenizer.json"), os.path.join(folder, "tokenizer.model")
    refusal = None
    if os.path.isfile(path):
        try:
            source = _read_json(path)
            _check_ids(source, vocab_size, shown(path))
            if byte_fallback.is_such(source):
                return _of_byte_fallback(source, shown(path))
            return _converted(tokenizer.from_tokenizer_json, source, vocab_size, shown(path))
        except Refused as problem:
            refusal = problem
    if os.path.isfile(pieces):
        if os.path.getsize(pieces) > _LARGEST:
            raise Refused(f"{shown(pieces)} is larger than {_LARGEST} bytes")
        with open(pieces, "rb") as file:
            model = file.read()
        special = _special_ids(os.path.join(folder, "tokenizer_config.json"))
        with _refusing(shown(pieces)):
            return StoredTokenizer(sentencepiece_file.with_control(model, special) if special else model)
    if refusal:
        raise refusal
    if os.path.isfile(os.path.join(folder, "tekken.json")) or os.path.isfile(os.path.join(folder, "vocab.json")):
        raise Refused(f"{shown(folder)} has a tokenizer, but no tokenizer.json; fetch that file of the model, too")
    return None


def _special_ids(path: str) -> list[int]:
    """Ids of the special tokens that a tokenizer_config.json lists."""
    if not os.path.isfile(path):
        return []
    listed = _read_json(path).get("added_tokens_decoder")
    with _refusing(shown(path)):
        return [int(id) for id, entry in (listed or {}).items() if entry.get("special")]


def _read_json(path: str) -> dict[str, Any]:
    try:
        if os.path.getsize(path) > _LARGEST:
            raise Refused(f"{shown(path)} is larger than {_LARGEST} bytes")
        with open(path, encoding="utf-8") as file:
            source = json.load(file)
    except (ValueError, RecursionError) as problem:
        raise Refused(f"{shown(path)} is no JSON: {shown(problem)}") from None
    except OSError as problem:
        raise Refused(f"{shown(path)} cannot be read: {problem.strerror}") from None
    if not isinstance(source, dict):
        raise Refused(f"{shown(path)} is no JSON object; fetch it again")
    if isinstance(source.get("added_tokens"), list):
        _check_added(len(source["added_tokens"]), shown(path))
    return source
