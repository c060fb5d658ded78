"""Replays a chat service's traffic against the cache (docs/replay.md), in each tier with what the models change of it.

Two things are taken from the models: how long replies are, and how many bytes of KV a chat holds. A candidate that
needs more bytes gets the same memory, which is then a smaller share of what its chats hold."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from typing import Any, Mapping

import kaiju

from ..progress import Progress
from ..report import Report, Table
from ..sets import FOLDER
from ..wrong import Wrong
from . import programs
from .both import Pair
from .paired import exact

TRAFFIC = os.path.join(FOLDER, "traffic.json")
_WHOLE = 10000  # requests that the file's numbers of conversations and characters are for; fewer of all three scale
_REQUESTS_AN_HOUR = 2.3  # of a conversation, in the standard traffic
_CONTEXT = 8192  # tokens of a chat whose bytes are compared


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a model changes of the traffic and of its footprint."""

    reply_words: float
    chat_bytes: int


def shape_of(engine: kaiju.Engine, reply_words: float) -> Shape:
    info = engine.describe()
    within = min(info.window, _CONTEXT)
    return Shape(reply_words, info.kv_bytes_per_token * _CONTEXT + info.window_kv_bytes_per_token * within)


def read_traffic(path: str | None) -> dict[str, dict[str, Any]]:
    """Options of kaiju-bench replay by tier."""
    path = path or TRAFFIC
    try:
        with open(path, encoding="utf-8") as file:
            read = json.load(file)
        assert read and all(isinstance(options, dict) for options in read.values())
    except (OSError, ValueError, AttributeError, AssertionError) as error:
        raise Wrong(f"{path} has no traffic by tier: {error}; examples/gate/traffic.json shows some") from None
    return read


@functools.lru_cache(None)
def _replay(options: tuple[Any, ...]) -> dict[str, Any]:
    return programs.run_json("kaiju-bench", "replay", *options)


def replay(traffic: Mapping[str, Any], requests: int, memory: float, reply_tokens: float) -> dict[str, Any]:
    """kaiju-bench's figures for at least `requests` requests."""
    scaled = {
        name: max(round(traffic.get(name, standard) * min(requests / _WHOLE, 1)), 1)
        for name, standard in (("conversations", 2000), ("characters", 200))
    }
    hours = 1.1 * requests / (_REQUESTS_AN_HOUR * scaled["conversations"])
    while True:
        asked = {**traffic, **scaled, "hours": round(hours, 3), "memory": round(memory, 4)}
        asked["reply-tokens"] = round(reply_tokens, 1)
        asked["reply-tokens-most"] = round(4 * reply_tokens)
        found = _replay(tuple(text for name, value in asked.items() for text in (f"--{name}", str(value))))
        if found["requests"] >= requests:
            return found
        hours *= 1.2 * requests / max(found["requests"], 1)


def replays(tiers: Mapping[str, Mapping[str, Any]], requests: int, shapes: Pair) -> dict[str, Pair]:
    """By tier. The current model's replies have the length that the traffic file says."""
    found = {}
    longer = shapes.candidate.reply_words / max(shapes.current.reply_words, 1e-9)
    smaller = shapes.current.chat_bytes / shapes.candidate.chat_bytes
    with Progress("replay", 2 * len(tiers)) as progress:
        for tier, options in tiers.items():
            traffic = {name: value for name, value in options.items() if name not in ("memory", "reply-tokens")}
            memory, tokens = options.get("memory", 0.25), options.get("reply-tokens", 100)
            current = replay(traffic, requests, memory, tokens)
            progress.add()
            found[tier] = Pair(replay(traffic, requests, memory * smaller, tokens * longer), current)
            progress.add()
    return found


def report(report: Report, found: Mapping[str, Pair]) -> None:
    """Measures replay:TIER and replay-down:TIER, shares of prompt tokens."""
    rows = []
    for tier, pair in found.items():
        candidate, current = pair.candidate["token_hit_rate"], pair.current["token_hit_rate"]
        report.measures[f"replay:{tier}"] = exact(candidate)
        report.measures[f"replay-down:{tier}"] = exact(current - candidate)
        down = f"{100 * (current - candidate):+.2f}"
        row = [tier, str(pair.candidate["requests"]), f"{100 * candidate:.2f}%", f"{100 * current:.2f}%", down]
        rows.append([*row, f"{100 * pair.candidate['token_hit_rate_belady']:.2f}%"])
    columns = ["tier", "requests", "candidate", "current", "points down", "the most possible"]
    report.tables.append(Table("replayed traffic: prompt tokens that were in the cache", columns, rows))
