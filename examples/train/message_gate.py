"""The gate before the model: a linear model over one message (docs/gate.md), trained, written and measured.

    python3 message_gate.py train --safety safety.jsonl --out kaiju-gate.safetensors    on the texts of the classifier head
    python3 message_gate.py score kaiju-gate.safetensors --out gate.json                for safety_eval.py table; --public CLONES: XSTest
    python3 message_gate.py text kaiju-gate.safetensors "a message"

Gate.score is the library's MessageGate in numpy: tests/capi/python/gate.py compares the two. Training needs scikit-learn."""
import argparse
import functools
import json
import os
import struct
import sys
import unicodedata

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import"))
from digest import digest_of, hash32

MOST_LETTERS = 64  # of a word
CHUNK = 24  # words; a window is two neighbouring chunks
GRAMS = (3, 4, 5)  # bytes
SPELLED = 3  # so many words of one letter make one word
ALIKE = dict(zip("авекмнорстухѕіјһαβγεηικνορτυχωıłøđ", "abekmhopctyxsijhabyenikvoptuxwilod"), **{"\u115f": "", "\u1160": ""})
LETTER_OF = dict(zip("0134578@$!", "oieastbasi"))
NOTICE = ("Trained on texts of kaiju (examples/train/phrases/safety_*.txt), of openai/moderation-api-release (MIT), amandacurry/convabuse (CC BY 4.0), "
          "t-davidson/hate-speech-and-offensive-language (MIT) and microsoft/TOXIGEN (MIT).")


# ---------------------------------------------------------------- a text's words
@functools.lru_cache(1 << 16)
def fold(character):
    """The character without case, marks and form: none, one or several characters."""
    text = character
    for _ in range(2):
        text = unicodedata.normalize("NFKD", text).casefold()
    return "".join(ALIKE.get(c, c) for c in text if unicodedata.category(c) not in ("Mn", "Mc", "Me", "Cf"))


def kind(c):
    """l: letter, n: number, s: a sign that may stand for a letter, ': apostrophe, else a space."""
    if c in "@$!":
        return "s"
    if c in "'\u2019":
        return "'"
    return {"L": "l", "N": "n"}.get(unicodedata.category(c)[0], " ")


def runs(text):
    """(word as it is written, characters between it and the word before) of each run of letters, numbers and signs before one of these."""
    folded = "".join(map(fold, text))
    kinds = [kind(c) for c in folded] + [" "]
    word, gap = "", 0
    for c, own, next_kind in zip(folded, kinds, kinds[1:]):
        if own in "ln" or (own == "s" and next_kind in "ln"):
            if len(word) == MOST_LETTERS:
                yield word, gap
                word, gap = "", 0
            word += c
        elif not (word and own == "'" and next_kind == "l"):
            if word:
                yield word, gap
                word, gap = "", 0
            gap += 1
    if word:
        yield word, gap


def together(found):
    """The words, with those that are spelled letter by letter in one: k.i.n.d is kind."""
    letters = ""
    for word, gap in found:
        if letters and (len(word) > 1 or gap > 2 or len(letters) == MOST_LETTERS):
            yield from [letters] if len(letters) >= SPELLED else letters
            letters = ""
        if len(word) == 1:
            letters += word
        else:
            yield word
    yield from [letters] if len(letters) >= SPELLED else letters


def plain(word):
    """In a word with a letter, numbers and signs become the letters that they look like; of a letter repeated, two are left."""
    if any(kind(c) == "l" for c in word):
        word = "".join(LETTER_OF.get(c, c) for c in word)
    return "".join(c for i, c in enumerate(word) if i < 2 or not c == word[i - 1] == word[i - 2])


def words(text):
    return [plain(word).encode() for word in together(runs(text))]


# ---------------------------------------------------------------- features
@functools.lru_cache(1 << 18)
def of_word(word):
    marked = b"<" + word + b">"
    return [hash32(word, 1)] + [hash32(marked[i:i + n], 0) for n in GRAMS if n < len(marked) for i in range(len(marked) - n + 1)]


@functools.lru_cache(1 << 20)
def of_pair(before, word):
    return hash32(before + b" " + word, 2)


def chunks(text):
    """The hashes of each chunk of words: of words, of the pairs that end with them, of pieces of words."""
    found, before = [], None
    for i, word in enumerate(words(text)):
        if i % CHUNK == 0:
            found.append([])
        found[-1] += of_word(word)
        if before is not None:
            found[-1].append(of_pair(before, word))
        before = word
    return found or [[]]


