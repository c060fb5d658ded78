"""Reads a checkpoint (docs/checkpoint.md), or writes one: tensors at places that are known beforehand, in any order and
by several processes, then the header. The file has its name when it is complete, and not before."""

import json
import os
import stat
import struct
from typing import Any

import numpy as np

from digest import digest_of
from refused import Refused, shown

TYPES = {"I8": np.int8, "F32": np.float32, "I32": np.int32, "U64": np.uint64, "U8": np.uint8}
_NO_DIGEST = "0" * 32


def _bytes(kind: str, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=object)) * np.dtype(TYPES[kind]).itemsize


class CheckpointFile:
    """`arithmetic` is the version of that, `tensors` maps each name to its type and shape. Nothing is
    written before `open`; `discard`, which a `finally` must call, removes what was not finished."""

    def __init__(self, path: str, arithmetic: str, config: str, tensors: dict[str, tuple[str, tuple[int, ...]]]):
        self._path, self._arithmetic, self._config, self._tensors = os.path.realpath(path), arithmetic, config, tensors
        self._digests = dict.fromkeys(tensors, "")

        def group(name: str) -> tuple[int, str]:
            return 2 if name == "tokenizer" else 1 if _bytes(*tensors[name]) % 64 else 0, name

        at, self._spans = 0, {}
        for name in sorted(tensors, key=group):
            self._spans[name] = at, at + _bytes(*tensors[name])
            at = self._spans[name][1]
        self._begin = len(self._header())
        self.size = self._begin + at
        folder, name = os.path.split(self._path)
        self.temporary = os.path.join(folder, f".{os.fsdecode(os.fsencode(name)[:100])}.{os.getpid()}-0.tmp")
        self._file = -1

    def open(self) -> None:
        """Reserves the whole file."""
        try:
            self._file = os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                os.posix_fallocate(self._file, 0, self.size)
            except (AttributeError, OSError) as problem:
                if getattr(problem, "errno", None) in (28, 27):  # no space; larger than the file system allows
                    raise
                os.ftruncate(self._file, self.size)
        except OSError as problem:
            raise Refused(f"{shown(self._path)} cannot be written ({self.size:,} bytes): {problem.strerror}") from None

    def discard(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if os.path.exists(self.temporary):  # also where a signal came before its descriptor was stored
            os.unlink(self.temporary)

    def offset(self, name: str) -> int:
        """Where the tensor begins in the file, for those who write it themselves; they call `put_digest`."""
        return self._begin + self._spans[name][0]

    def put_digest(self, name: str, digest: str) -> None:
        assert not self._digests[name], name
        self._digests[name] = digest

    def put(self, name: str, values: Any) -> None:
        kind, shape = self._tensors[name]
        array = np.ascontiguousarray(values, TYPES[kind]).reshape(shape)
        write_at(self._file, array, self.offset(name))
        self.put_digest(name, digest_of(array.reshape(-1).view(np.uint8)))

    def _root(self) -> str:
        lines = "".join(
            f"{name} {kind} {','.join(map(str, shape))} {self._digests[name]}\n"
            for name, (kind, shape) in sorted(self._tensors.items(), key=lambda item: item[0].encode())
        )
        return digest_of(f"{self._arithmetic}\n{self._config}\n{lines}".encode())

    def _header(self, root: str = _NO_DIGEST) -> bytes:
        digests = {name: self._digests[name] or _NO_DIGEST for name in self._spans}
        header: dict[str, Any] = {
            "__metadata__": {
                "format": "kaiju",
                "format_version": "1",
                "arithmetic": self._arithmetic,
                "config": self._config,
                "digests": json.dumps(digests),
                "digest": root,
            }
        }
        for name, (first, last) in self._spans.items():
            kind, shape = self._tensors[name]
            header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [first, last]}
        text = json.dumps(header).encode()
        text += b" " * (-(8 + len(text)) % 64)
        return struct.pack("<Q", len(text)) + text

    def finish(self) -> str:
        """The root digest. The file is at its name and on the disk."""
        missing = [name for name, digest in self._digests.items() if not digest]
        assert not missing, missing
        root = self._root()
        header = self._header(root)
        assert len(header) == self._begin
        write_at(self._file, np.frombuffer(header, np.uint8), 0)
        try:
            if os.path.exists(self._path):
                os.fchmod(self._file, stat.S_IMODE(os.stat(self._path).st_mode))
            os.fsync(self._file)
            os.replace(self.temporary, self._path)
            folder = os.open(os.path.dirname(self._path), os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except OSError as problem:
            raise Refused(f"{shown(self._path)} cannot be written: {problem.strerror}") from None
        return root


def read_checkpoint(path: str) -> tuple[str, str, dict[str, tuple[str, np.ndarray]]]:
    """The config, the version of the arithmetic, and each tensor with its type, read-only. Nothing is verified."""
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    metadata, tensors = header.pop("__metadata__"), {}
    for name, of in header.items():
        first, last = of["data_offsets"]
        values = np.frombuffer(data[begin + first : begin + last], TYPES[of["dtype"]])
        tensors[name] = of["dtype"], values.reshape(of["shape"])
    return metadata["config"], metadata["arithmetic"], tensors


def write_checkpoint(path: str, arithmetic: str, config: str, tensors: dict[str, tuple[str, np.ndarray]]) -> str:
    """A checkpoint whose tensors, each with its type, are all there. Returns the root digest."""
    out = CheckpointFile(path, arithmetic, config, {name: (kind, array.shape) for name, (kind, array) in tensors.items()})
    try:
        out.open()
        for name, (_, array) in tensors.items():
            out.put(name, array)
        return out.finish()
    finally:
        out.discard()


def write_at(file: int, array: np.ndarray, offset: int) -> None:
    """All bytes of a contiguous array."""
    view, at = memoryview(array.reshape(-1).view(np.uint8)), 0
    try:
        while at < len(view):
            at += os.pwrite(file, view[at:], offset + at)
    except OSError as problem:
        raise Refused(f"the output cannot be written: {problem.strerror}") from None
