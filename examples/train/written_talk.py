"""Exchanges written by hand: small talk in short turns (phrases/talk_*.txt) and in whole ones, of several sentences (phrases/turns_*.txt),
and texts with safety labels (phrases/safety_*.txt).

A topic is all the ways to say one thing and all the answers that fit any of them, an item a line:
  > name          begins a topic; of a safety topic, the labels that hold for its u lines (safety.py), or "fine"
  p user // character   what was said before, in order (safety topics)
  u what the user says      c what the character answers      then U and C, in blocks: how the talk goes on
[a|b] chooses, {slot} is drawn once for a topic; what the user names, answers name again.
"""
import re

import persona_values as V
from persona_grammar import compile_phrase, say, slots_of
from persona_language import phrase_files

KIN = "sister brother mother father aunt uncle cousin grandmother grandfather niece nephew friend neighbour colleague".split()
HOBBY = ("painting,fishing,dancing,knitting,chess,gardening,running,swimming,baking,singing,sewing,cycling,hiking,reading,woodwork,pottery,juggling,archery,photography,"
         "climbing,birdwatching,sailing,skating,yoga,writing,drawing,rowing,stargazing,camping,riding").split(",")


class Topic:
    def __init__(self, name):
        self.name, self.before, self.said, self.answers, self.more = name, [], [], [], []

    def close(self):
        nodes = [*self.said, *self.answers, *(n for pair in self.before for n in pair), *(n for block in self.more for side in block for n in side)]
        self.slots = sorted(set().union(*map(slots_of, nodes)))
        return self


def parse(text):
    topics = []
    for line in text.splitlines():
        code, rest = line[0], line[2:]
        if code == ">":
            topics.append(Topic(rest.strip()))
            continue
        topic = topics[-1]
        if code == "p":
            topic.before.append(tuple(compile_phrase(part) for part in rest.split(" // ")))
        elif code in "uc":
            (topic.said if code == "u" else topic.answers).append(compile_phrase(rest))
        else:
            if code == "U" and (not topic.more or topic.more[-1][1]):
                topic.more.append(([], []))
            topic.more[-1]["UC".index(code)].append(compile_phrase(rest))
    return [t.close() for t in topics]


TALK = [topic for text in phrase_files("talk") for topic in parse(text)]
WHOLE_TURNS = [topic for text in phrase_files("turns") for topic in parse(text)]
SAFETY = [topic for text in phrase_files("safety") for topic in parse(text)]

DRAW = {"n1": V.given, "n2": V.given, "p1": V.town, "p2": V.town, "ob": lambda r, s: V.pick(r, V.OBJECT, s), "an1": lambda r, s: V.pick(r, V.ANIMAL, s), "aj": lambda r, s: V.pick(r, V.ADJ, s),
        "pl": lambda r, s: V.pick(r, V.GERUND_OBJ, s), "fd": V.food, "kin": lambda r, s: V.one(r, KIN), "trade": V.trade, "day": lambda r, s: V.pick(r, V.WEEKDAY, s),
        "num": lambda r, s: str(V.number(r, s, 2, 99)), "hobby": lambda r, s: V.one(r, HOBBY), "ath": lambda r, s: V.an(V.thing(r, s))}


def draw(r, topic, name, side=0):
    """Values for the slots of a topic; name: the character's own."""
    slots = {"name": name}
    for slot in topic.slots:
        if slot == "aan1":
            slots["aan1"] = V.an(slots.setdefault("an1", DRAW["an1"](r, side)))
        elif slot not in slots:
            slots[slot] = DRAW[slot](r, side)
    return slots


def said_with(node, r, slots):
    """say(), and "an" where a slot begins with a vowel."""
    return re.sub(r"\b([Aa]) (?=(?!one\b|one-|eu|use)[aeio])", r"\1n ", say(node, r, slots))


def typed(r, text):
    """As somebody types it: now and then without capitals or the last mark."""
    x = r()
    if x < 0.35:
        return text[:1].upper() + text[1:] + ("" if text[-1:] in ".?!*)" else ".")
    if x < 0.5:
        return text.rstrip(".")
    return text.lower() if x < 0.58 else text


def exchanges(r, topic, name, side=0, go_on=0.85):
    """[(what the user says, what the character answers)] of one topic."""
    slots = draw(r, topic, name, side)
    pairs = [(typed(r, said_with(V.one(r, topic.said), r, slots)), said_with(V.one(r, topic.answers), r, slots))]
    for said, answers in topic.more:
        if r() > go_on:
            break
        pairs.append((typed(r, said_with(V.one(r, said), r, slots)), said_with(V.one(r, answers), r, slots)))
    return pairs
