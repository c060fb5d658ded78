"""The table of eight.sh, from the JSON of its runs.

eight_table.py FOLDER PRESETS COUNTS          the table so far, and what failed
eight_table.py FOLDER PRESETS COUNTS RUN      the line that RUN belongs to; fails if RUN lacks a figure

PRESETS: "large small"; COUNTS: "1 4 2", numbers of GPUs; RUN: "large-4", or "large-part4" for a GPU's part alone.
"""

import json
import pathlib
import sys

KINDS = [("prefill", 8192), ("decode", 1), ("decode", 64), ("decode", 256)]


def figures_of(file):
    """Milliseconds and share of the floor by kind of step; none if the run failed or was not made."""
    try:
        return {(line["operation"], line["rows"]): (line["microseconds"] / 1e3, line["share"])
                for line in json.loads(file.read_text())["lines"]
                if (line["operation"], line["rows"]) in KINDS}  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def row(folder, preset, count):
    run = figures_of(folder / f"{preset}-{count}.json")
    part = figures_of(folder / f"{preset}-part{count}.json")
    alone = figures_of(folder / f"{preset}-1.json")
    cells = []
    for kind in KINDS:
        if kind not in run:
            cells.append("not measured")
            continue
        ms, share = run[kind]
        cell = f"{ms:.2f} ms, {100 * share:.0f}%"
        if count != "1" and kind in alone:
            cell += f", {alone[kind][0] / ms:.2f} x"
        if kind in part:
            cell += f", exchange {ms - part[kind][0]:.2f} ms"
        cells.append(cell)
    return f"| `{preset}` | {count} | " + " | ".join(cells) + " |"


def main():
    folder = pathlib.Path(sys.argv[1])
    presets, counts = sys.argv[2].split(), sorted(sys.argv[3].split())
    if len(sys.argv) > 4:
        name = sys.argv[4]
        preset, _, count = name.rpartition("-")
        print(row(folder, preset, count.removeprefix("part")))
        sys.exit(len(figures_of(folder / f"{name}.json")) < len(KINDS))
    print("| preset | GPUs | prefill, 8,192 tokens | 1 stream | 64 | 256 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for preset in presets:
        for count in counts:
            print(row(folder, preset, count))
    print("\nEach cell: time, share of the floor, times as fast as one GPU, and what is beyond the time of a GPU's own "
          "part alone.")  # fmt: skip
    failed = folder / "failed"
    if failed.exists():
        print("\nFailed:\n\n" + "".join(f"- {line}\n" for line in failed.read_text().splitlines()), end="")


main()
