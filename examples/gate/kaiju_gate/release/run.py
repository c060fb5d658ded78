"""kaiju-gate CANDIDATE --against CURRENT, part by part."""

from __future__ import annotations

import argparse
from typing import Any, Callable

import numpy as np

from .. import standard
from ..report import Report, Table
from ..rules import rules_of
from ..safety import tiers_of
from ..wrong import Wrong
from . import heads, judged, needle, programs, questions, speed, texts, traffic
from .asking import Asked, Measured, asked_of, measure
from .both import CANDIDATE, CURRENT, Pair, Settings
from .endpoint import Endpoint
from .stand_in import StandIn
from .verdicts import Judge


def judge_of(args: argparse.Namespace) -> Judge:
    if bool(args.judge_url) != bool(args.judge_model):
        raise Wrong("--judge-url and --judge-model belong together")
    return Endpoint(args.judge_url, args.judge_model) if args.judge_url else StandIn()


def _pair(candidate: Measured, current: Measured, what: Callable[[Measured], Any]) -> Pair:
    return Pair(what(candidate), what(current))


def _haystacks(asked: Asked, candidate: Measured, current: Measured) -> dict[str, np.ndarray]:
    found = {}
    for name, measured in ((CANDIDATE, candidate), (CURRENT, current)):
        found[f"{name}: needles found, %"] = needle.grid(asked.needles, measured.needles)
        if measured.without_windows:
            found[f"{name}, windows off"] = needle.grid(asked.needles, measured.without_windows)
    return found if asked.needles else {}


def _report_conversations(
    report: Report, candidate: Measured, current: Measured, judge: Judge
) -> dict[str, np.ndarray]:
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

        lengths = sorted({each.length for each in asked.needles})
        return pictures.release(report.measures, haystacks, lengths, aspects)

    report.draw = draw
    return report


def _report_times(report: Report, candidate: Measured, current: Measured) -> None:
    rows = [
        [part, *(f"{seconds:.0f} s" for of in (candidate, current) for seconds in of.seconds[part])]
        for part in candidate.seconds
    ]
    columns = ["part", "candidate", "of all cores", "current", "of all cores"]
    report.tables.append(Table("how long the models took", columns, rows))


def _context(args: argparse.Namespace, path: str) -> int:
    """A model's context. What cannot be loaded is refused before anything is measured."""
    engine = Settings(args.threads, args.backend).engine(path)
    try:
        return engine.model.context
    finally:
        engine.close()


# The parts that run kaiju's own programs.
_PROGRAMS = {"texts": "kaiju-score", "replay": "kaiju-bench", "speed": "kaiju-bench"}


def run(args: argparse.Namespace) -> Report:
    judge = judge_of(args)
    asked = asked_of(args, min(_context(args, path) for path in (args.model, args.against)))
    for part in asked.parts:
        if part in _PROGRAMS:
            programs.find(_PROGRAMS[part])  # told now, and not after half an hour
    current = measure(args.against, asked)
    candidate = measure(args.model, asked)
    report = compare(candidate, current, asked, judge, args)
    _report_times(report, candidate, current)
    return report
