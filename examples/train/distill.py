"""A teacher's talk: questions and small tales that an open model answers (kaiju-batch), filtered, as documents for data.py.

    python3 distill.py prompts --text text.tar.xz --count 600K --out prompts.jsonl       what to ask, one prompt a line
    kaiju-batch smollm2.safetensors --prompts prompts.jsonl --out replies.jsonl --temperature 0.6 --top-p 0.9 --max-tokens 90
    python3 distill.py keep --prompts prompts.jsonl --replies replies.jsonl --out taught.jsonl

The teacher of the bundled model is SmolLM2-135M-Instruct. It explains things in plain sentences and tells short tales; its small talk in
character was worse than what is written by hand (phrases/talk_*.txt), so it is not asked for any. `keep` says why it drops what it drops.
"""
import argparse
import collections
import json
import random
import re

import data_text
import persona
import persona_values as V
from data import tokens_number

EXPLAIN = "Answer the question in one or two short, simple sentences."
TALE = "You tell very short stories in plain words. A story has three to five sentences and an end."
ASKED = ("What is {a}?", "What is {a} good for?", "What do people use {a} for?", "How is {a} made?", "Why would somebody want {a}?", "Where would I find {a}?", "What does {w} mean?", "Tell me something about {w}.",
         "What can you say about {w}?", "Do you know anything about {w}?", "What is special about {w}?", "Why is {w} important?", "What do you think of when you hear the word {w}?", "What does a {t} do?",
         "What does a {t} need to know?", "How does one become a {t}?", "What does {an} eat?", "Where does {an} live?", "What is {an} like?", "What sound does {an} make?", "Is {an} dangerous?", "Can {an} be tamed?",
         "What is {f}?", "How do I cook {f}?", "What goes well with {f}?", "What is the difference between {a} and {b}?", "What is the weather like in {s}?", "What do people do in {s}?", "Where is {l}?", "What is {l} known for?",
         "What should I see in {l}?", "How do I learn the {i}?", "What does the {i} sound like?", "How do I take care of {p}?", "When do {p} bloom?", "Give me one piece of advice about {w}.", "How can I get better at {h}?",
         "Why do people like {h}?", "What do I need for {h}?", "What happens when {w} is gone?")
TALES = ("Tell me a story about {an} and {b}.", "Tell me a story about a {t} who finds {a}.", "Write a short story about {w} in {l}.", "Tell me a tale of a {t} and {an}.", "Tell me a bedtime story about {an}.",
         "A story about {n} and {a}, please.", "Tell me what happened to {n} the {t}.")
TALE_SHARE = 0.25
HABITS = re.compile(r"\b(AI|language model|chatbot|assistant|virtual|as a text|I am sorry|I'm sorry|I apologi[sz]e|I cannot|I can't|please provide|you provided|the (?:given |provided )?(?:text|sentence|phrase|question|prompt)|"
                    r"in this (?:context|sentence)|is not specified|more context|I'm not sure what|This question)\b", re.I)
MARKS = re.compile(r"[*#\[\]{}<>|\\_~=`^]|https?:|\b\d+\.\s|\n\s*-|[^\x20-\x7e\n]")
SENTENCE = re.compile(r"[^.!?]*[.!?]+[\"']?\s*")


def prompts(args):
    """Even lines of work for any number of GPUs: --part 2/3 is the second of three."""
    rows = data_text.read(args.text)
    bank = data_text.word_bank(rows)
    part, parts = map(int, args.part.split("/"))
    with open(args.out, "w", encoding="utf-8") as f:
        for n in range(part - 1, tokens_number(args.count), parts):
            r = random.Random(args.seed * 1000003 + n).random
            tale = r() < TALE_SHARE
            slots = {"a": V.an(V.thing(r, 0) if r() < 0.3 else V.pick(r, V.OBJECT, 0)), "b": V.an(V.pick(r, V.OBJECT, 0)), "w": V.one(r, bank) if r() < 0.7 else V.pick(r, V.WORD, 0), "t": V.pick(r, V.TRADE, 0), "an": V.an(V.pick(r, V.ANIMAL, 0)),
                     "f": V.food(r, 0), "s": V.pick(r, V.SEASON, 0), "l": V.pick(r, V.LAND, 0) if r() < 0.5 else V.pick(r, V.CITY, 0), "i": V.pick(r, V.INSTRUMENT, 0), "p": V.pick(r, V.PLANT, 0),
                     "h": V.one(r, ("cooking", "running", "chess", "drawing", "fishing", "dancing", "gardening", "singing", "swimming", "writing", "knitting", "listening", "saving money", "making friends")), "n": V.given(r, 0)}
            asked = V.one(r, TALES if tale else ASKED).format(**slots)
            f.write(json.dumps({"messages": [{"role": "system", "content": TALE if tale else EXPLAIN}, {"role": "user", "content": asked}]}) + "\n")


