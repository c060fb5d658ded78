"""Runs kaiju's own programs: kaiju-score computes logits, kaiju-bench replays traffic and times steps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

from ..sets import FOLDER
from ..wrong import Wrong

_BUILDS = os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "build")


def _folders() -> list[str]:
    """Where programs may be: KAIJU_PROGRAMS, the path, the folders of builds in the source tree."""
    named = [os.environ["KAIJU_PROGRAMS"]] if "KAIJU_PROGRAMS" in os.environ else []
    found = sorted(os.listdir(_BUILDS)) if os.path.isdir(_BUILDS) else []
    builds = [os.path.join(_BUILDS, name, "bin") for name in sorted(found, key=lambda name: name != "release")]
    return [*named, *os.environ.get("PATH", "").split(os.pathsep), *builds]


def find(name: str) -> str:
    program = shutil.which(name, path=os.pathsep.join(_folders()))
    if program is None:
        raise Wrong(f"{name} is missing: build it (cmake --build build/release --target {name}), or set KAIJU_PROGRAMS")
    return program


def run(name: str, *arguments: Any) -> str:
    """What the program printed."""
    done = subprocess.run([find(name), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Wrong(f"{name} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def run_json(name: str, *arguments: Any) -> dict[str, Any]:
    return json.loads(run(name, *arguments, "--json"))
