"""Roughens persona samples, so that the model learns to find facts and not to recognise our phrasings. Eight kinds of noise:
    synonyms     words and phrases of cards and of what the user says become others that mean the same (persona_synonyms.py)
    carriers     a question loses its first words and gets others in front, cut from real talk: any frame around the core must do
    statements   a sentence that states a fact, of a card or the user, loses words, gets others for them, or says its value first: what is
                 left of it tells the fact, and if nothing is, that no other sentence does
    function words are dropped or doubled here and there, in cards and in what the user says
    new words    a rare word that card and replies share becomes another one everywhere: a corpus word or an invented one, so that
                 copying works for words that were never seen
    other values a value of a card becomes any words at all, everywhere, whatever the question would lead one to expect
    longer values  a rare word gets a neighbour everywhere, so that a value is copied to its end and not to where such values used to end
    texting      some users abbreviate and mistype (persona_texting.py)
Values keep their spelling in all places, so the replies stay right. No held-out word gets in: banks are filtered, inventions checked."""
import re

import persona_synonyms
import persona_texting
import persona_values as V

FUNCTION = set("a an the is are was were am be been do does did have has had of to in on at for with and or so that this it its my your his her their our me you i he "
               "she they we not no yes as by from about what's there".split())
NOT_VALUES = set("n_ at ax ao av ab arg k ak c wh pp pq v1 v3 vd".split())  # forms and helpers beside a fact's values
WORD = re.compile(r"\b[a-z]{4,}")
LETTERS = re.compile(r"[A-Za-z']+")
FIRST = (": ", ", ", " - ", " is the thing: ", " it is. ")
ENDS = (", ", ". ", ": ", " - ", "... ", "! ", " ", " ", " ")


def fragment(r, talks):
    """2 to 8 consecutive words somebody really said, without end marks."""
    words = talks[int(r() * len(talks))]
    words = words[int(r() * len(words))].split()
    count = 2 + int(r() * 7)
    first = int(r() * max(1, len(words) - count + 1))
    return " ".join(words[first:first + count]).strip(".,!?:;\"")


def recarry(r, text, talks):
    """A question with other words around its core."""
    words = text.split()
    x = r()
    cut = 1 + int(r() * 3) if x < 0.55 and len(words) > 5 else 0
    words = words[min(cut, len(words) - 4) if cut else 0:]
    text = " ".join(words)
    if r() < 0.75:
        text = fragment(r, talks) + ENDS[int(r() * len(ENDS))] + text
    if r() < 0.15:
        text = text.rstrip("?. ") + " " + fragment(r, talks) + "?"
    return text[0].upper() + text[1:] if r() < 0.7 else text


def stumble(r, text, rate):
    """Drops or doubles function words."""
    out = []
    for line in text.split("\n"):
        words = []
        for w in line.split(" "):
            if w.lower() in FUNCTION and r() < rate:
                if r() < 0.75:
                    continue
                words.append(w)
            words.append(w)
        out.append(" ".join(words))
    return "\n".join(out)


def distract(r, card, talks):
    """Real sentences between those of the card."""
    parts = card.split(". ")
    for _ in range(1 + int(r() * 2)):
        parts.insert(int(r() * len(parts)), fragment(r, talks).capitalize())
    return ". ".join(parts)


def kept(facts):
    """A pattern of all values, the longest first, and of the parts of the name."""
    values = {v for slots in facts.values() for v in slots.values() if v.__class__ is str and (len(v) > 2 or v.isdigit())} | set(facts["name"]["v"].split() if "name" in facts else ())
    return re.compile(r"\b(?:" + ("|".join(re.escape(v) for v in sorted(values, key=lambda v: (-len(v), v))) or "(?!)") + r")\b", re.I)


def restate(r, text, kept, rate, bank, talks):
    """A share of the sentences in other words, or fewer; what is kept stays."""
    parts = re.split(r"((?<=[.;]) |\n)", text)
    for i in range(0, len(parts), 2):
        if r() > rate:
            continue
        s = parts[i]
        values = list(kept.finditer(s))
        free = [m for m in LETTERS.finditer(s) if not any(v.start() < m.end() and m.start() < v.end() for v in values)]
        long = [m for m in free if len(m.group()) > 3]
        x = r()
        if x < 0.3 and len(free) > 3:
            for m in some(r, free, 1 + int(r() * 3)):
                s = s[:m.start()] + s[m.end():].lstrip(" ")
        elif x < 0.6 and long:
            for m in some(r, long, 1 + int(r() * 2)):
                new = bank[int(r() * len(bank))]
                s = s[:m.start()] + (new.capitalize() if m.group()[0].isupper() else new) + s[m.end():]
        elif x < 0.7 and len(values) == 1:
            s = fragment(r, talks).capitalize() + " " + values[0].group() + (" " + fragment(r, talks) if r() < 0.3 else "") + s[-1:].strip("abcdefghijklmnopqrstuvwxyz")
        elif x < 0.85 and values and len(free) > 2:
            v = values[int(r() * len(values))]
            s = s[v.start():v.end()] + FIRST[int(r() * len(FIRST))] + (s[:v.start()].rstrip() + s[v.end():]).lstrip()
            s = s[:1].upper() + s[1:]
        else:
            at = free[int(r() * len(free))].start() if free and r() < 0.6 else 0
            s = s[:at] + fragment(r, talks) + (", " if at == 0 else " ") + s[at:]
        parts[i] = s
    return "".join(parts)


