"""What comes with the package: the bundled model, gate and characters. In a checkout they are in examples/chat."""

from __future__ import annotations

import difflib
import glob
import os
from typing import Dict, List, NamedTuple, Tuple

from ._handle import Path
from ._library import checkout_path, package_path, prefix_path
from .errors import InputOutput, InvalidArgument, NotFound


def _folder(name: str) -> str:
    for path in (package_path("data", name), checkout_path("examples", "chat", name), prefix_path("share", "kaiju", name)):
        if path and os.path.isdir(path):
            return path
    raise NotFound(f"this copy of the package has no {name}: install the wheel, or give a path")


def model_path() -> str:
    """The bundled toy model, of 34.0 M parameters."""
    return os.path.join(_folder("model"), "kaiju-nano.safetensors")


def gate_path() -> str:
    """The bundled gate, a linear model that judges a message in English."""
    return os.path.join(_folder("model"), "kaiju-gate.safetensors")


def character_names() -> List[str]:
    """Names for Card.bundled."""
    files = glob.glob(os.path.join(_folder("characters"), "*.card"))
    return sorted(os.path.splitext(os.path.basename(file))[0] for file in files)


class Card(NamedTuple):
    """A character: its name, description and greeting, and questions to ask it, which the model never sees."""

    name: str
    description: str
    greeting: str = ""
    asks: Tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As a message with the role card has it."""
        return f"{self.name}\n{self.description}"

    @classmethod
    def bundled(cls, name: str) -> "Card":
        """One of character_names()."""
        name = name.lower()
        if name not in character_names():
            close = difflib.get_close_matches(name, character_names(), 1)
            meant = f"did you mean {close[0]!r}? There" if close else "there"
            raise NotFound(f"no bundled character is named {name!r}; {meant} are {', '.join(character_names())}")
        return cls.load(os.path.join(_folder("characters"), name + ".card"))

    @classmethod
    def load(cls, path: Path) -> "Card":
        """Reads a card file: lines 'name: ...', 'greeting: ...' and 'ask: ...', an empty line, then a description."""
        shown = os.fsdecode(path)
        try:
            with open(path, encoding="utf-8-sig") as file:
                text = file.read(1 << 20)
        except OSError as error:
            raise InputOutput(f"{shown}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise InvalidArgument(f"{shown}: not UTF-8; save the card as UTF-8") from None
        header, _, description = text.replace("\r\n", "\n").partition("\n\n")
        fields: Dict[str, str] = {}
        asks: List[str] = []
        for number, line in enumerate(header.split("\n"), 1):
            key, colon, value = line.partition(":")
            if not colon or key.strip().lower() not in ("name", "greeting", "ask"):
                raise InvalidArgument(f"{shown}:{number}: a card begins with lines 'name: ...', 'greeting: ...' "
                                      "and 'ask: ...', then comes an empty line and a description")
            if key.strip().lower() == "ask":
                asks.append(value.strip())
                continue
            fields[key.strip().lower()] = value.strip()
        if not fields.get("name") or not description.strip():
            raise InvalidArgument(f"{shown}: a card needs a line 'name: ...', an empty line and a description")
        return cls(fields["name"], description.strip(), fields.get("greeting", ""), tuple(asks))
