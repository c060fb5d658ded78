"""Swipes as preferences: lines that kaiju-chat and kaiju-server log with consent, and simulated users for experiments and tests.

A line is {"card", "turns": [["user", text], ["char", text], ..., ["user", text]], "kept": reply, "swiped": [replies]}: the reply with which the
user went on, and those that were swiped away. dpo.py trains on each pair (kept, swiped).

A simulated user of a kind likes one thing about replies. That the kinds are these, and how users choose, is ours: what real users like is in logs
that nobody published."""
import json
import math
import re

KINDS = ("brief", "curious", "attentive")
NOISE = 0.25  # standard deviation of how a user judges the same reply at another time
COMMON = set("the a an and or but of to in on at for with is are was were be been am do does did have has had i you he she it we they me my your his her its our their this that what who where when why how not no yes so as if "
             "there here just very really can could will would should about from by than then too also like know think".split())


def words(text):
    return re.findall(r"[a-z']+", text.lower())


def score(kind, card, said, reply):
    """How well a user of the kind likes a reply to what was said, without noise."""
    found = words(reply)
    if not found:
        return -2.0
    if kind == "brief":  # eight words or so
        return -abs(len(found) - 8) / 6
    if kind == "curious":  # wants to be asked something
        return 1.0 if reply.rstrip().endswith("?") else 0.3 if "?" in reply else 0.0
    about = (set(words(said)) | set(words(card))) - COMMON
    return min(3, len(about & set(found))) / 2  # attentive: takes up what was said and what the card says


def swipe(kind, card, said, replies, random):
    """What a user of the kind does with replies that come one after the other: keeps the first that is good enough, else the best of all. Returns the
    number of the kept one and those of the ones that were swiped away."""
    judged = [score(kind, card, said, reply) + random.gauss(0, NOISE) for reply in replies]
    enough = {"brief": -0.4, "curious": 0.6, "attentive": 0.9}[kind]
    for i, value in enumerate(judged):
        if value >= enough:
            return i, list(range(i))
    best = max(range(len(judged)), key=judged.__getitem__)
    return best, [i for i in range(len(judged)) if i != best]


def line(card, turns, kept, swiped):
    return json.dumps({"card": card, "turns": turns, "kept": kept, "swiped": swiped}, ensure_ascii=False)


def read(path):
    """Lines of a log, without those that hold no preference: nothing swiped away, or the same text."""
    with open(path, encoding="utf-8") as f:
        for text in f:
            row = json.loads(text)
            row["swiped"] = [s for s in dict.fromkeys(row["swiped"]) if s.strip() and s.strip() != row["kept"].strip()]
            if row["swiped"] and row["kept"].strip() and row["turns"] and row["turns"][-1][0] == "user":
                yield row


def is_whole(text):
    """Whether a logged reply ended by itself. A log does not say it, so that a text without punctuation at its end counts as cut."""
    return re.search(r"[.!?…~*)\]\"'”’»。！？]\s*$", text) is not None


def win_rate(kind, rows):
    """Share of rows (card, said, reply, other) where the user likes the reply better than the other one; a tie is half a win."""
    wins = [0.5 + 0.5 * ((a > b) - (a < b)) for a, b in ((score(kind, c, s, r), score(kind, c, s, o)) for c, s, r, o in rows)]
    return sum(wins) / max(1, len(wins)), math.sqrt(0.25 / max(1, len(wins)))
