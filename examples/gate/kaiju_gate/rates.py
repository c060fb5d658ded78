"""Statistics: shares with Wilson's intervals, areas under ROC curves with DeLong's. Every interval is one of 95%.

Without scipy.stats, which takes a second to load.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Callable, Sequence

import numpy as np

LEVEL = 0.95
DEVIATIONS = statistics.NormalDist().inv_cdf(0.5 + LEVEL / 2)  # half of an interval, of a normal distribution


@dataclasses.dataclass(frozen=True)
class Estimate:
    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Share(Estimate):
    count: int
    total: int


def share(count: int, total: int) -> Share:
    """count of total with Wilson's interval. Of nothing it is 0, and nothing is known: 0 to 1."""
    if total == 0:
        return Share(0.0, 0.0, 1.0, 0, 0)
    value, extra = count / total, DEVIATIONS**2 / total
    middle = (value + extra / 2) / (1 + extra)
    half = (extra * (value * (1 - value) + extra / 4)) ** 0.5 / (1 + extra)
    return Share(
        float(value),
        float(middle - half) if count > 0 else 0.0,
        float(middle + half) if count < total else 1.0,
        int(count),
        int(total),
    )


def _ranks(values: np.ndarray) -> np.ndarray:
    """The place of each value in order, from 1 on; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def area(right: Sequence[float], wrong: Sequence[float]) -> Estimate | None:
    """The area under the ROC curve: the chance that one of `right` scores above one of `wrong`. None without both.

    The variance is that of DeLong, DeLong and Clarke-Pearson (1988), by ranks as in Sun and Xu (2014). A perfect area
    has an interval of no width."""
    r, w = np.asarray(right, float), np.asarray(wrong, float)
    if r.size == 0 or w.size == 0:
        return None
    ranks = _ranks(np.concatenate([r, w]))  # a tie is worth half
    above = (ranks[: r.size] - _ranks(r)) / w.size  # of each right one: the share of wrong ones below it
    below = 1 - (ranks[r.size :] - _ranks(w)) / r.size
    value = float(above.mean())
    variance = sum(float(part.var(ddof=1)) / part.size for part in (above, below) if part.size > 1)
    half = DEVIATIONS * variance**0.5
    return Estimate(value, max(0.0, value - half), min(1.0, value + half))


def curve(right: Sequence[float], wrong: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """The ROC curve: shares of false alarms, and shares that are found."""
    from sklearn.metrics import roc_curve

    truth = np.concatenate([np.ones(len(right)), np.zeros(len(wrong))])
    false_alarms, found, _ = roc_curve(truth, np.concatenate([right, wrong]))
    return false_alarms, found


def bootstrap(count: int, measure: Callable[[np.ndarray], float], seed: int, draws: int = 1000) -> tuple[float, float]:
    """The interval of measure(indices of rows), asked for rows that are drawn with replacement from `count`."""
    random = np.random.default_rng(seed)
    found = np.array([measure(random.integers(0, count, count)) for _ in range(draws)])
    low, high = np.quantile(
        found[np.isfinite(found)] if np.isfinite(found).any() else found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    )
    return float(low), float(high)
