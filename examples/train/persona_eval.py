"""The held-out persona questions: cards, values and phrasings that no training sample can contain (side 1 of the generator).

    python3 persona_eval.py --make persona_eval.jsonl     writes the set, the same bytes everywhere, and checks its sha256
    python3 persona_eval.py --score replies.jsonl --set persona_eval.jsonl      replies: {"id", "reply"} per line

One line per question: {"id", "kind": turn1 | turn4 | turn8 | far, "card", "turns": [["user", text], ["char", text], ..., ["user",
question]], "answers": [accepted phrases], "fact": kind.field, "from": card | told}; in eval/handwritten.jsonl the answers are "stems". "card" is the text of the <|card|> segment,
name line first. In "far" the fact lies more than 1,024 tokens before the question (1,100 to 3,000).
"""
import argparse
import hashlib
import json
import os
import re
import sys

import persona_values as V
from persona import new_random
from persona_talker import Talker

SEED = 20_000_003  # no training run uses it; the sides are what separates
COUNTS = {"turn1": 640, "turn4": 640, "turn8": 640, "far": 640}
ARTICLES = {"a", "an", "the"}
MODIFIERS = set(V.LOOK + V.PET_LOOK + V.FOOD_HOW + V.SHADE + ["tall", "long"])
TITLES = set("Old Master Doctor Captain Mrs Mr Aunt Uncle Lady Sister Madame Mister Little Sir Madam Mother Professor Brother Saint".split())


def words(text):
    text = text.lower().replace("\u2019", "'")
    text = re.sub(r"'s\b", "", text)
    return [w for w in re.findall(r"[^\W_]+", text) if w not in ARTICLES]


def is_right(reply, answers, stems=False):
    """True when the reply contains one of the answers as whole words; case, punctuation and articles do not matter.
    With `stems` the last word of an answer may go on: "umbrella" is met by "umbrellas"."""
    said = " " + " ".join(words(reply)) + " "
    end = "" if stems else " "
    return any(a and " " + a + end in said for a in (" ".join(words(answer)) for answer in answers))


def accepted(kind, field, slots):
    """The value, and shorter or other ways to say the same."""
    value = slots[field]
    out = [value]
    if "n_" in slots and field in ("v", "m"):
        unit = value.split(" ")[-2:] if field == "m" else []
        out += [str(slots["n_"]), V.spelled(slots["n_"])]
        return list(dict.fromkeys(out)) if not unit else list(dict.fromkeys(out))
    parts = value.split(" ")
    while len(parts) > 1 and (parts[0] in MODIFIERS or parts[0] in ARTICLES) and parts[1] != "of":
        parts = parts[1:]
        out.append(" ".join(parts))
    if kind in ("treasure", "theft", "lost", "charm", "prize", "u_lost", "u_bought") and len(parts) > 1 and field in ("o", "v"):
        out.append(" ".join(parts[1:])) if parts[0] in V.MATERIAL[1] + V.COLOUR[1] else None
    named = [p for p in value.split(" ") if p[:1].isupper()]
    if kind in ("name", "teacher", "friend", "rival", "boss", "spouse", "treasure", "theft", "debt", "u_boss") and field in ("v", "g", "w2") and named:
        first = [p for p in named if p not in TITLES]
        if first and V.held(first[0]):
            out.append(first[0])
    if kind == "birthday":
        m = re.search(r"[A-Z]\w+", value).group()
        d = re.search(r"\d+", value).group()
        th = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(int(d), "th")
        out += [m + " " + d, d + " " + m, d + th + " of " + m, m + " " + d + th, d + th + " " + m]
    return list(dict.fromkeys(out))


class Held(Talker):
    def __init__(self, r, side=1):
        super().__init__(r, side=side)

    def past(self, pairs):
        """`pairs` exchanges that do not touch the kept facts."""
        while len(self.turns) < 2 * pairs:
            before = len(self.turns)
            x = self.r()
            if x < 0.35:
                self.ask_fact()
            elif x < 0.45:
                self.tell()
            elif x < 0.52:
                self.ask_told()
            else:
                self.small()
            if len(self.turns) > 2 * pairs:
                del self.turns[before:]


