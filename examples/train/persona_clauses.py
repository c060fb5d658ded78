"""Facts that are clauses, so that a character learns to change the person: "His secret is that he lost his key" becomes "I lost my key".

phrases/clauses_*.txt, a fact a line: kind | verb phrase after he, she or it | verb phrase after I. In the first, {P} {O} {R} {S} stand for his,
him, himself, he; both may have the slots of written_talk.py. What follows here is how cards state each kind and how users ask for it; {S} {P}
are the subject and its possessive, {v} the verb phrase in the card's person.
"""
import re

import persona_values as V
import written_talk
from persona_grammar import cap, compile_phrase, say
from persona_language import phrase_files

STATED = {
    "secret": ("{P} secret is that {S} {v}", "Nobody knows that {S} {v}", "{S} {v}, which is {P} secret", "Secretly {S} {v}"),
    "habit": ("{S} {v}", "It is {P} habit that {S} {v}", "As a rule {S} {v}"),
    "dream": ("{S} {v}", "Some day or other, {S} {v}"),
    "regret": ("{P} great regret is that {S} {v}", "It still pains {O} that {S} {v}", "To {P} sorrow {S} {v}"),
    "past": ("{S} {v}", "Before all this, {S} {v}", "Years ago {S} {v}"),
    "talent": ("{S} {v}", "Everybody says that {S} {v}"),
    "belief": ("{S} {v}", "Say what you like, {S} {v}"),
    "work": ("{S} {v}", "{P} work is that {S} {v}", "All day long {S} {v}"),
    "quirk": ("{S} {v}", "Oddly enough, {S} {v}", "People smile because {S} {v}"),
    "promise": ("{S} {v}", "Word of honour, {S} {v}", "Come what may, {S} {v}"),
}
ASKED = {
    "secret": ("what[ is|'s] your secret", "do you have [a secret|any secrets]", "tell me [a|your] secret", "what does nobody know about you", "what are you hiding", "what don't you tell people", "can you share a secret with me"),
    "habit": ("do you have any habits", "what[ is|'s] a habit of yours", "what do you do [day after day|all the time|again and again]", "anything you do as a habit"),
    "dream": ("what do you dream of", "what would you like to do one day", "[do you have|what are] your dreams for the future", "what do you still want to do", "what do you hope for"),
    "regret": ("do you regret anything", "what[ is|'s] your [biggest |]regret", "what would you do otherwise if you could", "is there anything you wish undone"),
    "past": ("what did you do before", "what were you before this", "tell me about your past", "what[ is|'s] behind you", "how was your life earlier"),
    "talent": ("what are you good [or bad |]at", "do you have [a talent|any talents]", "what do people say you do well or badly", "any hidden talents"),
    "belief": ("what do you believe", "what are you sure of", "do you believe in anything", "what would you bet your hat on"),
    "work": ("what do you do at work", "what does your work look like", "what do you do all day", "tell me about your work", "how do you spend your working day"),
    "quirk": ("what[ is|'s] odd about you", "do you have any quirks", "what do people find strange about you", "anything peculiar about you"),
    "promise": ("did you ever make a promise", "what have you promised", "is there a promise you keep", "what did you swear"),
}
ANSWERED = {
    "secret": ("My secret is that I {v}", "I {v}. [Don't tell anyone|Keep it to yourself|Now you know]", "Between us, I {v}", "Nobody knows it, but I {v}"),
    "habit": ("I {v}", "I {v}, like it or not", "My habit is that I {v}"),
    "dream": ("I {v}", "One day... I {v}", "My dream? I {v}"),
    "regret": ("I {v}", "I regret that I {v}", "That I {v}. [It still hurts|I think of it often]"),
    "past": ("I {v}", "Before this, I {v}", "In another life I {v}"),
    "talent": ("I {v}", "They say I {v}", "Well, I {v}"),
    "belief": ("I {v}", "You may laugh, but I {v}"),
    "work": ("I {v}", "My work? I {v}", "Most days I {v}"),
    "quirk": ("I {v}", "People find it odd that I {v}", "I {v}, and why not"),
    "promise": ("I {v}", "I {v}, and I mean it"),
}
PRONOUNS = {"he": ("he", "his", "him", "himself"), "she": ("she", "her", "her", "herself"), "they": ("they", "their", "them", "themselves"), "you": ("you", "your", "you", "yourself"), "I": ("I", "my", "me", "myself")}
YOURS = {"my": "your", "me": "you", "myself": "yourself", "I": "you"}
STATED, ASKED, ANSWERED = ({kind: [compile_phrase(text) for text in texts] for kind, texts in table.items()} for table in (STATED, ASKED, ANSWERED))


def parse(text):
    found = {}
    for line in text.splitlines():
        kind, third, first = (part.strip() for part in line.split("|"))
        found.setdefault(kind, []).append((compile_phrase(third), compile_phrase(first)))
    return found


CLAUSES = {}
for _text in phrase_files("clauses"):
    for _kind, _lines in parse(_text).items():
        CLAUSES.setdefault(_kind, []).extend(_lines)
KINDS = sorted(CLAUSES)


class _Drawn(dict):
    """Slots that are drawn when they are met."""

    def __init__(self, r, pronouns):
        super().__init__(zip("SPOR", pronouns))
        self.r = r

    def __missing__(self, slot):
        self[slot] = V.an(self["an1"]) if slot == "aan1" else written_talk.DRAW[slot](self.r, 0)
        return self[slot]


def yours(first):
    """The phrase after I as it stands after you."""
    text = re.sub(r"\b(my|me|myself|I)\b", lambda m: YOURS[m.group()], first)
    return re.sub(r"^(am|was)\b", lambda m: {"am": "are", "was": "were"}[m.group()], text)


def draw(r, who):
    """(kind, the card's sentence, questions, the answers, the phrase after I); who: "I", "you", "he", "she" or "they"."""
    kind = V.one(r, KINDS)
    third, first = V.one(r, CLAUSES[kind])
    slots = _Drawn(r, PRONOUNS[who if who in ("he", "she") else "he"])
    said, mine = say(third, r, slots), say(first, r, slots)
    phrase = {"I": mine, "you": yours(mine)}.get(who, said)
    stated = dict(zip("SPOR", PRONOUNS[who]), v=phrase)
    return kind, cap(say(V.one(r, STATED[kind]), r, stated)) + ".", ASKED[kind], ANSWERED[kind], mine
