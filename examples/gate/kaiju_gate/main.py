"""Runs what the command line asks for."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Sequence

from . import standard
from .report import Report, publish
from .wrong import Wrong


def _beside(paths: Sequence[str]) -> dict:
    found = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                read = json.load(file)
            scores = read.get("scores", read)
            assert all(isinstance(each, dict) for each in scores.values())
        except (OSError, ValueError, AttributeError, AssertionError) as error:
            raise Wrong(f"--beside {path} is no file of scores: {error or 'it must be {id: {label: p}}'}") from None
        found[os.path.splitext(os.path.basename(path))[0]] = scores
    return found


def _safety(args: argparse.Namespace) -> Report:
    from . import evening, replay, safety

    if args.replay and args.evening:
        raise Wrong("--replay and --evening exclude each other")
    if args.last is not None and (not args.replay or args.last < 1):
        raise Wrong("--last is how many messages of --replay count; it must be at least 1")
    if args.replay:
        return replay.run(args)
    return evening.run(args) if args.evening else safety.run(args, _beside(args.beside))


def _report(args: argparse.Namespace) -> Report:
    # Each command is imported alone: not all of them need the engine, and only one needs classifiers.
    if args.command == "limits":
        from .choose import run
    elif args.command == "guidance":
        from .guidance import run
    elif args.command == "labelled":
        from .labelled import run
    elif args.command == "release":
        from .release.run import run
    elif args.command == "judge":
        from .release.calibrate import run
    else:
        run = _safety
    return run(args)


def main(args: argparse.Namespace) -> int:
    try:
        args.signal = args.signal or list(standard.SIGNALS)
        return publish(_report(args), args.json, args.html, args.plot)
    except Wrong as problem:
        print(f"kaiju-gate: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
