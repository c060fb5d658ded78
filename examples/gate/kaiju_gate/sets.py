"""Sets of judged messages and logs of blocked ones: what their files must look like."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Iterator, Sequence

from .wrong import Wrong

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # examples/gate
_EVAL = os.path.join(os.path.dirname(FOLDER), "train", "eval")
FROZEN = [os.path.join(_EVAL, "safety_adversarial.jsonl"), os.path.join(_EVAL, "safety_intense.jsonl")]
UNSAFE = "unsafe"  # a label of a set that says only: harm of some kind
EVERY_TIER = "all"

_ROLES = {"char": "character", "assistant": "character", "developer": "system"}
_KNOWN_ROLES = ("card", "system", "user", "character")
Message = tuple[str, str]  # role, text


@dataclasses.dataclass(frozen=True)
class Item:
    """A message in its conversation, and what is true of it."""

    id: str
    how: str  # its kind, such as "drama"
    labels: tuple[str, ...]  # that hold
    tier: str  # whose limits it is measured with; "all": every tier's
    messages: tuple[Message, ...]

    def harmful(self, signals: Sequence[str]) -> bool:
        return any(label not in signals for label in self.labels)


@dataclasses.dataclass(frozen=True)
class Blocked:
    """A message that was blocked, as a server logs it."""

    id: str
    time: str  # ISO 8601
    tier: str
    label: str
    probability: float
    limit: float
    messages: tuple[Message, ...]


def rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place for messages."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise Wrong(f"{path}:{number} is no JSON object")
                    yield f"{path}:{number}", row
    except OSError as error:
        raise Wrong(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Wrong(f"{path} is no UTF-8 text; it must be a file of JSON lines") from None
    except json.JSONDecodeError as error:
        raise Wrong(f"{path}:{number} is no JSON: {error.msg}; every line must be one object") from None


def _field(row: dict[str, Any], name: str, kind: Any, where: str) -> Any:
    value = row.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        names = {str: "a text", list: "a list"}.get(kind, "a number")
        raise Wrong(f"{where}: {name} must be {names}; it is {json.dumps(value)}")
    return value


def _message(role: Any, text: Any, where: str) -> Message:
    role = _ROLES.get(role, role)
    if role not in _KNOWN_ROLES or not isinstance(text, str):
        raise Wrong(f"{where}: a message has the role {role!r}; it must be a text of {', '.join(_KNOWN_ROLES)}")
    return role, text


def _item(row: dict[str, Any], where: str) -> Item:
    messages = [("card", _field(row, "card", str, where))] if "card" in row else []
    turns = _field(row, "turns", list, where)
    if not turns or any(not isinstance(turn, list) or len(turn) != 2 for turn in turns):
        raise Wrong(f'{where}: turns must be a list of pairs, such as [["user", "Hello!"]]')
    messages += [_message(role, text, where) for role, text in turns]
    labels = _field(row, "labels", list, where)
    return Item(
        _field(row, "id", str, where),
        str(row.get("how", "")),
        tuple(map(str, labels)),
        str(row.get("tier", EVERY_TIER)),
        tuple(messages),
    )


def read_sets(paths: Sequence[str]) -> list[Item]:
    """The items of all files; without a path, of the two frozen sets."""
    found: dict[str, Item] = {}
    for path in paths or FROZEN:
        for where, row in rows(path):
            item = _item(row, where)
            if item.id in found:
                raise Wrong(f"{where}: the id {item.id} is taken; every row of all sets needs its own")
            found[item.id] = item
    if not found:
        raise Wrong(f"there is no row in {', '.join(paths)}")
    return list(found.values())


def check_labels(items: Sequence[Item], labels: Sequence[str]) -> None:
    for item in items:
        for label in item.labels:
            if label not in labels and label != UNSAFE:
                raise Wrong(f"{item.id} has the label {label}; the model's classifier has {', '.join(labels)}")


def read_blocked(path: str, last: int | None) -> list[Blocked]:
    """The messages of a log of blocked ones, or the last of them."""
    found = []
    for where, row in rows(path):
        messages = [
            (
                _message(each.get("role"), each.get("content"), where)
                if isinstance(each, dict)
                else _message(None, None, where)
            )
            for each in _field(row, "messages", list, where)
        ]
        if not messages:
            raise Wrong(f"{where}: messages is empty")
        found.append(
            Blocked(
                where,
                _field(row, "time", str, where),
                _field(row, "tier", str, where),
                _field(row, "label", str, where),
                float(_field(row, "probability", (int, float), where)),
                float(_field(row, "limit", (int, float), where)),
                tuple(messages),
            )
        )
    if not found:
        raise Wrong(f"{path} has no blocked message")
    return found if last is None else found[-last:]