def make_one(kind, index, attempt, seed=SEED, side=1):
    """One question, or None when chance made an unclear one."""
    r = new_random(seed + attempt, index * 10 + list(COUNTS).index(kind)).random
    t = Held(r, side)
    t.draw_facts(3 + int(r() * 8))
    card = t.write_card()
    told = kind != "turn1" and r() < 0.3
    if told:
        source, facts = t.language.told, t.told
        name = V.one(r, list(source))
        t.tell(name, far=True)
    else:
        source, facts = t.language.kinds, t.facts
        name = V.one(r, [k for k in t.facts if k != "name"] if r() < 0.97 else ["name"])
        t.kept.add(name)
    field = V.one(r, list(source[name].asks))
    value = facts[name][field]
    answers = accepted(name, field, facts[name])
    stated = 2 if told else 0
    if kind == "far":
        t.tokens = 0.0
        t.filler(1240 + r() * 1420, None, [value])
    else:
        t.past({"turn1": 0, "turn4": 3, "turn8": 7}[kind])
    t.turns = t.turns[:len(t.turns) // 2 * 2]
    history = t.turns[stated:]
    question = t.question(name, field, source, facts[name])
    shown = t.turns[0][1] if told else t.name + "\n" + card
    if not is_right(shown, answers[:1] if name != "fact_number" else answers):
        return None
    if any(is_right(text, answers) for _, text, _ in history) or is_right(question, answers):
        return None  # the fact must be stated once, and only where it belongs
    if told and is_right(card, answers) or not told and sum(is_right(line, answers[:1]) for line in [t.name, card]) > 1:
        return None
    # the accepted answers must not be met by another fact of the same card
    others = [v for k, slots in list(t.facts.items()) + list(t.told.items()) if k != name for f, v in slots.items() if f not in ("n_", "at", "ax", "ao", "av", "ab", "arg", "k", "ak", "c", "wh", "pp", "pq", "v1", "v3", "vd")]
    if any(isinstance(v, str) and (is_right(v, answers)) for v in others):
        return None
    turns = [[role, text] for role, text, _ in t.turns] + [["user", question]]
    return {"id": "%s-%04d" % (kind, index), "kind": kind, "card": t.name + "\n" + card, "turns": turns, "answers": answers,
            "fact": name + "." + field, "from": "told" if told else "card"}


def make(counts=COUNTS, seed=SEED, side=1):
    for kind, count in counts.items():
        for index in range(count):
            attempt, item = 0, None
            while item is None:
                item = make_one(kind, index, attempt, seed, side)
                attempt += 1
            yield item


def score(path, replies):
    """{group: [right, asked]} for the kinds, card / told, and all."""
    said = {}
    with open(replies) as f:
        for line in f:
            row = json.loads(line)
            said[row["id"]] = row["reply"]
    groups = {}
    with open(path) as f:
        for line in f:
            item = json.loads(line)
            right = is_right(said.get(item["id"], ""), item["answers"], item.get("stems", False))
            for g in (item["kind"], "from " + item.get("from", "card"), "fact " + item["fact"], "all"):
                n = groups.setdefault(g, [0, 0])
                n[0] += right
                n[1] += 1
    return groups


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", metavar="OUT.jsonl")
    parser.add_argument("--freeze", action="store_true", help="with --make: record the sha256 instead of checking it")
    parser.add_argument("--known", metavar="OUT.jsonl", help="80 questions with the training side's words and phrasings, on new cards: what is left when language is no obstacle")
    parser.add_argument("--score", metavar="REPLIES.jsonl")
    parser.add_argument("--set", metavar="SET.jsonl")
    args = parser.parse_args()
    record = os.path.join(os.path.dirname(os.path.abspath(__file__)), "eval", "persona.sha256")
    if args.make:
        text = "".join(json.dumps(item, ensure_ascii=True) + "\n" for item in make())
        digest = hashlib.sha256(text.encode()).hexdigest()
        with open(args.make, "w", newline="\n") as f:
            f.write(text)
        if args.freeze:
            os.makedirs(os.path.dirname(record), exist_ok=True)
            with open(record, "w") as f:
                f.write(digest + "  persona_eval.jsonl\n")
        elif open(record).read().split()[0] != digest:
            sys.exit("%s differs from the frozen set: %s; the generator changed after freezing" % (args.make, record))
        print(digest, text.count("\n"), "questions")
    elif args.known:
        with open(args.known, "w", newline="\n") as f:
            f.writelines(json.dumps(item) + "\n" for item in make({kind: 20 for kind in COUNTS}, 777, 0))
    elif args.score and args.set:
        for g, (right, asked) in sorted(score(args.set, args.score).items()):
            print("%-32s %5.1f%%  %d of %d" % (g, 100 * right / asked, right, asked))
    else:
        parser.error("say --make OUT.jsonl, or --score REPLIES.jsonl --set SET.jsonl")


if __name__ == "__main__":
    main()
