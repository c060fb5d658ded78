"""kaiju-gate guidance: what guided beams and limits do to replies, as other classifiers judge them."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, Mapping, Sequence

import kaiju
import numpy as np

from . import rates, standard
from .judge import Judge, read_judges
from .rates import Estimate, Share
from .report import Report, Table, area_text, percent
from .rules import rules_of
from .safety import tiers_of
from .scoring import load, replies
from .sets import Item, check_labels, read_sets
from .wrong import Wrong

PLAIN, BEAMS = "plain", "beams"
_DRAWS = 1000
# The chat's own settings.
_SAMPLING = {"temperature": 0.7, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.05}


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    options: Mapping[str, Any]
    risk: str = ""
    weight: float = 0.0
    tier: str = ""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The replies of a setting, in the order of the messages."""

    texts: list[str]
    refused: np.ndarray  # of bool
    logprobs: np.ndarray  # sum of each reply's tokens
    tokens: np.ndarray
    over: dict[str, np.ndarray]  # by judge


def settings_of(args: argparse.Namespace, tiers: Sequence[str]) -> list[Setting]:
    plain = {**_SAMPLING, "seed": args.seed, "max_tokens": args.max_tokens}
    beams = {"beams": args.beams, "max_tokens": args.max_tokens}
    signals = [f"{label}=0" for label in args.signal]

    def guided(risk: str, weight: float) -> dict[str, Any]:
        return {**beams, "guidance": weight, "guidance_risk": standard.RISKS.index(risk), "label_weight": signals}

    found = [Setting(PLAIN, plain), Setting(BEAMS, beams)]
    found += [
        Setting(f"{risk} {weight:g}", guided(risk, weight), risk, weight)
        for risk in standard.RISKS
        for weight in args.weights
    ]
    best = guided(args.risk, args.weight)
    if not any(each.risk == args.risk and each.weight == args.weight for each in found):
        found.append(Setting(f"{args.risk} {args.weight:g}", best, args.risk, args.weight))
    for tier in tiers:
        found.append(
            Setting(f"{PLAIN}, limits of {tier}", {**plain, "tier": tier, "hold_back": args.hold_back}, tier=tier)
        )
        found.append(Setting(f"{args.risk} {args.weight:g}, limits of {tier}", {**best, "tier": tier}, tier=tier))
    return found


def outcome(
    engine: kaiju.Engine, items: Sequence[Item], setting: Setting, judges: Sequence[Judge], number: str
) -> Outcome:
    found = replies(engine, items, f"{number} {setting.name}", setting.options)
    texts = [str(reply) for reply in found]
    return Outcome(
        texts,
        np.array([reply.reason == kaiju.Reason.REFUSED for reply in found]),
        np.array([sum(reply.logprobs) for reply in found]),
        np.array([len(reply.logprobs) for reply in found]),
        {judge.name: judge.over(texts) for judge in judges},
    )


def _ratio(of: Outcome, to: Outcome, seed: int) -> Estimate:
    """Perplexity divided by that of other replies to the same messages."""

    def measure(rows: np.ndarray) -> float:
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(
                np.exp(
                    to.logprobs[rows].sum() / to.tokens[rows].sum() - of.logprobs[rows].sum() / of.tokens[rows].sum()
                )
            )

    return Estimate(measure(np.arange(len(of.tokens))), *rates.bootstrap(len(of.tokens), measure, seed, _DRAWS))


def _reduction(of: np.ndarray, plain: np.ndarray, seed: int) -> Estimate:
    """By how much the share over the threshold is smaller than that of plain sampling."""

    def measure(rows: np.ndarray) -> float:
        before = plain[rows].sum()
        return float(1 - of[rows].sum() / before) if before else float("nan")

    return Estimate(measure(np.arange(len(of))), *rates.bootstrap(len(of), measure, seed, _DRAWS))


def _put(report: Report, name: str, all_of: Mapping[str, Outcome], seed: int) -> dict[str, Estimate]:
    """The measures of one setting: over:JUDGE, reduction:JUDGE, perplexity, perplexity-of-beams, refused."""
    one, plain = all_of[name], all_of[PLAIN]
    found: dict[str, Estimate] = {
        "perplexity": _ratio(one, plain, seed),
        "perplexity-of-beams": _ratio(one, all_of[BEAMS], seed),
        "refused": rates.share(int(one.refused.sum()), len(one.refused)),
    }
    for judge, over in one.over.items():
        found[f"over:{judge}"] = rates.share(int(over.sum()), len(over))
        found[f"reduction:{judge}"] = _reduction(over, plain.over[judge], seed)
    report.measures.update({f"{what}:{name}": estimate for what, estimate in found.items()})
    return found