def some(r, spans, count):
    """`count` of the spans, the last one first, so that an edit leaves the others where they are."""
    chosen = {int(r() * len(spans)) for _ in range(count)}
    return [spans[i] for i in sorted(chosen, reverse=True)]


def new_word(r, bank):
    if r() < 0.5:
        return bank[int(r() * len(bank))]
    while True:
        word = V.made_name(r, 0).lower()
        if not V.held(word):
            return word


def rename(r, card, turns, common, bank):
    """Exchanges up to six rare words that card (or the user) and stating replies share, or gives them a neighbour."""
    stated = set(w for role, text, weight in turns if weight == 4 for w in WORD.findall(text))
    source = set(WORD.findall(card)) | set(w for role, text, _ in turns if role == "user" and not text.endswith("?") for w in WORD.findall(text))
    asked = set(w for role, text, _ in turns if role == "user" and text.endswith("?") for w in WORD.findall(text))
    words = sorted((stated & source) - common - asked)
    for _ in range(min(6, len(words))):
        old, new, x = words.pop(int(r() * len(words))), new_word(r, bank), r()
        if x < 0.3:
            new = old + " " + new if x < 0.2 else new + " " + old
        for a, b in ((old, new), (old.capitalize(), new.capitalize())):
            card, turns = exchange(a, b, card, turns)
    return card, turns


def exchange(old, new, card, turns):
    """The word or phrase `old` becomes `new` everywhere."""
    pattern = re.compile(r"\b" + re.escape(old) + r"\b")
    return pattern.sub(new, card), [(role, pattern.sub(new, text) if old in text else text, weight) for role, text, weight in turns]


def revalue(r, card, turns, facts, bank):
    """Exchanges a third of the values (facts: {kind: {field: value}}) that stand on the card and in a stating reply: one to three other words each."""
    stated = "\n".join(text for role, text, weight in turns if weight == 4)
    asked = " ".join(text for role, text, _ in turns if role == "user")
    for value in sorted({v for kind, slots in facts.items() if kind != "name" for field, v in slots.items() if field not in NOT_VALUES and v.__class__ is str and len(v) > 3 and not v[0].isdigit()}, key=lambda v: (-len(v), v)):
        if r() > 0.33 or value in FUNCTION or value not in stated or value not in card:
            continue
        pattern = re.compile(r"\b" + re.escape(value) + r"\b")
        if not pattern.search(stated) or not pattern.search(card) or pattern.search(asked):
            continue
        new = " ".join(new_word(r, bank) for _ in range(one_to_three(r)))
        new = new.title() if value[0].isupper() else new
        card, turns = exchange(value, new, card, turns)
    return card, turns


def one_to_three(r):
    x = r()
    return 1 if x < 0.6 else 2 if x < 0.9 else 3


def common_words(samples):
    """Words so frequent in the samples' cards and replies that they belong to the phrasing."""
    seen = {}
    for s in samples:
        for w in set(WORD.findall(s["card"])) | set(w for _, text, weight in s["turns"] if weight == 4 for w in WORD.findall(text)):
            seen[w] = seen.get(w, 0) + 1
    return set(w for w, n in seen.items() if n > len(samples) / 25)


def roughen(r, card, turns, common, bank, talks, facts=(), told=()):
    """Card and turns of one sample with noise; of three samples of ten only the user's spelling may change."""
    values = kept({**dict(facts), **dict(told)})
    if r() >= 0.3:
        card, turns = reword(r, card, turns, common, bank, talks, facts, told, values)
    if r() < persona_texting.TEXTER_SHARE:
        replies = [text for _, text, _ in turns[1:]] + [""]
        turns = [(role, persona_texting.texted(r, text, values, reply) or "?" if role == "user" else text, weight) for (role, text, weight), reply in zip(turns, replies)]
    return card, turns


def reword(r, card, turns, common, bank, talks, facts, told, values):
    """Card and turns with the first seven kinds of noise."""
    if r() < 0.7:
        rate = 0.15 + 0.5 * r()
        card = persona_synonyms.exchange(r, card, values, rate)
        replies = [text for _, text, _ in turns[1:]] + [""]
        turns = [(role, persona_synonyms.exchange(r, text, values, rate, reply) if role == "user" else text, weight) for (role, text, weight), reply in zip(turns, replies)]
    if facts and r() < 0.5:
        card = restate(r, card, values, 0.4, bank, talks)
    if told:
        turns = [(role, restate(r, text, values, 1, bank, talks) if role == "user" and text[-1:] != "?" and len(text) < 200 and r() < 0.2 and values.search(text) else text, weight)
                 for role, text, weight in turns]
    if facts and r() < 0.5:
        card, turns = revalue(r, card, turns, facts, bank)
    if r() < 0.75:
        card, turns = rename(r, card, turns, common, bank)
    if r() < 0.4:
        card = stumble(r, card, 0.12)
    if r() < 0.3:
        card = distract(r, card, talks)
    rate, out = r(), []
    for role, text, weight in turns:
        if role == "user" and len(text) < 200:
            if text.endswith("?") or text.lower().startswith(("tell", "remind", "i'd", "i want", "say", "let", "do tell")):
                if r() < rate:
                    text = recarry(r, text, talks)
            if r() < 0.2:
                text = stumble(r, text, 0.1)
        out.append((role, text or "?", weight))
    return card, out
