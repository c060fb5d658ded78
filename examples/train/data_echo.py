"""Copying from real text: a chat in which the user gives a piece of a sentence that stands on the card and the character says the rest.

Facts teach a model to copy the words that facts are made of. This teaches it to copy any word of the corpora: what is asked for may be anything, so
only looking it up helps. In one chat of seven other talk lies between the card and the questions.
"""
import re

DOCUMENTS = 120_000
FAR_SHARE = 0.15
FAR_TOKENS = (1200, 2600)

AFTER = ("What comes after '{a}'?", "Finish this for me: '{a}...'", "'{a}...' How does it go on?", "I remember '{a}', but not the rest.", "Complete the line: {a}", "And after {a}?",
         "How did it continue? '{a}...'", "You wrote '{a}'. And then?", "{a}... what was next?", "Help me out, it starts with '{a}'.")
BEFORE = ("What comes before '{c}'?", "I only know how it ends: '...{c}'.", "What stands in front of '{c}'?", "Which words lead up to '{c}'?", "... {c}. How did that begin?")
GAP = ("What is missing in '{a} ... {c}'?", "Fill the gap: {a} ___ {c}", "'{a} (something) {c}'. What was it?", "Which words go between '{a}' and '{c}'?", "{a} what {c}?")
WHOLE = ("Say the line about '{w}'.", "Which line has '{w}' in it?", "There was something with '{w}'. Read it to me.", "Where does it say '{w}'?")
SAID = ("{b}", "{b}", "{b}", "It goes: {b}", "'{b}'", "It says {b}", "I think it is {b}", "{b}, it says here")


def one(r, options):
    return options[int(r() * len(options))]


def sentences(texts):
    """Sentences of 6 to 24 plain words."""
    found = []
    for text in texts:
        for s in re.split(r"(?<=[.!?])\s+|\n+", text):
            if 6 <= s.count(" ") + 1 <= 24 and s[:1].isupper() and not re.search(r"[\"()\[\]{}_*|]", s):
                found.append(s.rstrip(".!?"))
    return found


def question(r, lines, line):
    """(what the user says, what the character answers) about one line; None when the piece would be unclear."""
    words = line.split(" ")
    x, n = r(), 1 + int(r() * 4)
    if x < 0.45:
        first = int(r() * (len(words) - n - 2))
        at = first + 2 + int(r() * 4)
        b, ask = words[at:at + n], AFTER
        parts = {"a": " ".join(words[first:at])}
    elif x < 0.6:
        at = int(r() * (len(words) - n - 2))
        b, ask = words[at:at + n], BEFORE
        parts = {"c": " ".join(words[at + n:at + n + 2 + int(r() * 3)])}
    elif x < 0.85:
        at = 2 + int(r() * max(1, len(words) - n - 3))
        b, ask = words[at:at + n], GAP
        parts = {"a": " ".join(words[at - 2:at]), "c": " ".join(words[at + n:at + n + 2])}
    else:
        w = one(r, [word for word in words if len(word) > 4] or words).strip(",;:.'")
        b, ask, parts = words, WHOLE, {"w": w}
    if not b or not all(parts.values()):
        return None
    if any(sum(piece in other for other in lines) != 1 for piece in parts.values()):
        return None  # the piece must point at one line
    text = " ".join(b).strip(",;: ")
    return (one(r, ask).format(**parts), one(r, SAID).format(b=text)) if text else None


def document(r, stock, name, talks):
    """("chat", card, turns) over 3 to 10 lines of the corpora."""
    start = int(r() * (len(stock) - 400))
    lines = [one(r, stock) if r() < 0.5 else stock[start + int(r() * 400)] for _ in range(3 + int(r() * 8))]
    lines = list(dict.fromkeys(lines))
    style = r()
    card = name + "\n" + (". ".join(lines) + "." if style < 0.6 else "\n".join(lines) if style < 0.8 else "\n".join("- " + line for line in lines))
    turns = []
    if r() < FAR_SHARE:
        least, size = FAR_TOKENS[0] + r() * (FAR_TOKENS[1] - FAR_TOKENS[0]), 0
        while size < least:
            talk = one(r, talks)
            for i, text in enumerate(talk[:len(talk) // 2 * 2]):
                turns.append((("user", "char")[i % 2], text, 2))
                size += 1.35 * (text.count(" ") + 1) + 2.5
    for _ in range(4 + int(r() * 7)):
        pair = question(r, lines, one(r, lines))
        if pair:
            turns += [("user", pair[0], 2), ("char", pair[1][0].upper() + pair[1][1:] + ("" if pair[1][-1] in "!?'" else "."), 4)]
    return ("chat", card, turns) if turns else None
