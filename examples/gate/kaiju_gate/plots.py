"""Figures, with matplotlib."""

from __future__ import annotations

import io
import re
from typing import Mapping, Sequence

import numpy as np

from . import rates
from .rates import Share
from .report import write
from .wrong import Wrong

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError:
    raise Wrong("--plot and --html draw with matplotlib, which is missing: pip install matplotlib") from None

matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kaiju-gate", "font.size": 9})
_FEW = 60  # points of a curve are enough


def save(figure: Figure, path: str) -> None:
    """As PNG, SVG or PDF, by the ending."""
    if path.endswith(".svg"):
        write(path, svg(figure))
        return
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise Wrong(f"{path} cannot be written: {error}") from None


def svg(figure: Figure) -> str:
    """The element alone, without a date, and with two decimals of a point: the same figure is the same small file."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    element = text.getvalue()[text.getvalue().index("<svg") :]
    return re.sub(r"(\d\.\d\d)\d+", r"\1", element)


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), _FEW)).round().astype(int))
    return x[kept], y[kept]


def roc(curves: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]]) -> Figure:
    """One small plot for each label. curves: scores of right and wrong rows, by label and model."""
    across = 4
    down = -(-len(curves) // across)
    figure = Figure(figsize=(10, 2.6 * down + 0.3))
    axes = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for axis in list(axes.flat)[len(curves) :]:
        axis.set_visible(False)
    for axis, (label, models) in zip(axes.flat, curves.items()):
        for name, (right, wrong) in models.items():
            area = rates.area(right, wrong)
            if area:
                axis.plot(*_thinned(*rates.curve(right, wrong)), label=f"{name} {area.value:.3f}", linewidth=1.2)
        axis.plot([0, 1], [0, 1], color="#bbb", linewidth=0.8, zorder=0)
        axis.set_title(label)
        axis.legend(loc="lower right", fontsize=7)
        axis.grid(alpha=0.3)
    figure.supxlabel("false alarms")
    figure.supylabel("found")
    figure.tight_layout()
    return figure


def hours(fine: Mapping[str, Sequence[Share]], harm: Sequence[Share], bounds: Mapping[str, float]) -> Figure:
    """Block rates by hour of day: of fine messages in each tier, with their limits, and of harmful ones."""
    figure = Figure(figsize=(8, 5))
    above, below = figure.subplots(2, 1, sharex=True)
    for number, (tier, shares) in enumerate(fine.items()):
        x = np.arange(len(shares)) + 0.15 * (number - 0.5)
        errors = [[100 * (s.value - s.low) for s in shares], [100 * (s.high - s.value) for s in shares]]
        above.errorbar(
            x, [100 * s.value for s in shares], yerr=errors, fmt="o", markersize=3, label=tier, color=f"C{number}"
        )
        if tier in bounds:
            above.axhline(100 * bounds[tier], color=f"C{number}", linestyle="--", linewidth=0.8)
    above.set_ylabel("fine messages blocked, %")
    above.legend()
    below.bar(range(len(harm)), [100 * s.value for s in harm], color="#999")
    below.set_ylabel("harmful ones blocked, %")
    below.set_xlabel("hour of the day")
    for axis in (above, below):
        axis.grid(alpha=0.3)
        axis.set_ylim(bottom=0)
    figure.tight_layout()
    return figure


def guidance(settings: Sequence, measures: Mapping, judges: Sequence[str]) -> Figure:
    """Shares over each judge's threshold, and the perplexity against that of unguided beams, by the weight."""
    figure = Figure(figsize=(4 * (len(judges) + 1), 3.6))
    axes = list(figure.subplots(1, len(judges) + 1))
    for axis, judge in zip(axes, judges):
        for number, risk in enumerate(dict.fromkeys(setting.risk for setting in settings)):
            its = sorted((setting for setting in settings if setting.risk == risk), key=lambda setting: setting.weight)
            shares = [measures[f"over:{judge}:{setting.name}"] for setting in its]
            errors = [[100 * (s.value - s.low) for s in shares], [100 * (s.high - s.value) for s in shares]]
            weights = [setting.weight * 1.06 ** (number - 1) for setting in its]  # apart, so that intervals can be seen
            axis.errorbar(weights, [100 * s.value for s in shares], yerr=errors, fmt="o-", markersize=3, label=risk)
        for name, style in (("plain", "k-"), ("beams", "k--")):
            axis.axhline(
                100 * measures[f"over:{judge}:{name}"].value, color="k", linestyle=style[1:], linewidth=0.9, label=name
            )
        axis.set_title(f"replies over the threshold of {judge}, %")
        axis.set_ylim(bottom=0)
    for risk in dict.fromkeys(setting.risk for setting in settings):
        its = sorted((setting for setting in settings if setting.risk == risk), key=lambda setting: setting.weight)
        axes[-1].plot(
            [setting.weight for setting in its],
            [measures[f"perplexity-of-beams:{setting.name}"].value for setting in its],
            "o-",
            markersize=3,
            label=risk,
        )
    axes[-1].axhline(1.1, color="k", linestyle=":", linewidth=0.9, label="goal")
    axes[-1].set_title("perplexity, of unguided beams'")
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlabel("weight of guidance")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.tight_layout()
    return figure
