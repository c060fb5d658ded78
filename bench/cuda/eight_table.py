"""The table of eight.sh, from the JSON of its runs.

eight_table.py FOLDER
"""

import json
import pathlib
import sys


def lines_of(file):
    """Milliseconds and share of the floor by kind of step; none if the run failed."""
    try:
        lines = json.loads(file.read_text())["lines"]
    except (OSError, ValueError):
        return {}
    return {(line["operation"], line["rows"]): (line["microseconds"] / 1e3, line["share"])
            for line in lines if line["operation"] in ("prefill", "decode")}  # fmt: skip


def main():
    folder = pathlib.Path(sys.argv[1])
    runs = {}
    for file in folder.glob("*.json"):
        preset, _, count = file.stem.rpartition("-")
        runs[preset, count] = lines_of(file)
    kinds = [("prefill", 8192), ("decode", 1), ("decode", 64), ("decode", 256)]
    print("| preset | GPUs | prefill, 8,192 tokens | 1 stream | 64 | 256 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for preset in dict.fromkeys(name for name in ("small", "medium", "large") if (name, "1") in runs):
        alone = runs[preset, "1"]
        for count in ("1", "2", "4", "8"):
            run, part = runs.get((preset, count), {}), runs.get((preset, "part" + count), {})
            if not run:
                continue
            cells = []
            for kind in kinds:
                if kind not in run:
                    cells.append("")
                    continue
                ms, share = run[kind]
                cell = f"{ms:.2f} ms, {100 * share:.0f}%"
                if count != "1" and kind in alone:
                    cell += f", {alone[kind][0] / ms:.2f} x"
                if kind in part:
                    cell += f", exchange {ms - part[kind][0]:.2f} ms"
                cells.append(cell)
            print(f"| `{preset}` | {count} | " + " | ".join(cells) + " |")
    print("\nEach cell: time, share of the floor, times as fast as one GPU, and what is beyond the time of a GPU's own part alone.")


main()
