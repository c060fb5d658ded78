"""A judge's scores of both models' conversations, and what the requests of these found in the cache."""

from __future__ import annotations

import numpy as np

from .. import rates
from ..rates import Estimate
from ..report import Report, Table
from .both import Pair
from .conversations import TIERS
from .paired import exact, fall, fall_text
from .playing import Played
from .verdicts import ASPECTS, Verdict, points

_SEED = 1
Scored = list[tuple[Played, Verdict]]  # of one model


def _mean(values: np.ndarray) -> Estimate:
    low, high = rates.bootstrap(len(values), lambda rows: float(values[rows].mean()), _SEED)
    return Estimate(float(values.mean()), low, high)


def _of(scored: Scored, tier: str) -> np.ndarray:
    return np.array([verdict.mean for played, verdict in scored if played.conversation.tier == tier])


def _aspects(scored: Scored, tier: str) -> list[str]:
    cells = []
    for aspect in ASPECTS:
        known = [getattr(verdict, aspect) for played, verdict in scored if played.conversation.tier == tier]
        known = [value for value in known if value is not None]
        cells.append(f"{np.mean(known):.2f}" if known else "-")
    return cells


def report_scores(report: Report, name: str, scored: Pair) -> None:
    """Measures judge:TIER, judge-down:TIER in points of 100, and judge, the mean of the tiers."""
    rows, means = [], []
    for tier in TIERS:
        candidate, current = _of(scored.candidate, tier), _of(scored.current, tier)
        score, down = _mean(candidate), fall(points(candidate), points(current))
        means.append(score.value)
        report.measures[f"judge:{tier}"] = score
        report.measures[f"judge-down:{tier}"] = down
        texts = [f"{score.value:.2f} ({score.low:.2f} to {score.high:.2f})", f"{current.mean():.2f}", fall_text(down)]
        median = f"{np.median(candidate):.2f}"
        rows.append([tier, str(len(candidate)), *_aspects(scored.candidate, tier), *texts, median])
    report.measures["judge"] = exact(float(np.mean(means)))
    columns = ["tier", "conversations", *ASPECTS, "mean of 5", "current", "points down", "median"]
    report.tables.append(Table(f"conversations of eight turns, as {name} scores them", columns, rows))
    _report_length(report, scored)


def _words(played: Played) -> float:
    return float(np.mean([len(said.text.split()) for said in played.replies]))


def _report_length(report: Report, scored: Pair) -> None:
    """A judge that rewards length approves what is only longer: the rank correlation of scores and lengths."""
    from scipy.stats import spearmanr

    lengths = {}
    for model, of in scored.items():
        words = np.array([_words(played) for played, _ in of])
        lengths[model] = words.mean()
        if model == "candidate":
            scores = np.array([verdict.mean for _, verdict in of])
            varied = np.ptp(words) > 0 and np.ptp(scores) > 0
            correlation = float(spearmanr(words, scores).statistic) if varied else 0.0
            report.measures["judge-length"] = exact(correlation)
    report.measures["words"] = exact(float(lengths["candidate"]))
    report.notes.append(
        f"Replies have {lengths['candidate']:.1f} words (candidate) and {lengths['current']:.1f} (current). Rank "
        f"correlation of the candidate's scores and lengths: {correlation:.2f}."
    )


def report_reuse(report: Report, scored: Pair) -> None:
    """Measures reuse:TIER and reuse-down:TIER: of the prompts after the first turn, the share that was in the cache."""
    rows = []
    for tier in TIERS:
        shares = []
        for _, of in scored.items():
            later = [said for played, _ in of if played.conversation.tier == tier for said in played.replies[1:]]
            shares.append(sum(s.cached_tokens for s in later) / max(sum(s.prompt_tokens for s in later), 1))
        candidate, current = shares
        report.measures[f"reuse:{tier}"] = exact(candidate)
        report.measures[f"reuse-down:{tier}"] = exact(current - candidate)
        rows.append([tier, f"{100 * candidate:.1f}%", f"{100 * current:.1f}%", f"{100 * (current - candidate):+.1f}"])
    columns = ["tier", "candidate", "current", "points down"]
    report.tables.append(Table("prompt tokens of turns 2 to 8 that were in the cache", columns, rows))
