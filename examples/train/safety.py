"""Texts for the classifier head: written topics (phrases/safety_*.txt) as chats, and the public sets as JSON lines.

    python3 safety.py public --clones DIR --out safety.jsonl       reads clones of the four repositories of SOURCES
    python3 safety.py                                              shows some chats

A turn may carry a mark: (labels that hold, labels that are known), two bitmasks over LABELS. The head learns from the marks of the tokens
of such a turn, above all from its last one and from the role marker behind it, where a reply would begin.
"""
import argparse
import csv
import gzip
import json
import os
import random

import persona
import persona_synonyms
import persona_noise
import persona_values as V
import written_talk
from persona_grammar import cap

LABELS = ("violence", "sexual", "self_harm", "harassment", "dangerous", "distress")
ALL = (1 << len(LABELS)) - 1
FINE = (0, ALL)
SPOKEN_SHARE = 0.25  # of the texts are the character's own words, so that the head judges replies too; the language model does not learn these
MAX_PUBLIC_TEXT = 1200  # characters
PUBLIC_PASSES = 3


def mask(labels):
    return sum(1 << LABELS.index(label) for label in labels if label != "fine")


# ---------------------------------------------------------------- chats around written topics
def chat(r, topic, bank, talks):
    """("chat", card, turns): small talk, the topic's exchanges, its answer, small talk."""
    t = persona.start(r, bank)
    card = t.write_card()
    if r() < 0.3:
        t.greet()
    for _ in range(int(r() * 3)):
        t.talk()
    t.turns = [turn if r() < 0.7 else (*turn, FINE) for turn in t.turns]
    slots, marked = written_talk.draw(r, topic, t.called()), (mask(topic.name.split()), ALL)
    for said, answer in topic.before:
        t.turns += [("user", written_talk.typed(r, written_talk.said_with(said, r, slots)), 2, FINE), ("char", cap(written_talk.said_with(answer, r, slots)), 3, FINE)]
    said, answer = written_talk.typed(r, written_talk.said_with(V.one(r, topic.said), r, slots)), cap(written_talk.said_with(V.one(r, topic.answers), r, slots))
    said = rough(r, said, answer, talks)
    if r() < SPOKEN_SHARE and not topic.before and marked[0] != mask(["distress"]):
        user, _ = written_talk.exchanges(r, V.one(r, written_talk.TALK), t.called())[0]
        t.turns += [("user", user, 2, FINE), ("char", said, 0, marked)]
    else:
        t.turns += [("user", said, 0 if marked[0] & ~mask(["distress"]) else 2, marked), ("char", answer, 3, FINE)]
        for said, answers in topic.more:
            t.turns += [("user", written_talk.typed(r, written_talk.said_with(V.one(r, said), r, slots)), 2), ("char", cap(written_talk.said_with(V.one(r, answers), r, slots)), 3, FINE)]
        if r() < 0.4:
            t.talk()
    return "chat", t.name + "\n" + card, t.turns


def rough(r, text, answer, talks):
    """The text in other words, behind others, or with slips: one topic is met many times, and its words must not be learned by heart."""
    if r() < 0.6:
        text = persona_synonyms.exchange(r, text, persona_noise.kept({}), 0.15 + 0.4 * r(), answer)
    if talks and r() < 0.2:
        text = persona_noise.fragment(r, talks) + V.one(r, (". ", "... ", ", ", " ")) + text
    return persona_noise.stumble(r, text, 0.1) if r() < 0.2 else text


def public_chat(r, row, bank):
    """A text of a public set as what the user says to a character; the language model learns nothing from it."""
    t = persona.start(r, bank)
    turns = [(role, text, 0) for role, text in row.get("before", [])] + [("user", row["text"], 0, (mask(row["labels"]), mask(row["known"])))]
    return "chat", (t.name + "\n" + t.write_card()) if r() < 0.6 else None, turns


def chats(seed, shard, shards, bank, talks, rows, passes):
    """A shard's share of `passes` chats for every written topic, and of the public sets."""
    for n in range(shard, len(written_talk.SAFETY) * passes, shards):
        yield chat(random.Random(seed * 1000003 + n).random, written_talk.SAFETY[n % len(written_talk.SAFETY)], bank, talks)
    for n in range(shard, len(rows) * PUBLIC_PASSES, shards):
        yield public_chat(random.Random(seed * 1000003 + 500_000_000 + n).random, rows[n % len(rows)], bank)


