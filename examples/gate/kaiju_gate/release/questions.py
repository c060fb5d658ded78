"""Persona questions: facts of the card or of the user, asked at turns 1, 4 and 8, and beyond the window.

They are the held-out questions of examples/train/persona_eval.py, the first of each kind. Replies are greedy."""

from __future__ import annotations

import dataclasses
from typing import Sequence

import kaiju
import numpy as np

from .. import rates
from ..report import Report, Table, percent
from ..scoring import each
from ..sets import Message, messages_of_turns
from .both import Pair
from .paired import fall, fall_text
from .train_folder import module

KINDS = ("turn1", "turn4", "turn8", "far")  # far: 1,100 to 3,000 tokens before the question
MOST = 40  # tokens of a reply


@dataclasses.dataclass(frozen=True)
class Question:
    id: str
    kind: str
    messages: tuple[Message, ...]
    answers: tuple[str, ...]


def questions(count: int) -> list[Question]:
    """`count` of each kind, the same ones every time."""
    rows = module("persona_eval").make(dict.fromkeys(KINDS, count))
    return [
        Question(row["id"], row["kind"], messages_of_turns(row["card"], row["turns"]), tuple(row["answers"]))
        for row in rows
    ]


def is_right(reply: str, answers: Sequence[str]) -> bool:
    return module("persona_eval").is_right(reply, answers)


def ask(engine: kaiju.Engine, asked: Sequence[Question]) -> dict[str, bool]:
    """Whether each reply has the fact. A prompt that the model's context has no room for is answered wrongly."""

    def one(session: kaiju.Session, question: Question) -> bool:
        messages = list(question.messages)
        if len(engine.model.chat_format(messages)) + MOST > engine.model.context:
            return False
        return is_right(session.reply(messages, temperature=0, max_tokens=MOST), question.answers)

    return dict(zip((question.id for question in asked), each(engine, asked, "persona questions", one)))


def report(report: Report, asked: Sequence[Question], right: Pair) -> None:
    """Measures persona:KIND, and persona-down:KIND in points of 100."""
    rows = []
    for kind in KINDS:
        ids = [question.id for question in asked if question.kind == kind]
        candidate, current = (np.array([of[id] for id in ids], float) for of in (right.candidate, right.current))
        share = rates.share(int(candidate.sum()), len(ids))
        down = fall(100 * candidate, 100 * current)
        report.measures[f"persona:{kind}"] = share
        report.measures[f"persona-down:{kind}"] = down
        rows.append([kind, str(len(ids)), percent(share), f"{100 * current.mean():.1f}%", fall_text(down)])
    columns = ["asked at", "questions", "candidate", "current", "points down"]
    report.tables.append(Table("persona questions that are answered rightly", columns, rows))
