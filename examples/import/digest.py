"""XXH3-128, of the package xxhash or else of the C library that kaiju is built with."""

import ctypes
import ctypes.util
from typing import Any, Protocol

from refused import Refused


class Digest(Protocol):
    def update(self, data: Any) -> None: ...

    def hexdigest(self) -> str: ...


class _Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


class _LibraryDigest:
    """Takes bytes and contiguous arrays."""

    def __init__(self) -> None:
        self._library = _library()
        self._state = self._library.XXH3_createState()
        self._library.XXH3_128bits_reset(self._state)

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            self._library.XXH3_freeState(self._state)

    def update(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        at = (ctypes.c_char * len(view)).from_buffer(view) if not view.readonly else bytes(view)
        self._library.XXH3_128bits_update(self._state, at, len(view))

    def hexdigest(self) -> str:
        found = self._library.XXH3_128bits_digest(self._state)
        return f"{found.high:016x}{found.low:016x}"


_loaded: Any = None


def _library() -> Any:
    global _loaded
    if _loaded is None:
        name = ctypes.util.find_library("xxhash")
        if name is None:
            raise Refused("XXH3 is missing: pip install xxhash, or install the system's libxxhash")
        _loaded = ctypes.CDLL(name)
        _loaded.XXH3_createState.restype = ctypes.c_void_p
        _loaded.XXH3_freeState.argtypes = [ctypes.c_void_p]
        _loaded.XXH3_128bits_reset.argtypes = [ctypes.c_void_p]
        _loaded.XXH3_128bits_update.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        _loaded.XXH3_128bits_digest.argtypes = [ctypes.c_void_p]
        _loaded.XXH3_128bits_digest.restype = _Hash128
    return _loaded


def new_digest() -> Digest:
    try:
        import xxhash

        return xxhash.xxh3_128()
    except ImportError:
        return _LibraryDigest()


def digest_of(data: Any) -> str:
    digest = new_digest()
    digest.update(data)
    return digest.hexdigest()
