"""The interface that both kinds of source have. Rows are read when they are asked for, by calls into buffers of that
size: no file is mapped, so that a file which shrinks meanwhile is an error and not the end of the process."""

import abc
import os

import numpy as np

from model_config import ModelConfig
from refused import Refused, shown
from stored_tokenizer import StoredTokenizer


class File:
    """A file that is read by position. Safe to use from several threads and, opened anew, from several processes."""

    def __init__(self, path: str):
        self.path = path
        try:
            self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            raise Refused(f"{shown(path)} cannot be read: {problem.strerror}") from None
        self.size = os.fstat(self._number).st_size

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            os.close(self._number)

    def read(self, offset: int, size: int) -> np.ndarray:
        """uint8 [size]"""
        buffer = np.empty(size, np.uint8)
        view, at = memoryview(buffer), 0
        while at < size:
            try:
                count = os.preadv(self._number, [view[at:]], offset + at)
            except OSError as problem:
                raise Refused(f"{shown(self.path)} cannot be read: {problem.strerror}") from None
            if count == 0:
                raise Refused(f"{shown(self.path)} ends at byte {offset + at}, before its tensors do; fetch it again")
            at += count
        return buffer


class Source(abc.ABC):
    """A model's config and weights. Names are those of ModelConfig.tensors()."""

    path: str
    config: ModelConfig
    chat_template: str | None = None
    left_out: list[str]  # what the file has and the model does not need, for the report

    @abc.abstractmethod
    def stored_as(self, name: str) -> str:
        """The type that the tensor has in the file, as its format names it."""

    @abc.abstractmethod
    def unchecked_rows(self, name: str, first: int, count: int) -> np.ndarray:
        """The same as `rows`, for a caller who looks himself whether values are finite and the rows there."""

    @abc.abstractmethod
    def tokenizer(self) -> StoredTokenizer | None:
        """None: the source has none."""

    def int8_rows(self, name: str, first: int, count: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Of a matrix that is stored as int8 with one scale a row: int8 [count, in], float32 [count]. Else None."""
        return None

    def static_steps(self) -> dict[str, float]:
        """The constant steps of inputs and outputs of matrices, under the names that a checkpoint has for them."""
        return {}

    def kv_steps(self) -> list[tuple[float, float]]:
        """Constant steps of keys and values, of each layer; or []."""
        return []

    def rows(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        """Rows `first` to `first + count` of a matrix, float32 [count, in], or elements of a vector, float32 [count].
        Every value is finite."""
        shape = self.shapes[name]
        count = shape[0] - first if count is None else count
        if not (0 <= first and 0 <= count and first + count <= shape[0]):
            raise IndexError(f"{name} has {shape[0]} rows, not {first} + {count}")
        values = self.unchecked_rows(name, first, count)
        if not _finite(values):
            at = first + int(np.argwhere(~np.isfinite(values))[0, 0])
            raise Refused(f"{name}: row {at} has a value that is not finite; the file is damaged, fetch it again")
        return values

    def gather(self, name: str, ids: np.ndarray) -> np.ndarray:
        """Those rows of a matrix, in that order: float32 [len(ids), in]."""
        different, places = np.unique(ids, return_inverse=True)
        found = np.empty((len(different), self.shapes[name][1]), np.float32)
        for at, row in enumerate(different):
            found[at] = self.rows(name, int(row), 1)[0]
        return found[places.reshape(-1)]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        if not hasattr(self, "_shapes"):
            self._shapes = self.config.tensors()
        return self._shapes


_zeros = np.zeros(0, np.float32)


def _finite(values: np.ndarray) -> bool:
    """Whether every value is finite: 0 times any other value is not 0. Ten times as fast as isfinite."""
    global _zeros
    flat = values.reshape(-1)
    if len(_zeros) < flat.size:
        _zeros = np.zeros(flat.size, np.float32)
    with np.errstate(invalid="ignore"):
        return bool(np.dot(flat, _zeros[: flat.size]) == 0)
