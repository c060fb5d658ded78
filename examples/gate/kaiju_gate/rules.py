"""Rules: which figure fails the gate, and where. `fine:adult>1%` fails where that share is above one in a hundred."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import Mapping, Sequence

from .rates import Estimate
from .wrong import Wrong

Measures = Mapping[str, Estimate]
_FORM = re.compile(
    r"\s*(?P<measure>[^<>=]*?[^<>=\s])(?P<end>:low|:high)?\s*(?P<sign>[<>])\s*(?P<number>[0-9.eE+-]+)(?P<percent>%?)\s*"
)


@dataclasses.dataclass(frozen=True)
class Rule:
    text: str
    measure: str
    end: str  # "low" or "high" end of the interval, or "value"
    above: bool  # fails above the bound; otherwise below it
    bound: float
    given: bool  # on the command line


@dataclasses.dataclass(frozen=True)
class Finding:
    rule: str
    value: float
    broken: bool


def parse(text: str, given: bool = True) -> Rule:
    form = _FORM.fullmatch(text)
    try:
        bound = float(form["number"]) / (100 if form["percent"] else 1)  # type: ignore[index]
    except (TypeError, ValueError):
        raise Wrong(
            f"--fail-if is {text!r}; it must be MEASURE>BOUND or MEASURE<BOUND, such as 'fine:adult>1%'"
        ) from None
    assert form is not None
    return Rule(text, form["measure"], (form["end"] or ":value")[1:], form["sign"] == ">", bound, given)


def rules_of(standard: Sequence[str], given: Sequence[str]) -> list[Rule]:
    """The standard rules and those of the command line. A given rule replaces the standard one of the same measure and
    end, and "none" removes all standard ones."""
    mine = [parse(text) for text in given if text != "none"]
    if "none" in given:
        return mine
    taken = {(rule.measure, rule.end) for rule in mine}
    others = [parse(text, False) for text in standard]
    return [rule for rule in others if (rule.measure, rule.end) not in taken] + mine


def check(rules: Sequence[Rule], measures: Measures) -> list[Finding]:
    """What every rule says. A standard rule about a figure that these sets do not have says nothing."""
    found = []
    for rule in rules:
        if rule.measure not in measures:
            if rule.given:
                near = difflib.get_close_matches(rule.measure, measures, 5, 0.3) or list(measures)[:5]
                raise Wrong(
                    f"--fail-if {rule.text}: there is no measure {rule.measure}; there are {', '.join(near)} "
                    "and others: --json writes all"
                )
            continue
        value = getattr(measures[rule.measure], rule.end)
        kept = value <= rule.bound if rule.above else value >= rule.bound  # what is no number is not kept
        found.append(Finding(rule.text, value, not kept))
    return found
