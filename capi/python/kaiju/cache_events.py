"""Cache events: what an engine has cached, for a router that sends each request to the engine which has its prefix."""

from __future__ import annotations

import ctypes as c
from typing import List, NamedTuple

from ._c import CacheEvent as _CCacheEvent
from ._c import CacheKind, CacheTier


class CacheEvent(NamedTuple):
    """kaiju_cache_event."""

    kind: int  # a CacheKind; of CLEARED the other fields say nothing: forget all names
    tier: int  # a CacheTier
    name: int  # of the block, 128 bits
    parent: int  # of the block before it; 0: it is the first of its prompt
    block_tokens: int  # 64, or fewer at the end of a sequence
    is_private: bool  # outside the shared regions of characters
    tokens: List[int]  # of STORED, with cache_event_tokens=1

    @classmethod
    def _of(cls, raw: _CCacheEvent) -> "CacheEvent":
        tokens = c.cast(raw.tokens, c.POINTER(c.c_int32))[: raw.token_count] if raw.token_count else []
        return cls(CacheKind(raw.kind), CacheTier(raw.tier), raw.name_high << 64 | raw.name_low,
                   raw.parent_high << 64 | raw.parent_low, raw.block_tokens, bool(raw.is_private), tokens)


__all__ = ["CacheEvent"]
