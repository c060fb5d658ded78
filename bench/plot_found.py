#!/usr/bin/env python3
"""Draws found tokens against memory, one panel for each traffic, from the JSON of kaiju-bench replay. Needs nothing else.

plot_found.py OUT.svg TITLE NAME=REPLAY.json... [TITLE NAME=REPLAY.json...]...

Belady's bound and the cache that forgets nothing are taken from the first file of each panel.
"""
import json
import math
import sys
from html import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 260, 170, 46, 34, 62
COLOURS = ("#1b6ca8", "#c4572e", "#7a7a7a", "#4f8a3c")


def curve(path: str, key: str) -> list[tuple[float, float]]:
    with open(path) as file:
        points = json.load(file)["points"]
    return sorted((point["memory_share"], point[key]) for point in points)


def panels_of(arguments: list[str]) -> list[tuple[str, dict[str, str]]]:
    panels: list[tuple[str, dict[str, str]]] = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals:
            panels.append((argument, {}))
        elif panels:
            panels[-1][1][name] = path
    return panels


def lines_of(files: dict[str, str]) -> list[tuple[str, str, str, list[tuple[float, float]]]]:
    """Name, colour, dashes and points of each line of a panel."""
    first = next(iter(files.values()))
    lines = [("forgets nothing", "#000", "1 3", curve(first, "token_hit_rate_infinite")),
             ("Belady's bound", "#000", "5 3", curve(first, "token_hit_rate_belady"))]
    for (name, path), colour in zip(files.items(), COLOURS):
        lines.append((name, colour, "", curve(path, "token_hit_rate")))
    return lines


def panel(title: str, files: dict[str, str], x0: float, y0: float) -> str:
    lines = lines_of(files)
    shares = [share for _, _, _, points in lines for share, _ in points]
    low, high = math.log(min(shares)), math.log(max(shares))
    top = 1.0 if max(y for *_, points in lines for _, y in points) > 0.5 else 0.5

    def place(share: float, found: float) -> tuple[float, float]:
        return x0 + WIDTH * (math.log(share) - low) / max(high - low, 1e-9), y0 + HEIGHT * (1 - found / top)

    out = [f'<text x="{x0}" y="{y0 - 10}" font-weight="bold">{escape(title)}</text>']
    for step in range(6):
        y = y0 + HEIGHT * step / 5
        out.append(f'<path d="M{x0} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
        out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * top * (1 - step / 5):.0f}%</text>')
    last = -math.inf
    for share in sorted(set(shares)):
        x, _ = place(share, 0)
        if x - last < 30:
            continue
        last = x
        out.append(f'<text x="{x:.1f}" y="{y0 + HEIGHT + 15}" text-anchor="middle">{100 * share:g}%</text>')
    for _, colour, dashes, points in lines:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>')
    return "\n".join(out)


def legend(lines: list[tuple[str, str, str, list[tuple[float, float]]]], y: float) -> str:
    out = []
    for i, (name, colour, dashes, _) in enumerate(lines):
        x = LEFT + 150 * i
        out.append(f'<path d="M{x} {y}h26" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>')
        out.append(f'<text x="{x + 32}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join(out)


def main() -> None:
    panels = panels_of(sys.argv[2:])
    if not panels or not all(files for _, files in panels):
        sys.exit("usage: plot_found.py OUT.svg TITLE NAME=REPLAY.json... [TITLE NAME=REPLAY.json...]...")
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    width, height = columns * (WIDTH + GAP) + 20, rows * (HEIGHT + GAP) + 50
    body = [panel(title, files, LEFT + (i % columns) * (WIDTH + GAP), TOP + (i // columns) * (HEIGHT + GAP))
            for i, (title, files) in enumerate(panels)]
    body.append(legend(lines_of(panels[0][1]), height - 24))
    with open(sys.argv[1], "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
                   f'font-size="11">\n<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n")


if __name__ == "__main__":
    main()
