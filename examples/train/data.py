"""Builds what the trainer reads: the tokenizer, and token streams of our persona dialogues mixed with the corpora.

    python3 data.py tokenizer --text text.tar.xz --out tokenizer.model
    python3 data.py build --text text.tar.xz --tokenizer tokenizer.model --persona-tokens 250M --out DIR --workers 16 \
      --taught taught.jsonl --safety safety.jsonl

`build` writes train.bin, val.bin (uint16 tokens), *.weights.bin (uint8, one weight class per token), *.marks.bin (uint16, what the
classifier head should say at a token) and data.json (counts). The stream is a whole number of sequences of 4,096 tokens; a document is
never cut; in half the sequences the longest document comes first. The bytes depend on the arguments only, not on the number of workers.
--taught: talk of a teacher (distill.py). --safety: the public sets (safety.py); the written ones are always read.

Token ids: 0 <unk>, 1 <s>, 2 </s>, 3 <|card|>, 4 <|user|>, 5 <|char|>, 6 <|end|>, 7 <|text|>.
    chat:  <s> [<|card|> card <|end|>] (<|user|> text <|end|> | <|char|> text <|end|>)* </s>      every text encoded on its own
    prose: <s> <|text|> text </s>
Weight class of a token = how much the loss of *predicting it* counts (LOSS_WEIGHT below; the trainer may choose its own table):
    0 padding, <s> and repeats that a reply was given: nothing to learn
    1 cards, markers that the host inserts: a little, so that names and card language are modelled but not memorised
    2 user turns and filler taken from the corpora: they teach language, yet the model never has to speak as the user
    3 the character's replies with their <|end|>, and prose
    4 replies that state a fact of the card or of the chat: the copying that the bundled model is judged by
Mark of a token: bits 0-5 labels of safety.py that hold, 6-11 labels that are known (0: the head learns nothing here), 12 the end of the
    text, which counts most, 13 talk that is fine because all of our persona talk is, which counts little.
"""
import argparse
import array
import json
import multiprocessing
import os
import random
import sys
import time

import data_echo
import data_text
import persona
import persona_noise
import persona_values
import safety

SEQUENCE = 4096
UNK, BOS, EOS, CARD, USER, CHAR, END, TEXT = range(8)
CONTROL = ["<|card|>", "<|user|>", "<|char|>", "<|end|>", "<|text|>"]
PARTS = ("persona", "real", "safety", "taught")
STUTTER = 0.03  # share of replies with a repeat
MARK_END, MARK_LIGHT = 1 << 12, 1 << 13
MARKED_SHARE = 0.25  # of the persona chats
SAFETY_PASSES = 200  # chats for each written safety topic
VAL_SHARE = 50  # one of so many documents is for validation
REQUIRED = "".join(map(chr, [*range(0xC0, 0x180), 0x218, 0x219, 0x21A, 0x21B]))  # letters that are one token each, as they occur in names
LOSS_WEIGHT = [0.0, 0.1, 0.2, 1.0, 3.0]
SHARDS = 64  # fixed, so that the result does not depend on the workers
ROLE = {"user": USER, "char": CHAR}


def progress(text, last=False):
    sys.stderr.write("\r\033[K" + text + ("\n" if last else ""))
    sys.stderr.flush()


# ---------------------------------------------------------------- tokenizer
def train_tokenizer(args):
    import sentencepiece
    rows = data_text.read(args.text)
    rng = random.Random(7)
    lines = []
    budget = {"text": 9_000_000, "chat": 9_000_000, "persona": 9_000_000}  # characters

    def take(kind, text):
        for line in text.split("\n"):
            if line and budget[kind] > 0:
                lines.append(line)
                budget[kind] -= len(line)

    docs = list({id(d): d for _, d in data_text.documents(rows)}.values())
    rng.shuffle(docs)
    for doc in docs:
        if doc[0] == "text":
            take("text", doc[1])
        else:
            for _, text, *_ in doc[2]:
                take("chat", text)
    bank, talks, index = data_text.word_bank(rows), None, 0
    while budget["persona"] > 0:
        s = persona.sample(99, index, bank, talks)
        index += 1
        take("persona", s["card"])
        for _, text, *_ in s["turns"]:
            take("persona", text)
    lines = [line[i:i + 4000] for line in lines for i in range(0, len(line), 4000)]
    rng.shuffle(lines)
    prefix = args.out[:-6] if args.out.endswith(".model") else args.out
    os.chdir(os.path.dirname(os.path.abspath(prefix)))  # the model file records its own prefix: a name, not somebody's folder
    prefix = os.path.basename(prefix)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=prefix, vocab_size=8192, model_type="unigram", byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False, character_coverage=0.9995, required_chars=REQUIRED,
        unk_id=UNK, bos_id=BOS, eos_id=EOS, pad_id=-1, unk_piece="<unk>", bos_piece="<s>", eos_piece="</s>", control_symbols=CONTROL,
        max_sentence_length=16000, num_threads=os.cpu_count() or 1, minloglevel=1, max_sentencepiece_length=16)
    if os.path.exists(prefix + ".vocab"):
        os.remove(prefix + ".vocab")
    check_tokenizer(prefix + ".model")


