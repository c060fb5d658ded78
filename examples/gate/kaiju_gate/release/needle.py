"""Needle in a haystack: the user tells a fact somewhere in a long chat, and asks for it at the end.

Length and depth make a grid. Each cell is asked with the model's sliding windows and, in a copy of the checkpoint,
without them. Chats are held-out ones of the generator of examples/train."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import Sequence

import kaiju
import numpy as np

from .. import rates
from ..report import Report, Table
from ..scoring import each
from ..sets import Message, messages_of_turns
from .both import Pair, Settings
from .paired import fall, fall_text
from .questions import MOST, is_right
from .train_folder import module

LENGTHS = (512, 1024, 2048, 3072, 3840)  # tokens of the chat, roughly
ROOM = 240  # tokens by which a chat may be longer than its length says, and the reply
DEPTHS = (0, 25, 50, 75, 100)  # percent: 0 is the beginning of the chat
_SEED = 20_200_003


@dataclasses.dataclass(frozen=True)
class Needle:
    id: str
    length: int
    depth: int
    messages: tuple[Message, ...]
    answers: tuple[str, ...]


def _draw(length: int, depth: int, number: int, attempt: int) -> Needle | None:
    persona = module("persona_eval")
    random = persona.new_random(_SEED + attempt, (length * 101 + depth) * 100 + number).random
    talker = persona.Held(random)
    talker.draw_facts(4)
    card = talker.write_card()
    room = length - 1.35 * len(card.split()) - 60  # beside the card, the needle and the question
    talker.filler(room * depth / 100, None, [])
    at = len(talker.turns)
    kind = talker.tell(far=True)
    told = len(talker.turns)
    talker.filler(room, None, [])
    source, facts = talker.language.told, talker.told
    if kind is None:
        return None
    field = list(source[kind].asks)[0]
    answers = persona.accepted(kind, field, facts[kind])
    question = talker.question(kind, field, source, facts[kind])
    rest = [card, question, *(text for _, text, _ in talker.turns[:at] + talker.turns[told:])]
    stated = is_right(talker.turns[at][1], answers)
    if not stated or any(is_right(text, answers) for text in rest):
        return None
    turns = [(role, text) for role, text, _ in talker.turns] + [("user", question)]
    messages = messages_of_turns(talker.name + "\n" + card, turns)
    return Needle(f"{length}-{depth}-{number}", length, depth, messages, tuple(answers))


def needles(count: int, lengths: Sequence[int]) -> list[Needle]:
    """`count` in each cell of the grid, the same ones every time."""
    found = []
    for length in lengths:
        for depth in DEPTHS:
            for number in range(count):
                attempt, needle = 0, None
                while needle is None:
                    needle = _draw(length, depth, number, attempt)
                    attempt += 1
                found.append(needle)
    return found


def ask(engine: kaiju.Engine, asked: Sequence[Needle], what: str) -> dict[str, bool]:
    def one(session: kaiju.Session, needle: Needle) -> bool:
        messages = list(needle.messages)
        if len(engine.model.chat_format(messages)) + MOST > engine.model.context:
            return False
        return is_right(session.reply(messages, temperature=0, max_tokens=MOST), needle.answers)

    return dict(zip((needle.id for needle in asked), each(engine, asked, what, one)))


def ask_without_windows(path: str, settings: Settings, asked: Sequence[Needle]) -> dict[str, bool] | None:
    """None of a model that has no windows."""
    from .windows import without_windows

    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "without_windows.safetensors")
        if not without_windows(path, copy):
            return None
        engine = settings.engine(copy)
        try:
            return ask(engine, asked, "needles, windows off")
        finally:
            engine.close()


def grid(asked: Sequence[Needle], right: dict[str, bool]) -> np.ndarray:
    """Shares that are right [depths, lengths]."""
    cells: dict[tuple[int, int], list[bool]] = {}
    for needle in asked:
        cells.setdefault((needle.depth, needle.length), []).append(right[needle.id])
    lengths = sorted({needle.length for needle in asked})
    return np.array([[np.mean(cells[depth, length]) for length in lengths] for depth in DEPTHS])


def report(report: Report, asked: Sequence[Needle], right: Pair, without: Pair, window: int) -> None:
    """Measures needle, needle-down; needle:beyond, needle-down:beyond of what only layers without windows can see."""
    beyond = {needle.id for needle in asked if needle.length * (100 - needle.depth) / 100 > window}
    rows = []
    for name, ids in (("", [needle.id for needle in asked]), (":beyond", sorted(beyond))):
        if not ids:
            continue
        candidate, current = (np.array([of[id] for id in ids], float) for of in (right.candidate, right.current))
        share, down = rates.share(int(candidate.sum()), len(ids)), fall(100 * candidate, 100 * current)
        report.measures["needle" + name], report.measures["needle-down" + name] = share, down
        off = [f"{100 * np.mean([of[id] for id in ids]):.1f}%" if of else "-" for _, of in without.items()]
        texts = [f"{100 * share.value:.1f}%", f"{100 * current.mean():.1f}%", fall_text(down)]
        rows.append(["beyond the window" if name else "all", str(len(ids)), *texts, *off])
    columns = ["needles", "asked", "candidate", "current", "points down", "candidate, windows off", "current, off"]
    report.tables.append(Table("needles that are found", columns, rows))
