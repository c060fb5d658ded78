"""python -m kaiju chat: a conversation on a terminal, from a pipe, or as scripted turns."""

from __future__ import annotations

import argparse
import os
import random
import sys
from typing import Any, Dict, Iterator, Optional

from .bundled import Card, character_names
from .conversation import Conversation
from .errors import Error, InvalidArgument
from .model import Model
from .stream import Stream

_HELP = """\
  /retry     another reply
  /edit TEXT say this instead of the last message
  /undo      forget the last turn
  /quit      leave (Ctrl-D does, too); Ctrl-C stops a reply"""


def _card(read: argparse.Namespace) -> Optional[Card]:
    if read.character:
        is_file = os.path.exists(read.character) or os.sep in read.character
        return Card.load(read.character) if is_file else Card.bundled(read.character)
    return None if read.model or read.system else Card.bundled(character_names()[0])


class _Chat:
    def __init__(self, read: argparse.Namespace, talk: Conversation, terminal: bool):
        self.talk, self.terminal = talk, terminal
        seed = read.seed
        if seed is None:
            seed = random.getrandbits(63) if terminal else 0
        self.sampling: Dict[str, Any] = {
            "seed": seed, "max_tokens": read.max_tokens, "temperature": read.temperature, "top_p": read.top_p,
            "min_p": read.min_p, "top_k": read.top_k, "repetition_penalty": read.repetition_penalty, "loop_guard": 1}

    def show(self, stream: Stream) -> None:
        try:
            for text in stream:
                print(text, end="", flush=True)
        except KeyboardInterrupt:
            if not self.terminal:
                raise
        print("\n" if self.terminal else "", flush=True)

    def line(self, text: str) -> bool:
        """False to leave."""
        command, _, rest = text.strip().partition(" ")
        if not command:
            return True
        if not command.startswith("/"):
            self.show(self.talk.stream(text, **self.sampling))
        elif command in ("/quit", "/exit", "/q"):
            return False
        elif command == "/help":
            print(_HELP)
        elif command in ("/retry", "/swipe"):
            self.show(self.talk.stream_swipe(**self.sampling))
        elif command == "/undo":
            self.talk.undo()
        elif command == "/edit":
            if not rest.strip():
                raise InvalidArgument("give the new message after /edit")
            self.talk.edit(int(self.talk.describe().turns) - 1, rest)
            self.show(self.talk.stream_swipe(**self.sampling))
        else:
            raise InvalidArgument(f"no command {command}; /help lists them")
        return True


def _lines(terminal: bool) -> Iterator[str]:
    if not terminal:
        for line in sys.stdin.buffer:
            yield line.decode(errors="replace").rstrip("\r\n")
        return
    try:
        import readline  # noqa: F401  # edits the line
    except ImportError:
        pass
    while True:
        try:
            yield input("> ")
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return


def run(read: argparse.Namespace) -> int:
    if read.list:
        for name in character_names():
            shown = Card.bundled(name)
            print(f"{name:<14} {shown.name:<14} {shown.greeting}")
        return 0
    terminal = not read.say and sys.stdin.isatty() and sys.stdout.isatty()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    card = _card(read)
    model = Model(read.model)
    engine = model.engine(max_running=2, threads=read.threads, backend=read.backend)
    talk = engine.conversation(card=card, system=read.system)
    chat = _Chat(read, talk, terminal)
    if terminal:
        print(f"You are talking to {card.name if card else model.name}. /help lists the commands, Ctrl-D leaves.\n")
        if card and card.greeting:
            print(card.greeting + "\n")
        if card and card.asks:
            print("You might ask: " + "  ".join(card.asks) + "\n")
    failed = False
    for text in read.say or _lines(terminal):
        try:
            if not chat.line(text):
                break
        except Error as error:
            print(f"python -m kaiju: {error}", file=sys.stderr)
            failed = True
            if read.say:
                break
    return int(failed and not terminal)
