#!/usr/bin/env python3
"""The kaiju arithmetic contract in numpy alone, written from docs/arithmetic.md and docs/checkpoint.md and from nothing else.

    python3 reproduce.py CHECKPOINT --tokens FILE|- [--logits OUT.npy] [--after LAYER] [--draw T,top_k,top_p,min_p,R,seed,stream]

Reads decimal token ids separated by white space or commas, computes the logits of every position bit for bit and prints their digest,
`bits: ` as kaiju-score prints it (this needs the xxhash package; without it only --logits and --draw are of use).
§ numbers are those of arithmetic.md. Products of int8 run as float64 matrix products: sums of integers below 2^53 are exact there, in
any order.
"""
import argparse
import hashlib
import json
import math
import sys

import numpy as np

try:
    import xxhash
except ImportError:
    xxhash = None

f32, f64 = np.float32, np.float64
LOG2E, LN2 = 1.4426950408889634, 0.6931471805599453
BIAS = f32(12582912)
hexes = lambda text: [f32(float.fromhex(word)) for word in text.split()]


# ---- §1: operations -------------------------------------------------------------------------------------------------------------------

def fma(x, y, z):
    p = np.asarray(x).astype(f64) * np.asarray(y).astype(f64)
    c = np.asarray(z).astype(f64)
    s = np.asarray(p + c)
    t = s - p
    e = (p - (s - t)) + (c - t)                              # s + e = x·y + z exactly
    bits = s.view(np.int64)
    odd = (bits & 1) == 1
    away = (e > 0) == (s > 0)
    return np.where((e == 0) | odd, s, (bits + np.where(away, 1, -1)).view(f64)).astype(f32)


def bf16(x):
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(f32)


def quantise(x, c):
    return np.clip(np.rint(x * c), -127, 127)


EXP2 = hexes("0x1.62e12cp-1 0x1.ec0366p-3 0x1.c9fbe4p-5 0x1.3a0562p-7")


def pow2(n, f):
    y = fma(EXP2[3], f, EXP2[2])
    for c in (EXP2[1], EXP2[0], f32(1)):
        y = fma(y, f, c)
    return np.ldexp(y, n.astype(np.int32))


def exp2(x):
    n = np.rint(x)
    return pow2(n, x - n)


SIN = hexes("0x1.921fb6p+2 -0x1.4abbcep+5 0x1.466bc6p+6 -0x1.32d2ccp+6 0x1.507834p+5")
COS = hexes("0x1p+0 -0x1.3bd3ccp+4 0x1.03c1d8p+6 -0x1.55c612p+6 0x1.d9d57ep+5")


def rotations(count, frequency):
    """cos and sin, each [count, head_dim / 2], of positions 0 … count − 1."""
    a = np.arange(count, dtype=np.uint64)[:, None] * frequency[None, :]
    q = (a + np.uint64(1 << 61)) >> np.uint64(62)
    r = (a - (q << np.uint64(62))).view(np.int64)
    t = (r >> 37).astype(f32) * f32(2.0 ** -27)
    u = t * t
    s, c = SIN[4], COS[4]
    for k in (3, 2, 1, 0):
        s, c = fma(s, u, SIN[k]), fma(c, u, COS[k])
    s = t * s
    return np.choose(q.astype(int), (c, -s, -c, s)), np.choose(q.astype(int), (s, c, -s, -c))


# ---- The checkpoint -------------------------------------------------------------------------------------------------------------------

DTYPES = {"I8": "<i1", "U8": "<u1", "I32": "<i4", "F32": "<f4", "U64": "<u8"}


