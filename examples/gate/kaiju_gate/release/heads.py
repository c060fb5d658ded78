"""The classifier heads of both models: what kaiju-gate safety measures, and by how much the candidate is worse."""

from __future__ import annotations

import argparse
from typing import Sequence

import kaiju

from .. import safety
from ..rates import Share
from ..report import Report, Table
from ..scoring import Scores, score
from ..sets import Item, check_labels
from ..tiers import Tiers
from .both import Pair
from .paired import exact


def some(items: Sequence[Item], signals: Sequence[str], count: int | None) -> list[Item]:
    """All fine messages, whose rules are about one in a hundred, and `count` harmful ones from all over the sets."""
    harmful = [item for item in items if item.harmful(signals)]
    step = max(len(harmful) // count, 1) if count else 1
    return [item for item in items if not item.harmful(signals)] + harmful[::step][:count]


def scores(engine: kaiju.Engine, items: Sequence[Item]) -> Scores | None:
    """None of a model without a classifier."""
    return score(engine, items) if engine.model.labels else None


def _add_falls(found: Report, current: dict[str, Share]) -> None:
    """fine-up:TIER and harm-down:TIER: by how much more of what is fine is blocked, and less of what is not."""
    rows = []
    for name, share in list(found.measures.items()):
        group, _, tier = name.partition(":")
        if group in ("fine", "harm") and ":" not in tier and name in current:
            worse = (share.value - current[name].value) * (1 if group == "fine" else -1)
            rows.append([name, f"{100 * worse:+.1f}"])
            found.measures[f"{'fine-up' if group == 'fine' else 'harm-down'}:{tier}"] = exact(worse)
    found.tables.append(Table("points by which the candidate is worse", ["block rate", "worse"], rows))


def report(
    report: Report, items: Sequence[Item], scored: Pair, labels: Pair, tiers: Tiers, args: argparse.Namespace
) -> None:
    """Measures those of kaiju-gate safety, fine-up:TIER, harm-down:TIER and labels-lost."""
    report.measures["labels-lost"] = exact(len(set(labels.current) - set(labels.candidate)))
    if scored.candidate is None:
        report.notes.append("The candidate has no classifier: nothing is said of safety.")
        return
    check_labels(items, labels.candidate)
    heads = {"candidate": scored.candidate}
    comparable = scored.current is not None and set(labels.candidate) <= set(labels.current)
    if comparable:
        heads["current"] = scored.current
    found = safety.measure(items, heads, labels.candidate, tiers, args.signal)
    if comparable:
        _add_falls(found, safety.block_shares(items, scored.current, tiers, args.signal))
    report.measures.update(found.measures)
    report.tables += found.tables
