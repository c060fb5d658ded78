"""kaiju-gate safety: how well a classifier tells harm from what is fine, and what the limits of each tier block."""

from __future__ import annotations

import argparse
from typing import Mapping, Sequence

from . import rates, standard
from .rates import Share
from .report import Report, Table, area_text, counted, percent
from .rules import rules_of
from .scoring import Scores, load, score
from .sets import EVERY_TIER, UNSAFE, Item, check_labels, read_sets
from .tiers import Tiers, blocking_label, check_tiers, read_tiers, with_limit
from .wrong import Wrong

Heads = Mapping[str, Scores]  # by the name of a model


def tiers_of(args: argparse.Namespace, labels: Sequence[str]) -> Tiers:
    tiers = read_tiers(args.tiers)
    for text in args.limit:
        with_limit(tiers, text)
    check_tiers(tiers, labels)
    return tiers


def harm_labels(labels: Sequence[str], signals: Sequence[str]) -> list[str]:
    for signal in signals:
        if signal not in labels:
            raise Wrong(f"--signal {signal}: the model's classifier has {', '.join(labels)}")
    return [label for label in labels if label not in signals]


def curves(items: Sequence[Item], heads: Heads, labels: Sequence[str], signals: Sequence[str]):
    """(scores of rows where it holds, scores of the others) by label and model. "any": the likeliest label of harm, of
    harmful rows and the others."""
    harm = harm_labels(labels, signals)
    found = {}
    for label in [*labels, "any"]:
        holds = {
            item.id: item.harmful(signals) if label == "any" else label in item.labels
            for item in items
            if label == "any" or UNSAFE not in item.labels
        }
        if any(holds.values()) and not all(holds.values()):
            for name, scores in heads.items():
                value = {
                    id: max(scores[id][each] for each in harm) if label == "any" else scores[id][label] for id in holds
                }
                found.setdefault(label, {})[name] = (
                    [value[id] for id in holds if holds[id]],
                    [value[id] for id in holds if not holds[id]],
                )
    return found


def block_shares(items: Sequence[Item], scores: Scores, tiers: Tiers, signals: Sequence[str]) -> dict[str, Share]:
    """By measure: fine:TIER and fine:TIER:kind:HOW of what should pass; harm:TIER, harm:TIER:LABEL and
    harm:TIER:kind:HOW of what should not."""
    blocked: dict[str, list[int]] = {}

    def count(name: str, is_blocked: bool) -> None:
        counts = blocked.setdefault(name, [0, 0])
        counts[0] += is_blocked
        counts[1] += 1

    for tier, limits in tiers.items():
        for item in items:
            if item.tier not in (tier, EVERY_TIER):
                continue
            is_blocked = blocking_label(scores[item.id], limits) is not None
            group = f"{'harm' if item.harmful(signals) else 'fine'}:{tier}"
            count(group, is_blocked)
            for label in item.labels if item.harmful(signals) else ():
                if label not in signals:
                    count(f"{group}:{label}", is_blocked)
            if item.how:
                count(f"{group}:kind:{item.how}", is_blocked)
    return {name: rates.share(*counts) for name, counts in sorted(blocked.items())}


def _block_table(title: str, group: str, tiers: Tiers, shares: Mapping[str, Mapping[str, Share]]) -> Table:
    """shares: by the name of a model, those of block_shares."""
    first = next(iter(shares.values()))
    rows = []
    for tier in tiers:
        names = [name for name in first if name == f"{group}:{tier}" or name.startswith(f"{group}:{tier}:")]
        for name in names:
            what = name[len(f"{group}:{tier}") :].lstrip(":").replace("kind:", "kind ") or "all"
            rows.append([f"{tier}, {what}", counted(first[name]), *(percent(of[name]) for of in shares.values())])
    return Table(title, [group, "blocked", *shares], rows)


def measure(items: Sequence[Item], heads: Heads, labels: Sequence[str], tiers: Tiers, signals: Sequence[str]) -> Report:
    """The report about the first of the heads; the others are shown beside it."""
    title, first = next(iter(heads.items()))
    report = Report(f"{title}: {len(items)} messages")
    drawn = curves(items, heads, labels, signals)
    rows = []
    for label, models in drawn.items():
        right, wrong = models[title]
        areas = {name: rates.area(*scores) for name, scores in models.items()}
        rows.append([label, f"{len(right)} / {len(wrong)}", *map(area_text, areas.values())])
        report.measures[f"auc:{label}"] = areas[title]
    report.tables.append(
        Table("area under the ROC curve, 95% intervals by DeLong", ["label", "it holds / not", *heads], rows)
    )
    shares = {name: block_shares(items, scores, tiers, signals) for name, scores in heads.items()}
    report.measures.update(shares[title])
    for group, says in (("fine", "should pass"), ("harm", "should not")):
        table = _block_table(f"share that is blocked of what {says}, 95% intervals by Wilson", group, tiers, shares)
        if table.rows:
            report.tables.append(table)
    report.details = {"tiers": tiers, "scores": heads[title]}

    def draw():
        from . import plots

        return plots.roc(drawn)

    report.draw = draw
    return report


def run(args: argparse.Namespace, beside: Heads) -> Report:
    items = read_sets(args.set)
    engine = load(args.model, args.threads)
    labels = engine.model.labels
    check_labels(items, labels)
    tiers = tiers_of(args, labels)
    for name, scores in beside.items():
        lacking = next((item.id for item in items if not set(labels) <= set(scores.get(item.id, {}))), None)
        if lacking:
            raise Wrong(f"--beside {name} has no scores of {lacking} for every label; score the same sets with it")
    report = measure(items, {engine.model.name: score(engine, items), **beside}, labels, tiers, args.signal)
    report.judge(rules_of(standard.SAFETY, args.fail_if))
    return report
