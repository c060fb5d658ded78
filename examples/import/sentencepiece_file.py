"""SentencePiece models (protocol buffers, sentencepiece_model.proto of SentencePiece 0.2.0): reads their fields, and
writes one of the pieces that a GGUF file lists. GGUF's token types are the types of pieces."""

import struct
from collections.abc import Iterable, Iterator

_BYTE = 6  # a type of pieces
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


def bpe_model(pieces: Iterable[tuple[str, float, int]], add_space_prefix: bool) -> bytes:
    """Of (text, score, type). Text is split by scores, and characters that no piece has become bytes; nothing is
    normalised but that spaces become U+2581 and, if `add_space_prefix`, one more stands before the text."""
    found, has_bytes = [], False
    for text, score, kind in pieces:
        piece = _bytes(1, text.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", score) + _number(3, kind)
        found.append(_bytes(1, piece))
        has_bytes |= kind == _BYTE
    trainer = _number(3, _BPE) + _number(35, has_bytes)
    normalizer = _number(3, add_space_prefix) + _number(4, False) + _number(5, True)
    return b"".join(found) + _bytes(2, trainer) + _bytes(3, normalizer)