def _range(estimate: Estimate, scale: float = 1, digits: int = 2) -> str:
    return (
        f"{scale * estimate.value:.{digits}f} ({scale * estimate.low:.{digits}f} to {scale * estimate.high:.{digits}f})"
    )


def _perplexity(one: Outcome) -> float:
    return float(np.exp(-one.logprobs.sum() / one.tokens.sum())) if one.tokens.sum() else float("nan")


def measure(outcomes: Mapping[str, Outcome], judges: Sequence[Judge], seed: int, title: str) -> Report:
    report = Report(title)
    report.tables.append(
        Table(
            "judges, on texts that they were not fitted on",
            ["judge", "texts", "area", "threshold", "harm found"],
            [
                [judge.name, str(judge.texts), area_text(judge.area), f"{judge.threshold:.2f}", percent(judge.found)]
                for judge in judges
            ],
        )
    )
    over_rows, cost_rows = [], []
    for name, one in outcomes.items():
        found = _put(report, name, outcomes, seed)
        over_rows.append(
            [
                name,
                *(
                    cell
                    for judge in judges
                    for cell in (
                        percent(found[f"over:{judge.name}"]),
                        "-" if name == PLAIN else _range(found[f"reduction:{judge.name}"], -100, 0),
                    )
                ),
            ]
        )
        cost_rows.append(
            [
                name,
                f"{_perplexity(one):.2f}",
                _range(found["perplexity"]),
                _range(found["perplexity-of-beams"]),
                percent(found["refused"]),
                f"{one.tokens.mean():.1f}",
            ]
        )
    report.tables.append(
        Table(
            "replies over a judge's threshold, and the change against plain sampling, %",
            ["replies by", *(cell for judge in judges for cell in (judge.name, "change"))],
            over_rows,
        )
    )
    report.tables.append(
        Table(
            "perplexity under the unguided model, and what is refused",
            ["replies by", "perplexity", "to plain's", "to beams'", "refused", "tokens"],
            cost_rows,
        )
    )
    report.notes.append(f"Intervals of changes and ratios are by bootstrap over messages: {_DRAWS} draws, seed {seed}.")
    return report


def _fine_table(engine: kaiju.Engine, items: Sequence[Item], settings: Sequence[Setting], report: Report) -> Table:
    """What limits refuse of replies to fine messages, each with the limits of its own tier."""
    rows = []
    for setting in settings:
        its = [item for item in items if item.tier == setting.tier]
        if its:
            found = replies(engine, its, f"fine, {setting.name}", setting.options)
            share: Share = rates.share(sum(reply.reason == kaiju.Reason.REFUSED for reply in found), len(its))
            report.measures[f"fine:{setting.name}"] = share
            rows.append([setting.name, f"{share.count} of {share.total}", percent(share)])
    return Table(
        "fine messages whose reply is refused, by what is said in it too", ["replies by", "refused", "share"], rows
    )


def run(args: argparse.Namespace) -> Report:
    judges = read_judges(args.judge)
    if not judges:
        raise Wrong("name a judge: --judge NAME=FILE; examples/gate/README.md says where files come from")
    items = read_sets(args.set)
    engine = load(args.model, args.threads)
    check_labels(items, engine.model.labels)
    tiers = tiers_of(args, engine.model.labels)
    for tier, limits in tiers.items():
        for label, limit in limits.items():
            engine.set_limit(tier, label, limit)
    harm = [item for item in items if item.harmful(args.signal)][: args.first]
    fine = [item for item in items if not item.harmful(args.signal)][: args.first]
    if not harm:
        raise Wrong("the sets have no harmful message to reply to")
    settings = settings_of(args, list(tiers))
    outcomes = {
        setting.name: outcome(engine, harm, setting, judges, f"{number} of {len(settings)}:")
        for number, setting in enumerate(settings, 1)
    }
    report = measure(outcomes, judges, args.seed, f"{engine.model.name}: replies to {len(harm)} harmful messages")
    report.tables.append(_fine_table(engine, fine, [setting for setting in settings if setting.tier], report))
    best = f"{args.risk} {args.weight:g}"
    report.measures["reduction"] = report.measures[f"reduction:{judges[0].name}:{best}"]
    report.measures["perplexity"] = report.measures[f"perplexity:{best}"]
    report.judge(rules_of(standard.GUIDANCE, args.fail_if))
    report.details = {
        "tiers": tiers,
        "replies": {name: dict(zip((item.id for item in harm), one.texts)) for name, one in outcomes.items()},
    }

    def draw():
        from . import plots

        return plots.guidance(
            [setting for setting in settings if setting.risk], report.measures, [judge.name for judge in judges]
        )

    report.draw = draw
    return report
