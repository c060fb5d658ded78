"""The structure of a GGUF file (ggml's docs/gguf.md): metadata and where its tensors are. No length in the file is
trusted, and nothing is read beyond the header."""

import dataclasses
import struct
from typing import Any, BinaryIO

import numpy as np

from refused import Refused, shown
from sources.ggml_types import REFUSED_TYPES, TYPES, GgmlType

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY, _FLOAT32, _BOOL = 8, 9, 6, 7
_MOST_TENSORS, _MOST_KEYS, _MOST_ITEMS, _LONGEST_TEXT = 1 << 16, 1 << 16, 1 << 23, 1 << 24


@dataclasses.dataclass(frozen=True)
class Place:
    """Of a tensor: its shape as numpy has it, how it is stored and at which byte of the file it begins."""

    shape: tuple[int, ...]
    type: GgmlType
    offset: int

    @property
    def row_bytes(self) -> int:
        return self.shape[-1] // self.type.values * self.type.bytes

    @property
    def bytes(self) -> int:
        return self.row_bytes * int(np.prod(self.shape[:-1], dtype=object))


class _Header:
    """Reads the header from front to back."""

    def __init__(self, file: BinaryIO, path: str, size: int):
        self.file, self.where, self.left, self.at = file, shown(path), size, 0

    def take(self, size: int, what: str) -> bytes:
        data = self.file.read(size) if size <= self.left else b""
        if len(data) != size:
            raise Refused(f"{self.where} ends in its header, within {what}; the download stopped early, fetch it again")
        self.left -= size
        self.at += size
        return data

    def number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def text(self, what: str) -> str:
        size = self.number("Q", what)
        if size > _LONGEST_TEXT:
            raise Refused(f"{self.where}: {what} is said to have {size} bytes; the file is damaged")
        return self.take(size, what).decode(errors="surrogateescape")

    def value(self, kind: int, what: str) -> Any:
        if kind in _SCALARS:
            value = self.number(_SCALARS[kind], what)
            return bool(value) if kind == _BOOL else _shortest(value) if kind == _FLOAT32 else value
        if kind == _STRING:
            return self.text(what)
        if kind == _ARRAY:
            return self._array(what)
        raise Refused(f"{self.where}: {what} has the type {kind}, which GGUF does not define; the file is damaged")

    def _array(self, what: str) -> list[Any]:
        kind, count = self.number("I", what), self.number("Q", what)
        if count > _MOST_ITEMS:
            raise Refused(f"{self.where}: {what} is said to have {count} items; the file is damaged")
        if kind in _SCALARS:
            item = np.dtype(
                "<"
                + {
                    "B": "u1",
                    "b": "i1",
                    "H": "u2",
                    "h": "i2",
                    "I": "u4",
                    "i": "i4",
                    "f": "f4",
                    "Q": "u8",
                    "q": "i8",
                    "d": "f8",
                }[_SCALARS[kind]]
            )
            values = np.frombuffer(self.take(count * item.itemsize, what), item).tolist()
            return [bool(value) for value in values] if kind == _BOOL else values
        if kind == _STRING:
            return [self.text(what) for _ in range(count)]
        raise Refused(f"{self.where}: {what} is an array of type {kind}; kaiju reads arrays of numbers and texts")


