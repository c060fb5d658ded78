"""What the parts share: a plan of how much is measured, and the two models that are compared."""

from __future__ import annotations

import dataclasses
from typing import Any

import kaiju

from ..scoring import load

CANDIDATE, CURRENT = "candidate", "current"


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured. The quick form is for every change, the whole one for a release."""

    text_tokens: int  # of a domain
    questions: int  # of each kind
    conversations: int  # of each tier
    harmful: int | None  # messages that limits should block; None: all
    needles: int  # in each cell of depth and length
    requests: int  # replayed in each tier
    rounds: int  # of timing

    def replaced(self, **values: Any) -> "Plan":
        return dataclasses.replace(self, **{name: value for name, value in values.items() if value is not None})


WHOLE = Plan(8192, 200, 200, None, 8, 10000, 5)
QUICK = Plan(1024, 20, 20, 200, 1, 1000, 3)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the models are computed with."""

    threads: int = 0
    backend: str = "auto"

    def engine(self, path: str, **options: Any) -> kaiju.Engine:
        return load(path, self.threads, labelled=False, backend=self.backend, **options)


@dataclasses.dataclass(frozen=True)
class Pair:
    """The same thing measured of both models."""

    candidate: Any
    current: Any

    def items(self):
        return ((CANDIDATE, self.candidate), (CURRENT, self.current))
