"""Cards put together from sentences of many scenes, so that nothing but its own words tells which fact answers a question.

A written scene (persona_scenes.py) is always met whole: a model may learn the scene instead of reading the card. Here its cards are taken
apart into sentences, and facts from scenes that have nothing to do with each other share a card: beside the facts of a scene, beside those of
general kinds, or on a card of guests alone.
"""
import functools
import re

import persona_clauses
import persona_values as V
from persona_grammar import cap, compile_phrase, say, slots_of, surfaces
from persona_language import BASE
from persona_noise import FUNCTION
from persona_scenes import SCENES, SceneTalker, draw
from persona_talker import Talker, ended

LEANING = re.compile(r"[a-z]|[QA]:|(It|This|That|These|Those|They|There|Then|So|But|And|Both|Neither|One of|The (other|second|first|latter|last|former)|Another|Here)\b")
LEANING_QUESTION = re.compile(r"(and|but|so) (the|that|your|his|her|how|what|who|where|when|which|which one|by|for|if|is|did|on|in|at|to)\b|the (other|first|second|last|one)\b", re.I)
FIRST, SECOND, THIRD = (re.compile(r"\b(" + words + r")\b", re.I) for words in ("I|I'm|my|me|mine|we|our", "you|your|you're|yours", "he|she|his|her|him|hers|they|their"))
SLOT = re.compile(r"\{(\w+)\}")
WORDS = range(4, 60)  # of a sentence
POINTERS = ("{k}?", "{k}, what about it?", "what's with {k}?", "What about {k}?", "Tell me about {k}.", "I heard something about {k}. What is it?", "{k}... remind me?", "There was something with {k}, what was it?",
            "and {k}?", "About {k}, what exactly?", "what was that about {k}", "{k}, go on", "How was that with {k}?", "say more about {k}", "you mentioned {k}?")
POINTER_SHARE = 0.12
MINE = {"i": "you", "i'm": "you're", "my": "your", "me": "you", "mine": "yours", "he": "you", "she": "you", "his": "your", "her": "your", "him": "you", "himself": "yourself", "herself": "yourself"}
ALIKE = 0.5  # of the fewer content words of two questions
CLAUSE_SHARE = 0.5  # of the cards may have clauses
CLEAR = 0.6  # of a fact's questions: what must be meant for it alone


def pieces(card):
    """Sentences and lines of one card wording, as written."""
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+|\n", card) if part.strip()]


def whole(piece):
    return all(piece.count(a) == piece.count(b) for a, b in ("[]", "()", "{}", "<>")) and piece.count('"') % 2 == 0


def content(text):
    return frozenset(re.findall(r"[a-z0-9']+", SLOT.sub(" ", text.lower()))) - FUNCTION - {"what", "which", "who", "where", "when", "how", "why", "tell", "did", "got", "name", "one"}


def person_of(text):
    """"first", "second", "third", or None where the sentence does not say."""
    return "first" if FIRST.search(text) else "second" if SECOND.search(text) else "third" if THIRD.search(text) or "{name}" in text else None


def mostly(card):
    """The person that a card speaks in most of the time."""
    return max(("third", THIRD), ("first", FIRST), ("second", SECOND), key=lambda person: len(person[1].findall(card)))[0]


class Guest:
    """A sentence of some scene and the facts it states: {fact name: (questions, answers, the questions' content words)}."""

    def __init__(self, scene, text, facts):
        self.scene, self.node, self.facts = scene, compile_phrase(text), facts
        self.slots = slots_of(self.node) - {"name"}
        self.person = person_of(text)


def guests_of(scene):
    found = []
    for text in dict.fromkeys(piece for card in scene.texts for piece in pieces(card)):
        stated = [name for name in SLOT.findall(text) if name in scene.facts]
        if not 1 <= len(set(stated)) <= 3 or len(stated) != len(set(stated)) or not whole(text) or LEANING.match(text) or len(text.split()) not in WORDS:
            continue
        allowed = set(stated) | {"name"}
        facts = {}
        for name in stated:
            fact = scene.facts[name]
            q = [(node, content(line)) for node, line in zip(fact.q, fact.asked) if slots_of(node) <= allowed - {name} and content(line) and not LEANING_QUESTION.match(line)]
            a = [node for node in fact.a if slots_of(node) <= allowed]
            if q and a:
                facts[name] = (q, a)
        if facts:
            found.append(Guest(scene, text, facts))
    return found


GUESTS = [guests for guests in map(guests_of, SCENES) if guests]


def pointer(r, sentence, value, card):
    """One to four words that stand near the value and nowhere else on the card, as the user would say them; None where there are none."""
    start = sentence.find(value)
    before, after = sentence[:start].split(), sentence[start + len(value):].split()
    words, n = (before[-6:], after[:6])[int(r() * 2)], 1 + int(r() * 4)
    first = int(r() * max(1, len(words) - n + 1))
    words = [w.strip(".,;:!?()\"'") for w in words[first:first + n]]
    if start < 0 or not all(words) or not any(len(w) > 3 and w.lower() not in FUNCTION and card.count(w) == 1 for w in words):
        return None
    return " ".join(MINE.get(w.lower(), w) for w in words)


