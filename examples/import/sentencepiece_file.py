"""Writes a SentencePiece model (a protocol buffer, sentencepiece_model.proto of SentencePiece 0.2.0) of the pieces that
a GGUF file lists. GGUF's token types are that file's types of pieces."""

import struct
from collections.abc import Iterable

UNKNOWN, CONTROL, BYTE = 2, 3, 6  # of the types
_BPE = 2


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
        has_bytes |= kind == BYTE
    trainer = _number(3, _BPE) + _number(35, has_bytes)
    normalizer = _number(3, add_space_prefix) + _number(4, False) + _number(5, True)
    return b"".join(found) + _bytes(2, trainer) + _bytes(3, normalizer)
