"""Shows persona samples and checks the generator: separation of the two sides, determinism, distances of far facts, speed."""
import argparse
import functools
import os
import random
import re
import subprocess
import sys
import time

import persona
import persona_card
import persona_eval
import persona_noise
import persona_talker
from persona_grammar import Sides, forms_of, plain, surfaces
from persona_language import RICH


def show(sample):
    print("#", sample["name"])
    print(sample["card"])
    for role, text, _ in sample["turns"]:
        print("  %s %s" % ("<" if role == "user" else ">", text))
    print()


def all_sides():
    for kinds in (RICH.kinds, RICH.told):
        for kind in kinds.values():
            for name in "vsTk":
                yield kind.name + "." + name, getattr(kind, name)
            for ask in kind.asks.values():
                for name in "qinay":
                    yield kind.name + "." + ask.field + "." + name, getattr(ask, name)
    for name in ("frame_i", "frame_n", "frame_u", "frame_q"):
        yield name, getattr(RICH, name)
    for name in ("ADDRESS_CARD", "CATCH_CARD"):
        yield name, getattr(persona_card, name)


def question_forms(side):
    """Distinct questions before the slots are filled: direct ones, and clauses and noun phrases in their frames."""
    total = 0
    for kinds, frames in ((RICH.kinds, RICH.frame_i), (RICH.told, RICH.frame_u)):
        fi = sum(forms_of(n) for n in frames.side(side))
        fq = 1 + sum(forms_of(n) for n in RICH.frame_q.side(side))
        fn = sum(forms_of(n) for n in RICH.frame_n.side(side)) if kinds is RICH.kinds else 0
        for kind in {id(k): k for k in kinds.values()}.values():
            for ask in kind.asks.values():
                q, i, n = (sum(forms_of(node) for node in getattr(ask, x).side(side)) for x in "qin")
                total += q * fq + i * fi + n * fn
    return total


def check_sides():
    seen = {0: {}, 1: {}}
    for where, sides in all_sides():
        assert isinstance(sides, Sides)
        for side in (0, 1):
            for node in sides.side(side):
                for form in surfaces(node):
                    seen[side].setdefault((where, plain(form.replace("'s", " is"))), where)
    both = set(seen[0]) & set(seen[1])
    assert not both, both
    for name, kind in RICH.kinds.items():
        if name != "name":
            assert kind.v.side(0) and (kind.v.side(1) or kind.s.side(1)), name
            assert kind.labels[0] and kind.labels[1], name
        for ask in kind.asks.values():
            assert ask.q.side(0) and ask.q.side(1) and ask.a.side(0), (name, ask.field)
    for name, kind in RICH.told.items():
        assert kind.T.side(0) and kind.T.side(1) and all(a.q.side(1) for a in kind.asks.values()), name
    asks = sum(len(k.asks) for kinds in (RICH.kinds, RICH.told) for k in kinds.values())
    print("surface forms of phrasings: %d for training, %d held out, none on both sides; %d kinds of facts, %d askable fields" % (
        len(seen[0]), len(seen[1]), len(RICH.kinds) + len(RICH.told), asks))
    print("question forms before slots: %d for training, %d held out" % (question_forms(0), question_forms(1)))


@functools.cache
def held_out():
    return list(persona_eval.make())


def check_separation(count, bank=None, talks=None):
    values, questions, statements = set(), set(), set()
    for i in range(count):
        s = persona.sample(1, i, bank, talks)
        for slots in list(s["facts"].values()) + list(s["told"].values()):
            values.update(plain(v) for f, v in slots.items() if isinstance(v, str) and len(f) <= 2 and f not in ("c", "k", "wh", "pp", "pq", "v1", "v3", "vd"))
        questions.update(plain(text) for role, text, _ in s["turns"] if role == "user")
        statements.update(plain(line) for line in re.split(r"[.\n;]", s["card"]))
    asked, known, leaked = 0, 0, []
    for item in held_out():
        value, question = plain(item["answers"][0]), plain(item["turns"][-1][1])
        leaked += [value] * (value in values)
        asked += question in questions
        known += any(plain(line) in statements for line in re.split(r"[.\n;]", item["card"].split("\n", 1)[1]) if len(line) > 12)
    assert not leaked, "held-out values reached training: %s" % sorted(set(leaked))
    assert not asked, "%d held-out questions reached training" % asked
    assert not known, "%d held-out card sentences reached training" % known
    print("separation: %d values, %d user turns, %d card lines of %d training samples; no held-out value, question or card line among them" % (
        len(values), len(questions), len(statements), count))


