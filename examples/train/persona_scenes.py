"""Written scenes: characters whose cards, facts, questions and small talk were composed as a whole, with only the values drawn.

phrases/scenes_*.txt, one item a line (asked_*.txt has more questions for the same scenes):
  = title       slot NAME: option | option (@given, @town ... stand for drawn words)      card text with {NAME}, \\n for a new line
  fact NAME     then q question and a answer lines; a card has three wordings of the same facts
  told NAME: options     then T what the user says, k what the character replies, q, a        u, c  a pair of small talk
Options with a word that is kept for the held-out set are not used, nor are questions that are held out.
"""
import re

import persona_values as V
from persona_noise import FUNCTION
from persona_grammar import cap, compile_phrase, plain, say, surfaces
from persona_language import BASE, phrase_files
from persona_card import MANNERS
from persona_talker import Talker

DRAW = {"given": V.given, "person": lambda r, s: V.given(r, s) + " " + V.surname(r, s), "surname": V.surname, "town": V.town, "food": V.food,
        "animal": lambda r, s: V.pick(r, V.ANIMAL, s), "plant": lambda r, s: V.pick(r, V.PLANT, s), "trade": V.trade, "colour": V.colour,
        "word": V.word, "adj": lambda r, s: V.pick(r, V.ADJ, s), "made": V.made_name, "thing": V.thing}
GENERATOR = re.compile("@(" + "|".join(DRAW) + r"|number\((\d+), ?(\d+)\))")
PLAIN = next(m for m in MANNERS if m["name"] == "plain")


class Fact:
    def __init__(self):
        self.options, self.q, self.a, self.T, self.k, self.asked = [], [], [], [], [], []


class Scene:
    def __init__(self):
        self.slots, self.cards, self.texts, self.facts, self.told, self.chat = {}, [], [], {}, {}, []


HELD_QUESTIONS = {plain(form) for kinds in (BASE.kinds, BASE.told) for kind in kinds.values() for ask in kind.asks.values() for node in ask.q.side(1) for form in surfaces(node)}
HELD_NUMBERS = {V.spelled(n) for n in range(100) if V.held(str(n))}


def is_held(option):
    words = set(re.findall(r"(?<!@)\b[a-z]{3,}|\d+", option.lower())) - FUNCTION
    return bool(re.search(r"\d:\d", option)) or any(V.held(w) or w[-1] == "s" and V.held(w[:-1]) for w in words) or any(w in HELD_NUMBERS for w in re.findall(r"[a-z-]+", option.lower()))


def options_of(text):
    """Those without a held-out word; all, where that leaves none."""
    options = [option.strip() for option in text.split("|") if option.strip()]
    return [o for o in options if not is_held(o)] or options


def parse_scenes(text, scenes=None, weight=1):
    """{title: scene}; with `scenes`, blocks add to those. Every line counts `weight` times when one is drawn."""
    scenes, scene, fact = {} if scenes is None else scenes, None, None
    for line in text.splitlines():
        code, rest = line.split(" ", 1)
        if code == "=":
            scene = scenes[rest] = scenes.get(rest) or Scene()
        elif code == "slot":
            name, options = rest.split(":", 1)
            scene.slots[name.strip()] = options_of(options)
        elif code == "card":
            scene.texts.append(rest.replace("\\n", "\n"))
            scene.cards.append(compile_phrase(scene.texts[-1]))
        elif code == "fact":
            fact = scene.facts[rest.strip()] = scene.facts.get(rest.strip()) or Fact()
        elif code == "told":
            name, options = rest.split(":", 1)
            fact = scene.told[name.strip()] = Fact()
            fact.options = options_of(options)
        elif code == "u":
            scene.chat.append((compile_phrase(rest), []))
        elif code == "c":
            scene.chat[-1][1].append(compile_phrase(rest))
        else:
            phrase = compile_phrase(rest)
            if code != "q" or not HELD_QUESTIONS.intersection(map(plain, surfaces(phrase))):
                getattr(fact, code).extend([phrase] * weight)
                if code == "q":
                    fact.asked.extend([rest] * weight)
    return scenes


