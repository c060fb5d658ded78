"""Users who text: abbreviations, no capitals, letters that changed places. Values and what the reply says again keep their spelling."""
import re

import persona_values as V

TEXTER_SHARE = 0.15  # of the chats
SHORT = {"you": "u", "are": "r", "your": "ur", "you're": "ur", "to": "2", "for": "4", "what": "wat", "thanks": "thx", "please": "pls", "because": "cuz", "tomorrow": "tmrw",
         "tonight": "tonite", "really": "rly", "something": "smth", "though": "tho", "through": "thru", "people": "ppl", "see": "c", "going to": "gonna", "want to": "wanna", "got to": "gotta",
         "have to": "hafta", "don't know": "dunno", "i don't know": "idk", "to be honest": "tbh", "right now": "rn", "by the way": "btw", "kind of": "kinda", "what's": "whats", "it's": "its",
         "i'm": "im", "i've": "ive", "i'd": "id", "don't": "dont", "can't": "cant", "didn't": "didnt", "that's": "thats", "isn't": "isnt", "won't": "wont", "there's": "theres", "how's": "hows",
         "let's": "lets", "about": "abt", "before": "b4", "great": "gr8", "later": "l8r", "okay": "ok", "which": "wich", "favourite": "fav", "birthday": "bday", "with": "w", "and": "n",
         "love": "luv", "night": "nite", "never": "nvr", "good": "gud", "would": "wud", "could": "cud", "should": "shud", "were": "wer", "where": "were", "their": "there", "too": "to"}
OFTEN = frozenset("you are your you're thanks please because tomorrow going to want to i don't know don't know what's it's i'm i've don't can't didn't that's isn't how's let's".split())
PHRASES = re.compile(r"(?<![\w'])(?:" + "|".join(sorted(map(re.escape, SHORT), key=lambda p: -len(p))) + r")(?![\w'])")
WORDS = re.compile(r"(?<![\w'])[a-z]{4,}(?![\w'])")
FIRSTS = ("hey ", "lol ", "haha ", "ok so ", "umm ", "omg ", "so ", "btw ")


def mistyped(r, word):
    """The word with one slip: two letters change places, one is missing or doubled."""
    at, x = 1 + int(r() * (len(word) - 2)), r()
    new = word[:at] + word[at + 1] + word[at] + word[at + 2:] if x < 0.4 else word[:at] + word[at + 1:] if x < 0.8 else word[:at] + word[at] + word[at:]
    return word if V.held(new) else new


def texted(r, text, values, reply):
    """What a user says, as a texter would write it. values: a pattern that finds what must keep its spelling; reply: so must the words that the reply says again."""
    echo = {w.lower() for w in re.findall(r"[A-Za-z']+", reply) if len(w) > 3}
    kept = [m.span() for m in values.finditer(text)] if values else []
    names = [m.span() for m in re.finditer(r"(?<=[\w,] )[A-Z]\w+", text)]

    def is_free(start, end):
        return not any(a < end and start < b for a, b in kept + names) and text[start:end].lower() not in echo

    pieces, done = [], 0
    lower = text.lower()
    for m in PHRASES.finditer(lower):
        if is_free(*m.span()) and r() < (0.6 if m.group() in OFTEN else 0.2):
            pieces += [(done, m.start(), None), (0, 0, SHORT[m.group()])]
            done = m.end()
    pieces.append((done, len(text), None))
    rate, out = r() * 0.16, ""
    for start, end, new in pieces:
        if new is not None:
            out += new
            continue
        at = start
        for m in WORDS.finditer(text, start, end):
            if is_free(*m.span()) and r() < rate:
                out += text[at:m.start()] + mistyped(r, m.group())
                at = m.end()
        out += text[at:end]
    if r() < 0.7:
        first = re.match(r"[A-Z]\w*", text)
        if first and is_free(*first.span()) and first.group() in out[:len(first.group())]:
            out = out[0].lower() + out[1:]
    x = r()
    if x < 0.4:
        out = out.rstrip(".")
    elif x < 0.5:
        out = out.rstrip(".?!,")
    elif x < 0.56:
        out += V.one(r, ("!!", " lol", " haha", " :)", "??" if text[-1:] == "?" else "..."))
    return (V.one(r, FIRSTS) if r() < 0.06 else "") + out
