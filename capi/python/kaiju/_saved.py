"""What sessions and conversations have in common: they are saved."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, Any, List

from . import _c
from ._handle import Handle, Path, c_path
from ._library import call, lib
from .options import AnyOptions, bag

if TYPE_CHECKING:
    from .engine import Engine


class Saved(Handle):
    engine: "Engine"

    def _idle(self) -> None:
        """Waits for the end of the request that this had before."""
        raise NotImplementedError

    def save(self, *, options: AnyOptions = None, **values: Any) -> bytes:
        """kaiju_session_save and kaiju_conversation_save, for Engine.restore and Engine.restore_conversation: tokens and
        their KV, of a conversation all turns and replies. Options: key and kv."""
        parts: List[bytes] = []

        def write(data: int, size: int, _: Any) -> int:
            parts.append(c.string_at(data, size))
            return 0

        callback = _c.WRITE(write)
        self._save("save", options, values, c.cast(callback, c.c_void_p), None)
        return b"".join(parts)

    def save_file(self, path: Path, *, options: AnyOptions = None, **values: Any) -> None:
        """kaiju_session_save_file and kaiju_conversation_save_file, for Engine.restore_file and
        Engine.restore_conversation_file. A file at `path` is replaced as a whole."""
        self._save("save_file", options, values, c_path(path))

    def _save(self, name: str, options: AnyOptions, values: Any, *where: Any) -> None:
        self._idle()
        with bag(("session",), options, values) as read, self.engine._alone():
            call(getattr(lib, f"kaiju_{self._kind}_{name}"), self._handle, read._handle, *where)


__all__ = ["Saved"]
