"""Differences between two models on the same items."""

from __future__ import annotations

import numpy as np

from .. import rates
from ..rates import Estimate

_SEED = 1


def fall(candidate: np.ndarray, current: np.ndarray) -> Estimate:
    """By how much the candidate's mean is lower, with an interval by bootstrap over the items."""
    lower = np.asarray(current, float) - np.asarray(candidate, float)
    low, high = rates.bootstrap(len(lower), lambda rows: float(lower[rows].mean()), _SEED)
    return Estimate(float(lower.mean()), low, high)


def exact(value: float) -> Estimate:
    """A figure without an interval: it is counted, or has no items to draw again."""
    return Estimate(value, value, value)


def fall_text(down: Estimate) -> str:
    return f"{down.value:+.1f} ({down.low:+.1f} to {down.high:+.1f})"
