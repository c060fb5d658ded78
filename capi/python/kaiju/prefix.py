"""Prefixes: KV that is computed before the first request needs it, and that stays."""

from __future__ import annotations

import ctypes as c
from typing import Any, Optional, Sequence

from ._handle import Handle, instance
from ._library import call, lib
from .engine import Engine, Request
from .errors import InvalidArgument
from .model import head_messages
from .options import AnyOptions


class Prefix(Handle):
    """The KV of a beginning that sessions share, usually a card's: its computation is requested at once.

    Options have to name a character or a salt, which the sessions that use the KV name, too."""

    _kind = "prefix"

    def __init__(self, engine: Engine, tokens: Optional[Sequence[int]] = None, *, card: Any = None,
                 system: Optional[str] = None, user_data: Any = None, options: AnyOptions = None,
                 **values: Any):
        super().__init__()
        self.engine = instance(Engine, "engine", engine)
        messages = head_messages(card, system, None)
        if (tokens is None) == (not messages):
            raise InvalidArgument("give tokens, or a card or a system message")
        self.tokens = list(engine.model.chat_format(messages, 0) if tokens is None else tokens)
        given = engine.model._tokens(self.tokens)
        with engine._request_options(options, values) as read:
            self.request: Request = engine._submit(None, read, user_data, True, _warm(engine, self), *given)

    def wait(self) -> None:
        """Until the KV is computed."""
        self.request.wait()

    def pin(self) -> int:
        """kaiju_prefix_pin: keeps the KV in the cache until the prefix is closed; how many tokens it covers. Waits
        until it is computed."""
        self._check()
        self.wait()
        count = c.c_size_t()
        with self.engine._alone():
            call(lib.kaiju_prefix_pin, self._handle, c.byref(count))
        return count.value


def _warm(engine: Engine, prefix: Prefix) -> Any:
    """kaiju_prefix_warm with the parameters in the order of the other calls that submit."""
    def warm(tokens: Any, count: int, options: Any, user_data: Any, request: Any, error: Any) -> int:
        return int(lib.kaiju_prefix_warm(engine._handle, tokens, count, options, user_data, prefix._out,
                                         request, error))

    return warm


__all__ = ["Prefix"]
