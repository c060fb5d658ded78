"""Calibration: watches keys, values and tokens of an engine, and makes new scales."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, List

from . import _c
from ._handle import Handle, Path, c_path, instance
from ._library import call, check, lib

if TYPE_CHECKING:
    from .engine import Engine


class Calibration(Handle):
    """Compares what the engine's keys and values are now with what its scales were made from.

        calibration = kaiju.Calibration(engine)
        ...  # now and then, while replies are under way:
        engine.calibrate(calibration)
        if calibration.read().frozen: ...
        calibration.save("scales.safetensors")  # for engine.set_scales and Model(..., scales=...)

    Options are the fields of kaiju_calibration_options; one thread at a time."""

    _kind = "calibration"

    def __init__(self, engine: "Engine", **options: float):
        from .engine import Engine

        super().__init__()
        given = _c.CalibrationOptions(**options)
        call(lib.kaiju_calibration_create, instance(Engine, "engine", engine)._handle, c.byref(given), self._out)

    def read(self) -> _c.CalibrationFigures:
        """kaiju_calibration_read."""
        made = _c.CalibrationFigures()
        check(lib.kaiju_calibration_read(self._handle, c.byref(made)), "the calibration cannot be read")
        return made

    def saturation(self) -> List[_c.Saturation]:
        """kaiju_calibration_saturation of every KV slot."""
        slots: List[_c.Saturation] = []
        while True:
            made = _c.Saturation()
            if lib.kaiju_calibration_saturation(self._handle, len(slots), c.byref(made)) != _c.Status.OK:
                return slots
            slots.append(made)

    def save(self, path: Path) -> None:
        """kaiju_calibration_save."""
        call(lib.kaiju_calibration_save, self._handle, c_path(path))

    def thaw(self) -> None:
        """kaiju_calibration_thaw."""
        check(lib.kaiju_calibration_thaw(self._handle), "the calibration cannot collect again")

    def reset(self) -> None:
        """kaiju_calibration_reset."""
        check(lib.kaiju_calibration_reset(self._handle), "the calibration cannot be reset")


__all__ = ["Calibration"]
