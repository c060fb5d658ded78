"""What both models are asked, and what each answers."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import time
from typing import Iterator

import numpy as np

from ..scoring import Scores
from ..sets import Item, read_sets
from ..wrong import Wrong
from . import heads, needle, questions, traffic
from .both import QUICK, WHOLE, Plan, Settings
from .conversations import Conversation, conversations
from .playing import Played, play

PARTS = ("texts", "questions", "conversations", "safety", "needles", "replay", "speed")


@dataclasses.dataclass(frozen=True)
class Asked:
    """What both models are asked, and with what they are computed."""

    plan: Plan
    settings: Settings
    parts: tuple[str, ...]
    questions: list[questions.Question]
    conversations: list[Conversation]
    items: list[Item]
    needles: list[needle.Needle]


@dataclasses.dataclass
class Measured:
    """What one model answered. Parts that were left out are empty."""

    path: str
    labels: list[str]
    window: int
    right: dict[str, bool]
    played: list[Played]
    scores: Scores | None
    needles: dict[str, bool]
    without_windows: dict[str, bool] | None
    shape: traffic.Shape
    seconds: dict[str, tuple[float, float]]  # that passed, and of all cores; by part


def _lengths(args: argparse.Namespace, context: int) -> list[int]:
    """Of the chats that hide needles: those that the context has room for."""
    return [length for length in args.needle_lengths or needle.LENGTHS if length + needle.ROOM <= context]


def asked_of(args: argparse.Namespace, context: int) -> Asked:
    plan = QUICK if args.quick else WHOLE
    plan = plan.replaced(questions=args.questions, conversations=args.conversations, needles=args.needles)
    parts = tuple(args.only.split(",")) if args.only else PARTS
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise Wrong(f"--only is {args.only!r}; the parts are {', '.join(PARTS)}")
    return Asked(
        plan,
        Settings(args.threads, args.backend),
        parts,
        questions.questions(plan.questions) if {"questions", "texts"} & set(parts) else [],
        conversations(plan.conversations) if {"conversations", "replay"} & set(parts) else [],
        heads.some(read_sets(args.set), args.signal, plan.harmful) if "safety" in parts else [],
        needle.needles(plan.needles, _lengths(args, context)) if "needles" in parts else [],
    )


class _Clock:
    """By part: seconds that passed, and seconds of all cores, which a busy machine changes less."""

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[float, float]] = {}

    @contextlib.contextmanager
    def of(self, part: str) -> Iterator[None]:
        began, worked = time.monotonic(), time.process_time()
        yield
        self.seconds[part] = time.monotonic() - began, time.process_time() - worked


def measure(path: str, asked: Asked) -> Measured:
    """What one model answers to everything."""
    clock = _Clock()
    engine = asked.settings.engine(path)
    try:
        with clock.of("questions"):
            right = questions.ask(engine, asked.questions if "questions" in asked.parts else [])
        with clock.of("conversations"):
            played = play(engine, asked.conversations)
        with clock.of("safety"):
            scores = heads.scores(engine, asked.items)
        with clock.of("needles"):
            found = needle.ask(engine, asked.needles, "needles")
        words = [len(said.text.split()) for each in played for said in each.replies]
        shape = traffic.shape_of(engine, float(np.mean(words)) if words else 1.0)
        labels, window = list(engine.model.labels), engine.describe().window
    finally:
        engine.close()
    with clock.of("needles, windows off"):
        without = needle.ask_without_windows(path, asked.settings, asked.needles) if asked.needles else None
    return Measured(path, labels, window, right, played, scores, found, without, shape, clock.seconds)
