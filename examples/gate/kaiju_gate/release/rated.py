"""Conversations that people rated, from 1 to 5: the public ones of ConvAI2, or files of your own."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Iterable, Iterator, Sequence

from ..sets import messages_of_turns, rows
from ..wrong import Wrong
from .conversations import Conversation
from .playing import Played, Said

_FEWEST = 3  # replies: people rated shorter ones for other reasons


@dataclasses.dataclass(frozen=True)
class Rated:
    played: Played
    rating: float


def _pairs(messages: Iterable[tuple[bool, str]]) -> list[tuple[str, str]]:
    """(what the user said, what was replied), of messages and whether the character says them. Several in a row of one
    speaker are one."""
    pairs: list[list[str]] = []
    for by_character, text in messages:
        if not by_character and (not pairs or pairs[-1][1]):
            pairs.append(["", ""])
        elif not pairs:
            pairs.append(["", ""])
        place = int(by_character)
        pairs[-1][place] = (pairs[-1][place] + " " + text).strip()
    return [(says, reply) for says, reply in pairs if reply]


def _rated(id: str, card: str, messages: Iterable[tuple[bool, str]], rating: float) -> Rated | None:
    pairs = _pairs(messages)
    if len(pairs) < _FEWEST:
        return None
    says, replies = zip(*pairs)
    conversation = Conversation(id, "rated", card, says, (None,) * len(says))
    return Rated(Played(conversation, tuple(Said(text, True, 0, 0, 0) for text in replies)), float(rating))


def _of_convai2(name: str, dialogs: Sequence[dict[str, Any]]) -> Iterator[Rated | None]:
    """The logs of the competition: a bot with a profile, and what the person who talked to it thought of it."""
    for number, dialog in enumerate(dialogs):
        if dialog.get("eval_score") is not None and any("sender_class" in each for each in dialog["dialog"]):
            messages = [(each["sender_class"] == "Bot", each["text"]) for each in dialog["dialog"]]
            card = "Bot\n" + " ".join(dialog["bot_profile"])
            yield _rated(f"{name}:{number}", card, messages, dialog["eval_score"])


def _of_lines(path: str) -> Iterator[Rated | None]:
    """{"card": ..., "turns": [["user", ...], ["char", ...]], "rating": 4} each."""
    for where, row in rows(path):
        if not isinstance(row.get("rating"), (int, float)) or not isinstance(row.get("turns"), list):
            raise Wrong(f'{where} must be {{"card": ..., "turns": [["user", "Hello!"], ...], "rating": 1 to 5}}')
        messages = messages_of_turns(None, row["turns"], where)
        card = str(row.get("card", "Character\n"))
        yield _rated(where, card, [(role == "character", text) for role, text in messages], row["rating"])


def read(path: str) -> list[Rated]:
    if path.endswith(".jsonl"):
        found = list(_of_lines(path))
    else:
        try:
            with open(path, encoding="utf-8") as file:
                found = list(_of_convai2(os.path.basename(path), json.load(file)))
        except OSError as error:
            raise Wrong(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Wrong(f"{path} has no dialogs of ConvAI2 ({error!r}); other files end in .jsonl") from None
    rated = [each for each in found if each]
    if not rated:
        raise Wrong(f"{path} has no rated conversation of {_FEWEST} replies or more")
    return rated
