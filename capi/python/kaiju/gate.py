"""Gates, which judge a message by its words before a model reads it."""

from __future__ import annotations

import ctypes as c
from typing import Dict, List, Optional

from ._handle import Handle, Path, c_path, utf8
from ._library import call, check, lib, text_of
from .bundled import gate_path


class Gate(Handle):
    """A linear model over one message; without a path, the bundled gate of English. Immutable, and shared by any number
    of threads.

        gate = kaiju.Gate()
        if gate.score(message)["dangerous"] >= 0.5: ...
    """

    _kind = "gate"
    _of_process = False

    def __init__(self, path: Optional[Path] = None):
        super().__init__()
        path = gate_path() if path is None else path
        call(lib.kaiju_gate_load, c_path(path), self._out)
        self.path = path

    def __repr__(self) -> str:
        return "Gate(closed)" if self.closed else f"Gate({', '.join(self.labels)})"

    @property
    def labels(self) -> List[str]:
        found, text, size = [], c.c_void_p(), c.c_size_t()
        for index in range(lib.kaiju_gate_label_count(self._handle)):
            check(lib.kaiju_gate_label(self._handle, index, c.byref(text), c.byref(size)), f"no label {index}")
            found.append(text_of(c.string_at(text, size.value)))
        return found

    def score(self, message: str) -> Dict[str, float]:
        """kaiju_gate_score: the probability of each label."""
        data, labels = utf8("message", message), self.labels
        found = (c.c_float * len(labels))()
        check(lib.kaiju_gate_score(self._handle, data, len(data), found, len(found), None), "the gate cannot score this")
        return dict(zip(labels, found))


__all__ = ["Gate"]
