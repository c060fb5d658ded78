"""One chat of a character (persona_card.py) in the making: asks, answers, tells, makes small talk."""
import re

import persona_talk
import persona_told
import persona_values as V
import written_talk
from persona_card import CARD_KINDS, MAKE, RELATED_TO, TITLES, Character
from persona_grammar import cap, compile_phrase, parse_lines, say, slots_of
from persona_language import BASE, RICH, phrase_file

TALE, UDAY, USHORT, FOLLOW, PARDON = (parse_lines(getattr(persona_talk, n)).side(0) for n in ("TALE", "UDAY", "USHORT", "FOLLOW", "PARDON"))
TOKENS_PER_WORD, TOKENS_PER_TURN = 1.35, 2.5  # measured with the bundled tokenizer on generated chats; see --check
TWO_AT_ONCE = 0.25  # share of the users' turns that say something else first
WHOLE_TURN_SHARE = 0.5  # of the written small talk
YOURS = {"u_name": "name", "u_town": "home", "u_job": "trade", "u_age": "age", "u_food": "food", "u_colour": "colour", "u_fear": "fear",
         "u_hobby": "hobby", "u_pet": "pet", "u_allergy": "allergy", "u_sister": "sister", "u_brother": "brother", "u_spouse": "spouse"}


def _parse_small(text):
    topics, topic = [], None
    for line in text.strip().splitlines():
        if line[0] == ">":
            topic = {"name": line[2:], "u": [], "c": [], "more": []}
            topics.append(topic)
        elif line[0] in "uc":
            topic[line[0]].append(compile_phrase(line[2:]))
        elif line[0] == "U":
            if not topic["more"] or topic["more"][-1][1]:
                topic["more"].append(([], []))
            topic["more"][-1][0].append(compile_phrase(line[2:]))
        else:
            topic["more"][-1][1].append(compile_phrase(line[2:]))
    return topics


SMALL = _parse_small(phrase_file("small_talk"))
OPEN_TOPICS = set("story day quote list who repeat choice hungry sums dreams news plans secret_ask strong".split())
SMALL_PICK = [t for t in SMALL for _ in range({"day": 6, "story": 5, "list": 3, "who": 3, "quote": 3, "choice": 2, "repeat": 2}.get(t["name"], 1))]


def _first_words(language):
    """First words of answers and small talk that are not names: they may be lower-cased after an opener that ends in a comma."""
    nodes = [a for kinds in (language.kinds, language.told) for k in kinds.values() for ask in k.asks.values() for a in ask.a.side(0)]
    nodes += language.deflect.side(0) + language.unknown.side(0)
    nodes += [c for t in SMALL for c in t["c"] + [c for m in t["more"] for c in m[1]]] + [c for k in language.told.values() for c in k.k.side(0)]
    words = set()

    def walk(node):
        for item in node[:2]:
            if item.__class__ is str:
                if item.strip():
                    words.add(item.split()[0].rstrip(".,!?"))
                    return
            elif item[0] == 0:
                for option in item[1]:
                    walk(option)
                if all(option for option in item[1]):
                    return
            else:
                return
    for node in nodes:
        walk(node)
    return {w for w in words if w[:1].isupper() and w not in ("I", "I'm", "I'd", "I've", "I'll")} | {"Yes", "No", "True", "Exactly", "Wrong", "Not", "Thanks", "All"}


for language in (BASE, RICH):
    language.lower_start = _first_words(language)
SENTENCE_START = re.compile(r"(?<=[^.][.?!] )[a-z]")
FORMAL = [(re.compile(r"\b" + a + r"\b"), b) for a, b in (("I'm", "I am"), ("I've", "I have"), ("I'd", "I would"), ("I'll", "I will"),
          ("It's", "It is"), ("it's", "it is"), ("don't", "do not"), ("can't", "cannot"), ("That's", "That is"), ("that's", "that is"),
          ("won't", "will not"), ("wouldn't", "would not"), ("isn't", "is not"), ("There's", "There is"), ("You're", "You are"),
          ("haven't", "have not"), ("You'd", "You would"), ("She's", "She is"), ("He's", "He is"), ("We've", "We have"))]


