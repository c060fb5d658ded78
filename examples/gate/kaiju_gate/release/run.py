"""kaiju-gate CANDIDATE --against CURRENT, part by part."""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any, Callable

import numpy as np

from .. import standard
from ..report import Report, Table
from ..rules import rules_of
from ..safety import tiers_of
from ..scoring import Scores
from ..sets import Item, read_sets
from ..wrong import Wrong
from . import heads, judged, needle, questions, speed, texts, traffic
from .both import CANDIDATE, CURRENT, QUICK, WHOLE, Pair, Plan, Settings
from .conversations import Conversation, conversations
from .endpoint import Endpoint
from .playing import Played, play
from .stand_in import StandIn
from .verdicts import Judge

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
    seconds: dict[str, float]


def judge_of(args: argparse.Namespace) -> Judge:
    if bool(args.judge_url) != bool(args.judge_model):
        raise Wrong("--judge-url and --judge-model belong together")
    return Endpoint(args.judge_url, args.judge_model) if args.judge_url else StandIn()


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
        needle.needles(plan.needles, context) if "needles" in parts else [],
    )


def measure(path: str, asked: Asked) -> Measured:
    """What one model answers to everything."""
    seconds: dict[str, float] = {}

    def timed(part: str, work: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            return work()
        finally:
            seconds[part] = time.monotonic() - began

    engine = asked.settings.engine(path)
    try:
        right = timed("questions", lambda: questions.ask(engine, asked.questions) if "questions" in asked.parts else {})
        played = timed("conversations", lambda: play(engine, asked.conversations))
        scores = timed("safety", lambda: heads.scores(engine, asked.items))
        found = timed("needles", lambda: needle.ask(engine, asked.needles, "needles"))
        words = [len(said.text.split()) for each in played for said in each.replies]
        shape = traffic.shape_of(engine, float(np.mean(words)) if words else 1.0)
        labels, window = list(engine.model.labels), engine.describe().window
    finally:
        engine.close()
    without = None
    if asked.needles:
        off = lambda: needle.ask_without_windows(path, asked.settings, asked.needles)  # noqa: E731
        without = timed("needles, windows off", off)
    return Measured(path, labels, window, right, played, scores, found, without, shape, seconds)


def _pair(candidate: Measured, current: Measured, what: Callable[[Measured], Any]) -> Pair:
    return Pair(what(candidate), what(current))


def _haystacks(asked: Asked, candidate: Measured, current: Measured) -> dict[str, np.ndarray]:
    found = {}
    for name, measured in ((CANDIDATE, candidate), (CURRENT, current)):
        found[f"{name}: needles found, %"] = needle.grid(asked.needles, measured.needles)
        if measured.without_windows:
            found[f"{name}, windows off"] = needle.grid(asked.needles, measured.without_windows)
    return found if asked.needles else {}


def _report_conversations(report: Report, candidate: Measured, current: Measured, judge: Judge) -> dict[str, np.ndarray]:
    """Each conversation's score by tier and model, for the figure."""
    scored = _pair(candidate, current, lambda of: list(zip(of.played, judge(of.played))))
    judged.report_scores(report, judge.name, scored)
    judged.report_reuse(report, scored)
    report.details["conversations"] = {
        name: [
            {"id": played.conversation.id, "replies": [said.text for said in played.replies], **vars(verdict)}
            for played, verdict in of
        ]
        for name, of in scored.items()
    }
    return {
        f"{tier}, {name}": np.array([verdict.mean for played, verdict in of if played.conversation.tier == tier])
        for tier in dict.fromkeys(played.conversation.tier for played in candidate.played)
        for name, of in scored.items()
    }


def compare(candidate: Measured, current: Measured, asked: Asked, judge: Judge, args: argparse.Namespace) -> Report:
    """The report on a candidate, judged by rules."""
    report = Report(f"{candidate.path} against {current.path}")
    paths = {CANDIDATE: candidate.path, CURRENT: current.path}
    aspects: dict[str, np.ndarray] = {}
    if "texts" in asked.parts:
        domains = texts.domains(args.domain, asked.questions)
        tokens = asked.plan.text_tokens
        readings = {domain.name: texts.read(paths, domain, tokens, asked.settings) for domain in domains}
        texts.report(report, readings)
    if "questions" in asked.parts:
        questions.report(report, asked.questions, _pair(candidate, current, lambda of: of.right))
    if "conversations" in asked.parts:
        aspects = _report_conversations(report, candidate, current, judge)
    if "safety" in asked.parts:
        scored, labels = (_pair(candidate, current, what) for what in (lambda of: of.scores, lambda of: of.labels))
        heads.report(report, asked.items, scored, labels, tiers_of(args, candidate.labels), args)
    if "needles" in asked.parts:
        right, without = (
            _pair(candidate, current, what) for what in (lambda of: of.needles, lambda of: of.without_windows)
        )
        needle.report(report, asked.needles, right, without, current.window)
    if "replay" in asked.parts:
        shapes = _pair(candidate, current, lambda of: of.shape)
        tiers = traffic.read_traffic(args.traffic)
        traffic.report(report, traffic.replays(tiers, asked.plan.requests, shapes))
    if "speed" in asked.parts:
        speed.report(report, speed.times(paths, asked.plan.rounds, asked.settings))
    haystacks = _haystacks(asked, candidate, current)
    report.judge(rules_of(standard.release(args.warm_up_planned), args.fail_if))

    def draw():
        from . import pictures

        return pictures.release(report.measures, haystacks, aspects)

    report.draw = draw
    return report


def _report_times(report: Report, candidate: Measured, current: Measured) -> None:
    rows = [[part, f"{candidate.seconds[part]:.0f} s", f"{current.seconds[part]:.0f} s"] for part in candidate.seconds]
    report.tables.append(Table("how long it took to measure", ["part", "candidate", "current"], rows))


def _context(args: argparse.Namespace, path: str) -> int:
    """A model's context. What cannot be loaded is refused before anything is measured."""
    engine = Settings(args.threads, args.backend).engine(path)
    try:
        return engine.model.context
    finally:
        engine.close()


def run(args: argparse.Namespace) -> Report:
    judge = judge_of(args)
    asked = asked_of(args, min(_context(args, path) for path in (args.model, args.against)))
    current = measure(args.against, asked)
    candidate = measure(args.model, asked)
    report = compare(candidate, current, asked, judge, args)
    _report_times(report, candidate, current)
    return report
