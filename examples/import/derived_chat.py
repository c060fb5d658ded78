"""The chat format of a source, which chat_format.py derives from its template. That runs in a process of its own: a
template is a stranger's program, and gets limited time and memory there."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from arguments import remedy
from refused import Refused
from sources import Source


@dataclasses.dataclass(frozen=True)
class DerivedChat:
    form: dict[str, Any] | None  # chat_format of the config
    notes: list[str]  # where kaiju differs from the template on purpose; or why there is no chat format


def derive_chat(source: Source, settings: list[str], date: str | None) -> DerivedChat:
    """`settings` are variables of the template, NAME=JSON; `date` is the day that it may write."""
    if source.chat_template is None:
        return DerivedChat(None, ["the model has no chat template: use it on raw text"])
    if importlib.util.find_spec("jinja2") is None:
        raise Refused(
            f"jinja2, which reads the model's chat template, is missing: {remedy()}; or import without a chat format: "
            "--no-chat"
        )
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_format.py")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "chat_format.json")
        options = [option for setting in settings for option in ("--set", setting)] + (["--date", date] if date else [])
        done = subprocess.run(
            [sys.executable, "-B", program, source.path, "--out", path, *options],
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode == 2:
            raise Refused(done.stderr.strip().splitlines()[-1].removeprefix("chat_format.py: error: "))
        if done.returncode != 0:
            reason = done.stderr.strip().removeprefix("chat_format.py: ").removeprefix(source.path + ": ")
            return DerivedChat(
                None, [f"no chat format, use the model on raw text: {reason or 'the template was ended'}"]
            )
        with open(path, encoding="utf-8") as file:
            form = json.load(file)
    notes = [line.removeprefix("note: ") for line in done.stdout.splitlines() if line.startswith("note: ")]
    return DerivedChat(form, notes)
