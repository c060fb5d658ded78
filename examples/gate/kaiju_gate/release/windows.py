"""A copy of a checkpoint whose sliding windows are as wide as its context: windows switched off, weights unchanged."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import struct
import sys
from typing import Any

from ..sets import FOLDER
from ..wrong import Wrong

_ALIGNMENT = 64  # of the data in the file


def digest_of(data: bytes) -> str:
    """XXH3-128, as examples/import computes it."""
    folder = os.path.join(os.path.dirname(FOLDER), "import")
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module("digest").digest_of(data)
    except Exception as error:  # the module is missing, or it refuses
        raise Wrong(f"needles without windows need XXH3: {error}") from None


def read_header(path: str) -> tuple[dict[str, Any], int]:
    """The JSON header of a safetensors file, and where its data begins."""
    try:
        with open(path, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            return json.loads(file.read(size)), 8 + size
    except (OSError, ValueError, struct.error) as error:
        raise Wrong(f"{path} cannot be read as a checkpoint: {error}") from None


def root_digest(header: dict[str, Any]) -> str:
    """docs/checkpoint.md, "Metadata"."""
    metadata = header["__metadata__"]
    digests = json.loads(metadata["digests"])
    lines = "".join(
        f"{name} {header[name]['dtype']} {','.join(map(str, header[name]['shape']))} {digests[name]}\n"
        for name in sorted(digests, key=str.encode)
    )
    return digest_of(f"{metadata['arithmetic']}\n{metadata['config']}\n{lines}".encode())


def with_config(path: str, out: str, config: dict[str, Any]) -> None:
    """Writes the checkpoint with another config. Its tensors, and their digests, stay."""
    header, begin = read_header(path)
    header["__metadata__"]["config"] = json.dumps(config)
    header["__metadata__"]["digest"] = root_digest(header)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with open(path, "rb") as source, open(out, "wb") as target:
        target.write(struct.pack("<Q", len(text)) + text)
        source.seek(begin)
        shutil.copyfileobj(source, target, 1 << 24)


def config_of(path: str) -> dict[str, Any]:
    return json.loads(read_header(path)[0]["__metadata__"]["config"])


def without_windows(path: str, out: str) -> bool:
    """Whether the model has windows, and a copy without them was written."""
    config = config_of(path)
    sliding = [layer for layer in config["layers"] if layer["kind"] == "sliding"]
    for layer in sliding:
        layer["window"] = config["context"]
    if sliding:
        with_config(path, out, config)
    return bool(sliding)