def check_tokenizer(path):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=path)
    assert sp.vocab_size() == 8192 and os.path.getsize(path) < 400_000, "tokenizer has the wrong size"
    for i, piece in enumerate(["<unk>", "<s>", "</s>"] + CONTROL):
        assert sp.id_to_piece(i) == piece, piece
    rng = random.Random(3)
    tests = ["", " ", "  two  spaces ", "\n", "a\n\nb\n", "\ttab", "caf\u00e9 na\u00efve \u4f60\u597d \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0645\u0631\u062d\u0628\u0627",
             "<s> <|card|> <|end|>", "x" * 5000, "1234567890", "\u2581 lower one eighth block"]
    tests += ["".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(160, 0xD800), rng.randrange(0x1F300, 0x1FAFF)))) for _ in range(40)) for _ in range(200)]
    lost = [t for t in tests if sp.decode(sp.encode(t)) != t]
    assert all("\u2581" in t for t in lost), lost  # U+2581 is SentencePiece's own space mark
    assert not any(i < 8 for t in tests for i in sp.encode(t)), "text must never produce a control symbol"
    print("%s: %d bytes, %d of %d round trips exact" % (path, os.path.getsize(path), len(tests) - len(lost), len(tests)))


# ---------------------------------------------------------------- documents to tokens
_STATE = {}


def texts_of(doc):
    return [doc[1]] if doc[0] == "text" else ([doc[1]] if doc[1] else []) + [text for _, text, *_ in doc[2]]


def stutter(r, ids, weight):
    """A reply in which one to five tokens come again, and its weight classes: the repeats do not count, what follows them does, which
    teaches the way out of a loop."""
    n = 1 + int(r() * r() * 5)
    at = n + int(r() * max(1, len(ids) - n + 1))
    again = ids[at - n:at] * (1 + int(r() * 4))
    return ids[:at] + again + ids[at:], bytes((weight,)) * len(ids[:at]) + bytes(len(again)) + bytes((weight,)) * (len(ids[at:]) + 1)


def marks_of(mark, count):
    """Marks of a turn's `count` tokens, of its <|end|> and of the marker behind: harm shows in the second half of a text, harmlessness all along."""
    value = mark[0] | mark[1] << 6
    first = count // 2 if mark[0] else 1
    return [0] * min(first, count) + [value] * max(0, count - first) + [value | MARK_END] * 2


def assemble(doc, ids, r=None):
    """Tokens, weight classes and marks (None: no token has one) of one document, from the ids of its texts; with r, a few replies stutter."""
    if doc[0] == "text":
        return [BOS, TEXT] + ids[0] + [EOS], b"\0\1" + b"\3" * len(ids[0]) + b"\1", None
    tokens, weights, at, marks = [BOS], [b"\0"], 0, {}
    if doc[1]:
        tokens += [CARD] + ids[0] + [END]
        weights.append(b"\1" * (len(ids[0]) + 2))
        at = 1
    light = r and r() < MARKED_SHARE
    for role, _, weight, *mark in doc[2]:
        piece = ids[at]
        at += 1
        if role == "char" and weight > 2 and r and r() < STUTTER:
            piece, classes = stutter(r, piece, weight)
        else:
            classes = bytes((weight,)) * (len(piece) + (role == "char")) + (b"" if role == "char" else b"\1")
        tokens.append(ROLE[role])
        if mark:
            marks.update(enumerate(marks_of(mark[0], len(piece)), len(tokens)))
        elif light:
            marks[len(tokens) + len(piece)] = safety.FINE[1] << 6 | MARK_LIGHT
        tokens += piece
        tokens.append(END)
        weights.append(b"\1" + classes)
    tokens.append(EOS)
    weights.append(b"\1")
    found = None
    if marks:
        found = array.array("H", bytes(2 * len(tokens)))
        for i, value in marks.items():
            found[i] = value
    return tokens, b"".join(weights), found


def encode_all(docs, r=None):
    """Tokenises documents in batches: one call of the tokenizer for many texts. Two bytes a token from here on: a list takes forty."""
    sp = _STATE["sp"]
    for first in range(0, len(docs), 32):
        batch = docs[first:first + 32]
        texts = [t for doc in batch for t in texts_of(doc)]
        ids = sp.encode(texts, num_threads=1)
        at = 0
        for doc in batch:
            n = len(texts_of(doc))
            tokens, weights, marks = assemble(doc, ids[at:at + n], r)
            at += n
            if len(tokens) <= SEQUENCE:
                yield array.array("H", tokens), weights, marks
            elif doc[0] == "text":
                for i in range(0, len(ids[at - n]), SEQUENCE - 3):
                    tokens, weights, marks = assemble(doc, [ids[at - n][i:i + SEQUENCE - 3]])
                    yield array.array("H", tokens), weights, marks


