"""How long the candidate takes for what the current model does: kaiju-bench step, both models in turn."""

from __future__ import annotations

import os
from typing import Mapping

from ..progress import Progress
from ..report import Report, Table
from . import programs
from .both import Settings
from .paired import exact

_SECONDS = 0.3  # of each line
_SHAPES = ("--streams", 1, 16, "--prompts", 512, "--context", 512, "--buffer-mib", 64)
Times = dict[str, float]  # microseconds by line


def _lines(path: str, settings: Settings) -> Times:
    threads = settings.threads or len(os.sched_getaffinity(0))
    options = [*_SHAPES, "--seconds", _SECONDS, "--backend", settings.backend, "--threads", threads]
    lines = programs.run_json("kaiju-bench", "step", path, *options)["lines"]
    return {f"{line['operation']}, {line['shape']}": line["microseconds"] for line in lines if line["operation"]}


def times(paths: Mapping[str, str], rounds: int, settings: Settings) -> dict[str, Times]:
    """The best of `rounds` for each model. The models take turns, so that what disturbs the machine disturbs both."""
    best: dict[str, Times] = {}
    with Progress("speed", rounds * len(paths)) as progress:
        for _ in range(rounds):
            for name, path in paths.items():
                found = _lines(path, settings)
                best[name] = {line: min(time, best.get(name, found)[line]) for line, time in found.items()}
                progress.add()
    return best


def report(report: Report, taken: Mapping[str, Times]) -> None:
    """Measures slower:prefill and slower:decode: the candidate's time by the current model's, in the worst line."""
    rows = []
    worst: dict[str, float] = {}
    for line, time in taken["candidate"].items():
        ratio = time / taken["current"][line]
        kind = line.split(",")[0]
        worst[kind] = max(worst.get(kind, 0.0), ratio)
        rows.append([line, f"{time / 1000:.2f} ms", f"{taken['current'][line] / 1000:.2f} ms", f"{ratio:.2f}"])
    report.measures.update({f"slower:{kind}": exact(ratio) for kind, ratio in worst.items()})
    report.tables.append(Table("time of a step, the best of several", ["step", "candidate", "current", "ratio"], rows))