# ---------------------------------------------------------------- the model
class Gate:
    """A file's labels, weights [buckets, labels] int8, scales and biases [labels] float32."""

    def __init__(self, labels, weights, scale, bias):
        self.labels, self.weights, self.scale, self.bias = list(labels), weights, scale, bias

    @classmethod
    def load(cls, path):
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        tensor = lambda name, kind: np.frombuffer(data[slice(*header[name]["data_offsets"])], kind).reshape(header[name]["shape"])
        return cls(json.loads(header["__metadata__"]["config"])["classifier"]["labels"], tensor("weights", np.int8), tensor("scale", np.float32), tensor("bias", np.float32))

    def save(self, path, notice=NOTICE):
        data = b"".join(np.ascontiguousarray(array).tobytes() for array in (self.weights, self.bias, self.scale))
        config, at = json.dumps({"classifier": {"labels": self.labels}}), 0
        header = {"__metadata__": {"format": "kaiju-gate", "format_version": "1", "config": config, "notice": notice, "digest": digest_of(config.encode() + data)}}
        for name, kind, array in ("weights", "I8", self.weights), ("bias", "F32", self.bias), ("scale", "F32", self.scale):
            header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
            at += array.nbytes
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % 64)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)

    def log_odds(self, text):
        """[labels] of the window where each label is likeliest. float32."""
        sums = [(self.weights[np.array(hashes, np.int64) % len(self.weights)].sum(0, dtype=np.int64), len(hashes)) for hashes in chunks(text)]
        windows = [(a + b, m + n) for (a, m), (b, n) in zip(sums, sums[1:])] or sums
        return np.max([(total * self.scale.astype(np.float64) / np.sqrt(np.float64(max(count, 1))) + self.bias.astype(np.float64)).astype(np.float32) for total, count in windows], 0)

    def score(self, text):
        return {label: float(p) for label, p in zip(self.labels, 1 / (1 + np.exp(-self.log_odds(text).astype(np.float64))))}


# ---------------------------------------------------------------- training
def matrix(texts, buckets):
    """[texts, buckets] of how often a text has a feature, divided by the square root of the number of its features."""
    import scipy.sparse
    starts, columns, values = [0], [], []
    for text in texts:
        hashes = [each for chunk in chunks(text) for each in chunk]
        found, counts = np.unique(np.array(hashes, np.int64) % buckets, return_counts=True)
        columns.append(found)
        values.append(counts / np.sqrt(max(len(hashes), 1)))
        starts.append(starts[-1] + len(found))
    return scipy.sparse.csr_matrix((np.concatenate(values).astype(np.float32), np.concatenate(columns), starts), (len(texts), buckets))


def marked_texts(args):
    """{(text, labels that hold, labels that are known): how often}: the public texts, and the written topics in many wordings."""
    import safety
    found = {}
    for _, _, turns in safety.chats(args.seed, 0, 1, None, None, safety.rows(args.safety), args.passes):
        for _, text, _, *marks in turns:
            if marks:
                key = (text, *marks[0])
                found[key] = found.get(key, 0) + 1
    return found


def quantised(weights):
    """int8, and the scale of each label. The largest weights are cut: one in ten thousand."""
    scale = (np.quantile(np.abs(weights), 0.9999, axis=0) / 127).astype(np.float32)
    return np.clip(np.rint(weights / scale), -127, 127).astype(np.int8), scale


def train(args):
    import safety
    import scipy.sparse
    from sklearn.linear_model import LogisticRegression
    texts = marked_texts(args)
    keys = list(texts)
    x = matrix([text for text, _, _ in keys], args.buckets)
    print("%d texts, %d features in %d buckets" % (len(keys), x.nnz, args.buckets))
    rarity = 1 + np.log((1 + x.shape[0]) / (1 + x.getnnz(0)))  # as TF-IDF has it; it becomes part of the weights
    x = (x @ scipy.sparse.diags(rarity.astype(np.float32))).tocsr()
    often = np.array([min(texts[key], 3) for key in keys])
    weights, bias = np.zeros((args.buckets, len(safety.LABELS))), np.zeros(len(safety.LABELS), np.float32)
    for i, label in enumerate(safety.LABELS):
        known = np.array([k >> i & 1 for _, _, k in keys], bool)
        holds = np.array([v >> i & 1 for _, v, _ in keys])
        fit = LogisticRegression(C=args.c, max_iter=500).fit(x[known], holds[known], sample_weight=often[known])
        weights[:, i], bias[i] = fit.coef_[0] * rarity, fit.intercept_[0]
        print("%-12s %6d of %6d texts" % (label, holds[known].sum(), known.sum()))
    Gate(safety.LABELS, *quantised(weights), bias).save(args.out)


def score(args):
    import safety_eval
    gate = Gate.load(args.model)
    json.dump({item["id"]: gate.score(item["turns"][-1][1]) for item in safety_eval.items(args)}, open(args.out, "w"))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = a.add_subparsers(dest="command", required=True)
    t = commands.add_parser("train", help="trains a gate")
    t.add_argument("--safety", required=True, help="the public sets, from safety.py public")
    t.add_argument("--out", required=True)
    t.add_argument("--passes", type=int, default=40, help="wordings of each written topic")
    t.add_argument("--buckets", type=int, default=1 << 16)
    t.add_argument("--c", type=float, default=2, help="inverse of the regularisation")
    t.add_argument("--seed", type=int, default=1)
    s = commands.add_parser("score", help="scores the frozen safety sets")
    s.add_argument("--out", required=True)
    s.add_argument("--public", metavar="CLONES", help="XSTest in this folder of clones, instead of the frozen sets")
    o = commands.add_parser("text", help="scores one text")
    for command in (s, o):
        command.add_argument("model")
    o.add_argument("text")
    args = a.parse_args()
    if args.command == "text":
        return print(json.dumps(Gate.load(args.model).score(args.text), indent=1))
    {"train": train, "score": score}[args.command](args)


if __name__ == "__main__":
    main()