def sentences(text, most, longest):
    """The first whole sentences of a reply, at most so many and so many characters."""
    out = ""
    for s in SENTENCE.findall(text)[:most]:
        if len(out) + len(s) > longest:
            break
        out += s
    return out.strip()


def goes_in_circles(text):
    words = re.findall(r"[a-z']+", text.lower())
    three = collections.Counter(zip(words, words[1:], words[2:]))
    return bool(three) and (three.most_common(1)[0][1] > 2 or len(three) < 0.8 * (len(words) - 2))


def judged(asked, reply, tale):
    """(what is kept of a reply, why it is dropped): one of the two is empty."""
    if HABITS.search(reply):
        return "", "an assistant's habits"
    text = sentences(reply.strip(), 6 if tale else 2, 700 if tale else 220)
    if not text:
        return "", "no whole sentence"
    if MARKS.search(text):
        return "", "marks and lists"
    if len(text) < 20 or tale and len(text) < 120:
        return "", "too short"
    if goes_in_circles(text):
        return "", "goes in circles"
    if asked.lower().rstrip("?.") in text.lower():
        return "", "repeats the question"
    if not text[0].isalpha() or not any(w in text.lower() for w in re.findall(r"[a-z]{5,}", asked.lower()) or [""]):
        return "", "not about it"
    return text[0].upper() + text[1:], ""


def keep(args):
    dropped, kept, tokens = collections.Counter(), 0, 0
    with open(args.prompts, encoding="utf-8") as f:
        asked = [json.loads(line)["messages"] for line in f]
    with open(args.replies, encoding="utf-8") as f:
        replies = sorted((json.loads(line) for line in f), key=lambda reply: reply["line"])
    whole = next((n for n, reply in enumerate(replies) if reply["line"] != n + 1), len(replies))  # up to the first that is missing: the same set, however many ran at a time
    with open(args.out, "w", encoding="utf-8") as out:
        for reply in replies[:min(whole, tokens_number(args.lines) if args.lines else whole)]:
            system, user = (m["content"] for m in asked[reply["line"] - 1])
            tokens += reply["tokens"]
            text, why = judged(user, reply["reply"], system == TALE)
            dropped[why] += 1
            if why:
                continue
            kept += 1
            r = random.Random(reply["line"] * 7919 + 17).random
            card = None
            if r() < 0.7:
                t = persona.start(r, None)
                card = t.name + "\n" + t.write_card()
            user = user if r() < 0.6 else user.lower().rstrip(".?")
            out.write(json.dumps({"card": card, "turns": [["user", user], ["char", text]]}) + "\n")
    total = sum(dropped.values())
    print("%d replies of %.1f M tokens, %d kept (%.0f%%); dropped: %s" % (total, tokens / 1e6, kept, 100 * kept / max(1, total), ", ".join("%s %.0f%%" % (why, 100 * n / total) for why, n in dropped.most_common() if why)))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = a.add_subparsers(dest="command", required=True)
    p = commands.add_parser("prompts", help="write what to ask")
    p.add_argument("--text", required=True, help="text.tar.xz with the corpora")
    p.add_argument("--count", default="600K")
    p.add_argument("--part", default="1/1")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", required=True)
    k = commands.add_parser("keep", help="filter the replies")
    k.add_argument("--prompts", required=True)
    k.add_argument("--replies", required=True)
    k.add_argument("--lines", help="of the first so many prompts; otherwise up to the first one without a reply")
    k.add_argument("--out", required=True)
    args = a.parse_args()
    (prompts if args.command == "prompts" else keep)(args)


if __name__ == "__main__":
    main()