class Checkpoint:
    def __init__(self, path, arithmetic="1"):
        raw = open(path, "rb").read()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + size])
        meta = header.pop("__metadata__")
        if (meta["format"], meta["format_version"], meta["arithmetic"]) != ("kaiju", "1", arithmetic):
            sys.exit(f"not a kaiju checkpoint of arithmetic {arithmetic}")
        self.config = json.loads(meta["config"])
        self.tensors = {}
        lines = meta["arithmetic"] + "\n" + meta["config"] + "\n"
        digests = json.loads(meta["digests"])
        for name in sorted(header, key=str.encode):
            tensor = header[name]
            begin, end = (8 + size + offset for offset in tensor["data_offsets"])
            self.tensors[name] = np.frombuffer(raw[begin:end], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
            lines += f"{name} {tensor['dtype']} {','.join(map(str, tensor['shape']))} {digests[name]}\n"
            if xxhash and xxhash.xxh3_128_hexdigest(raw[begin:end]) != digests[name]:
                sys.exit(f"{name}: digest does not match")
        if xxhash and xxhash.xxh3_128_hexdigest(lines.encode()) != meta["digest"]:
            sys.exit("root digest does not match")

    def __getitem__(self, name):
        return self.tensors[name]

    def f64(self, name):
        """Scales and clips, as §3 wants them; a tensor of one element becomes a number."""
        value = self.tensors[name].astype(f64)
        return value[0] if value.shape == (1,) else value

    def scale(self, matrix, scalar="scalar"):
        return self[matrix + ".scale"].astype(f64) * self.f64(f"{matrix}.{scalar}")


def product(weight, a):
    """f32(W·a) for every row of a."""
    return (a.astype(f64) @ weight.astype(f64).T).astype(f32)


# ---- §4, §5: forward pass -------------------------------------------------------------------------------------------------------------

def reciprocal_rms(x, eps):
    """r of every row of x."""
    tokens, width = x.shape
    P = np.zeros((tokens, 256), f32)
    for i in range(0, width, 256):
        part = x[:, i:i + 256]
        P[:, :part.shape[1]] = fma(part, part, P[:, :part.shape[1]])
    for w in (128, 64, 32, 16, 8, 4, 2, 1):
        P[:, :w] = P[:, :w] + P[:, w:2 * w]
    return f32(1) / np.sqrt(P[:, 0] / f32(width) + eps)


def norm(x, c, eps):
    return quantise(x, (reciprocal_rms(x, eps) * c)[:, None])


def rotate(x, rotation):
    """x [tokens, heads, head_dim]."""
    cos, sin = (part[:, None, :] for part in rotation)
    half = x.shape[2] // 2
    lo, hi = x[:, :, :half], x[:, :, half:]
    return np.concatenate([fma(lo, cos, -(hi * sin)), fma(hi, cos, lo * sin)], axis=2)


def E(d, z):
    d = d.astype(f32)
    n = fma(d, z, BIAS) - BIAS
    f = fma(d, z, -n)
    return np.where(n < -126, f32(0), pow2(np.maximum(n, -126), np.where(n < -126, f32(0), f)))


class Total:
    """Chunks of keys folded into (M, L, O) of every row of one head."""

    def __init__(self, tokens, head_dim, M_type):
        self.M, self.L, self.O = np.zeros(tokens, M_type), np.zeros(tokens, f32), np.zeros((tokens, head_dim), f32)
        self.begun = np.zeros(tokens, bool)

    def fold(self, rows, M, L, O, z):
        """`rows` is a slice; z is one number or one for each of those rows."""
        m, l, o, later = self.M[rows], self.L[rows], self.O[rows], self.begun[rows]
        a = E(np.where(later, -abs(m - M), 0), z)
        rise = m <= M
        foldedL = np.where(rise, fma(l, a, L), fma(L, a, l))
        foldedO = np.where(rise[:, None], fma(o, a[:, None], O), fma(O, a[:, None], o))
        self.M[rows] = np.where(later & ~rise, m, M)
        self.L[rows] = np.where(later, foldedL, L)
        self.O[rows] = np.where(later[:, None], foldedO, O)
        self.begun[rows] = True

    def mean(self):
        return self.O * (f32(1) / self.L)[:, None]


def chunks(tokens, window):
    """Of each chunk of keys: the rows that see one of them, the keys, and who sees which. window 0: none."""
    position = np.arange(tokens)
    for first in range(0, tokens, 512):
        keys = slice(first, min(first + 512, tokens))
        rows = slice(first, min(first + 511 + window, tokens) if window else tokens)
        p, j = position[rows, None], position[None, keys]
        yield rows, keys, (j <= p) & (j > p - window) if window else j <= p


def attention(Q, K, V, z, c, window):
    """All rows of one head: Q, K, V [tokens, head_dim], integers held as float64."""
    total = Total(*Q.shape, f64)
    for rows, keys, visible in chunks(len(Q), window):
        score = Q[rows] @ K[keys].T
        M = np.where(visible, score, -np.inf).max(axis=1)
        weight = np.zeros(score.shape)
        weight[visible] = fma(f32(65535), E((score - M[:, None])[visible], z), BIAS) - BIAS
        total.fold(rows, M, weight.sum(axis=1).astype(f32), (weight @ V[keys]).astype(f32), z)
    return quantise(total.mean(), c)


def logits(ck, tokens, seen=lambda layer, x: None):
    """[len(tokens), vocab_size]; `seen` is shown x, [len(tokens), d_model], after each layer."""
    config = ck.config
    T, H, G, D = len(tokens), config["n_heads"], config["n_kv_heads"], config["head_dim"]
    eps = f32(config["norm_eps"])
    heads = lambda x: x.reshape(T, -1, D)
    rope, slots = {}, {}

    e = ck.scale("embed", "in_scalar").astype(f32)
    x = bf16(ck["embed.weight"][tokens].astype(f32) * e[tokens][:, None])
    for index, layer in enumerate(config["layers"]):
        name, slot = f"layers.{index}.", layer["kv_slot"]
        window = layer["window"] if layer["kind"] == "sliding" else 0
        if layer["rope"] not in rope:
            rope[layer["rope"]] = rotations(T, ck[f"rope.{layer['rope']}"])
        rotation = rope[layer["rope"]]

        in_clip, q_clip, out_clip = (ck.f64(f"{name}attn.{clip}_clip") for clip in ("in", "q", "out"))
        k_clip, v_clip = ck.f64(f"kv.{slot}.k_clip"), ck.f64(f"kv.{slot}.v_clip")
        a = norm(x, f32(127 / in_clip), eps)
        project = lambda matrix: heads(product(ck[matrix + ".weight"], a) * (ck.scale(matrix) * (in_clip / 127)).astype(f32))
        per_head = lambda c: c.astype(f32).reshape(G, D)
        if slot not in slots:
            slots[slot] = (quantise(rotate(project(f"kv.{slot}.k"), rotation), per_head(127 / k_clip)).astype(f64),
                           quantise(project(f"kv.{slot}.v"), per_head(127 / v_clip)).astype(f64))
        K, V = slots[slot]
        g = [h * G // H for h in range(H)]
        Q = quantise(rotate(project(name + "attn.q"), rotation), per_head((127 * k_clip) / q_clip)[g]).astype(f64)
        z = f32((q_clip / 16129) * (LOG2E / math.sqrt(D)))
        co = per_head(v_clip / out_clip)
        A = np.stack([attention(Q[:, h], K[:, g[h]], V[:, g[h]], z, co[g[h]], window) for h in range(H)], axis=1)
        so = (ck.scale(name + "attn.o") * (out_clip / 127)).astype(f32)
        x = bf16(fma(product(ck[name + "attn.o.weight"], A.reshape(T, H * D)), so, x))

        in_clip, mid_clip = ck.f64(name + "ffn.in_clip"), ck.f64(name + "ffn.mid_clip")
        a = norm(x, f32(127 / in_clip), eps)
        alpha = ((ck.scale(name + "ffn.up") * (in_clip / 127)) * (255 / mid_clip)).astype(f32)
        u = np.clip(np.rint(product(ck[name + "ffn.up.weight"], a) * alpha + f32(-128)), -128, 127).astype(np.int64) + 128
        h = (2 * u * u + 255) // 510
        sd = (ck.scale(name + "ffn.down") * ((mid_clip * mid_clip) / 255)).astype(f32)
        x = bf16(fma(product(ck[name + "ffn.down.weight"], h), sd, x))
        seen(index, x)

    in_clip = ck.f64("final.in_clip")
    sl = (ck.scale("embed", "out_scalar") * (in_clip / 127)).astype(f32)
    return product(ck["embed.weight"], norm(x, f32(127 / in_clip), eps)) * sl


# ---- §6: from logits to a token -------------------------------------------------------------------------------------------------------

def philox(key, counter):
    """Philox-4x32-10: two and four 32-bit words to four."""
    k, c, low = list(key), list(counter), 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & low, (a >> 32) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


def weights(l, b):
    """Step 3's w, as integers."""
    t = (l - l.max()) * b
    small = t < -31
    return np.where(small, 0, np.rint(f32(2.0 ** 30) * exp2(np.where(small, f32(0), t))).astype(np.int64))


def sample(l, history, position, T=1.0, top_k=0, top_p=1.0, min_p=0.0, R=1.0, biases=(), seed=0, stream=0):
    """The token drawn for `position` from the row l of logits, after the ids in `history`."""
    l = l.copy()
    if f32(R) != 1:
        seen = np.unique(np.asarray(history, np.int64))
        l[seen] = np.where(l[seen] > 0, l[seen] / f32(R), l[seen] * f32(R))
    for token, bias in biases:
        l[token] = l[token] + f32(bias)
    if T == 0:
        return int(np.argmax(l))
    w = weights(l, f32(LOG2E / f64(f32(T))))
    kept = np.argsort(-l, kind="stable")
    if top_k > 0:
        kept = kept[:top_k]
    if min_p > 0:
        kept = kept[w[kept] >= np.rint(f64(f32(min_p)) * 2.0 ** 30)]
    if top_p < 1:
        threshold = int(np.rint(f64(f32(top_p)) * 2.0 ** 32)) * int(w[kept].sum())
        s, count = 0, 0
        while count < len(kept) and (count == 0 or s << 32 < threshold):
            s, count = s + int(w[kept[count]]), count + 1
        kept = kept[:count]
    kept = np.sort(kept)
    running = np.cumsum(w[kept])
    out = philox((seed & 0xFFFFFFFF, seed >> 32), (position & 0xFFFFFFFF, position >> 32, stream, 0))
    target = ((out[0] + (out[1] << 32)) * int(running[-1])) >> 64
    return int(kept[np.argmax(running > target)])


def logprob(l, token):
    f, e = math.frexp(float(weights(l, f32(LOG2E)).sum()))
    if f < 0.75:
        f, e = 2 * f, e - 1
    s = (f - 1) / (f + 1)
    y = s * s
    series = 1 / 25
    for n in range(23, 0, -2):
        series = series * y + 1 / n
    ln = e * LN2 + (2 * s) * series
    return f32((float(l[token]) - float(l.max())) - (ln - 30 * LN2))


def sha256(values):
    """Of float32 values, little-endian, in order of position."""
    return hashlib.sha256(np.ascontiguousarray(values.astype("<f4")).data).hexdigest()


def print_x(x):
    for position, row in enumerate(x):
        print(f"x[{position}]:", *row[:4])
    print("x.sha256:", sha256(x))


def read_tokens(path, checkpoint):
    text = sys.stdin.read() if path == "-" else open(path).read()
    tokens = np.array([int(word) for word in text.replace(",", " ").split()], np.int64)
    if not len(tokens) or tokens.min() < 0 or tokens.max() >= checkpoint.config["vocab_size"]:
        sys.exit("no tokens, or one that the vocabulary lacks")
    return tokens


def print_bits(rows):
    if xxhash:
        print("bits:", xxhash.xxh3_128_hexdigest(np.ascontiguousarray(rows.astype("<f4")).data))
    else:
        print("no xxhash package: no digest")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--tokens", required=True, help="file of token ids, - for standard input")
    parser.add_argument("--logits", help="write the logits here, float32 [tokens, vocab_size]")
    parser.add_argument("--after", type=int, metavar="LAYER",
                        help="print x after this layer, 0 for the first: the first four channels of each position, and the SHA-256 of all")
    parser.add_argument("--draw", help="T,top_k,top_p,min_p,R,seed,stream: draw the token after the last position")
    args = parser.parse_args()
    checkpoint = Checkpoint(args.checkpoint)
    tokens = read_tokens(args.tokens, checkpoint)
    np.seterr(over="ignore")                                 # the sum of a norm may reach infinity
    rows = logits(checkpoint, tokens, lambda layer, x: layer == args.after and print_x(x))
    if args.logits:
        np.save(args.logits, rows)
    print_bits(rows)
    if args.draw:
        T, top_k, top_p, min_p, R, seed, stream = args.draw.split(",")
        token = sample(rows[-1], tokens, len(tokens), float(T), int(top_k), float(top_p), float(min_p), float(R), (), int(seed), int(stream))
        print("drawn:", token, "logprob:", repr(float(logprob(rows[-1], token))))


if __name__ == "__main__":
    main()
