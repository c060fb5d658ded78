"""kaiju-gate limits: limits by tier and label that block no fine message of a calibration set."""

from __future__ import annotations

import argparse
import json
from typing import Sequence

from .report import Report, Table, write
from .safety import harm_labels
from .scoring import Scores, load, score
from .sets import EVERY_TIER, Item, check_labels, read_sets
from .tiers import Tiers

# Even steps in the middle, closer ones at the end, where a classifier's confident mistakes are.
STEPS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


def choose(items: Sequence[Item], scores: Scores, labels: Sequence[str], tiers: Sequence[str], margin: int) -> Tiers:
    """For each tier and label the lowest step that no fine message reaches, and `margin` steps more. A label whose
    limit would be beyond the last step gets none: nothing tells it from what is fine."""
    found: Tiers = {}
    for tier in tiers:
        fine = [item.id for item in items if item.tier in (tier, EVERY_TIER)]
        found[tier] = {}
        for label in labels:
            highest = max((scores[id][label] for id in fine), default=0.0)
            at = sum(step <= highest for step in STEPS) + margin
            if at < len(STEPS):
                found[tier][label] = STEPS[at]
    return found


def run(args: argparse.Namespace) -> Report:
    items = read_sets(args.set)
    engine = load(args.model, args.threads)
    check_labels(items, engine.model.labels)
    harm = harm_labels(engine.model.labels, args.signal)
    fine = [item for item in items if not item.harmful(args.signal)]
    names = sorted({item.tier for item in fine} - {EVERY_TIER}) or [EVERY_TIER]
    tiers = choose(fine, score(engine, fine), harm, names, args.margin)
    write(args.out, json.dumps(tiers, indent=2) + "\n")
    report = Report(f"{args.out}: limits by {len(fine)} fine messages, {args.margin} steps above the highest")
    rows = [[label, *(str(tiers[tier].get(label, "none")) for tier in names)] for label in harm]
    report.tables.append(Table("limits", ["label", *names], rows))
    return report