def pack(docs, seed):
    """Best-fit decreasing into sequences of 4,096 tokens. Returns uint16 tokens, uint8 weights and uint16 marks, [sequences, 4096]."""
    import numpy as np
    docs.sort(key=lambda d: -len(d[0]))
    room, mask, bins = [[] for _ in range(SEQUENCE + 1)], 0, []  # room[k]: bins with k tokens left; mask: which k are not empty
    for doc in docs:
        n = len(doc[0])
        fits = mask >> n
        if fits:
            k = n + (fits & -fits).bit_length() - 1
            b = room[k].pop()
            if not room[k]:
                mask &= ~(1 << k)
            bins[b].append(doc)
        else:
            k, b = SEQUENCE, len(bins)
            bins.append([doc])
        room[k - n].append(b)
        mask |= 1 << (k - n)
    rng = random.Random(seed)
    tokens, weights, marks = np.full((len(bins), SEQUENCE), EOS, np.uint16), np.zeros((len(bins), SEQUENCE), np.uint8), np.zeros((len(bins), SEQUENCE), np.uint16)
    for i, content in enumerate(bins):
        head = content[:1] if rng.random() < 0.5 else []
        rest = content[len(head):]
        rng.shuffle(rest)
        at = 0
        for t, w, m in head + rest:
            tokens[i, at:at + len(t)] = t
            weights[i, at:at + len(t)] = np.frombuffer(w, np.uint8)
            if m:
                marks[i, at:at + len(t)] = m
            at += len(t)
    return tokens, weights, marks


def start_worker(tokenizer):
    import sentencepiece
    _STATE["sp"] = sentencepiece.SentencePieceProcessor(model_file=tokenizer)


