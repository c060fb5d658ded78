"""What comes with the package: the bundled model and characters. In a checkout they are in examples/chat."""

from __future__ import annotations

import glob
import os
from typing import List, NamedTuple

from ._handle import Path
from ._library import checkout_path, package_path
from .errors import InputOutput, InvalidArgument, NotFound


def _folder(name: str) -> str:
    for path in (package_path("data", name), checkout_path("examples", "chat", name)):
        if path and os.path.isdir(path):
            return path
    raise NotFound(f"this copy of the package has no {name}: install the wheel, or give a path")


def model_path() -> str:
    """The bundled toy model, of 33.9 M parameters."""
    return os.path.join(_folder("model"), "kaiju-nano.safetensors")


def character_names() -> List[str]:
    """Names for Card.bundled."""
    files = glob.glob(os.path.join(_folder("characters"), "*.card"))
    return sorted(os.path.splitext(os.path.basename(file))[0] for file in files)


class Card(NamedTuple):
    """A character: its name, its description, and how it greets."""

    name: str
    description: str
    greeting: str = ""

    @property
    def text(self) -> str:
        """As a message with the role card has it."""
        return f"{self.name}\n{self.description}"

    @classmethod
    def bundled(cls, name: str) -> "Card":
        """One of character_names()."""
        name = name.lower()
        if name not in character_names():
            raise NotFound(f"no bundled character is named {name!r}; there are {', '.join(character_names())}")
        return cls.load(os.path.join(_folder("characters"), name + ".card"))

    @classmethod
    def load(cls, path: Path) -> "Card":
        """Reads a card file: lines 'name: ...' and 'greeting: ...', an empty line, then a description."""
        shown = os.fsdecode(path)
        try:
            with open(path, encoding="utf-8-sig") as file:
                text = file.read(1 << 20)
        except OSError as error:
            raise InputOutput(f"{shown}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise InvalidArgument(f"{shown}: not UTF-8; save the card as UTF-8") from None
        header, _, description = text.replace("\r\n", "\n").partition("\n\n")
        fields = {}
        for number, line in enumerate(header.split("\n"), 1):
            key, colon, value = line.partition(":")
            if not colon or key.strip().lower() not in ("name", "greeting"):
                raise InvalidArgument(f"{shown}:{number}: a card begins with lines 'name: ...' and 'greeting: ...', "
                                      "then an empty line and a description")
            fields[key.strip().lower()] = value.strip()
        if not fields.get("name") or not description.strip():
            raise InvalidArgument(f"{shown}: a card needs a line 'name: ...', an empty line and a description")
        return cls(fields["name"], description.strip(), fields.get("greeting", ""))