class Host:
    """Mixed into a talker: facts of other scenes stand on its card, too."""

    def __init__(self, r, bank, guests):
        super().__init__(r, bank=bank)
        self.expected, self.guests, self.near = guests, {}, {}  # facts wanted; seated; {content word: the questions so far that have it, as sets of such words}

    def write_card(self):
        r, card = self.r, super().write_card()
        x = r()
        person = (person_of(card) if card else "third" if x < 0.6 else "second" if x < 0.8 else "first") if x < 0.9 else "any"
        mark = "\n" if card.count("\n") > card.count(". ") else " "
        parts = [part for part in re.split(r"(?<=[.!?]) |\n", card) if part]
        for words in self.own_questions():
            self.remember(words)
        for _ in range(6 * self.expected):
            if len(self.guests) >= self.expected:
                break
            for text in self.seat([g for g in V.one(r, GUESTS) if person in ("any", g.person) or g.person is None], 1 + int(r() * 3)):
                parts.insert(int(r() * (len(parts) + 1)), text)
        for _ in range(int(r() * 4) if r() < CLAUSE_SHARE else 0):
            at = int(r() * (len(parts) + 1))
            parts[at:at] = self.clause({"first": "I", "second": "you"}.get(mostly(card) if card else person, self.pronoun))
        if not card and r() < 0.15:
            mark = "\n"
        self.card = mark.join(parts) if self.guests else card
        return self.card

    def seat(self, guests, most):
        """Sentences of one scene for the card; their facts can be asked for from now on."""
        r, said, values = self.r, [], {}
        for guest in sorted(guests, key=lambda g: r())[:most]:
            if any(name in values for name in guest.facts):
                continue
            facts = {name: ([(node, words) for node, words in q if not self.is_near(words)], a) for name, (q, a) in guest.facts.items()}
            if any(len(q) < CLEAR * len(guest.facts[name][0]) for name, (q, a) in facts.items()):
                continue  # the card would answer one question twice
            for slot in sorted(guest.slots - values.keys()):
                values[slot] = draw(r, guest.scene.slots[slot])
            slots = dict(values, name=self.name)
            said.append(cap(say(guest.node, r, slots)))
            for name, (q, a) in facts.items():
                key = "%d:%s" % (len(self.guests), name)
                self.guests[key] = ([node for node, _ in q], a, slots, said[-1])
                self.facts[key] = {"v": values[name]}
                for _, words in q:
                    self.remember(words)
        return said

    def clause(self, who):
        """A sentence of persona_clauses.py for the card, in a list, and its fact, which can be asked for from now on; nothing where it would be unclear."""
        if who == "they":
            return []
        kind, sentence, asked, answers, phrase = persona_clauses.draw(self.r, who)
        questions = [node for node, words in zip(asked, words_of_clauses(kind)) if not any(map(self.is_near, words))]
        key = "clause:" + kind
        if key in self.guests or len(questions) < CLEAR * len(asked):
            return []
        self.guests[key] = (questions, answers, {"v": phrase}, sentence)
        self.facts[key] = {"v": phrase}
        for words in words_of_clauses(kind):
            for each in words:
                self.remember(each)
        return [sentence]

    def remember(self, words):
        for word in words:
            self.near.setdefault(word, set()).add(words)

    def is_near(self, words):
        """Whether a question with these content words might as well be meant for a fact seated before."""
        return any(len(words & other) > ALIKE * min(len(words), len(other)) for word in words for other in self.near.get(word, ()))

    def card_fields(self, kind):
        return ["v"] if kind in self.guests else super().card_fields(kind)

    def known_fields(self):
        return [c for c in super().known_fields() if c[0] not in self.guests]

    def ask_fact(self, kind=None, field=None):
        r = self.r
        if kind is None and self.guests:
            known = [k for k in self.guests if k not in self.kept]
            fresh = [k for k in known if (k, "v") not in self.asked]
            if known and r() < len(self.guests) / len(self.facts):
                kind = V.one(r, fresh if fresh and r() < 0.9 else known)
        if kind not in self.guests:
            return super().ask_fact(kind, field)
        self.asked.add((kind, "v"))
        questions, answers, slots, sentence = self.guests[kind]
        question = say(V.one(r, questions), r, slots)
        if kind.startswith("clause:"):
            question = (cap(question) if r() < 0.6 else question) + ("?" if r() < 0.85 else "")
        if r() < POINTER_SHARE:
            words = pointer(r, sentence, self.facts[kind]["v"], self.card)
            question = cap(V.one(r, POINTERS).format(k=words)) if words else question
        question = self.prefaced(question)
        self.user(question.lower() if r() < 0.2 else question)
        self.add("char", ended(cap(say(V.one(r, answers), r, slots))), 4)


class SceneHost(Host, SceneTalker):
    def own_questions(self):
        return [words for fact in self.scene.facts.values() for words in map(content, fact.asked)]


class KindHost(Host, Talker):
    def own_questions(self):
        return [words for kind in self.facts for words in words_of_kind(kind)]


@functools.cache
def words_of_clauses(kind):
    """Of each question for facts of this kind, the content words of its forms."""
    return [[content(form) for form in surfaces(node)] for node in persona_clauses.ASKED[kind]]


@functools.cache
def words_of_kind(kind):
    return {content(form) for ask in BASE.kinds[kind].asks.values() for node in ask.q.side(0) for form in surfaces(node)}