def build_shard(job):
    """One shard: its persona samples up to a token count, its share of the corpora, packed."""
    shard, shards, persona_tokens, seed, validation = job
    docs, common, counts, index = [], None, {"persona": 0, "persona_samples": 0, "persona_far": 0, "real": 0, "safety": 0, "taught": 0, "documents": 0}, 0
    parts = _STATE["parts"]
    while "persona" in parts and counts["persona"] < persona_tokens:
        samples = [persona.sample(seed, shard * 10_000_000 + index + i, _STATE["bank"], _STATE["talks"]) for i in range(64)]
        index += 64
        counts["persona_far"] += sum(s["far"] is not None for s in samples)
        common = common or persona_noise.common_words(samples + [persona.sample(seed, shard * 10_000_000 + 5_000_000 + i, _STATE["bank"], _STATE["talks"]) for i in range(192)])
        batch = []
        for i, s in enumerate(samples):
            r = random.Random((seed * 64 + shard) * 10_000_000 + index + i).random
            card, turns = (s["card"], s["turns"]) if validation else persona_noise.roughen(r, s["card"], s["turns"], common, _STATE["bank"], _STATE["talks"], s["facts"], s["told"])
            batch.append(("chat", s["name"] + "\n" + card, turns))
        for doc in encode_all(batch, None if validation else r):
            docs.append(doc)
            counts["persona"] += len(doc[0])
            counts["persona_samples"] += 1
    real = []
    for n, (source, doc) in enumerate(data_text.documents(_STATE["rows"], validation, shard, shards) if "real" in parts else ()):
        if source == "tale_quiz" and not validation:
            r = random.Random((seed * 64 + shard) * 10_000_000 + 9_000_000 + n).random
            doc = ("chat",) + persona_noise.roughen(r, doc[1], doc[2], common or set(), _STATE["bank"], _STATE["talks"])
        real.append(doc)
    for n in range(shard, data_echo.DOCUMENTS // (50 if validation else 1) if "real" in parts else 0, shards):
        r = random.Random((seed * 64 + shard) * 10_000_000 + 8_000_000 + n).random
        doc = data_echo.document(r, _STATE["stock"][validation], persona_values.given(r, 0), _STATE["talks"])
        if doc:
            real.append(doc)
    held = [row for n, row in enumerate(_STATE["safety"]) if (n % VAL_SHARE == 0) == validation]
    marked = list(safety.chats(seed, shard, shards, _STATE["bank"], _STATE["talks"], held, 4 if validation else SAFETY_PASSES)) if "safety" in parts else []
    taught = [doc for n, doc in enumerate(_STATE["taught"]) if (n % VAL_SHARE == 0) == validation and n // VAL_SHARE % shards == shard]
    for kind, some in (("real", real), ("safety", marked), ("taught", taught)):
        for doc in encode_all(some if kind in parts else []):
            docs.append(doc)
            counts[kind] += len(doc[0])
    counts["documents"] = len(docs)
    return (*pack(docs, seed * 1000 + shard), counts)


def write(path, parts, seed):
    """Shuffles the sequences of all shards and writes them."""
    import numpy as np
    count, at, classes = sum(len(p[0]) for p in parts), 0, 0
    place = np.argsort(np.random.default_rng(seed).permutation(count))
    files = [np.memmap(path + end, kind, "w+", shape=(count, SEQUENCE)) for end, kind in ((".bin", np.uint16), (".weights.bin", np.uint8), (".marks.bin", np.uint16))]
    for part in parts:
        for file, rows in zip(files, part):
            file[place[at:at + len(rows)]] = rows
        at += len(part[0])
        classes += np.bincount(part[1].ravel(), minlength=5)
    counts = {k: sum(p[3][k] for p in parts) for k in parts[0][3]}
    counts["sequences"], counts["tokens"], counts["by_weight_class"] = count, count * SEQUENCE, classes.tolist()
    counts["padding_share"] = round(1 - sum(counts[k] for k in PARTS) / counts["tokens"], 5)
    return counts


def tokens_number(text):
    scale = {"K": 1e3, "M": 1e6, "G": 1e9}.get(text[-1].upper())
    return int(float(text[:-1]) * scale) if scale else int(text)


def build(args):
    import sentencepiece  # noqa: F401  the workers need it, and a pool whose workers cannot start waits for ever
    began = time.time()
    os.makedirs(args.out, exist_ok=True)
    progress("reading " + args.text)
    rows = _STATE["rows"] = data_text.read(args.text)
    _STATE["bank"], _STATE["talks"] = data_text.word_bank(rows), data_text.filler_talks(rows)
    _STATE["stock"] = {side: data_echo.sentences(data_text.prose_texts(rows, side)) for side in (False, True)}
    _STATE["safety"], _STATE["taught"], _STATE["parts"] = safety.rows(args.safety), data_text.taught(args.taught), args.parts
    report = {"tokenizer_bytes": os.path.getsize(args.tokenizer), "loss_weight": LOSS_WEIGHT, "sequence": SEQUENCE, "seed": args.seed}
    for name in ("val", "train"):
        shards = SHARDS if name == "train" else 4
        target = tokens_number(args.persona_tokens) if name == "train" else tokens_number(args.validation_tokens)
        jobs = [(i, shards, target // shards, args.seed + (0 if name == "train" else 500), name == "val") for i in range(min(shards, args.first))]
        context = multiprocessing.get_context("fork")
        with context.Pool(min(args.workers, shards), start_worker, (args.tokenizer,)) as pool:
            parts = [None] * len(jobs)
            done = tokens = 0
            for i, part in pool.imap_unordered(_numbered, jobs):
                parts[i] = part
                done, tokens = done + 1, tokens + sum(part[3][k] for k in PARTS)
                seconds = time.time() - began
                progress("%s: shard %d of %d, %.1f M tokens, %.0f s, %.2f M tokens/s" % (name, done, len(jobs), tokens / 1e6, seconds, tokens / 1e6 / seconds))
        report[name] = write(os.path.join(args.out, name), parts, args.seed)
        progress("%s: %s" % (name, json.dumps(report[name])), last=True)
    report["seconds"] = round(time.time() - began, 1)
    with open(os.path.join(args.out, "data.json"), "w") as f:
        json.dump(report, f, indent=1)
    print("built in %.1f s" % report["seconds"])


def _numbered(job):
    return job[0], build_shard(job)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    t = commands.add_parser("tokenizer", help="train the SentencePiece model")
    t.add_argument("--text", required=True, help="text.tar.xz with the corpora")
    t.add_argument("--out", default="tokenizer.model")
    b = commands.add_parser("build", help="write train.bin and val.bin")
    b.add_argument("--text", required=True)
    b.add_argument("--tokenizer", required=True)
    b.add_argument("--persona-tokens", default="250M")
    b.add_argument("--validation-tokens", default="1M", help="persona tokens of val.bin")
    b.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="build these alone; train.py takes several folders")
    b.add_argument("--taught", nargs="*", default=[], metavar="JSONL", help="a teacher's talk, from distill.py")
    b.add_argument("--safety", metavar="JSONL", help="public safety texts, from safety.py public")
    b.add_argument("--out", required=True)
    b.add_argument("--first", type=int, default=SHARDS, metavar="N", help="the first N of %d shards alone, to try things" % SHARDS)
    b.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    b.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    (train_tokenizer if args.command == "tokenizer" else build)(args)


if __name__ == "__main__":
    main()
