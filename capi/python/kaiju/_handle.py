"""Handles of the library, and how Python values become arguments of C: what ctypes would cut off is refused."""

from __future__ import annotations

import ctypes as c
import operator
import os
from typing import Any, Optional, Type, TypeVar, Union

from ._library import lib
from .errors import Closed, InvalidArgument, WrongType

H = TypeVar("H", bound="Handle")
T = TypeVar("T")
Path = Union[str, bytes, "os.PathLike[Any]"]


class Pointer(c.c_void_p):
    """A C handle, destroyed when its last user lets go of it: a call of another thread is one."""

    def __init__(self, kind: str):
        super().__init__()
        self._destroy = getattr(lib, f"kaiju_{kind}_destroy")

    def __del__(self) -> None:
        if self:
            pointer, self.value = c.c_void_p(self.value), None  # whoever still finds it in a cycle finds it closed
            self._destroy(pointer)


class Handle:
    """Owns a C handle: close it, use it in a with statement, or let it go. It cannot be copied or pickled."""

    _kind = ""  # names its functions
    _of_process = True  # whether it is its maker's alone: refused in a child of fork()
    _pointer: Optional[Pointer] = None  # until it is made, and once it is closed

    def __init__(self) -> None:
        self._process = os.getpid()
        self._pointer = Pointer(self._kind)

    @property
    def _handle(self) -> Pointer:
        """The C handle, to be passed to C at once: who keeps it keeps it open."""
        pointer = self._pointer
        if not pointer:
            raise Closed(f"the {self._kind} is closed")
        if self._of_process and self._process != os.getpid():
            raise Closed(f"the {self._kind} belongs to process {self._process}, which created it and has forked "
                         f"since; this is process {os.getpid()}: create one here")
        return pointer

    @property
    def _out(self) -> Any:
        """Where C writes the handle that it makes."""
        assert self._pointer is not None
        return c.byref(self._pointer)

    def _check(self) -> None:
        """Before a lock is waited for, which a child of fork() may find held for ever."""
        self._handle

    @property
    def closed(self) -> bool:
        return not self._pointer

    def close(self) -> None:
        """Gives it back to the library; where another thread is in a call with it, once that returns. What was made
        of it lives on."""
        self.__dict__.pop("_pointer", None)

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, _: Any) -> Any:
        raise WrongType(f"a {type(self).__name__} cannot be copied or pickled: it owns a handle of the kaiju library")


def instance(kind: Type[T], name: str, value: Any) -> T:
    """A handle of another kind would be read as one of this."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise WrongType(f"{name} is a {type(value).__name__}; it must be {article} {kind.__name__}")
    return value


def utf8(name: str, text: Any) -> bytes:
    """A text as C takes it."""
    if not isinstance(text, str):
        raise WrongType(f"{name} is {text!r}; it must be a str")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} is {text!r}, which UTF-8 cannot write") from None


def whole(name: str, value: Any, bits: int = 64) -> int:
    """A whole number that C takes without a sign: ctypes cuts off what is beyond its bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise WrongType(f"{name} is {value!r}; it must be an int") from None
    if not 0 <= number < 2**bits:
        raise InvalidArgument(f"{name} is {number}; it must be from 0 to {2**bits - 1}")
    return number


def nanoseconds(name: str, seconds: Any) -> int:
    try:
        return min(int(float(seconds) * 1e9), 2**62)
    except (TypeError, ValueError, OverflowError):
        raise WrongType(f"{name} is {seconds!r}; it must be a number of seconds") from None


def c_path(path: Any) -> bytes:
    """A path as C takes it: a str, bytes or os.PathLike, UTF-8 or not, that ends with a zero byte."""
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgument(f"the path {path!r} cannot be written in the file system's encoding") from None
    except TypeError:
        raise WrongType(f"the path is {path!r}; it must be a str, bytes or os.PathLike") from None
    if b"\0" in data:
        raise InvalidArgument(f"the path {path!r} has a NUL in it, where C would take it to end: give a path without")
    return data