def _shortest(value: float) -> float:
    """The shortest decimal that is this float32: 1e-05 and not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _tensor(header: _Header, number: int) -> tuple[str, tuple[int, ...], int, int]:
    """(name, shape, type, offset)"""
    name = header.text(f"the name of tensor {number}")
    what = f"the description of tensor {shown(name)}"
    dimensions = header.number("I", what)
    if not 1 <= dimensions <= 4:
        raise Refused(
            f"{header.where}: tensor {shown(name)} is said to have {dimensions} dimensions; the file is damaged"
        )
    shape = tuple(header.number("Q", what) for _ in range(dimensions))[::-1]
    if any(not 1 <= size <= 1 << 32 for size in shape):
        raise Refused(f"{header.where}: tensor {shown(name)} is said to have the shape {shape}; the file is damaged")
    return name, shape, header.number("I", what), header.number("Q", what)


def _place(where: str, name: str, shape: tuple[int, ...], kind: int, offset: int, begin: int, alignment: int) -> Place:
    if kind not in TYPES:
        called = REFUSED_TYPES.get(kind, f"type {kind}")
        raise Refused(
            f"{where}: tensor {shown(name)} is stored as {called}, which kaiju does not read; use a file of the "
            "same model with Q8_0, Q6_K, Q5_K, Q4_K or F16"
        )
    if shape[-1] % TYPES[kind].values:
        raise Refused(
            f"{where}: tensor {shown(name)} has rows of {shape[-1]}, which {TYPES[kind].name} cannot store; the "
            "file is damaged"
        )
    if offset % alignment:
        raise Refused(
            f"{where}: tensor {shown(name)} begins at byte {offset} of the data, no multiple of {alignment}; the "
            "file is damaged"
        )
    return Place(shape, TYPES[kind], begin + offset)


def _check_extents(where: str, places: dict[str, Place], size: int) -> None:
    end, before = 0, ""
    for name, place in sorted(places.items(), key=lambda item: item[1].offset):
        if place.offset < end:
            raise Refused(f"{where}: tensors {shown(before)} and {shown(name)} overlap; the file is damaged")
        end, before = place.offset + place.bytes, name
        if end > size:
            raise Refused(
                f"{where} has {size} bytes, but tensor {shown(name)} would end at byte {end}; the download stopped "
                "early, fetch it again"
            )


def read_header(path: str) -> tuple[dict[str, Any], dict[str, Place]]:
    """Metadata and tensors of a GGUF file."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            return _read_header(_Header(file, path, size), size)
    except OSError as problem:
        raise Refused(f"{shown(path)} cannot be read: {problem.strerror}") from None


def _read_header(header: _Header, size: int) -> tuple[dict[str, Any], dict[str, Place]]:
    where = header.where
    if header.take(4, "its first four bytes") != b"GGUF":
        raise Refused(f"{where} is no GGUF file")
    version = header.number("I", "its version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
        raise Refused(
            f"{where} is a GGUF file of {'big-endian machines' if swapped else f'version {version}'}; kaiju reads "
            "little-endian files of versions 2 and 3: convert the model again"
        )
    tensor_count, key_count = header.number("Q", "its counts"), header.number("Q", "its counts")
    for count, most, what in ((tensor_count, _MOST_TENSORS, "tensors"), (key_count, _MOST_KEYS, "keys")):
        if count > most:
            raise Refused(f"{where} is said to have {count} {what}; at most {most} are read")
    metadata: dict[str, Any] = {}
    for number in range(key_count):
        key = header.text(f"the name of key {number}")
        if key in metadata:
            raise Refused(f"{where} has the key {shown(key)} twice; the file is damaged")
        metadata[key] = header.value(header.number("I", f"the type of {shown(key)}"), shown(key))
    if metadata.get("split.count", 1) not in (0, 1):
        raise Refused(
            f"{where} is one of {metadata['split.count']} parts of a model; merge them first: llama-gguf-split "
            "--merge FIRST_PART OUTPUT"
        )
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise Refused(f"{where}: general.alignment is {shown(alignment)}, no power of two; the file is damaged")
    described = {}
    for number in range(tensor_count):
        name, shape, kind, offset = _tensor(header, number)
        if name in described:
            raise Refused(f"{where} has the tensor {shown(name)} twice; the file is damaged")
        described[name] = shape, kind, offset
    begin = -(-header.at // alignment) * alignment
    places = {name: _place(where, name, *what, begin, alignment) for name, what in described.items()}
    _check_extents(where, places, size)
    return metadata, places
