"""What a request reports: events, and the reply that they make. They own what they show."""

from __future__ import annotations

import ctypes as c
import enum
from typing import Any, List, Optional, Tuple, Type, Union

from ._c import Event as _CEvent
from ._c import Kind, Reason, Reuse, Status
from ._library import text_of
from .errors import Error, error_of

_I32, _F32 = c.POINTER(c.c_int32), c.POINTER(c.c_float)


def _named(kind: Type[enum.IntEnum], value: int) -> Union[enum.IntEnum, int]:
    try:
        return kind(value)
    except ValueError:
        return value  # of a newer library


class Event:
    """kaiju_event: text and lists are this object's own."""

    __slots__ = ("request", "user_data", "kind", "reason", "status", "tokens", "logprobs", "scores", "text",
                 "prompt_tokens", "cached_tokens", "generated_tokens", "wait_nanoseconds", "prefill_nanoseconds",
                 "decode_nanoseconds", "stop", "label", "reuse_end", "known_tokens", "known_end", "record")

    request: int
    user_data: Any  # what was given to submit
    kind: int  # a Kind; a plain int if a newer library reports a kind that this package does not know
    reason: int  # a Reason, of DONE
    status: int  # a Status, of FAILED
    tokens: List[int]  # of TOKEN: the generated token, then the alternatives that logprobs asked for, the best first
    logprobs: List[float]  # of these tokens
    # Of TOKEN: one for each label of the classifier, where scores asked for them. Of VERDICT: the probability of the
    # label. Of DONE, with scores or limits: for each label the largest and the mean probability, and the longest run.
    scores: List[float]
    text: str
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    reuse_end: int  # a Reuse: why cached_tokens is no larger
    known_tokens: int  # the first tokens of the prompt that agree with the cache, usable or not
    known_end: int  # a Reuse: why known_tokens is no larger
    wait_nanoseconds: int
    prefill_nanoseconds: int
    decode_nanoseconds: int
    stop: int  # of DONE: the stop token, or the index of the stop string; -1: neither
    label: int  # of VERDICT, and of DONE that was REFUSED: index of a label of the classifier; otherwise -1
    record: Optional[bytes]  # of DONE, with record=1: computes the reply again (Engine.replay)

    def __init__(self, raw: _CEvent, user_data: Any, record: Optional[bytes] = None):
        self.record = record
        self.request, self.user_data = raw.request, user_data
        self.kind, self.reason, self.status = _KINDS.get(raw.kind, raw.kind), raw.reason, raw.status
        self.tokens = c.cast(raw.tokens, _I32)[: raw.token_count] if raw.token_count else []
        self.logprobs = c.cast(raw.logprobs, _F32)[: raw.logprob_count] if raw.logprob_count else []
        self.scores = c.cast(raw.scores, _F32)[: raw.score_count] if raw.score_count else []
        self.text = text_of(c.string_at(raw.text, raw.text_size)) if raw.text_size else ""
        self.prompt_tokens, self.cached_tokens = raw.prompt_tokens, raw.cached_tokens
        self.generated_tokens = raw.generated_tokens
        self.wait_nanoseconds, self.prefill_nanoseconds = raw.wait_nanoseconds, raw.prefill_nanoseconds
        self.decode_nanoseconds, self.stop, self.label = raw.decode_nanoseconds, raw.stop, raw.label
        self.reuse_end, self.known_end = _named(Reuse, raw.reuse_end), _named(Reuse, raw.known_end)
        self.known_tokens = raw.known_tokens
        if self.kind in _LAST:
            self.reason, self.status = _named(Reason, self.reason), _named(Status, self.status)

    @property
    def last(self) -> bool:
        """Whether it ends its request."""
        return self.kind in _LAST

    @property
    def error(self) -> Optional[Error]:
        """Of FAILED: the exception that says why."""
        return error_of(self.status, self.text) if self.kind == Kind.FAILED else None

    def __repr__(self) -> str:
        return f"Event({getattr(self.kind, 'name', self.kind)}, request={self.request}, text={self.text!r})"


_KINDS = {int(kind): kind for kind in Kind}
_LAST = (Kind.DONE, Kind.FAILED)


class Reply(str):
    """The text of a reply, and what is known of it. A chat's reply begins without the space that words begin with."""

    done: Event  # its last event, with counts and times
    events: List[Event]  # one for each generated token

    @classmethod
    def _of(cls, text: str, events: List[Event], done: Event) -> "Reply":
        made = cls(text)
        made.done, made.events = done, events
        return made

    @property
    def reason(self) -> int:
        """A Reason."""
        return self.done.reason

    @property
    def tokens(self) -> List[int]:
        """Generated tokens, a stop token included."""
        return [event.tokens[0] for event in self.events]

    @property
    def logprobs(self) -> List[float]:
        """Natural log-probabilities of these tokens under the model itself."""
        return [event.logprobs[0] for event in self.events if event.logprobs]

    @property
    def alternatives(self) -> List[List[Tuple[int, float]]]:
        """With logprobs=N: for each generated token the N likeliest (token, log-probability), the best first."""
        return [list(zip(event.tokens[1:], event.logprobs[1:])) for event in self.events]

    @property
    def scores(self) -> List[List[float]]:
        """With scores=1: for each generated token the scores of the text before it, one for each label."""
        return [event.scores for event in self.events if event.scores]

    @property
    def record(self) -> Optional[bytes]:
        """With record=1: all that it takes to compute the reply again (Engine.replay)."""
        return self.done.record

    @property
    def prompt_tokens(self) -> int:
        return self.done.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        return self.done.cached_tokens

    @property
    def reuse_end(self) -> int:
        """A Reuse: why cached_tokens is no larger."""
        return self.done.reuse_end

    @property
    def generated_tokens(self) -> int:
        return self.done.generated_tokens

    def __reduce__(self) -> Any:
        return str, (str(self),)  # a pickle or a deep copy is the text alone
