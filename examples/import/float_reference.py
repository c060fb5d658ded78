"""Writes the log-probabilities of a model in float32, which checkpoints are compared with.

    python3 float_reference.py SOURCE --tokens FILE --out FILE

The tokens file has one text a line: token ids with spaces between. The output is a safetensors file:

    tokens    I32 [n]              the ids of all texts, one text after the other
    lengths   I32 [texts]          how many of them each text has
    logprobs  F16 [n, vocab_size]  row i: log-probabilities, natural, of what follows token i (F32 with --float32)
    hidden.L  F32 [n, d_model]     with --hidden: the residual after layer L
"""

import argparse
import json
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from checkpoint_file import write_at
from float_model import FloatModel
from progress import Progress
from refused import Refused, shown
from sources import open_source
from sources.safetensors import read_header

TOKENS_AT_ONCE = 4096  # of several texts: weights are read once for so many
_LOWEST = -60000.0  # float16 has nothing beyond 65,504


class _ReferenceFile:
    def __init__(self, path: str, about: dict[str, str], tensors: dict[str, tuple[str, tuple[int, ...]]]):
        self._path, self._temporary = path, path + f".{os.getpid()}.tmp"
        header: dict[str, Any] = {"__metadata__": about}
        at, self._places = 0, {}
        for name, (kind, shape) in tensors.items():
            size = int(np.prod(shape, dtype=object)) * {"I32": 4, "F32": 4, "F16": 2}[kind]
            header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
            self._places[name] = at, size // shape[0], {"I32": np.int32, "F32": np.float32, "F16": np.float16}[kind]
            at += size
        text = json.dumps(header).encode()
        text += b" " * (-(8 + len(text)) % 64)
        self._begin, self._header = 8 + len(text), struct.pack("<Q", len(text)) + text

    def __enter__(self) -> "_ReferenceFile":
        try:
            self._file = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as problem:
            raise Refused(f"{shown(self._path)} cannot be written: {problem.strerror}") from None
        write_at(self._file, np.frombuffer(self._header, np.uint8), 0)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        os.close(self._file)
        if kind is None:
            os.replace(self._temporary, self._path)
        else:
            os.unlink(self._temporary)

    def put(self, name: str, row: int, values: np.ndarray) -> None:
        at, row_bytes, kind = self._places[name]
        write_at(self._file, np.ascontiguousarray(values, kind), self._begin + at + row * row_bytes)


class ReferenceReader:
    """Reads such a file."""

    def __init__(self, path: str):
        self._path, self._places = path, read_header(path)
        if not {"tokens", "lengths", "logprobs"} <= self._places.keys():
            raise Refused(f"{shown(path)} is no file of float_reference.py")

    def _rows(self, name: str, first: int, count: int) -> np.ndarray:
        place = self._places[name]
        kind = np.dtype({"I32": np.int32, "F32": np.float32, "F16": np.float16}[place.type])
        width = int(np.prod(place.shape[1:]))
        raw = place.file.read(place.offset + first * width * kind.itemsize, count * width * kind.itemsize)
        return raw.view(kind).reshape(count, *place.shape[1:])

    def texts(self) -> list[np.ndarray]:
        lengths = self._rows("lengths", 0, self._places["lengths"].shape[0])
        return np.split(self._rows("tokens", 0, int(lengths.sum())), np.cumsum(lengths)[:-1])

    def logprobs(self, first: int, count: int) -> np.ndarray:
        """float32 [count, vocab_size]"""
        return self._rows("logprobs", first, count).astype(np.float32)


def read_tokens(path: str, vocab_size: int) -> list[np.ndarray]:
    """The texts of a tokens file."""
    texts = []
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            for number, line in enumerate(file, 1):
                words = line.split()
                if not all(word.isdecimal() and int(word) < vocab_size for word in words):
                    raise Refused(f"{shown(path)}: line {number} has a word that is no token id below {vocab_size}")
                if words:
                    texts.append(np.array([int(word) for word in words]))
    except OSError as problem:
        raise Refused(f"{shown(path)} cannot be read: {problem.strerror}") from None
    if not texts:
        raise Refused(f"{shown(path)} has no tokens")
    return texts


def batches(texts: list[np.ndarray]) -> Iterator[list[np.ndarray]]:
    batch: list[np.ndarray] = []
    for text in texts:
        if batch and sum(map(len, batch)) + len(text) > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(text)
    yield batch


def write_reference(model: FloatModel, texts: list[np.ndarray], path: str, float32: bool, hidden: bool) -> None:
    config, count, at = model.config, sum(map(len, texts)), 0
    tensors = {
        "tokens": ("I32", (count,)),
        "lengths": ("I32", (len(texts),)),
        "logprobs": ("F32" if float32 else "F16", (count, config.vocab_size)),
    }
    if hidden:
        tensors |= {f"hidden.{layer}": ("F32", (count, config.d_model)) for layer in range(config.layers)}
    with (
        _ReferenceFile(path, {"format": "kaiju-reference", "name": config.name}, tensors) as file,
        Progress("computing", count, "tokens") as progress,
    ):
        file.put("tokens", 0, np.concatenate(texts))
        file.put("lengths", 0, np.array([len(text) for text in texts]))
        for batch in batches(texts):

            def observe(layer: int, what: str, values: np.ndarray) -> None:
                if hidden and what == "x":
                    file.put(f"hidden.{layer}", at, values)

            for rows in model.log_probs(model.hidden(batch, observe)):
                file.put("logprobs", at, np.maximum(rows, _LOWEST))
                at += len(rows)
                progress.add(len(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a GGUF file or a Hugging Face folder")
    parser.add_argument("--tokens", required=True, help="file of token ids, one text a line")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--float32", action="store_true", help="log-probabilities in float32 instead of float16")
    parser.add_argument("--hidden", action="store_true", help="the residual after each layer, too")
    arguments = parser.parse_args()
    try:
        source = open_source(arguments.source)
        texts = read_tokens(arguments.tokens, source.config.vocab_size)
        write_reference(FloatModel(source), texts, arguments.out, arguments.float32, arguments.hidden)
    except Refused as problem:
        sys.exit(f"float_reference.py: {problem}")


if __name__ == "__main__":
    main()
