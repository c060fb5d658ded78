"""The small grammar behind every phrasing: [a|b] choices, {slots} and <third|first|plural> agreement; training/held-out sides."""
import re


def compile_phrase(text):
    node, end = _sequence(text, 0, "")
    assert end == len(text), "unbalanced: " + text
    return node


def _sequence(text, i, stops):
    out, plain = [], i
    while i < len(text) and text[i] not in stops:
        c = text[i]
        if c not in "[{<":
            i += 1
            continue
        if i > plain:
            out.append(text[plain:i])
        if c == "[":
            options, i = [], i + 1
            while True:
                option, i = _sequence(text, i, "|]")
                options.append(option)
                i += 1
                if text[i - 1] == "]":
                    break
            out.append((0, options))
        else:
            end = text.index("}" if c == "{" else ">", i)
            body = text[i + 1:end]
            out.append((1, body) if c == "{" else (2, body.split("|")))
            i = end + 1
        plain = i
    if i > plain:
        out.append(text[plain:i])
    for j in range(len(out) - 2):  # after {S} the verb agrees with the pronoun, whatever the subject of the sentence is
        if out[j] == (1, "S") and out[j + 1] == " " and out[j + 2].__class__ is tuple and out[j + 2][0] == 2:
            out[j + 2] = (3, out[j + 2][1])
    return out, i


def _emit(node, r, slots, out):
    for item in node:
        if item.__class__ is str:
            out.append(item)
        elif item[0] == 1:
            out.append(slots[item[1]])
        elif item[0] == 0:
            options = item[1]
            _emit(options[int(r() * len(options))], r, slots, out)
        else:
            forms, g = item[1], slots["_g" if item[0] == 2 else "_sg"]
            form = forms[min(g, len(forms) - 1)]
            out.append(slots[form[1:]] if form[0] == "$" else form)


def say(node, r, slots):
    out = []
    _emit(node, r, slots, out)
    return "".join(out)


def slots_of(node):
    found = set()
    for item in node:
        if item.__class__ is tuple and item[0] == 1:
            found.add(item[1])
        elif item.__class__ is tuple and item[0] == 0:
            for option in item[1]:
                found |= slots_of(option)
    return found


def forms_of(node):
    """How many surface forms a phrase has before its slots are filled."""
    n = 1
    for item in node:
        if item.__class__ is tuple and item[0] == 0:
            n *= sum(forms_of(option) for option in item[1])
    return n


def surfaces(node):
    """Every surface form of a phrasing, slots left open."""
    forms = [""]
    for item in node:
        if item.__class__ is str:
            more = [item]
        elif item[0] == 0:
            more = [f for option in item[1] for f in surfaces(option)]
        else:
            more = ["{%s}" % (item[1] if item[0] == 1 else item[1][0])]
        forms = [a + b for a in forms for b in more]
    return forms


def plain(text):
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def cap(s):
    if s[:1] in '"\'(':
        return s[:1] + s[1:2].upper() + s[2:]
    return s[:1].upper() + s[1:]


class Sides:
    """Phrasings as two lists. A held-out list that is empty falls back to the training one only where `shared` is asked for."""

    def __init__(self):
        self.lists = ([], [])

    def add(self, text):
        is_held = text.startswith("~")
        self.lists[is_held].append(compile_phrase(text[1:] if is_held else text))

    def side(self, side, shared=False):
        found = self.lists[side]
        return self.lists[0] if shared and not found else found


class Ask:
    def __init__(self, field):
        self.field = field
        self.q, self.i, self.n, self.a, self.y, self.t = (Sides() for _ in range(6))


class Kind:
    def __init__(self, name):
        self.name, self.asks, self.labels = name, {}, ([], [])
        self.v, self.s, self.T, self.k = (Sides() for _ in range(4))


def parse_kinds(text, kinds=None):
    """Kinds by name; with `kinds`, blocks add phrasings to those."""
    kinds, kind, ask = {} if kinds is None else kinds, None, None
    for line in text.strip().splitlines():
        code, rest = line[0], line[2:]
        assert line[1] == " ", line
        if code == "=":
            kind = kinds[rest] = kinds.get(rest) or Kind(rest)
        elif code == "?":
            ask = kind.asks[rest] = kind.asks.get(rest) or Ask(rest)
        elif code in "vsTk":
            getattr(kind, code).add(rest)
        elif code == "l":
            for label in rest.split("; "):
                is_held = label.startswith("~")
                name, _, value = label.lstrip("~").partition("|")
                kind.labels[is_held].append((compile_phrase(name), compile_phrase(value or "{v}")))
        else:
            getattr(ask, code).add(rest)
    return kinds


def parse_lines(text):
    sides = Sides()
    for line in text.strip().splitlines():
        sides.add(line)
    return sides
