"""The generator of persona questions in examples/train, whose held-out side the gate draws from."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from ..sets import FOLDER
from ..wrong import Wrong

TRAIN = os.path.join(os.path.dirname(FOLDER), "train")


def module(name: str) -> ModuleType:
    """A module of examples/train. They import each other by their bare names, and read phrases for seconds."""
    if TRAIN not in sys.path:
        sys.path.append(TRAIN)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Wrong(f"{TRAIN} cannot be read ({error}); kaiju-gate CANDIDATE --against needs it beside it") from None
