"""Finds and loads the shared library, and calls it: errors become exceptions.

The library is the first of: $KAIJU_LIBRARY; the copy in this package; in a checkout, the newest in build/*/; the one that
was installed with this package; what the system finds as libkaiju.so.0."""

from __future__ import annotations

import ctypes as c
import glob
import os
import re
from typing import Any, Callable, List, Tuple

from . import _c
from .errors import Error, LibraryMissing, OutOfMemory, error_of

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))  # of a checkout
_CHECKOUT = os.path.isfile(os.path.join(_ROOT, "capi", "kaiju.h"))
_NOT_LOADABLE = re.compile("asan|tsan|fuzz|coverage|aarch64")  # build folders: a sanitizer has to be in its host


def checkout_path(*parts: str) -> str:
    """A path in the checkout that this package is in; "" for an installed package."""
    return os.path.join(_ROOT, *parts) if _CHECKOUT else ""


def package_path(*parts: str) -> str:
    return os.path.join(_HERE, *parts)


def prefix_path(*parts: str) -> str:
    """A path in the prefix that this package was installed in, as PREFIX/lib/python3/dist-packages/kaiju."""
    return os.path.join(os.path.dirname(_ROOT), *parts)


def _installed() -> List[str]:
    return [] if _CHECKOUT else [path for lib in ("lib", os.path.join("lib", "*"), "lib64")
                                 for path in glob.glob(prefix_path(lib, "libkaiju.so.0"))]


def _built() -> List[str]:
    found = glob.glob(os.path.join(_ROOT, "build", "*", "libkaiju.so")) if _CHECKOUT else []
    loadable = [path for path in found if not _NOT_LOADABLE.search(os.path.basename(os.path.dirname(path)))]
    return sorted(loadable, key=os.path.getmtime, reverse=True)


def _choose() -> str:
    named = os.environ.get("KAIJU_LIBRARY")  # empty is as if unset
    if named:
        return named
    packaged = sorted(glob.glob(package_path("lib", "libkaiju.so*")))
    return (packaged + _built() + _installed() + ["libkaiju.so.0"])[0]


def _load() -> Tuple[c.CDLL, str]:
    path = _choose()
    try:
        library = c.CDLL(path)
    except OSError as error:
        how = "build it (cmake --build build/chat in a checkout) or name a libkaiju.so in KAIJU_LIBRARY"
        raise LibraryMissing(f"cannot load the kaiju library: {error}; {how}") from None
    try:
        library.kaiju_version.restype = _c.U32
        version = library.kaiju_version()
        if (version // 10000, version // 100 % 100) != _c.VERSION:  # before 1.0 a minor version may change anything
            raise LibraryMissing(f"{path} is kaiju {version // 10000}.{version // 100 % 100}, and this package needs "
                                 f"{_c.VERSION[0]}.{_c.VERSION[1]}; name another libkaiju.so in KAIJU_LIBRARY")
        for name, (answers, *takes) in _c.FUNCTIONS.items():
            function = getattr(library, "kaiju_" + name)
            function.restype, function.argtypes = answers, takes
    except AttributeError as error:
        raise LibraryMissing(f"{path} is not the kaiju library, or another version of it: {error}; name libkaiju.so "
                             "in KAIJU_LIBRARY, or unset it") from None
    return library, path


lib, loaded_from = _load()


def text_of(data: bytes) -> str:
    """A text of the library's. What is not UTF-8, such as a path in a message, is shown by its bytes."""
    return data.decode(errors="backslashreplace")


def _raise(status: int, error: c.c_void_p) -> None:
    if not error:
        raise OutOfMemory("kaiju: out of memory") if status == _c.Status.OUT_OF_MEMORY else error_of(status, None)
    raise error_of(status, text_of(lib.kaiju_error_message(error)))


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Calls what ends with `kaiju_error** error`."""
    error = c.c_void_p()
    try:
        status = function(*arguments, c.byref(error))
        if status != 0:
            _raise(status, error)
    finally:
        arguments = ()  # an exception keeps this frame, and must not keep handles open
        if error:
            lib.kaiju_error_destroy(error)


def check(status: int, message: str) -> None:
    """Of a call that has no message of its own."""
    if status != 0:
        raise error_of(status, message)


def filled(ask: Callable[[Any, int, Any], None], kind: Any = _c.I32) -> List[int]:
    """What `ask(buffer, capacity, count)` writes, asked for its size first."""
    count = c.c_size_t()
    ask(None, 0, c.byref(count))
    while True:
        capacity = count.value
        buffer = (kind * capacity)()
        ask(buffer, capacity, c.byref(count))
        if count.value <= capacity:  # another thread may have made it longer
            return list(buffer[: count.value])


def version() -> str:
    """kaiju_version_string."""
    return text_of(lib.kaiju_version_string())


def version_number() -> int:
    """kaiju_version: major * 10000 + minor * 100 + patch."""
    return int(lib.kaiju_version())


def build_info() -> str:
    """kaiju_build_info: how the library was compiled."""
    return text_of(lib.kaiju_build_info())


def status_name(status: int) -> str:
    """kaiju_status_name."""
    return text_of(lib.kaiju_status_name(status))


__all__ = ["Error", "build_info", "call", "check", "checkout_path", "filled", "lib", "loaded_from", "package_path",
           "status_name", "text_of", "version", "version_number"]
