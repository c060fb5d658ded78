"""What a judge says of a conversation."""

from __future__ import annotations

import dataclasses
from typing import Protocol, Sequence

from .playing import Played

ASPECTS = ("speech", "backstory", "goals")
LEAST, MOST = 1.0, 5.0


@dataclasses.dataclass(frozen=True)
class Verdict:
    """1 to 5 each; None where the conversation shows nothing of it."""

    speech: float | None
    backstory: float | None
    goals: float | None

    @property
    def mean(self) -> float:
        known = [value for value in (self.speech, self.backstory, self.goals) if value is not None]
        return sum(known) / len(known)


class Judge(Protocol):
    name: str

    def __call__(self, played: Sequence[Played]) -> list[Verdict]: ...


def points(score: float) -> float:
    """Points of 100: 1 is none, 5 is all."""
    return 100 * (score - LEAST) / (MOST - LEAST)


def score_of(share: float) -> float:
    return LEAST + (MOST - LEAST) * share
