"""The figure of a release: what changed, needles in haystacks, and the judge's scores."""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..rates import Estimate
from .needle import DEPTHS, LENGTHS

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


def _haystack(axis: Axes, shares: np.ndarray, title: str) -> None:
    shown = axis.imshow(shares, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto")
    shown.cmap.set_bad("#ddd")
    for (depth, length), share in np.ndenumerate(shares):
        if np.isfinite(share):
            axis.text(length, depth, f"{100 * share:.0f}", ha="center", va="center", fontsize=7)
    axis.set_xticks(range(len(LENGTHS)), [str(length) for length in LENGTHS])
    axis.set_yticks(range(len(DEPTHS)), [f"{depth}%" for depth in DEPTHS])
    axis.set_xlabel("tokens of the chat")
    axis.set_title(title)


def release(measures: Measures, haystacks: Mapping[str, np.ndarray], aspects: Mapping[str, np.ndarray]) -> Figure:
    """haystacks: shares [depths, lengths] by title; aspects: each conversation's score by tier and model."""
    figure = Figure(figsize=(11, 7.5 + 2.4 * bool(haystacks)))
    rows = 3 if haystacks else 2
    grid = figure.add_gridspec(rows, 12)
    tops = [figure.add_subplot(grid[0, at : at + 4]) for at in (0, 4, 8)]
    _bars(tops[0], measures, ["persona-down", "judge-down", "needle-down"], "points of 100 down")
    _bars(tops[1], measures, ["perplexity-up", "slower"], "ratio to the current model")
    _bars(tops[2], measures, ["fine-up", "harm-down", "reuse-down", "replay-down"], "points down, %", 100)
    left, right = figure.add_subplot(grid[1, :5]), figure.add_subplot(grid[1, 6:])
    _bars(left, measures, ["kl:"], "KL, nats")
    if aspects:
        right.boxplot(list(aspects.values()), orientation="horizontal", widths=0.6)
        right.set_yticks(range(1, len(aspects) + 1), list(aspects))
        right.invert_yaxis()
        right.set_title("the judge's scores of conversations")
        right.grid(alpha=0.3)
    for number, (title, shares) in enumerate(haystacks.items()):
        wide = 12 // len(haystacks)
        _haystack(figure.add_subplot(grid[2, number * wide : (number + 1) * wide]), shares, title)
    figure.set_layout_engine("constrained")
    return figure
