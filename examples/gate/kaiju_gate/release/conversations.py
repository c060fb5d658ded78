"""Conversations of eight turns: what users say, drawn from the held-out language of examples/train, and what they ask.

Three tiers. `user-created` cards have few facts, `official` ones many; in `mature` conversations every second turn is
one of the adult messages of the gate's sets that are intense but fine."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable

from ..sets import FOLDER, FROZEN, read_sets
from .train_folder import module

TIERS = ("user-created", "official", "mature")
_ACTS = {
    "user-created": ("small", "fact", "tell", "fact", "small", "told", "goal", "goal"),
    "official": ("fact", "small", "fact", "fact", "goal", "tell", "told", "goal"),
    "mature": ("scene", "fact", "scene", "goal", "scene", "fact", "scene", "goal"),
}
TURNS = 8
_FACTS = {"user-created": (2, 5), "official": (7, 12), "mature": (3, 7)}  # of a card, beside its goals
_GOALS = ("dream", "quest")  # kinds of facts that a character strives for
_SCENES = ("fiction_violence", "drama", "romance", "horror", "anger")
_SEED = 20_100_003  # no training run uses it


@dataclasses.dataclass(frozen=True)
class Ask:
    aspect: str  # "backstory" or "goals"
    answers: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Conversation:
    id: str
    tier: str
    card: str
    says: tuple[str, ...]  # the user, turn by turn
    asks: tuple[Ask | None, ...]  # what each turn asks, where its answer is known


class _Unclear(Exception):
    """Chance made a question that answers itself, or one with two answers."""


@functools.lru_cache(None)
def _scenes() -> list[str]:
    items = read_sets([FROZEN[1], FOLDER + "/sets/calibration.jsonl"])
    return [item.messages[-1][1] for item in items if item.tier == "adult" and item.how in _SCENES]


class _Draft:
    """One conversation in the making."""

    def __init__(self, tier: str, random: Callable[[], float]):
        persona = module("persona_eval")
        self._accepted, self._is_right = persona.accepted, persona.is_right
        self._random, self._talker = random, persona.Held(random)
        make = module("persona_card").MAKE
        for kind in _GOALS:
            self._talker.facts[kind] = make[kind](random, self._talker.side, None)
        least, most = _FACTS[tier]
        self._talker.draw_facts(len(_GOALS) + least + int(random() * (most - least + 1)))
        self.card = self._talker.name + "\n" + self._talker.write_card()
        self._left = [kind for kind in self._talker.facts if kind not in (*_GOALS, "name")]
        self._goals = list(_GOALS)
        self._told = ""

    def _one(self, choices: list[Any]) -> Any:
        return choices[int(self._random() * len(choices))]

    def _taken(self, kinds: list[str]) -> str:
        kind = self._one(kinds)
        kinds.remove(kind)
        return kind

    def _asked(self, kind: str, source: Any, facts: Any, shown: str) -> tuple[str, tuple[str, ...]]:
        """A question for a fact, with its answers; `shown` is where the fact stands."""
        field = self._one(list(source[kind].asks))
        answers = self._accepted(kind, field, facts[kind])
        question = self._talker.question(kind, field, source, facts[kind])
        others = [value for name, slots in facts.items() if name != kind for value in slots.values()]
        if (
            self._is_right(question, answers)
            or not self._is_right(shown, answers)
            or any(isinstance(value, str) and self._is_right(value, answers) for value in others)
        ):
            raise _Unclear
        return question, tuple(answers)

    def small(self) -> tuple[str, None]:
        before = len(self._talker.turns)
        self._talker.small()
        return self._talker.turns[before][1], None

    def scene(self) -> tuple[str, None]:
        return self._one(_scenes()), None

    def tell(self) -> tuple[str, None]:
        before = len(self._talker.turns)
        self._told = self._talker.tell()
        return self._talker.turns[before][1], None

    def fact(self, kinds: list[str] | None = None, aspect: str = "backstory") -> tuple[str, Ask]:
        kind = self._taken(self._left if kinds is None else kinds)
        question, answers = self._asked(kind, self._talker.language.kinds, self._talker.facts, self.card)
        return question, Ask(aspect, answers)

    def goal(self) -> tuple[str, Ask]:
        return self.fact(self._goals, "goals")

    def told(self) -> tuple[str, Ask]:
        talker = self._talker
        shown = " ".join(text for role, text, _ in talker.turns if role == "user")
        question, answers = self._asked(self._told, talker.language.told, talker.told, shown)
        return question, Ask("backstory", answers)


def _draw(tier: str, number: int) -> Conversation:
    attempt = 0
    while True:
        seed = _SEED + attempt * 1009 + TIERS.index(tier)
        draft = _Draft(tier, module("persona_eval").new_random(seed, number).random)
        attempt += 1
        try:
            turns = [getattr(draft, act)() for act in _ACTS[tier]]
        except _Unclear:
            continue
        says, asks = zip(*turns)
        return Conversation(f"{tier}-{number:03}", tier, draft.card, says, asks)


def conversations(count: int) -> list[Conversation]:
    """`count` of each tier, the same ones every time."""
    return [_draw(tier, number) for tier in TIERS for number in range(count)]
