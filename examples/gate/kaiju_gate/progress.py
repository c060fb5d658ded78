"""How far a long piece of work is: a line on a terminal, which goes when it is done; elsewhere a line at its end."""

from __future__ import annotations

import sys
import time
from typing import Any

_LONG = 10.0  # seconds


class Progress:
    def __init__(self, what: str, total: int):
        self._what, self._total = what, max(total, 1)
        self._done, self._began, self._drawn = 0, time.monotonic(), 0.0
        self._visible = sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        self._draw()
        return self

    def __exit__(self, *_: Any) -> None:
        passed = time.monotonic() - self._began
        if self._visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        elif passed > _LONG:
            print(f"{self._what}: {self._done} in {passed:.0f} s", file=sys.stderr, flush=True)

    def add(self) -> None:
        self._done += 1
        if time.monotonic() - self._drawn > 0.1:
            self._draw()

    def _draw(self) -> None:
        if not self._visible:
            return
        self._drawn = time.monotonic()
        passed, share = self._drawn - self._began, self._done / self._total
        left = f", {passed / share - passed:.0f} s left" if share > 0.05 else ""
        print(f"\r\x1b[K{self._what}: {self._done} of {self._total}{left}", end="", file=sys.stderr, flush=True)
