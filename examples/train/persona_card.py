"""A character in the making: draws its facts and its manner of speech, and writes its card.

Values and phrasings have two sides (persona_values.held, the ~ lines): side 0 is for training and speaks persona_language.RICH,
side 1 is the held-out set of persona_eval.py and speaks BASE.
"""
import persona_kinds
import persona_open
import persona_talk
import persona_values as V
from persona_grammar import Sides, cap, parse_lines, say
from persona_language import BASE, RICH, phrase_file

MAKE = dict(persona_kinds.MAKE, **persona_open.MAKE_OPEN)
ADDRESS_CARD, CATCH_CARD = parse_lines(persona_talk.ADDRESS_CARD), parse_lines(persona_talk.CATCH_CARD)
ADDRESS = V.split(persona_talk.ADDRESS)
CARD_KINDS = [k for k in BASE.kinds if k != "name"]
TITLES = ("Captain", "Doctor", "Old", "Mother", "Sir", "Lady", "Brother", "Professor")

# Kinds whose questions can be mistaken for each other; a card rarely holds both, a deflection never asks for the other one.
RELATED = [set(g.split()) for g in (
    "home birthplace tavern", "trade former work years", "food breakfast", "food hated_food allergy", "theft regret peeve",
    "dream quest lost regret", "hobby night ritual collect", "treasure charm prize", "treasure theft lost prize", "treasure tool", "lost tool", "theft tool",
    "boss work debt", "mother father", "nickname name", "boss teacher rival friend", "door home", "health allergy", "hiding lost",
    "craft tool", "voyage birthplace", "voyage quest", "spouse friend", "garden collect", "tavern food drink", "apprentice child teacher",
    "ritual charm", "scar health", "birthday age", "siblings child", "fear peeve", "eyes garment", "book subject", "song instrument",
    "open_a open_b open_c past_a past_b hiding", "where_a where_b attr_a attr_b", "rel_a rel_b rel_c kin_likes", "fav_a fav_b fav_c",
    "neighbour friend", "fact_number collect", "club boss", "faith charm", "prize dream", "garment treasure")]
RELATED_TO = {k: set().union(*[g for g in RELATED if k in g]) - {k} for k in BASE.kinds}
PERSONS = {"he": ("he", "his", "him", "himself", 0), "she": ("she", "her", "her", "herself", 0),
           "they": ("they", "their", "them", "themself", 2), "I": ("I", "my", "me", "myself", 1), "you": ("you", "your", "you", "yourself", 2)}


def _parse_manners(text):
    manners, m = [], None
    for line in text.strip().splitlines():
        if line[0] == "m":
            m = {"name": line[2:], "d": Sides(), "o": [], "e": [], "h": [], "b": [], "w": []}
            manners.append(m)
        elif line[0] == "d":
            m["d"].add(line[2:])
        else:
            m[line[0]].append(line[2:])
    return manners


MANNERS = _parse_manners(phrase_file("manners"))


def catchphrase(r, side):
    x = r()
    a, w = V.pick(r, V.ADJ, side), V.pick(r, V.WORD, side)
    if x < 0.3:
        return V.one(r, ("By the ", "Bless my ", "Oh my ", "Holy ", "Sweet ")) + a + " " + w + "!"
    if x < 0.55:
        return V.one(r, ("Great ", "Leaping ", "Thundering ", "Good ", "Suffering ")) + w + "s!"
    if x < 0.8:
        return V.one(r, ("No {w} without a {v}.", "A {w} is a {w}.", "Every {w} has its {v}.", "Trust the {w}, not the {v}.", "{w} first, {v} later.")).replace("{w}", w).replace("{v}", V.pick(r, V.WORD, side)).capitalize()
    return V.one(r, ("Oh, ", "Ha! ", "By ")) + V.made_name(r, side) + "!"