def self_contained(ask):
    """Answers that are understood without their question."""
    if not hasattr(ask, "alone"):
        ask.alone = [a for a in ask.a.side(0) if a[0].__class__ is str and a[0].startswith(("I ", "I'", "My ", "They call", "There's"))]
    return ask.alone


def ended(text):
    return text if text[-1:] in '.?!"' else text + "."


class Talker(Character):
    """One chat in the making: the character, what was told, and the turns so far."""

    def __init__(self, r, side=0, bank=None):
        super().__init__(r, side, bank)
        self.turns, self.tokens = [], 0.0
        self.told, self.asked, self.kept = {}, set(), set()  # kept: facts that filler must not touch
        self.talkative = 0.0  # share of its acts that is written small talk; persona.py sets it, held-out chats have none

    # ------------------------------------------------------------ turns
    def add(self, role, text, weight):
        self.turns.append((role, text, weight))
        self.tokens += TOKENS_PER_WORD * (text.count(" ") + 1) + TOKENS_PER_TURN

    def user(self, text):
        r = self.r
        x = r()
        if x < 0.10:
            text = text[:1].lower() + text[1:] if not text.startswith(("I ", "I'")) else text
        elif x < 0.16 and not any(c.isdigit() for c in text):
            text = text.rstrip("?.!") if text.count("?") < 2 else text
        elif x < 0.20:
            text = text.replace("?", "").rstrip(".") if text.endswith("?") and text.count("?") == 1 else text
        elif x < 0.22:
            text += V.one(r, (" :)", " ...", " please", " haha"))
        self.add("user", text, 2)

    def char(self, text, weight=3, plain=0.0):
        """The character says it in its own manner."""
        r, m = self.r, self.manner
        if r() >= plain:
            if m["name"] in ("formal", "robot", "old", "scholar"):
                if "'" in text:
                    for pattern, full in FORMAL:
                        text = pattern.sub(full, text)
            if self.addr and r() < 0.3:
                i = text.find(". ")
                i = i if i > 0 else len(text) - 1
                if text[i] in ".!?" and text[i - 1] not in '".!?' and i > 2:
                    text = text[:i] + ", " + self.addr + text[i:]
            if r() < 0.25:
                o = V.one(r, m["o"])
                if o[-1] in ",:" or o.endswith(" but"):
                    first = text.split(" ", 1)[0].rstrip(",.!?")
                    text = o + " " + (text[0].lower() + text[1:] if first in self.language.lower_start else text)
                else:
                    text = o + " " + cap(text)
            x = r()
            text = cap(text)
            if self.catch and x < 0.13:
                text = self.catch + " " + text if r() < 0.5 else text + " " + self.catch
            elif x < 0.28:
                text += " " + V.one(r, m["e"])
        if "?." in text or "!." in text:
            text = text.replace("?.", "?").replace("!.", "!")
        self.add("char", SENTENCE_START.sub(lambda m: m.group().upper(), cap(text)), weight)

    # ------------------------------------------------------------ questions and answers
    def question(self, kind, field, kinds=None, slots=None):
        r, side = self.r, self.side
        ask = (kinds or self.language.kinds)[kind].asks[field]
        slots = dict(slots or self.facts.get(kind) or MAKE[kind](r, side, self.bank))
        if "name" in self.kept:  # calling it by its name would give the answer away
            slots["call"] = V.one(r, ("friend", "my friend", "stranger", "you there"))
        else:
            slots["call"] = self.called()
        told = kinds is self.language.told
        frames = self.language.frame_u if told else self.language.frame_i
        x = r()
        if side:  # something in every held-out question is held out: the question, the clause or the frame
            if x < 0.5 or not (ask.i.side(0) or ask.n.side(0)):
                q = V.one(r, ask.q.side(1))
                frame = None if r() < 0.6 else V.one(r, self.language.frame_q.side(int(r() < 0.3)))
            elif x < 0.65 and ask.i.side(1):
                q, frame = None, V.one(r, frames.side(int(r() < 0.3)))
                slots["i"] = say(V.one(r, ask.i.side(1)), r, slots)
            elif x < 0.9 or not ask.n.side(0) or told:
                if not ask.i.side(0):
                    q, frame = V.one(r, ask.q.side(1)), None
                else:
                    q, frame = None, V.one(r, frames.side(1))
                    slots["i"] = say(V.one(r, ask.i.side(0)), r, slots)
            else:
                q, frame = None, V.one(r, self.language.frame_n.side(1))
                slots["n"] = say(V.one(r, ask.n.side(0)), r, slots)
        elif x < 0.66 or not ask.i.side(0):
            q, frame = V.one(r, ask.q.side(0)), None if r() < 0.5 else V.one(r, self.language.frame_q.side(0))
        elif x < 0.9 or not ask.n.side(0) or told:
            q, frame = None, V.one(r, frames.side(0))
            slots["i"] = say(V.one(r, ask.i.side(0)), r, slots)
        else:
            q, frame = None, V.one(r, self.language.frame_n.side(0))
            slots["n"] = say(V.one(r, ask.n.side(0)), r, slots)
        if q is not None:
            q = say(q, r, slots)
            if frame is None:
                return cap(q) + "?"
            slots["q"] = q
            text = say(frame, r, slots)
            if ". " + q in text or "! " + q in text or "? " + q in text:
                text = text.replace(" " + q, " " + cap(q), 1)
            return cap(text)
        return cap(say(frame, r, slots))

    def answer(self, kind, field, kinds=None, slots=None, tail=0.3):
        r, ask = self.r, (kinds or self.language.kinds)[kind].asks[field]
        slots = slots or self.facts[kind]
        text = say(V.one(r, ask.a.side(0)), r, slots)
        if text.count(". ") == 0 and r() < tail and ask.t.side(0) and self.manner["name"] != "gruff":
            text += " " + say(V.one(r, ask.t.side(0)), r, slots)
        return text

    def card_fields(self, kind):
        return list(self.language.kinds[kind].asks)

    def told_fields(self, kind):
        return list(self.language.told[kind].asks)

    def known_fields(self):
        return [(k, f) for k in self.facts for f in self.card_fields(k) if k not in self.kept]

    def ask_fact(self, kind=None, field=None):
        r = self.r
        if kind is None:
            choices = self.known_fields()
            fresh = [c for c in choices if c not in self.asked]
            if not choices:
                return self.small()
            kind, field = V.one(r, fresh) if fresh and r() < 0.93 else V.one(r, choices)
        x = r()
        ask = self.language.kinds[kind].asks[field]
        self.asked.add((kind, field))
        if x < 0.12 and ask.y.side(0) and not self.side:
            return self.yes_no(kind, field, ask)
        told = [u for u, k in YOURS.items() if k == kind and u not in self.told]
        if x < 0.2 and told and not self.side:  # "My favourite food is X. What's yours?"
            u = told[0]
            self.told[u] = persona_told.MAKE_TOLD[u](r, self.side, self.bank)
            tell = cap(say(V.one(r, self.language.told[u].T.side(0)), r, self.told[u])) + "."
            self.user(tell + V.one(r, (" And you?", " What about you?", " How about you?", " And yours?", " You?", " What's yours?")))
            ack = cap(say(V.one(r, self.language.told[u].k.side(0)), r, self.told[u])) + " " if r() < 0.4 else ""
            return self.char(ack + cap(self.answer(kind, field, tail=0.1)), 4)
        self.user(self.prefaced(self.question(kind, field)))
        self.char(self.answer(kind, field), 4)
        x = r()
        if x < 0.13 and ask.t.side(0):
            self.user(say(V.one(r, FOLLOW), r, {}))
            self.char(ended(say(V.one(r, ask.t.side(0)), r, self.facts[kind])))
        elif x < 0.16:
            self.user(say(V.one(r, PARDON), r, {}))
            self.char(V.one(r, ("", "", "I said: ", "As I said, ", "Listen. ")) + self.answer(kind, field, tail=0), 4, plain=0.6)

    def yes_no(self, kind, field, ask):
        r = self.r
        slots = dict(self.facts[kind])
        right = r() < 0.45
        value = slots[field]
        if not right:
            for _ in range(5):
                other = MAKE[kind](r, self.side, self.bank)
                if other[field] != value:
                    break
            slots["w"] = other[field]
            right = other[field] == value
        if right:
            slots["w"] = value
        slots["aw"] = V.an(slots["w"])
        text = cap(say(V.one(r, ask.y.side(0)), r, slots))
        if r() < 0.2:
            text = V.one(r, ("Tell me, ", "So, ", "Wait, ", "If I remember right... ", "Somebody told me something. ")) + (text if r() < 0.5 else text[0].lower() + text[1:])
        self.user(text + "?")
        answer = self.answer(kind, field, tail=0.15)
        if right:
            self.char(V.one(r, ("Yes. ", "Yes, that's right. ", "I am glad you remember. ", "That's right. ", "True. ", "Yes, yes. ", "Exactly. ")) + cap(answer), 4)
        else:
            start = V.one(r, ("No. ", "No, no. ", "Not at all. ", "No, you're mixing me up with someone. ", "Wrong. ", "Not {w}, no. ", "{w}? No. ", "Who told you that? "))
            self.char(cap(start.replace("{w}", slots["w"])) + cap(answer), 4)

    def several(self):
        r = self.r
        two = [c for c in self.known_fields()]
        if len(two) < 2:
            return self.small()
        (k1, f1), (k2, f2) = two[int(r() * len(two))], two[int(r() * len(two))]
        if (k1, f1) == (k2, f2):
            return self.ask_fact(k1, f1)
        if r() < 0.4:
            n = min(len(two), 2 + int(r() * 2))
            two = [(k, f) for k, f in two if self_contained(self.language.kinds[k].asks[f])]
            n = min(n, len(two))
            picks = [("name", "v")] if "name" not in self.kept and n else []
            while len(picks) < n:
                p = V.one(r, two)
                if p not in picks:
                    picks.append(p)
            self.user(V.one(r, ("Tell me about yourself.", "Tell me something about you.", "Who are you?", "I'd like to know you better.", "Introduce yourself, please.", "What should I know about you?", "Tell me a bit about your life.")))
            self.asked.update(picks)
            return self.char(" ".join(cap(say(V.one(r, self_contained(self.language.kinds[k].asks[f])), r, self.facts[k])) for k, f in picks), 4)
        q1, q2 = (say(V.one(r, self.language.kinds[k].asks[f].q.side(0)), r, self.facts[k]) for k, f in ((k1, f1), (k2, f2)))
        if "?" in q1 + q2 or "," in q1 + q2:
            return self.ask_fact(k1, f1)
        self.asked.update(((k1, f1), (k2, f2)))
        self.user(cap(q1) + V.one(r, (" and ", ", and ", "? And ")) + q2 + "?")
        self.char(self.answer(k1, f1, tail=0) + " " + cap(self.answer(k2, f2, tail=0.2)), 4)

    def unknown(self):
        r = self.r
        for _ in range(8):
            k = V.one(r, CARD_KINDS)
            if k not in self.facts and not RELATED_TO[k] & self.facts.keys():
                f = V.one(r, list(self.language.kinds[k].asks))
                slots = MAKE[k](r, self.side, self.bank)
                if k.startswith(("open", "past")) or k in ("tool", "pet", "lost", "treasure", "fact_number", "theft", "rel_a", "rel_b", "rel_c", "kin_likes") and f != list(self.language.kinds[k].asks)[0]:
                    continue
                self.user(self.question(k, f, slots=slots))
                ns = self.language.kinds[k].asks[f].n.side(0)
                node = V.one(r, self.language.deflect.side(0))
                if "f" in slots_of(node):
                    if not ns:
                        node = self.language.deflect.side(0)[0]
                    else:
                        said = say(V.one(r, ns), r, slots)
                        return self.char(say(node, r, {"f": cap(re.sub(r"\byou're\b", "I'm", re.sub(r"\byour\b", "my", re.sub(r"\byou\b", "I", said))))}), 3)
                return self.char(say(node, r, {}), 3)
        return self.small()

    def tell(self, kind=None, far=False):
        """Returns the kind of fact the user told; None when all have been."""
        r = self.r
        if kind is None:
            left = [k for k in self.language.told if k not in self.told]
            if not left:
                self.small()
                return None
            kind = V.one(r, left)
        self.told[kind] = slots = persona_told.MAKE_TOLD[kind](r, self.side, self.bank)
        if far:
            self.kept.add(kind)
        text = cap(say(V.one(r, self.language.told[kind].T.side(self.side)), r, slots))
        if text[-1] not in ".?!":
            text += V.one(r, (".", ".", "!", "."))
        note = cap(say(V.one(r, self.language.told[kind].k.side(0)), r, slots))
        free = [c for c in self.known_fields() if c not in self.asked]
        if free and r() < 0.12 and not far and not self.side:  # tells and asks in one breath
            k, f = V.one(r, free)
            self.asked.add((k, f))
            self.user(text + " " + self.question(k, f))
            self.char(note + " " + cap(self.answer(k, f, tail=0)), 4)
        else:
            self.user(text)
            self.char(note)
        return kind

    def ask_told(self, kind=None, field=None):
        r = self.r
        if kind is None:
            have = [k for k in self.told if k not in self.kept]
            if not have:
                return self.tell()
            kind = V.one(r, have)
        field = field or V.one(r, self.told_fields(kind))
        self.user(self.question(kind, field, self.language.told, self.told[kind]))
        self.char(self.answer(kind, field, self.language.told, self.told[kind], 0), 4)

    def ask_untold(self):
        r = self.r
        kind = V.one(r, [k for k in self.language.told if k not in self.told] or list(self.language.told))
        if kind in self.told or kind in ("u_pet", "u_count", "u_colour", "u_appointment", "u_code"):
            return self.small()
        ask = self.language.told[kind].asks[V.one(r, list(self.language.told[kind].asks))]
        self.user(self.question(kind, ask.field, self.language.told, persona_told.MAKE_TOLD[kind](r, self.side, self.bank)))
        self.char(say(V.one(r, self.language.unknown.side(0)), r, {}))

    def correct(self):
        r = self.r
        have = [k for k in self.told if k not in self.kept and "v" in self.told[k]]
        if not have:
            return self.tell()
        k = V.one(r, have)
        old, new = self.told[k], persona_told.MAKE_TOLD[k](r, self.side, self.bank)
        for f in ("c", "b", "ab"):
            if f in old:
                new[f] = old[f]
        self.told[k] = new
        text = say(V.one(r, self.language.told[k].T.side(self.side)), r, new)
        self.user(V.one(r, ("Sorry, I made a mistake. ", "Actually, ", "Wait, I was wrong before. ", "No, I said it wrong. ", "Correction: ")) + text + (", not " + old["v"] if r() < 0.5 and text[-1].isalnum() else "") + ".")
        self.char(V.one(r, ("Ah, so {v}. I'll remember.", "{v}, then. Noted.", "All right, {v} it is.", "Thanks for telling me. {v}, not {o}.", "{v}. I've corrected it in my head.")).replace("{v}", new["v"]).replace("{o}", old["v"]))
        if r() < 0.6:
            self.ask_told(k)

    # ------------------------------------------------------------ small talk
    def called(self):
        return self.name if self.name.split()[0] in TITLES else self.name.split()[0]

    def a_topic(self):
        while True:
            topic = V.one(self.r, written_talk.WHOLE_TURNS if self.r() < WHOLE_TURN_SHARE else written_talk.TALK)
            if "name" not in topic.slots or "name" not in self.kept:
                return topic

    def preface(self):
        """What a user says before coming to the point, and what would answer it."""
        said, answer = written_talk.exchanges(self.r, self.a_topic(), self.called(), go_on=0)[0]
        return said + ("" if said[-1:] in ".?!*)" else self.r() < 0.8 and "." or ",") + " ", answer

    def prefaced(self, question):
        return self.preface()[0] + question if self.talkative and self.r() < TWO_AT_ONCE else question

    def talk(self):
        """An exchange of written_talk.py, or several that hang together. Some users say two things at once; the answer is to the second, or to both."""
        r = self.r
        for n, (said, answer) in enumerate(written_talk.exchanges(r, self.a_topic(), self.called())):
            if n == 0 and r() < TWO_AT_ONCE:
                before, first = self.preface()
                said, answer = before + said, first + " " + answer if r() < 0.25 else answer
            self.add("user", said, 2)
            self.char(answer, 3, plain=0.9)

    def small(self):
        r, side = self.r, self.side
        if self.talkative and r() < 0.8:
            return self.talk()
        topic = V.one(r, SMALL_PICK)
        name = topic["name"]
        slots = {"name": self.called(), "how": V.one(r, self.manner["w"])}
        if "name" in self.kept and name == "real":
            return self.small()
        if name in OPEN_TOPICS:
            slots.update(self._open_slots(name))
        if name == "quote":
            slots["ushort"] = cap(say(V.one(r, USHORT), r, slots))
            slots["ushort_"] = slots["ushort"].rstrip(".")
        elif name == "day":
            slots["uday"] = say(V.one(r, UDAY), r, slots)
            used = [slots[k] for k in ("ath", "pl", "an1", "p1", "n1", "fd") if slots[k] in slots["uday"]]
            slots["uword"] = V.one(r, used) if used else "that"
        elif name == "story":
            slots["tale"] = say(V.one(r, TALE), r, slots)
        elif name in ("test", "already", "why", "lost_thread") and not self.turns:
            return self.small()
        self.user(ended(cap(say(V.one(r, topic["u"]), r, slots))) if name != "repeat" else cap(say(V.one(r, topic["u"]), r, slots)))
        weight = 4 if name in ("list", "who", "repeat") else 3
        reply = say(V.one(r, topic["c"]), r, slots)
        if name == "repeat":
            self.add("char", reply, 4)
        else:
            self.char(reply, 3, plain=0.5 if name == "list" else 0.2)
        more = topic["more"]
        if more and r() < 0.7:
            for users, chars in (more if name in ("day", "story", "sad") else sorted(more, key=lambda m: r())[:1 + int(r() * len(more))]):
                self.user(ended(cap(say(V.one(r, users), r, slots))))
                self.char(ended(say(V.one(r, chars), r, slots)), weight, plain=0.5)

    def _open_slots(self, name):
        r, s = self.r, self.side
        if name == "sums":
            a, b = V.number(r, s, 1, 30), V.number(r, s, 1, 30)
            return {"x1": str(a), "x2": str(b), "x3": str(a + b)}
        if name in ("story", "day", "quote", "dreams", "news", "plans", "secret_ask", "strong"):
            th = V.thing(r, s)
            return {"n1": V.given(r, s), "n2": V.given(r, s), "p1": V.town(r, s), "p2": V.town(r, s), "ath": V.an(th), "an1": V.pick(r, V.ANIMAL, s),
                    "aan1": V.an(V.pick(r, V.ANIMAL, s)), "aan2": V.an(V.pick(r, V.ANIMAL, s)), "ob": V.pick(r, V.OBJECT, s), "aj": V.pick(r, V.ADJ, s), "pl": V.pick(r, V.GERUND_OBJ, s), "fd": V.food(r, s)}
        if name == "list":
            f = V.one(r, (lambda: V.food(r, s), lambda: V.an(V.thing(r, s)), lambda: V.word(r, s, self.bank)))
            return {"l1": f(), "l2": f(), "l3": f()}
        if name == "who":
            return {"n1": V.given(r, s), "n2": V.given(r, s), "n3": V.given(r, s), "t1": "the " + V.trade(r, s), "t2": "the " + V.trade(r, s), "t3": "the " + V.trade(r, s)}
        if name == "repeat":
            f = V.one(r, (lambda: V.word(r, s, self.bank), lambda: V.made_name(r, s), lambda: str(V.number(r, s, 10, 9999))))
            return {"w3": V.one(r, (" ", ", ", " ")).join(f() for _ in range(1 + int(r() * 4)))}
        if name == "choice":
            f = V.one(r, (lambda: V.food(r, s), lambda: V.pick(r, V.ANIMAL, s) + "s", lambda: V.colour(r, s), lambda: V.town(r, s)))
            return {"c1": f(), "c2": f()}
        return {"fd": V.food(r, s)}

    def greet(self):
        r = self.r
        x = r()
        if x < 0.35:
            self.user(V.one(r, ("Hello", "Hi", "Hey", "Good morning", "Good evening", "Hi there", "Hey there", "Greetings", "Hello there", "Good day", "Yo")) + V.one(r, ("!", ".", "", ", " + (self.name if self.name.split()[0] in TITLES else self.name.split()[0]) + "!")))
            self.add("char", self._decorate(V.one(r, self.manner["h"])), 3)
        elif x < 0.5:
            self.add("char", self._decorate(V.one(r, self.manner["h"])), 3)

    def _decorate(self, text):
        r = self.r
        if self.addr and r() < 0.4 and text[-1] in ".!":
            text = text[:-1] + ", " + self.addr + text[-1]
        if self.catch and r() < 0.2:
            text += " " + self.catch
        return text

    def goodbye(self):
        r = self.r
        self.user(self.prefaced(V.one(r, ("Goodbye", "Bye", "I have to go", "See you", "Good night", "I must leave now", "Time to go", "Thanks, bye", "Talk to you later")) + V.one(r, ("!", ".", ""))))
        self.add("char", self._decorate(V.one(r, self.manner["b"])), 3)

    def act(self):
        r = self.r
        if self.talkative and r() < self.talkative:
            return self.talk()
        x = r()
        if x < 0.56:
            self.ask_fact()
        elif x < 0.62:
            self.several()
        elif x < 0.64:
            self.unknown()
        elif x < 0.74:
            self.tell()
        elif x < 0.86:
            self.ask_told()
        elif x < 0.865:
            self.ask_untold()
        elif x < 0.885:
            self.correct()
        else:
            self.small()

    def filler(self, until, real, avoid):
        """Talk that keeps clear of the kept facts, until the chat has this many tokens. `real`: pairs from the corpora."""
        r, ask = self.r, 0.5 if self.side else 0.65
        while self.tokens < until:
            x = r()
            if real and x < 0.12:
                talk = V.one(r, real)
                start = 2 * int(r() * (len(talk) // 4))
                for i in range(start, min(start + 8, len(talk) - 1), 2):
                    if self.tokens > until:
                        break
                    pair = talk[i] + " " + talk[i + 1]
                    if any(a in pair for a in avoid):
                        continue
                    self.add("user", talk[i], 2)
                    self.add("char", talk[i + 1], 2)
            elif x < ask:
                self.ask_fact()
            elif x < ask + 0.04:
                self.tell()
            elif x < ask + 0.08:
                self.ask_told()
            else:
                self.small()
