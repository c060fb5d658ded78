"""Where a model's weights come from: a GGUF file or a Hugging Face folder, behind one interface."""

import json
import os
import struct

from refused import Refused, shown
from sources.source import Source

__all__ = ["Source", "open_source"]


_LARGEST_HEADER = 16 << 20  # of a kaiju checkpoint


def _is_checkpoint(path: str) -> bool:
    """Whether the file is a kaiju checkpoint, by its metadata."""
    try:
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(size)) if size <= _LARGEST_HEADER else {}
        return header["__metadata__"]["format"] == "kaiju"
    except (OSError, ValueError, KeyError, TypeError, struct.error, RecursionError):
        return False


def open_source(path: str) -> Source:
    """The source at `path`, with its config and every tensor's place and shape checked; no weights are read yet."""
    from sources.gguf import GgufSource
    from sources.quantised_folder import open_folder

    if os.path.isdir(path):
        return open_folder(path)
    try:
        with open(path, "rb") as file:
            begin = file.read(16)
    except OSError as problem:
        raise Refused(f"{shown(path)} cannot be read: {problem.strerror}") from None
    if begin[:4] == b"GGUF":
        return GgufSource(path)
    if _is_checkpoint(path):
        raise Refused(
            f"{shown(path)} is a kaiju checkpoint already and needs no import: use it as it is, with kaiju-chat "
            "--model for example"
        )
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.basename(path) == "config.json" or path.endswith((".safetensors", ".safetensors.index.json")):
        raise Refused(
            f"{shown(path)} is one file of a Hugging Face model; name the folder that it is in: {shown(folder)}"
        )
    if begin[:4] == b"PK\x03\x04" or begin[:2] == b"\x80\x02":
        raise Refused(
            f"{shown(path)} is a PyTorch pickle, which may run code when it is read; use the model's "
            "safetensors files or a GGUF file"
        )
    raise Refused(
        f"{shown(path)} is neither a GGUF file nor a folder; name a .gguf file, or a folder with config.json "
        "and .safetensors files"
    )