class Character:
    """Its facts, its manner of speech and its card."""

    def __init__(self, r, side=0, bank=None):
        self.language = BASE if side else RICH
        self.r, self.side, self.bank = r, side, bank
        self.manner = V.one(r, MANNERS)
        self.addr = V.pick(r, ADDRESS, side) if r() < 0.35 else None
        self.catch = catchphrase(r, side) if r() < 0.3 else None
        self.pronoun = V.one(r, ("he", "he", "he", "she", "she", "she", "they")) if r() < 0.9 else "they"
        sex = self.pronoun if self.pronoun != "they" else "any"
        self.name = V.given(r, side, sex)
        if r() < 0.3:
            self.name += " " + V.surname(r, side)
        elif r() < 0.06:
            self.name = V.one(r, TITLES) + " " + self.name
        self.facts = {"name": {"v": self.name}}

    def draw_facts(self, count):
        r = self.r
        strict = self.side or r() < 0.75
        while len(self.facts) < count + 1:
            kind = V.one(r, CARD_KINDS) if r() < 0.8 else V.one(r, ("age", "home", "trade", "fear", "pet", "food", "treasure", "friend"))
            if kind in self.facts or (strict and kind[-2:] not in ("_a", "_b", "_c", "es") and RELATED_TO[kind] & self.facts.keys() - {"name"}):
                count -= r() < 0.1
                continue
            fact = MAKE[kind](r, self.side, self.bank)
            if kind[-2:] in ("_a", "_b", "_c", "es") and any(fact.get(f, 0) == other.get(f, 1) for k, other in self.facts.items() if k in RELATED_TO[kind] for f in ("k", "c", "o", "g", "n")):
                continue
            self.facts[kind] = fact

    def write_card(self):
        r, side = self.r, self.side
        x = r()
        style = "third" if x < 0.45 else "first" if x < 0.6 else "second" if x < 0.72 else "list" if x < 0.86 else "terse"
        if style == "terse" and self.pronoun == "they":
            style = "third"
        who = {"first": "I", "second": "you"}.get(style, self.pronoun)
        S, P, O, R, g = PERSONS[who]
        base = {"P": P, "O": O, "R": R, "S": S, "_g": g, "_sg": g}
        kinds = [k for k in self.facts if k != "name"]
        order = sorted(kinds, key=lambda k: r())
        short = self.name.split()[0] if r() < 0.7 else self.name
        if short in TITLES:
            short = self.name
        speech = []
        if self.manner["name"] != "plain" or r() < 0.3:
            speech.append(V.one(r, self.manner["d"].side(side)))
        if self.addr:
            speech.append(V.one(r, ADDRESS_CARD.side(side)))
        if self.catch:
            speech.append(V.one(r, CATCH_CARD.side(side)))
        extra = {"addr": self.addr, "catch": self.catch}
        if style == "list":
            return self._list_card(order, speech, base, extra)
        items = []  # (verb phrase or None, sentence or None)
        for k in order:
            kind, slots = self.language.kinds[k], dict(self.facts[k], **base)
            vs, ss = kind.v.side(side), kind.s.side(side)
            n = int(r() * (len(vs) + len(ss)))
            items.append((vs[n], None, slots) if n < len(vs) else (None, ss[n - len(vs)], slots))
        items += [(node, None, dict(base, **extra)) for node in speech]
        if r() < 0.3:  # the manner of speech may stand anywhere
            items.sort(key=lambda item: r())
        out = []
        intro, used = self._intro(who, g, side)
        if intro:
            out.append(intro)
            items = [it for it in items if not any(it[2].get("v") is self.facts[k].get("v") and self.facts[k].get("v") for k in used)]
        i, first = 0, not intro
        while i < len(items):
            vp, sentence, slots = items[i]
            named = first or (g != 1 and who != "you" and r() < 0.18)
            subject, gg = (short, 0) if named and who not in ("I", "you") else (S, g)
            if first and who == "I" and r() < 0.5:
                out.append(V.one(r, ("My name is {}.", "I am {}.", "I'm {}.")).format(self.name))
            if first and who == "you" and r() < 0.6:
                out.append("You are " + self.name + ".")
            first = False
            terse = style == "terse"
            if sentence is not None:
                out.append(cap(say(sentence, r, slots)) + ".")
                i += 1
                continue
            said = []
            while i < len(items) and items[i][0] is not None and len(said) < 3:
                said.append(say(items[i][0], r, dict(items[i][2], _g=0 if terse else gg)))
                i += 1
                if r() < 0.55:
                    break
            joined = said[0] if len(said) == 1 else (", ".join(said[:-1]) + V.one(r, (" and ", ", and ")) + said[-1])
            if terse:
                out.append(cap(joined) + ".")
            else:
                lead = V.one(r, ("Also, ", "Besides, ", "What is more, ", "By the way, ")) if out and r() < 0.05 else ""
                out.append(lead + (subject if lead and subject == "I" else subject if lead and not named else cap(subject)) + " " + joined + ".")
        text = ("\n" if r() < 0.1 else " ").join(out)
        return text.replace("  ", " ").replace(" .", ".").replace(" ,", ",")

    def _intro(self, who, g, side):
        """A first sentence that holds several facts at once."""
        r, f = self.r, self.facts
        if r() < 0.5 or "trade" not in f or g == 2 and who == "they":
            return None, ()
        name, t, at = self.name, f["trade"]["v"], f["trade"]["av"]
        age = f["age"]["v"] if "age" in f else None
        home = f["home"]["v"] if "home" in f else None
        head = {"I": "I am " + name + ", ", "you": "You are " + name + ", "}.get(who, name + V.one(r, (" is ", " is ", ", ")))
        comma = head.endswith(name + ", ") and who not in ("I", "you")
        if side:
            if age and home:
                return "Meet {}, {} of {} years whose bed stands in {}.".format(name, at, age, home), ("trade", "age", "home")
            if home:
                return "Meet {}, {} whose bed stands in {}.".format(name, at, home), ("trade", "home")
            return "Meet {}, {}{}.".format(name, at, " of " + age + " years" if age else ""), ("trade", "age") if age else ("trade",)
        old = V.an(age + "-year-old " + t) if age and age[0] not in "18" else ("a " + age + "-year-old " + t if age else at)
        if age and r() < 0.4:
            old = at + ", " + V.one(r, ("aged " + age, age + " years old", age))
        used = ("trade", "age") if age else ("trade",)
        if home:
            used += ("home",)
            old += V.one(r, (" living in ", " who lives in ", ", living in ", " in ")) + home if not comma else ", lives in " + home
        elif comma:
            head = name + " is "
        text = head + old + "."
        return text.replace(" who lives", {"I": " who lives", "you": " who lives"}.get(who, " who lives")), used

    def _list_card(self, order, speech, base, extra):
        r, side = self.r, self.side
        mark, sep = V.one(r, ("", "", "- ", "* ")), V.one(r, (": ", ": ", ": ", " - "))
        rows = []
        for k in order:
            label, value = V.one(r, self.language.kinds[k].labels[side])
            slots = dict(self.facts[k], **dict(base, _g=0, _sg=0 if self.pronoun != "they" else 2))
            rows.append(mark + cap(say(label, r, slots)) + sep + say(value, r, slots))
        for node in speech:
            slots = dict(base, _g=0, **extra)
            rows.append(mark + V.one(r, ("Speech", "Manner", "Voice", "Way of speaking", "Style")) + sep + say(node, r, slots).strip())
        return ("; ".join(row.lstrip("-* ") for row in rows) + ".") if r() < 0.15 else "\n".join(rows)
