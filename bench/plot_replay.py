#!/usr/bin/env python3
"""Draws hit rate against memory from the JSON of kaiju-bench replay. Needs python3-matplotlib.

kaiju-bench replay --memory 0.25,0.05,0.1,0.5,1 --json > replay.json
python3 bench/plot_replay.py replay.json replay.svg
"""
import json
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: plot_replay.py REPLAY.json OUT.svg (or .png)")
    with open(sys.argv[1]) as file:
        report = json.load(file)
    points = sorted(report["points"], key=lambda point: point["memory_bytes"])
    memory = [point["memory_bytes"] / 2**30 for point in points]
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for key, label, style in (
        ("token_hit_rate_infinite", "cache that forgets nothing", "k:"),
        ("token_hit_rate_belady", "Belady bound", "k--"),
        ("token_hit_rate", "kaiju", "o-"),
        ("token_hit_rate_shared", "of it: shared prefix", "s-"),
    ):
        axes.plot(memory, [100 * point[key] for point in points], style, label=label)
    for point, x in zip(points, memory):
        axes.annotate(f"{100 * point['memory_share']:.0f}%", (x, 100 * point["token_hit_rate"]), textcoords="offset points", xytext=(0, -14), ha="center")
    axes.set_xlabel("memory for KV, GiB (share of what all conversations hold)")
    axes.set_ylabel("prompt tokens found, %")
    axes.set_title(report["source"], fontsize=9)
    axes.set_ylim(bottom=0, top=102)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(sys.argv[2])


if __name__ == "__main__":
    main()
