"""The figure of a release: what changed, needles in haystacks, and the judge's scores."""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..rates import Estimate
from .needle import DEPTHS

Measures = Mapping[str, Estimate]


def _bars(axis: Axes, measures: Measures, prefixes: Sequence[str], title: str, scale: float = 1.0) -> None:
    """A dot with its interval for each measure that has one of the prefixes."""
    names = [name for prefix in prefixes for name in measures if name.startswith(prefix)]
    for row, name in enumerate(names):
        found = measures[name]
        low, high = scale * (found.value - found.low), scale * (found.high - found.value)
        axis.errorbar(scale * found.value, row, xerr=[[max(low, 0)], [max(high, 0)]], fmt="o", markersize=4, color="C0")
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_title(title)
    axis.grid(alpha=0.3)


def _haystack(axis: Axes, shares: np.ndarray, lengths: Sequence[int], title: str) -> None:
    axis.imshow(shares, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto", alpha=0.7)
    for (depth, length), share in np.ndenumerate(shares):
        axis.text(length, depth, f"{100 * share:.0f}", ha="center", va="center", fontsize=7)
    axis.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    axis.set_yticks(range(len(DEPTHS)), [f"{depth}%" for depth in DEPTHS])
    axis.set_xlabel("tokens of the chat")
    axis.set_title(title)


def release(
    measures: Measures,
    haystacks: Mapping[str, np.ndarray],
    lengths: Sequence[int],
    aspects: Mapping[str, np.ndarray],
) -> Figure:
    """haystacks: shares [depths, lengths] by title; aspects: each conversation's score by tier and model."""
    figure = Figure(figsize=(12, 6.5 + 3 * bool(haystacks)), layout="constrained")
    rows = figure.subfigures(3 if haystacks else 2, 1)
    first, second, third = rows[0].subplots(1, 3)
    _bars(first, measures, ["persona-down", "judge-down", "needle-down"], "points of 100 down")
    _bars(second, measures, ["perplexity-up", "slower"], "ratio to the current model")
    _bars(third, measures, ["fine-up", "harm-down", "reuse-down", "replay-down"], "points down, %", 100)
    left, right = rows[1].subplots(1, 2)
    _bars(left, measures, ["kl:"], "KL, nats")
    if aspects:
        right.boxplot(list(aspects.values()), vert=False, widths=0.6)
        right.set_yticks(range(1, len(aspects) + 1), list(aspects))
        right.invert_yaxis()
        right.set_title("the judge's scores of conversations")
        right.grid(alpha=0.3)
    if haystacks:
        axes = rows[2].subplots(1, len(haystacks), squeeze=False)[0]
        for axis, (title, shares) in zip(axes, haystacks.items()):
            _haystack(axis, shares, lengths, title)
    return figure
