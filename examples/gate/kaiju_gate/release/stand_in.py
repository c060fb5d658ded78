"""A judge that asks no other model: rules of thumb for English replies, and the known answers of what was asked.

It sees that a model broke. It does not see whether a sound reply is a good one: `kaiju-gate judge` says how far it
agrees with people."""

from __future__ import annotations

import functools
import glob
import os
import re
from collections import Counter
from typing import Sequence

from .playing import Played
from .questions import is_right
from .train_folder import TRAIN
from .verdicts import Verdict, score_of

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_OUT_OF_ROLE = re.compile(r"\b(?:as an ai|language model|i am an ai|i'm an ai|user:|assistant:|<\||\[inst)", re.I)
_KNOWN_SHARE = 0.7  # of a reply's words; names and new words are the rest
_SAID_AGAIN = 4  # words: shorter replies may come twice
_RUN, _RUNS = 3, 3  # a run of three words that comes three times is a loop


@functools.lru_cache(None)
def _vocabulary() -> frozenset[str]:
    """The words of the phrases that examples/train has."""
    words: set[str] = set()
    for path in glob.glob(os.path.join(TRAIN, "phrases", "*.txt")):
        with open(path, encoding="utf-8") as file:
            words.update(_WORD.findall(file.read().lower()))
    return frozenset(words)


def _loops(words: Sequence[str]) -> bool:
    runs = Counter(tuple(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1))
    return bool(runs) and max(runs.values()) >= _RUNS


def faults(text: str, ended: bool, earlier: Sequence[str], shown: str) -> list[str]:
    """What is wrong with a reply. shown: the card and what the user said, whose words are known."""
    words = _WORD.findall(text.lower())
    if not words:
        return ["empty"]
    known = _vocabulary() | set(_WORD.findall(shown.lower()))
    found = []
    if not ended:
        found.append("has no end")
    if sum(word in known for word in words) < _KNOWN_SHARE * len(words) or "\ufffd" in text:
        found.append("is no English")
    if _loops(words):
        found.append("repeats itself")
    if len(words) >= _SAID_AGAIN and text.lower() in (other.lower() for other in earlier):
        found.append("was said before")
    if _OUT_OF_ROLE.search(text):
        found.append("leaves the role")
    return found


def _share(played: Played, aspect: str) -> float | None:
    """Of what was asked about the aspect, the share that the reply answers."""
    right = [
        is_right(said.text, ask.answers)
        for ask, said in zip(played.conversation.asks, played.replies)
        if ask and ask.aspect == aspect
    ]
    return sum(right) / len(right) if right else None


class StandIn:
    name = "stand-in"

    def __call__(self, played: Sequence[Played]) -> list[Verdict]:
        return [self._one(each) for each in played]

    def _one(self, played: Played) -> Verdict:
        shown = " ".join([played.conversation.card, *played.conversation.says])
        texts = [said.text for said in played.replies]
        sound = [not faults(said.text, said.ended, texts[:at], shown) for at, said in enumerate(played.replies)]
        shares = [_share(played, aspect) for aspect in ("backstory", "goals")]
        backstory, goals = (score_of(share) if share is not None else None for share in shares)
        return Verdict(score_of(sum(sound) / len(sound)), backstory, goals)
