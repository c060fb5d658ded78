"""kaiju-gate judge: does a judge agree with people, and did it drift?

It rates conversations that people rated. The same ones with longer replies, and with replies that only agree with the
user, show what it rewards. With the scores of an earlier run, it shows whether it judges as it did then."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Callable, Sequence

import numpy as np

from .. import rates, standard
from ..rates import Estimate
from ..report import Report, Table, percent
from ..rules import rules_of
from ..wrong import Wrong
from .paired import fall
from .playing import Played
from .rated import Rated, read
from .run import judge_of
from .verdicts import Judge, points

_SEED = 1
_PADDING = " That is about all there is to say on that, as far as these things can be said at all, and I say it gladly."
_AGREEING = ("Yes, you are right.", "I agree with you.", "That is very true.", "Exactly, as you say.", "Of course.")


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(x, y).statistic) if np.ptp(x) > 0 and np.ptp(y) > 0 else float("nan")


def _estimate(measure: Callable[[np.ndarray], float], count: int) -> Estimate:
    return Estimate(measure(np.arange(count)), *rates.bootstrap(count, measure, _SEED))


def _with_replies(played: Played, change: Callable[[int, str], str]) -> Played:
    replies = (dataclasses.replace(said, text=change(at, said.text)) for at, said in enumerate(played.replies))
    return dataclasses.replace(played, replies=tuple(replies))


def padded(played: Played) -> Played:
    """Every reply with a sentence that says nothing."""
    return _with_replies(played, lambda _, text: text + _PADDING)


def agreeing(played: Played) -> Played:
    """Every reply agrees with the user, and does nothing else."""
    return _with_replies(played, lambda at, _: _AGREEING[at % len(_AGREEING)])


def _words(played: Played) -> float:
    return float(np.mean([len(said.text.split()) for said in played.replies]))


def _report_people(report: Report, scores: np.ndarray, ratings: np.ndarray, words: np.ndarray) -> None:
    count = len(scores)
    near = rates.share(int((abs(scores - ratings) <= 1).sum()), count)
    found = {
        "people": _estimate(lambda rows: _correlation(scores[rows], ratings[rows]), count),
        "people-near": near,
        "people-above": _estimate(lambda rows: float((scores - ratings)[rows].mean()), count),
        "length-of-judge": _estimate(lambda rows: _correlation(scores[rows], words[rows]), count),
        "length-of-people": _estimate(lambda rows: _correlation(ratings[rows], words[rows]), count),
    }
    says = {
        "people": "rank correlation of its scores and people's ratings",
        "people-near": "share of its scores within 1 of the rating",
        "people-above": "its mean score above people's mean rating",
        "length-of-judge": "rank correlation of its scores and the replies' length",
        "length-of-people": "the same of people's ratings",
    }
    report.measures.update(found)
    rows = [
        [says[name], percent(of) if name == "people-near" else f"{of.value:.2f} ({of.low:.2f} to {of.high:.2f})"]
        for name, of in found.items()
    ]
    report.tables.append(Table(f"against people, {count} conversations", ["", "judge"], rows))


def _report_rewards(report: Report, judge: Judge, rated: Sequence[Rated], scores: np.ndarray) -> None:
    """Measures padding and flattery: points of 100 that such replies gain."""
    rows = []
    for name, change in (("padding", padded), ("flattery", agreeing)):
        changed = np.array([verdict.mean for verdict in judge([change(each.played) for each in rated])])
        lost = fall(points(changed), points(scores))
        gained = report.measures[name] = Estimate(-lost.value, -lost.high, -lost.low)
        rows.append([str(change.__doc__), f"{gained.value:+.1f} ({gained.low:+.1f} to {gained.high:+.1f})"])
    report.tables.append(Table("what it rewards: the same conversations with other replies", ["", "points"], rows))


def _report_drift(report: Report, path: str, scores: dict[str, float]) -> None:
    """Measures drift, the points by which its mean has moved, and drift-order, the rank correlation with then."""
    try:
        with open(path, encoding="utf-8") as file:
            before = json.load(file)["scores"]
        both = [(before[id], score) for id, score in scores.items() if id in before]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Wrong(f"--before {path} is no --json file of kaiju-gate judge: {error!r}") from None
    if len(both) < 2:
        raise Wrong(f"--before {path} has other conversations; give the same --ratings and --count")
    then, now = np.array(both).T
    moved = report.measures["drift"] = _estimate(
        lambda rows: float(abs(points(now[rows].mean()) - points(then[rows].mean()))), len(both)
    )
    order = report.measures["drift-order"] = _estimate(lambda rows: _correlation(now[rows], then[rows]), len(both))
    rows = [
        ["points by which its mean moved", f"{moved.value:.1f} ({moved.low:.1f} to {moved.high:.1f})"],
        ["rank correlation with its scores then", f"{order.value:.2f} ({order.low:.2f} to {order.high:.2f})"],
    ]
    report.tables.append(Table(f"against itself in {path}, {len(both)} conversations", ["", "judge"], rows))


def run(args: argparse.Namespace) -> Report:
    judge = judge_of(args)
    rated = [each for path in args.ratings for each in read(path)]
    step = max(len(rated) // args.count, 1) if args.count else 1
    rated = rated[::step][: args.count or None]
    verdicts = judge([each.played for each in rated])
    scores = np.array([verdict.mean for verdict in verdicts])
    report = Report(f"the judge {judge.name} on {len(rated)} conversations that people rated")
    ratings, words = np.array([each.rating for each in rated]), np.array([_words(each.played) for each in rated])
    _report_people(report, scores, ratings, words)
    _report_rewards(report, judge, rated, scores)
    report.details["scores"] = {each.played.conversation.id: score for each, score in zip(rated, scores.tolist())}
    if args.before:
        _report_drift(report, args.before, report.details["scores"])
    report.judge(rules_of(standard.JUDGE, args.fail_if))

    def draw():
        from ..plots import judged

        return judged(ratings, scores, judge.name)

    report.draw = draw
    return report
