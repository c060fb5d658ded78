"""What kaiju raises: one class for each status of the C interface, all of them an Error."""

from __future__ import annotations

from typing import Dict, Optional, Type

from ._c import Status


class Error(Exception):
    """`status` is a Status, `name` the library's name of it ("busy"); the text says what to do."""

    status: Status = Status.INTERNAL

    @property
    def name(self) -> str:
        from ._library import status_name

        return status_name(self.status)


class InvalidArgument(Error, ValueError):
    status = Status.INVALID_ARGUMENT


class WrongType(InvalidArgument, TypeError):
    """A value of another type than the one that is needed."""


class Closed(InvalidArgument):
    """Use after close, or of a parent process's engine after fork()."""


class NotFound(Error, LookupError):
    status = Status.NOT_FOUND


class Unsupported(Error):
    status = Status.UNSUPPORTED


class OutOfMemory(Error, MemoryError):
    status = Status.OUT_OF_MEMORY


class Busy(Error):
    status = Status.BUSY


class Cancelled(Error):
    status = Status.CANCELLED


class InputOutput(Error, OSError):
    status = Status.IO


class BadModel(Error, ValueError):
    status = Status.BAD_MODEL


class DeviceLost(Error):
    status = Status.DEVICE_LOST


class Internal(Error):
    status = Status.INTERNAL


class LibraryMissing(Error, ImportError):
    """The shared library cannot be found or is another one; status is NOT_FOUND."""

    status = Status.NOT_FOUND
    name = "not found"  # without the library


_CLASSES: Dict[int, Type[Error]] = {
    kind.status: kind
    for kind in (InvalidArgument, NotFound, Unsupported, OutOfMemory, Busy, Cancelled, InputOutput, BadModel,
                 DeviceLost, Internal)
}


def error_of(status: int, message: Optional[str]) -> Error:
    """The exception for a status."""
    kind = _CLASSES.get(status, Internal)
    return kind(message or f"kaiju: {kind.status.name.lower().replace('_', ' ')} (no message)")
