"""SentencePiece models (protocol buffers, sentencepiece_model.proto of SentencePiece 0.2.0): reads their fields, and
makes new ones. GGUF's token types are the types of pieces."""

import struct
from collections.abc import Collection, Iterable, Iterator

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6  # types of pieces
_BPE = 2


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a message; raises IndexError or KeyError if the message is damaged."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
        yield key >> 3, data[at : at + size]
        at += size


def piece_texts(model: bytes) -> list[str]:
    """The text of each piece, by id; an empty one for a piece without a text."""
    texts = (dict(fields(piece)).get(1) for number, piece in fields(model) if number == 1 and isinstance(piece, bytes))
    return [text.decode() if isinstance(text, bytes) else "" for text in texts]


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _piece(text: bytes, score: bytes, kind: int) -> bytes:
    return _bytes(1, _bytes(1, text) + _varint(2 << 3 | 5) + score + _number(3, kind))


def with_control(model: bytes, ids: Collection[int]) -> bytes:
    """The model in which those pieces are control pieces, so that no text becomes one of them."""
    found, rest, wanted = [], b"", set(ids)
    for number, value in fields(model):
        if number == 1 and isinstance(value, bytes):
            its = dict(fields(value))
            kind = CONTROL if len(found) in wanted else its.get(3, NORMAL)
            found.append(_piece(its.get(1, b""), its.get(2, bytes(4)), kind))
        elif number in (2, 3) and isinstance(value, bytes):
            rest += _bytes(number, value)
    return b"".join(found) + rest


def piece_of_gguf(text: str, score: float, kind: int, unknown: bool) -> tuple[str, float, int]:
    """As SentencePiece has it: llama.cpp writes spaces in user-defined pieces as they are, and may take the piece for
    unknown text for a control piece."""
    if kind == USER_DEFINED:
        text = text.replace(" ", "\u2581")
    return text, score, UNKNOWN if unknown and kind == CONTROL else kind


def bpe_model(pieces: Iterable[tuple[str, float, int]], add_space_prefix: bool) -> bytes:
    """Of (text, score, type). Text is split by scores, and characters that no piece has become bytes; nothing is
    normalised but that spaces become U+2581 and, if `add_space_prefix`, one more stands before the text."""
    found, has_bytes = [], False
    for text, score, kind in pieces:
        found.append(_piece(text.encode(), struct.pack("<f", score), kind))
        has_bytes |= kind == BYTE
    trainer = _number(3, _BPE) + _number(35, has_bytes)
    normalizer = _number(3, add_space_prefix) + _number(4, False) + _number(5, True)
    return b"".join(found) + _bytes(2, trainer) + _bytes(3, normalizer)