# ---------------------------------------------------------------- public sets
def moderation(clone):
    """openai/moderation-api-release (MIT), without rows labelled S3, which concern minors."""
    keys = {"violence": ("V", "V2"), "sexual": ("S",), "self_harm": ("SH",), "harassment": ("H", "HR", "H2")}
    for line in gzip.open(os.path.join(clone, "data", "samples-1680.jsonl.gz"), "rt", encoding="utf-8"):
        row = json.loads(line)
        if row.get("S3"):
            continue
        known = [label for label, of in keys.items() if any(k in row for k in of)]
        yield {"text": row["prompt"], "labels": [label for label in known if any(row.get(k) for k in keys[label])], "known": known}


def convabuse(clone):
    """amandacurry/convabuse (CC BY 4.0): what people wrote to assistants, with the turn before. A mean severity of the readers of at most
    -0.5 is abuse, of at least 0.5 none; what lies between is left out, and what is sexual is left open."""
    examples = {}
    for row in csv.DictReader(open(os.path.join(clone, "1_full", "ConvAbuseEMNLPfull.csv"), encoding="utf-8")):
        examples.setdefault((row["conv_id"], row["agent"], row["user"]), []).append(row)
    for readers in examples.values():
        first = readers[0]
        severity = sum(level for row in readers for level in (1, 0, -1, -2, -3) if row["is_abuse.%d" % level] == "1") / len(readers)
        sexual = any(row["type.sex_harassment"] == "1" or row["type.sexist"] == "1" for row in readers)
        if -0.5 < severity < 0.5:
            continue
        before = [["user", first["prev_user"]], ["char", first["agent"]]] if first["prev_user"] and first["agent"] else []
        yield {"before": before, "text": first["user"], "labels": ["harassment"] if severity < 0 else [], "known": ["harassment"] if severity < 0 or sexual else ["harassment", "sexual"]}


def hate_speech(clone):
    """t-davidson/hate-speech-and-offensive-language (MIT): 0 is hate, 2 neither; merely offensive words (1) teach nothing about harm."""
    for row in csv.DictReader(open(os.path.join(clone, "data", "labeled_data.csv"), encoding="utf-8")):
        if row["class"] != "1":
            text = " ".join(w for w in row["tweet"].replace("&amp;", "&").split() if not w.startswith(("http", "@", "RT", "&#")))
            yield {"text": text, "labels": ["harassment"] if row["class"] == "0" else [], "known": ["harassment"]}


def toxigen(clone):
    """The sentences behind microsoft/TOXIGEN's prompts (MIT): hateful and neutral ones about the same groups."""
    for folder, _, files in sorted(os.walk(os.path.join(clone, "demonstrations"))):
        for name in sorted(files):
            if name.startswith(("hate_", "neutral_")) and name.endswith(".txt"):
                for line in open(os.path.join(folder, name), encoding="utf-8"):
                    if line.strip():
                        yield {"text": line.strip().strip("-").strip(), "labels": ["harassment"] if name.startswith("hate_") else [], "known": ["harassment"]}


SOURCES = {"moderation-api-release": moderation, "convabuse": convabuse, "hate-speech-and-offensive-language": hate_speech, "TOXIGEN": toxigen}


def collect(clones, out):
    with open(out, "w", encoding="utf-8") as f:
        for name, read in SOURCES.items():
            rows = [row for row in read(os.path.join(clones, name)) if 0 < len(row["text"]) <= MAX_PUBLIC_TEXT]
            for row in rows:
                f.write(json.dumps(row) + "\n")
            print("%-36s %6d texts, %s" % (name, len(rows), ", ".join("%s %d" % (label, sum(label in row["labels"] for row in rows)) for label in LABELS if any(label in row["known"] for row in rows))))


def rows(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")] if path else []


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("command", nargs="?", choices=["public"])
    a.add_argument("--clones", help="folder with clones of " + ", ".join(SOURCES))
    a.add_argument("--out", default="safety.jsonl")
    args = a.parse_args()
    if args.command:
        if not args.clones:
            a.error("public wants --clones")
        return collect(args.clones, args.out)
    for n in range(8):
        r = random.Random(n).random
        _, card, turns = chat(r, V.one(r, written_talk.SAFETY), None, None)
        print(card)
        for role, text, _, *marks in turns:
            print("  %s %s%s" % ("<" if role == "user" else ">", text, "   [%s]" % (" ".join(label for i, label in enumerate(LABELS) if marks[0][0] >> i & 1) or "fine") if marks else ""))
        print()


if __name__ == "__main__":
    main()