def all_scenes():
    scenes = {}
    for text in phrase_files("scenes"):
        parse_scenes(text, scenes)
    for text in phrase_files("asked"):  # plain questions, the ones that people put first
        parse_scenes(text, scenes, weight=2)
    return list(scenes.values())


SCENES = all_scenes()


def draw(r, options):
    def replace(m):
        if m.group(2):
            return str(V.number(r, 0, int(m.group(2)), int(m.group(3))))
        return DRAW[m.group(1)](r, 0)
    return GENERATOR.sub(replace, V.one(r, options))


class SceneTalker(Talker):
    """A chat in one scene. What the user tells may also be of the general kinds."""

    def __init__(self, r, bank=None):
        super().__init__(r, 0, bank)
        self.manner, self.addr, self.catch = PLAIN, None, None
        self.scene = V.one(r, SCENES)
        self.slots = {name: draw(r, options) for name, options in self.scene.slots.items()}
        self.name = self.slots.setdefault("name", self.name)
        self.facts = {name: {"v": self.slots[name]} for name in self.scene.facts}
        self.next_small = 0

    def write_card(self):
        return say(V.one(self.r, self.scene.cards), self.r, self.slots)

    def card_fields(self, kind):
        return ["v"]

    def known_fields(self):
        return []  # none of the general kinds

    def told_fields(self, kind):
        return ["v"] if kind in self.scene.told else super().told_fields(kind)

    def put(self, fact):
        """The user asks for a fact of the scene, the character answers."""
        r = self.r
        question = self.prefaced(say(V.one(r, fact.q), r, self.slots))
        self.user(question.lower() if r() < 0.2 else question)
        self.add("char", cap(say(V.one(r, fact.a), r, self.slots)), 4)

    def ask_fact(self, kind=None, field=None):
        if kind is None:
            known = [k for k in self.scene.facts if k not in self.kept]
            fresh = [k for k in known if (k, "v") not in self.asked]
            if not known:
                return self.small()
            kind = V.one(self.r, fresh if fresh and self.r() < 0.9 else known)
        self.asked.add((kind, "v"))
        self.put(self.scene.facts[kind])

    def tell(self, kind=None, far=False):
        r = self.r
        left = [k for k in self.scene.told if k not in self.told]
        if not left or r() < 0.4:
            return super().tell(kind, far)
        kind = V.one(r, left)
        if far:
            self.kept.add(kind)
        fact = self.scene.told[kind]
        self.slots[kind] = draw(r, fact.options)
        self.told[kind] = {"v": self.slots[kind]}
        self.user(say(V.one(r, fact.T), r, self.slots))
        self.add("char", cap(say(V.one(r, fact.k), r, self.slots)), 3)
        return kind

    def ask_told(self, kind=None, field=None):
        r = self.r
        if kind is None:
            have = [k for k in self.told if k not in self.kept]
            if not have:
                return self.tell()
            kind = V.one(r, have)
        if kind not in self.scene.told:
            return super().ask_told(kind, field)
        self.put(self.scene.told[kind])

    def small(self):
        r = self.r
        if r() < 0.3 or self.next_small >= len(self.scene.chat):
            return super().small()
        user, answers = self.scene.chat[self.next_small]
        self.next_small += 1
        self.add("user", say(user, r, self.slots), 2)
        self.add("char", cap(say(V.one(r, answers), r, self.slots)), 3)

    def act(self):
        if self.talkative and self.r() < self.talkative:
            return self.talk()
        x = self.r()
        if x < 0.58:
            self.ask_fact()
        elif x < 0.68:
            self.tell()
        elif x < 0.80:
            self.ask_told()
        else:
            self.small()