def check_noise(count, bank=("apple", "stone", "river", "pencil"), talks=("hello there my friend how are you today my dear",)):
    """Noise may put words together by chance: how often that gives a question of the held-out set, and that it gives no line of its cards."""
    items = held_out()
    asked = {plain(item["turns"][-1][1]) for item in items}
    known = {plain(line) for item in items for line in re.split(r"[.\n;]", item["card"].split("\n", 1)[1]) if len(line) > 12}
    common, questions, lines = persona_noise.common_words([persona.sample(3, i) for i in range(min(300, count))]), [], 0
    for i in range(count):
        s = persona.sample(3, i)
        card, turns = persona_noise.roughen(random.Random(i).random, s["card"], s["turns"], common, bank, talks, s["facts"], s["told"])
        questions += [text for role, text, _ in turns if role == "user" and plain(text) in asked]
        lines += sum(plain(line) in known for line in re.split(r"[.\n;]", card))
    assert not lines, "%d held-out card lines reached training through noise" % lines
    print("noise: in %d training samples %d held-out questions came about by chance %s" % (count, len(questions), sorted(set(questions))))


def check_far(count, tokenizer=None):
    """Facts asked late are not stated in between, and lie as far back as promised."""
    length = (lambda t: 2 + len(tokenizer.encode(t))) if tokenizer else (lambda t: persona_talker.TOKENS_PER_TURN + persona_talker.TOKENS_PER_WORD * (t.count(" ") + 1))
    distances, far, asked, repeated = [], 0, 0, 0
    for i in range(count):
        s = persona.sample(1, i)
        if not s["far"]:
            continue
        far += 1
        start, end = s["far"]
        middle = [t for _, t, _ in s["turns"][start:end]]
        distances.append(sum(length(t) for t in middle))
        for value in s["values"]:
            if len(value) > 9 and persona_eval.is_right(" ".join(middle), [value]):
                repeated += 1
            asked += 1
    assert repeated <= max(3, asked / 100), (repeated, asked)  # a few meet their value again by chance, in another fact
    assert min(distances) >= 1100 and max(distances) <= 3000, (min(distances), max(distances))
    print("far: %.1f%% of %d samples; %d to %d tokens (%s) between a fact and its question" % (
        100 * far / count, count, min(distances), max(distances), "tokenizer" if tokenizer else "estimated"))
    lengths, kinds = [], {}
    for item in held_out():
        kinds[item["kind"]] = kinds.get(item["kind"], 0) + 1
        turns = item["turns"][2 if item["from"] == "told" else 0:-1]
        if item["kind"] == "far":
            lengths.append(sum(length(t) for _, t in turns))
            assert length(item["card"]) + sum(length(t) for _, t in item["turns"]) < 3900, item["id"]
    assert min(lengths) > 1024 and max(lengths) <= 3000, (min(lengths), max(lengths))
    print("held-out set:", kinds, "far facts %d to %d tokens back, mean %d" % (min(lengths), max(lengths), sum(lengths) / len(lengths)))


def check_determinism(count):
    """The same samples in every process, however it hashes strings."""
    code = "import hashlib, persona; print(hashlib.sha256(repr([persona.sample(1, i) for i in range(%d)]).encode()).hexdigest())" % count
    here = os.path.dirname(os.path.abspath(__file__))
    digests = {subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=here), check=True, capture_output=True, text=True).stdout for seed in "12"}
    assert len(digests) == 1, "not deterministic"


def main():
    parser = argparse.ArgumentParser(description=persona.__doc__)
    parser.add_argument("--show", type=int, default=3, metavar="N", help="print N samples")
    parser.add_argument("--first", type=int, default=0, help="index of the first sample shown")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="prove separation, determinism and distances")
    parser.add_argument("--samples", type=int, default=8000, help="training samples that --check looks at")
    parser.add_argument("--tokenizer", help="count far distances with this SentencePiece model instead of estimating them")
    args = parser.parse_args()
    if not args.check:
        for i in range(args.show):
            show(persona.sample(args.seed, args.first + i))
        return
    check_sides()
    began = time.time()
    samples = [persona.sample(1, i) for i in range(min(1000, args.samples))]
    seconds = time.time() - began
    size = sum(len(s["card"]) + sum(len(t) for _, t, _ in s["turns"]) for s in samples)
    check_determinism(min(300, args.samples))
    print("deterministic; %.1f MB/s on one core, %d characters a sample" % (size / 1e6 / seconds, size / len(samples)))
    check_separation(args.samples)
    check_noise(args.samples)
    tokenizer = None
    if args.tokenizer:
        import sentencepiece
        tokenizer = sentencepiece.SentencePieceProcessor(model_file=args.tokenizer)
    check_far(max(100, args.samples // 4), tokenizer)
    print("all checks passed")


if __name__ == "__main__":
    main()
