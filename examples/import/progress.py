"""A line that says how far a long piece of work is: only on a terminal, and gone when the work is done."""

import sys
import time
from typing import Any

_WIDTH = 30


class Progress:
    def __init__(self, what: str, total: int, unit: str):
        self._what, self._total, self._unit = what, max(total, 1), unit
        self._done, self._began, self._drawn = 0, time.monotonic(), 0.0
        self._visible = sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        self._draw()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._drawn > 0.1:
            self._draw()

    def _draw(self) -> None:
        if not self._visible:
            return
        self._drawn = time.monotonic()
        share = min(self._done / self._total, 1.0)
        passed = self._drawn - self._began
        left = f", {passed / share - passed:.0f} s left" if share > 0.05 else ""
        bar = "#" * int(share * _WIDTH)
        sys.stderr.write(
            f"\r\x1b[K{self._what} [{bar:<{_WIDTH}}] {100 * share:3.0f}% of {self._total:,} {self._unit}{left}"
        )
        sys.stderr.flush()
