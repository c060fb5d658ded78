"""XXH3-128 and XXH32, of the package xxhash or else of the C library that kaiju is built with."""

import ctypes
import ctypes.util
import functools
from typing import Any, Callable, Protocol

from arguments import remedy
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
            raise Refused(f"XXH3 is missing: install the system's libxxhash, or {remedy()}")
        _loaded = ctypes.CDLL(name)
        _loaded.XXH3_createState.restype = ctypes.c_void_p
        _loaded.XXH3_freeState.argtypes = [ctypes.c_void_p]
        _loaded.XXH3_128bits_reset.argtypes = [ctypes.c_void_p]
        _loaded.XXH3_128bits_update.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        _loaded.XXH3_128bits_digest.argtypes = [ctypes.c_void_p]
        _loaded.XXH3_128bits_digest.restype = _Hash128
        _loaded.XXH32.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32]
        _loaded.XXH32.restype = ctypes.c_uint32
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


@functools.lru_cache(None)
def _xxh32() -> Callable[[bytes, int], int]:
    try:
        import xxhash

        return xxhash.xxh32_intdigest
    except ImportError:
        library = _library()
        return lambda data, seed: library.XXH32(data, len(data), seed)


def hash32(data: bytes, seed: int) -> int:
    """XXH32."""
    return _xxh32()(data, seed)
