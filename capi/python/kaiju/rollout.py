"""Rollouts: another checkpoint, while the program serves."""

from __future__ import annotations

import ctypes as c
import enum
from typing import List, NamedTuple, Optional, Sequence, Union

from . import _c
from ._handle import Handle, instance, utf8, whole
from ._library import call, check, lib
from .engine import Engine
from .errors import WrongType
from .options import AnyOptions, bag
from .session import Session

Key = Union[str, bytes]


class Phase(enum.IntEnum):
    """What a rollout does: KAIJU_ROLLOUT_*."""

    STEADY, CANDIDATE, DRAINING = 0, 1, 2


class RolloutInfo(NamedTuple):
    """kaiju_rollout_info."""

    phase: Phase
    share: float  # of the candidate, 0 to 1
    warm_left: int  # tokens of prefixes that the candidate has not computed
    current: Engine
    other: Optional[Engine]  # the candidate, or the engine that drains


class Rollout(Handle):
    """The engine of a service, and beside it, while the checkpoint changes, a candidate with a share of new sessions.

        rollout = kaiju.Rollout(engine)
        rollout.begin(kaiju.Model("new.safetensors").engine(memory_limit=kaiju.FREE_MEMORY))
        rollout.add_prefix(card, character="wren/1")
        while rollout.warm(64): ...
        rollout.share = 0.1
        session = rollout.session("user 1")
        rollout.next_turn(session, "user 1")  # before each turn
        rollout.promote()  # or roll_back()

    With move=True, sessions move at their next turn to the engine that their key has. Any thread may make any call."""

    _kind = "rollout"

    def __init__(self, engine: Engine, *, move: bool = False):
        super().__init__()
        self._engines: List[Engine] = [instance(Engine, "engine", engine)]
        call(lib.kaiju_rollout_create, engine._handle, int(bool(move)), self._out)

    def begin(self, candidate: Engine) -> None:
        """kaiju_rollout_begin: Busy while there is a candidate or an engine that drains, Unsupported for a model with
        other tokens."""
        call(lib.kaiju_rollout_begin, self._handle, instance(Engine, "candidate", candidate)._handle)
        self._engines.append(candidate)

    def add_prefix(self, tokens: Sequence[int], *, options: AnyOptions = None, **values: object) -> None:
        """kaiju_rollout_add_prefix: tokens, such as a card's, that the candidate computes before it gets a share.
        Options: character or salt, as for the requests that shall use it."""
        given = self._engines[0].model._tokens(tokens)
        with bag(("session",), options, values) as read:
            call(lib.kaiju_rollout_add_prefix, self._handle, *given, read._handle)

    def warm(self, most_tokens: int = 64) -> int:
        """kaiju_rollout_warm: computes the next tokens of the prefixes; how many are left."""
        left, candidate = c.c_uint64(), self.describe().other
        number = whole("most_tokens", most_tokens, 31)
        if candidate is None:
            call(lib.kaiju_rollout_warm, self._handle, number, c.byref(left))  # says that there is no candidate
            return 0
        with candidate._alone():
            call(lib.kaiju_rollout_warm, self._handle, number, c.byref(left))
        return left.value

    @property
    def share(self) -> float:
        """Of the keys that the candidate has, 0 to 1."""
        return self.describe().share

    @share.setter
    def share(self, share: float) -> None:
        """kaiju_rollout_set_share: Busy while prefixes are left to warm."""
        if isinstance(share, bool) or not isinstance(share, (int, float)):
            raise WrongType(f"share is {share!r}; it must be a number from 0 to 1")
        parts = share * _c.WHOLE_SHARE
        number = round(parts) if -1e6 < parts < 1e6 else -1  # C says what is out of range
        call(lib.kaiju_rollout_set_share, self._handle, number)

    def promote(self) -> None:
        """kaiju_rollout_promote: the candidate becomes the current engine, and the one before drains."""
        call(lib.kaiju_rollout_promote, self._handle)

    def roll_back(self) -> None:
        """kaiju_rollout_roll_back: the way back, at once; the candidate's sessions move at their next turn."""
        call(lib.kaiju_rollout_roll_back, self._handle)

    def take_drained(self) -> Optional[Engine]:
        """kaiju_rollout_take_drained: the engine that drains, to be closed, once its sessions and requests have ended."""
        engine = self._known(lib.kaiju_rollout_take_drained(self._handle))
        if engine is not None:
            self._engines.remove(engine)
        return engine

    def engine_for(self, key: Key) -> Engine:
        """kaiju_rollout_engine_for: the engine of a new session of this key."""
        data = _bytes_of(key)
        engine = self._known(lib.kaiju_rollout_engine_for(self._handle, data, len(data)))
        assert engine is not None
        return engine

    def session(self, key: Key, **begins: object) -> Session:
        """A session on the engine of the key; keywords as in Engine.session."""
        return self.engine_for(key).session(**begins)  # type: ignore[arg-type]

    def next_turn(self, session: Session, key: Key) -> bool:
        """kaiju_rollout_next_turn: call it before each turn. Whether the session moved to another engine, with its
        tokens: Busy while it has an unfinished request."""
        instance(Session, "session", session)._idle()
        data, moved = _bytes_of(key), c.c_int32()
        with session.engine._lock:
            call(lib.kaiju_rollout_next_turn, self._handle, session._handle, data, len(data), c.byref(moved))
        if moved.value:
            session.engine = self.engine_for(key)
        return bool(moved.value)

    def describe(self) -> RolloutInfo:
        """kaiju_rollout_describe."""
        info = _c.RolloutInfo()
        check(lib.kaiju_rollout_describe(self._handle, c.byref(info)), "the rollout has no description")
        current, other = self._known(info.current), self._known(info.other)
        assert current is not None
        return RolloutInfo(Phase(info.phase), info.share / _c.WHOLE_SHARE, info.warm_left, current, other)

    def _known(self, handle: Optional[int]) -> Optional[Engine]:
        return next((engine for engine in self._engines if handle and engine._handle.value == handle), None)


def _bytes_of(key: Key) -> bytes:
    return key if isinstance(key, bytes) else utf8("key", key)


__all__ = ["Phase", "Rollout", "RolloutInfo"]
