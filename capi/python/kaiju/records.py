"""Records of replies: what they say, and what came of computing one again (docs/operations.md)."""
from __future__ import annotations

import ctypes as c
import json
from typing import Any, Dict, List, NamedTuple, Optional

from . import _c
from ._library import call, filled, lib


class Replayed(NamedTuple):
    """kaiju_replayed: a reply that was computed again from its record."""

    same_model: bool  # the engine has the model of the record
    reason: int  # a Reason; CANCELLED where the recorded reply was cut off, and this one at the same place
    recorded_tokens: int  # length of the recorded reply
    compared_tokens: int
    differs_at: Optional[int]  # place in the reply of the first token that differs; None: the replies are equal
    recorded: Optional[int]  # that token; None where the reply had ended
    generated: Optional[int]  # what was generated in its place

    @classmethod
    def _of(cls, raw: _c.Replayed) -> "Replayed":
        def known(value: int) -> Optional[int]:
            return value if value >= 0 else None

        return cls(bool(raw.same_model), raw.reason, raw.recorded_tokens, raw.compared_tokens, known(raw.differs_at),
                   known(raw.recorded), known(raw.generated))


def record_describe(record: bytes) -> Dict[str, Any]:
    """kaiju_record_describe: the options of a recorded reply, the digest of its model, how it ended."""
    text = filled(lambda *buffer: call(lib.kaiju_record_describe, record, len(record), *buffer), c.c_ubyte)
    return dict(json.loads(bytes(text)))


def record_tokens(record: bytes) -> List[int]:
    """kaiju_record_tokens: the prompt and the reply; record_describe(record)["prompt_tokens"] says where that begins."""
    return list(filled(lambda *buffer: call(lib.kaiju_record_tokens, record, len(record), *buffer), c.c_int32))


__all__ = ["Replayed", "record_describe", "record_tokens"]
