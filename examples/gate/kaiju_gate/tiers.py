"""Limits by tier and label: the file that has them, and which label blocks a message."""

from __future__ import annotations

import json
import os
from typing import Mapping, Sequence

from .sets import FOLDER
from .wrong import Wrong

Limits = Mapping[str, float]  # probability of a label that blocks; a label without one blocks nothing
Tiers = dict[str, dict[str, float]]
BUNDLED = os.path.join(FOLDER, "tiers.json")


def _probability(value: object, where: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise Wrong(f"{where} is {json.dumps(value)}; a limit is a probability, 0 to 1")
    return float(value)


def read_tiers(path: str | None) -> Tiers:
    """{"adult": {"violence": 0.5}}, or the same in the field "tiers", as kaiju-server answers GET /tiers."""
    path = path or BUNDLED
    try:
        with open(path, encoding="utf-8") as file:
            read = json.load(file)
    except OSError as error:
        raise Wrong(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Wrong(f"{path} is no JSON: {error}") from None
    read = read.get("tiers", read) if isinstance(read, dict) else read
    if not isinstance(read, dict) or not read or not all(isinstance(limits, dict) for limits in read.values()):
        raise Wrong(f'{path} must have limits by tier and label, such as {{"adult": {{"violence": 0.5}}}}')
    return {
        tier: {label: _probability(limit, f"{path}: {tier}:{label}") for label, limit in limits.items()}
        for tier, limits in read.items()
    }


def with_limit(tiers: Tiers, text: str) -> None:
    """Sets TIER:LABEL=LIMIT, where LIMIT may be none."""
    name, equals, number = text.partition("=")
    tier, colon, label = name.partition(":")
    if not (equals and colon and tier and label):
        raise Wrong(f"--limit is {text!r}; it must be TIER:LABEL=LIMIT, such as adult:violence=0.5")
    limits = tiers.setdefault(tier, {})
    if number == "none":
        limits.pop(label, None)
        return
    try:
        limits[label] = _probability(float(number), f"--limit {name}")
    except ValueError:
        raise Wrong(f"--limit is {text!r}; LIMIT is a probability, or none") from None


def check_tiers(tiers: Tiers, labels: Sequence[str]) -> None:
    for tier, limits in tiers.items():
        for label in limits:
            if label not in labels:
                raise Wrong(f"a limit is {tier}:{label}; the model's classifier has {', '.join(labels)}")


def blocking_label(scores: Mapping[str, float], limits: Limits) -> str | None:
    """The likeliest label that has reached its limit."""
    reached = [label for label, limit in limits.items() if scores[label] >= limit]
    return max(reached, key=lambda label: scores[label]) if reached else None
