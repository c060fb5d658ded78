"""kaiju-gate safety --replay: messages that a server blocked, judged again by another head or with other limits."""

from __future__ import annotations

import argparse
from typing import Sequence

from . import rates, standard
from .report import Report, Table, percent
from .rules import rules_of
from .safety import tiers_of
from .scoring import Scores, load, score
from .sets import Blocked, read_blocked
from .tiers import Tiers, blocking_label
from .wrong import Wrong

_SHOWN = 10  # released messages that the report quotes


def _short(text: str, width: int = 90) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= width else plain[: width - 3] + "..."


def measure(blocked: Sequence[Blocked], scores: Scores, tiers: Tiers, name: str) -> Report:
    """Which messages the head `name` would block again, with the limits of `tiers`."""
    report = Report(f"{name}: {len(blocked)} blocked messages, {blocked[0].time} to {blocked[-1].time}")
    label_now = {each.id: blocking_label(scores[each.id], tiers[each.tier]) for each in blocked}
    groups: dict[str, list[Blocked]] = {"all": list(blocked)}
    for each in blocked:
        groups.setdefault(f"{each.tier}, {each.label}", []).append(each)
    rows = []
    for group, members in sorted(groups.items(), key=lambda pair: (pair[0] != "all", pair[0])):
        released = rates.share(sum(label_now[each.id] is None for each in members), len(members))
        other = sum(label_now[each.id] not in (None, each.label) for each in members)
        rows.append(
            [
                group,
                str(len(members)),
                str(len(members) - released.count - other),
                str(other),
                str(released.count),
                percent(released),
            ]
        )
        measure_name = "released" if group == "all" else "released:" + group.replace(", ", ":")
        report.measures[measure_name] = released
    report.tables.append(
        Table(
            "blocked then, and now",
            ["tier, label", "messages", "still, the same label", "for another label", "released", "share released"],
            rows,
        )
    )
    free = [each for each in blocked if label_now[each.id] is None]
    report.notes += [
        f"released: {each.tier}, {each.label} {each.probability:.2f} then, {scores[each.id][each.label]:.2f} now: "
        f"{_short(each.messages[-1][1])}"
        for each in free[:_SHOWN]
    ]
    report.notes += [f"... and {len(free) - _SHOWN} more: --json lists all"] * (len(free) > _SHOWN)
    report.details = {
        "tiers": tiers,
        "messages": [
            {
                "at": each.id,
                "time": each.time,
                "tier": each.tier,
                "then": each.label,
                "now": label_now[each.id],
                "scores": scores[each.id],
            }
            for each in blocked
        ],
    }
    return report


def run(args: argparse.Namespace) -> Report:
    blocked = read_blocked(args.replay, args.last)
    engine = load(args.model, args.threads)
    labels = engine.model.labels
    tiers = tiers_of(args, labels)
    for each in blocked:
        if each.tier not in tiers:
            raise Wrong(
                f"{each.id} has the tier {each.tier}, for which there are no limits; there are {', '.join(tiers)}: "
                "name the server's with --tiers"
            )
        if each.label not in labels:
            raise Wrong(f"{each.id} has the label {each.label}; the model's classifier has {', '.join(labels)}")
    report = measure(blocked, score(engine, blocked), tiers, engine.model.name)
    report.judge(rules_of(standard.REPLAY, args.fail_if))
    return report
