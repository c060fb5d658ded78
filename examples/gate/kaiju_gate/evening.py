"""kaiju-gate safety --evening: a day of traffic, drawn from the sets, whose mix of messages changes by the hour."""

from __future__ import annotations

import argparse
import json
from typing import Any, Mapping, Sequence

import numpy as np

from . import rates, standard
from .rates import Share
from .report import Report, Table, counted, percent
from .rules import Rule, rules_of
from .safety import tiers_of
from .scoring import Scores, load, score
from .sets import EVERY_TIER, Item, check_labels, read_sets
from .tiers import Tiers, blocking_label
from .wrong import Wrong

HOURS = 24


def read_day(path: str, items: Sequence[Item], tiers: Tiers) -> list[dict[str, Any]]:
    """24 hours: messages, the share of each tier, the share of harm, and what the fine ones are about."""
    try:
        with open(path, encoding="utf-8") as file:
            hours = json.load(file)["hours"]
        for number, hour in enumerate(hours):
            valid = (
                hour["messages"] > 0
                and 0 <= hour["harm"] <= 1
                and all(
                    mix and min(mix.values()) >= 0 and sum(mix.values()) > 0 for mix in (hour["tiers"], hour["fine"])
                )
            )
            unknown = (set(hour["tiers"]) - set(tiers)) | (set(hour["fine"]) - {item.how for item in items})
            if not valid or unknown:
                raise Wrong(
                    f"{path}: hour {number} has {', '.join(sorted(unknown)) or 'numbers that are no shares'}; "
                    "tiers and kinds must be those of the limits and the sets"
                )
    except OSError as error:
        raise Wrong(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Wrong(f"{path} is no day: {error!r}; examples/gate/README.md shows one") from None
    if len(hours) != HOURS:
        raise Wrong(f"{path} has {len(hours)} hours; a day has {HOURS}")
    return hours


class Traffic:
    """Draws messages, with replacement, from the sets: what is blocked of messages of one kind is a binomial draw."""

    def __init__(self, items: Sequence[Item], scores: Scores, tiers: Tiers, signals: Sequence[str], seed: int):
        self._random = np.random.default_rng(seed)
        self._blocked: dict[tuple[str, str], list[bool]] = {}  # by tier and kind; harm is a kind of its own, ""
        for tier, limits in tiers.items():
            for item in items:
                how = "" if item.harmful(signals) else item.how
                if item.tier in (tier, EVERY_TIER):
                    outcomes = self._blocked.setdefault((tier, how), [])
                    outcomes.append(blocking_label(scores[item.id], limits) is not None)

    def _blocked_of(self, count: int, tier: str, how: str) -> int:
        return int(self._random.binomial(count, np.mean(self._blocked[tier, how]))) if count else 0

    def _split(self, count: int, mix: Mapping[str, float]) -> dict[str, int]:
        weights = np.array(list(mix.values()), float)
        return dict(zip(mix, map(int, self._random.multinomial(count, weights / weights.sum()))))

    def draw(self, hour: Mapping[str, Any]) -> dict[tuple[str, bool], Share]:
        """What is blocked of an hour's messages, by tier and whether they are harm."""
        found = {}
        for tier, count in self._split(hour["messages"], hour["tiers"]).items():
            harm = int(self._random.binomial(count, hour["harm"])) if (tier, "") in self._blocked else 0
            kinds = {how: weight for how, weight in hour["fine"].items() if (tier, how) in self._blocked}
            if not kinds:
                raise Wrong(f"the sets have no fine message of the tier {tier} and the kinds {', '.join(hour['fine'])}")
            blocked = sum(self._blocked_of(each, tier, how) for how, each in self._split(count - harm, kinds).items())
            found[tier, False] = rates.share(blocked, count - harm)
            found[tier, True] = rates.share(self._blocked_of(harm, tier, ""), harm)
        return found


def simulate(day: Sequence[Mapping[str, Any]], traffic: Traffic, tiers: Sequence[str]):
    """(shares of fine messages that are blocked, by tier and hour; shares of harmful ones, by hour)"""
    nothing = rates.share(0, 0)
    fine: dict[str, list[Share]] = {tier: [] for tier in tiers}
    harm: list[Share] = []
    for hour in day:
        drawn = traffic.draw(hour)
        for tier in tiers:
            fine[tier].append(drawn.get((tier, False), nothing))
        of_harm = [drawn.get((tier, True), nothing) for tier in tiers]
        harm.append(rates.share(sum(each.count for each in of_harm), sum(each.total for each in of_harm)))
    return fine, harm


def measure(fine: Mapping[str, Sequence[Share]], harm: Sequence[Share], rules: Sequence[Rule], title: str) -> Report:
    report = Report(title)
    rows = [
        [
            f"{number:02}:00",
            *(cell for tier in fine for cell in (counted(fine[tier][number]), percent(fine[tier][number]))),
            percent(harm[number]),
        ]
        for number in range(HOURS)
    ]
    columns = ["hour", *(cell for tier in fine for cell in (f"fine, {tier}", "blocked")), "harm blocked"]
    report.tables.append(Table("block rates by hour, 95% intervals by Wilson", columns, rows))
    for tier, shares in fine.items():
        report.measures[f"hour:{tier}"] = max(shares, key=lambda share: share.value)
        report.measures.update({f"hour:{tier}:{number}": share for number, share in enumerate(shares)})
    report.notes.append(
        "hour:TIER is the highest hour. The sets have few texts, which are drawn again and again: the intervals "
        "say how precise this simulation is. Those of kaiju-gate safety say what other texts may do."
    )
    report.judge(rules)
    bounds = {rule.measure[len("hour:") :]: rule.bound for rule in rules if rule.measure.startswith("hour:")}

    def draw():
        from . import plots

        return plots.hours(fine, harm, bounds)

    report.draw = draw
    return report


def run(args: argparse.Namespace) -> Report:
    items = read_sets(args.set)
    engine = load(args.model, args.threads)
    check_labels(items, engine.model.labels)
    tiers = tiers_of(args, engine.model.labels)
    day = read_day(args.evening, items, tiers)
    fine, harm = simulate(day, Traffic(items, score(engine, items), tiers, args.signal, args.seed), list(tiers))
    total = sum(hour["messages"] for hour in day)
    title = f"{engine.model.name}: a day of {total} messages, seed {args.seed}"
    return measure(fine, harm, rules_of(standard.EVENING, args.fail_if), title)
