"""The structure of a safetensors file: a JSON header and tensors behind it. No length in the file is trusted."""

import dataclasses
import json
import struct
from typing import Any

from refused import Refused, shown
from sources.source import File

_LARGEST_HEADER = 100 << 20
ITEM_BYTES = {
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F64": 8,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U16": 2,
    "U32": 4,
    "U64": 8,
}


@dataclasses.dataclass(frozen=True)
class Place:
    file: File
    shape: tuple[int, ...]
    type: str
    offset: int  # in the file


def _whole(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 62 for value in values)


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def read_header(path: str) -> dict[str, Place]:
    """Every tensor of the file."""
    file, where = File(path), shown(path)
    if file.size < 8:
        raise Refused(f"{where} has {file.size} bytes and is no safetensors file; fetch it again")
    begin = file.read(0, 8).tobytes()
    size = struct.unpack("<Q", begin)[0]
    if begin.startswith(b"version "):
        raise Refused(f"{where} is a pointer of Git LFS and not the file itself; fetch it with git lfs pull")
    if size > min(_LARGEST_HEADER, file.size - 8):
        raise Refused(
            f"{where} has {file.size} bytes, but its header would have {size}; it is no safetensors file, or the "
            "download stopped early: fetch it again"
        )
    try:
        header = json.loads(file.read(8, size).tobytes().decode(), object_pairs_hook=_no_twice)
    except (ValueError, RecursionError) as problem:
        raise Refused(f"{where}: the header is no JSON: {shown(problem)}") from None
    if not isinstance(header, dict):
        raise Refused(f"{where}: the header is no JSON object; fetch the file again")
    header.pop("__metadata__", None)
    places, spans = {}, []
    for name, about in header.items():
        place, end = _place(file, where, name, about, 8 + size)
        places[name] = place
        spans.append((place.offset, end, name))
    end, before = 0, ""
    for first, last, name in sorted(spans):
        if first < end:
            raise Refused(f"{where}: tensors {shown(before)} and {shown(name)} overlap; the file is damaged")
        end, before = last, name
    return places


def _place(file: File, where: str, name: str, about: Any, begin: int) -> tuple[Place, int]:
    """The place of a tensor, and where it ends."""
    known = (
        isinstance(about, dict)
        and isinstance(about.get("dtype"), str)
        and _whole(about.get("shape"))
        and _whole(about.get("data_offsets"))
        and len(about["data_offsets"]) == 2
    )
    if not known:
        raise Refused(f"{where}: the header's entry of {shown(name)} is damaged; fetch the file again")
    kind, shape, (first, last) = about["dtype"], tuple(about["shape"]), about["data_offsets"]
    if kind not in ITEM_BYTES:
        raise Refused(f"{where}: tensor {shown(name)} has the type {shown(kind)}; kaiju reads BF16, F16 and F32")
    size = ITEM_BYTES[kind]
    for dimension in shape:
        size *= dimension
    if last - first != size:
        raise Refused(
            f"{where}: tensor {shown(name)} of {kind} {list(shape)} needs {size} bytes, but its offsets hold "
            f"{last - first}; the file is damaged"
        )
    if begin + last > file.size:
        raise Refused(
            f"{where} has {file.size} bytes, but tensor {shown(name)} would end at byte {begin + last}; the download "
            "stopped early, fetch it again"
        )
    return Place(file, shape, kind, begin + first), begin + last
