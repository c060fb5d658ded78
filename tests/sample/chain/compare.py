"""Section 12 of docs/arithmetic.md (chains of samplers) with sections 1 and 6, written from the text alone, against PROGRAM: equal tokens.

    python3 compare.py PROGRAM [--rows N] [--draws N] [--seed S]

PROGRAM (chain_draws) reads rows as JSON, one a line, and prints the tokens that it draws from each; it draws by the kernels of every instruction
set too. N rows are made for each sampler, and N for random chains of 2 to 6, with so many draws each: 100,000 of a sampler by default. Many values
lie at an edge, where a weight's last unit decides, and a high temperature often follows, which makes all candidates that are left about as likely."""
import argparse
import functools
import json
import math
import random
import subprocess
import sys
import tempfile

import numpy as np

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


# Section 1


def fma(x, y, z):
    """x·y + z of f32 arrays, rounded once: the f64 sum is rounded to odd, so that the rounding to f32 is the only one."""
    p, c = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    s = p + c
    t = s - p
    e = (p - (s - t)) + (c - t)  # s + e is exact
    bits = s.view(np.int64)
    odd = bits + np.where((e > 0) == (s > 0), 1, -1)
    return np.where((e == 0) | (bits & 1 == 1), s, odd.view(np.float64)).astype(np.float32)


def exp2(x):
    """2 to the power of each element of an f32 array in [-126, 126]."""
    n = np.rint(x)
    f = x - n
    y = np.full_like(f, float.fromhex("0x1.3a0562p-7"))
    for constant in ("0x1.c9fbe4p-5", "0x1.ec0366p-3", "0x1.62e12cp-1", "0x1p0"):
        y = fma(y, f, np.full_like(f, float.fromhex(constant)))
    return np.ldexp(y, n.astype(np.int32))


def f32(x):
    """x rounded to f32."""
    return np.float32(x)


# Section 6


def weights(l, T):
    """w of each l at temperature T, and their sum W: exact integers."""
    with np.errstate(over="ignore"):
        b = min(f32(LOG2_E / T), np.finfo(np.float32).max)
    t = (l - l.max()) * b
    w = np.rint(exp2(np.maximum(t, f32(-31))).astype(np.float64) * 2.0**30)
    w = np.where(t < -31, 0, w).astype(np.int64).tolist()
    return w, sum(w)


def order(l):
    """Indices by l descending, then ascending."""
    return np.argsort(-l, kind="stable").tolist()


def philox(draw, count=1):
    """The first two words of Philox-4x32-10 for so many positions, each with the counter's last word 0 and then 1."""
    low, word, shift = np.uint64(2**32 - 1), np.uint64, np.uint64(32)
    k0, k1 = draw["seed"] % 2**32, draw["seed"] >> 32
    position = np.arange(count, dtype=np.uint64) + word(draw["position"])
    c0, c1, c2, c3 = position & low, position >> shift, word(draw["stream"]), np.arange(2, dtype=np.uint64)[:, None]
    for _ in range(10):
        p0, p1 = c0 * word(0xD2511F53), c2 * word(0xCD9E8D57)
        c0, c1, c2, c3 = p1 >> shift ^ c1 ^ word(k0), p1 & low, p0 >> shift ^ c3 ^ word(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0.tolist(), c1.tolist()


def random_bits(draw, count):
    """X of so many positions, and the random number of xtc of each."""
    (low, u), (high, _) = philox(draw, count)
    return [a + 2**32 * b for a, b in zip(low, high)], u


def step_5(X, ids, w):
    """Of each X, the first of the ascending ids whose running sum of w exceeds the target."""
    running = np.cumsum(w)
    total = int(running[-1])
    return [int(ids[i]) for i in np.searchsorted(running, [x * total >> 64 for x in X], side="right")]


def section_6(draw, R=1, T=1, top_k=0, min_p=0, top_p=1):
    """The token without a chain."""
    l, R, T, min_p, top_p = row(draw), f32(R), float(f32(T)), float(f32(min_p)), float(f32(top_p))
    if R != 1:
        for i in set(draw["history"]):
            l[i] = l[i] / R if l[i] > 0 else l[i] * R
    ordered = order(l)
    if T == 0:
        return ordered[0]
    w, _ = weights(l, T)
    kept = ordered[:top_k] if top_k > 0 else ordered
    if min_p > 0:
        kept = [i for i in kept if w[i] >= round(min_p * 2.0**30)]
    if top_p < 1:
        needed, s, prefix = round(top_p * 2.0**32) * sum(w[i] for i in kept), 0, []
        for i in kept:
            prefix.append(i)
            s += w[i]
            if s * 2**32 >= needed:
                break
        kept = prefix
    kept.sort()
    return step_5(random_bits(draw, 1)[0], kept, [w[i] for i in kept])[0]


def ln(x):
    """The natural logarithm of an array of positive integers, in f64."""
    f, e = np.frexp(np.asarray(x, np.float64))
    f, e = np.where(f < 0.75, 2 * f, f), np.where(f < 0.75, e - 1, e)
    s = (f - 1) / (f + 1)
    y = s * s
    acc = np.full_like(s, 1 / 25)
    for k in range(11, -1, -1):
        acc = (acc * y) + 1 / (2 * k + 1)
    return (e * LN_2) + ((2 * s) * acc)


def ln_of(x):
    """The same of one integer, without numpy, which is slow at one."""
    f, e = math.frexp(x)
    if f < 0.75:
        f, e = 2 * f, e - 1
    s = (f - 1) / (f + 1)
    y = s * s
    acc = 1 / 25
    for k in range(11, -1, -1):
        acc = (acc * y) + 1 / (2 * k + 1)
    return (e * LN_2) + ((2 * s) * acc)


# Section 12


def row(draw):
    """The draw's logits as f32."""
    with np.errstate(over="ignore"):
        return np.array(draw["logits"], np.float64).astype(np.float32)


def f64_sum(values):
    """Sum of f64 in the order given, each addition rounded."""
    s = 0.0
    for x in values.tolist():
        s += x
    return s


def exp(x):
    """exp of an f64 that is at most 0."""
    x = f32(x * LOG2_E)
    return 0.0 if x < -126 else float(exp2(np.array([x]))[0])


def reaches(s, a, W):
    """Whether the integer sum s of w reaches the share a of W."""
    return s * 2**32 >= round(a * 2.0**32) * W


def shortest_prefix(indices, w, W, a):
    """The fewest first indices, at least one, whose w reach the share a."""
    s = 0
    for n, i in enumerate(indices, 1):
        s += w[i]
        if reaches(s, a, W):
            return indices[:n]
    return indices


class Chain:
    """A draw's candidates: their ids, ascending, their l, and the temperature. `u`: the random number of xtc, by default its own."""

    def __init__(self, draw, u=None):
        self.draw, l = draw, row(draw)
        self.ids = np.flatnonzero(np.isfinite(l))
        self.l, self.T = l[self.ids], 1.0
        if u is not None:
            self.u = u

    @functools.cached_property
    def u(self):
        return random_bits(self.draw, 1)[1][0]

    def apply(self, sampler):
        if sampler[0] != "mirostat":
            SAMPLERS[sampler[0]](self, *sampler[1:])

    def weights(self):
        return weights(self.l, self.T)

    def keep(self, indices):
        indices = sorted(indices)
        self.ids, self.l = self.ids[indices], self.l[indices]

    def window(self, n):
        return self.draw["history"][-n:] if n > 0 else self.draw["history"]

    def each(self, ids, change):
        """l = change(l, id) for each candidate among ids."""
        for n, i in enumerate(self.ids.tolist()):
            if i in ids:
                self.l[n] = change(self.l[n], i)

    def surprisal(self):
        """ln(W) - ln(w) of the candidates with w > 0, and H."""
        w, W = self.weights()
        w = np.array([x for x in w if x > 0], np.float64)
        s = ln(W) - ln(w)
        return s, f64_sum(w / float(W) * s)

    def repetition_penalty(self, R=1, window=0):
        R = f32(R)
        self.each(set(self.window(window)), lambda l, i: l / R if l > 0 else l * R)

    def frequency_penalty(self, a=0, window=0):
        seen = self.window(window)
        self.each(set(seen), lambda l, i: l - f32(a) * f32(seen.count(i)))

    def presence_penalty(self, a=0, window=0):
        self.each(set(self.window(window)), lambda l, i: l - f32(a) * f32(1))

    def no_repeat_ngram(self, n=0):
        h = self.draw["history"]
        if n > 0:
            last = h[len(h) - (n - 1):]
            completes = {h[i + n - 1] for i in range(len(h) - n + 1) if h[i:i + n - 1] == last}
            kept = [k for k, i in enumerate(self.ids.tolist()) if i not in completes]
            if kept:
                self.keep(kept)

    def dry(self, multiplier=0, base=1.75, allowed_length=2, window=0):
        r, breakers, longest = self.window(window)[::-1], set(self.draw["breakers"]), {}
        limit = next((n for n, i in enumerate(r) if i in breakers), len(r))
        for i in range(1, len(r) + 1):
            length = 0
            while i + length < len(r) and r[length] == r[i + length]:
                length += 1
            longest[r[i - 1]] = max(longest.get(r[i - 1], 0), min(limit, length))

        def change(l, i):
            P = multiplier
            for _ in range(longest[i] - allowed_length):
                if P < 1e9:
                    P *= base
            return l - f32(min(P, 1e9))

        if multiplier != 0:
            self.each({i for i, L in longest.items() if L >= allowed_length and i not in breakers}, change)

    def temperature(self, T=1):
        T = float(f32(T))
        if T == 0:
            self.keep(order(self.l)[:1])
        else:
            self.T *= T

    def dynamic_temperature(self, low=1, high=1, exponent=1):
        e, (_, H) = 0.0, self.surprisal()
        if H != 0 and len(self.ids) > 1:
            k = max(1, round(2.0**52 * min(1.0, H / float(ln(len(self.ids))))))
            e = exp(exponent * (float(ln(k)) - 36.04365338911715))
        self.T *= low + ((high - low) * e)

    def top_k(self, k=0):
        if k > 0:
            self.keep(order(self.l)[:k])

    def min_p(self, a=0):
        least = round(float(f32(a)) * 2.0**30)
        self.keep([n for n, w in enumerate(self.weights()[0]) if w >= least])

    def top_p(self, a=1):
        if f32(a) < 1:
            self.keep(shortest_prefix(order(self.l), *self.weights(), float(f32(a))))

    def typical_p(self, a=1):
        if f32(a) < 1:
            self.keep([n for n, w in enumerate(self.weights()[0]) if w > 0])
            s, H = self.surprisal()
            self.keep(shortest_prefix(np.argsort(abs(s - H), kind="stable").tolist(), *self.weights(), float(f32(a))))

    def sigma(self):
        """The standard deviation of l."""
        l = self.l.astype(np.float64)
        d = l - f64_sum(l) / len(l)
        return math.sqrt(f64_sum(d * d) / len(l))

    def top_n_sigma(self, n=0):
        if n > 0:
            l = self.l.astype(np.float64)
            self.keep(np.flatnonzero(l >= l.max() - n * self.sigma()).tolist())

    def epsilon_cutoff(self, epsilon=0):
        if epsilon > 0:
            w, W = self.weights()
            self.keep({order(self.l)[0]} | {n for n, x in enumerate(w) if reaches(x, epsilon, W)})

    def eta_cutoff(self, eta=0):
        if eta > 0:
            self.epsilon_cutoff(min(eta, math.sqrt(eta) * exp(-self.surprisal()[1])))

    def xtc(self, probability=0, threshold=0.1):
        if self.u < round(probability * 2.0**32):
            w, W = self.weights()
            reach = [n for n in order(self.l) if reaches(w[n], threshold, W)]
            self.keep(set(range(len(w))) - set(reach[:-1]))


    def surprises(self):
        """In bits, of all candidates; infinity where w = 0."""
        w, W = self.weights()
        w = np.array(w, np.float64)
        return np.where(w > 0, (ln(W) - ln(np.maximum(w, 1))) * LOG2_E, np.inf)


def tokens(draw, count):
    """The tokens of so many positions, with mirostat one after another."""
    X, coins = random_bits(draw, count)
    thresholds = [round((s[1] if len(s) > 1 else 0) * 2.0**32) for s in draw["samplers"] if s[0] == "xtc"]
    outcome = [tuple(u < threshold for threshold in thresholds) for u in coins]
    chains = {}
    for u, each in zip(coins, outcome):
        if each not in chains:
            chain = chains[each] = Chain(draw, u)
            for sampler in draw["samplers"]:
                chain.apply(sampler)
    if draw["samplers"][-1][0] == "mirostat":
        return steered(draw, X, [chains[each] for each in outcome])
    drawn = [0] * count
    for each, chain in chains.items():
        places = [i for i in range(count) if outcome[i] == each]
        for i, token in zip(places, step_5([X[i] for i in places], chain.ids, chain.weights()[0])):
            drawn[i] = token
    return drawn


def steered(draw, X, chains):
    """The tokens that mirostat, at the end of each chain, draws."""
    tau, eta = draw["samplers"][-1][1:] + [5, 0.1][len(draw["samplers"][-1]) - 1:]
    mu, drawn, known = f32(draw["mu"]), [], {}
    for x, chain in zip(X, chains):
        if id(chain) not in known:
            known[id(chain)] = np.array(chain.weights()[0]), chain.surprises(), order(chain.l)[0]
        w, surprises, first = known[id(chain)]
        kept = surprises <= np.float64(mu)
        kept[first] = True
        ids, w = chain.ids[kept], w[kept]
        drawn += step_5([x], ids, w)
        own = int(w[np.searchsorted(ids, drawn[-1])])
        s = f32((ln_of(int(w.sum())) - ln_of(own)) * LOG2_E)
        mu = f32(mu - f32(f32(eta) * f32(s - f32(tau))))
    return drawn


PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty", "no_repeat_ngram", "dry")
TEMPERATURES = ("temperature", "dynamic_temperature")
FILTERS = ("top_k", "min_p", "top_p", "typical_p", "top_n_sigma", "epsilon_cutoff", "eta_cutoff", "xtc")
SAMPLERS = {name: getattr(Chain, name) for name in PENALTIES + TEMPERATURES + FILTERS}
NAMES = list(SAMPLERS) + ["mirostat", "chains"]
SECTION_6 = {"repetition_penalty": "R", "temperature": "T", "top_k": "top_k", "min_p": "min_p", "top_p": "top_p"}


def as_section_6(samplers):
    """The parameters of section 6 that a chain stands for, or None."""
    names = [s[0] for s in samplers]
    if names != [name for name in SECTION_6 if name in names] or any(any(s[2:]) for s in samplers):
        return None
    return {SECTION_6[s[0]]: s[1] for s in samplers if len(s) > 1}


# Random draws


def random_row(rng):
    """Logits of one of several kinds."""
    n = rng.choice((4, 5, 8, 16, 32, 60, rng.randint(4, 60)))
    kind = rng.choice(("even", "equal", "ulps", "normal", "normal", "normal", "peaked", "ties", "powers", "balanced", "large", "tiny"))
    scale, level = rng.choice((0.3, 1, 3, 8)), rng.choice((0, 1, -7, rng.uniform(-20, 20)))
    if kind == "even":
        l = [level + rng.uniform(-0.01, 0.01) for _ in range(n)]
    elif kind == "equal":
        l = [level] * n
    elif kind == "ulps":
        l = (np.full(n, 1 + abs(level), np.float32).view(np.int32) + np.array([rng.randint(-2, 2) for _ in range(n)], np.int32)).view(np.float32).tolist()
    elif kind == "ties":
        l = [rng.choice((-2.0, -1.0, -0.0, 0.0, 1.5)) * scale for _ in range(n)]
    elif kind == "powers":
        l = [-float(rng.choice((0, 1, 1, 2, 3, 3, 4, rng.randint(0, 32)))) for _ in range(n)]
    elif kind == "balanced":  # with "powers", two groups of equal shares lie at equal distances of the entropy: rounding decides
        k = rng.randint(1, 2)
        l = [0.0] + [-2.0 * k] * 4**k + [-float(k)] * rng.randint(0, 40)
        rng.shuffle(l)
    else:
        factor = {"large": 10.0**rng.randint(2, 26), "tiny": 10.0**rng.randint(-44, -3)}.get(kind, 1)
        l = [level + rng.gauss(0, scale) if factor == 1 else rng.gauss(0, scale) * factor for _ in range(n)]
        if kind == "peaked":
            l[rng.randrange(n)] += rng.uniform(5, 40)
    l = [float(x) for x in np.array(l, np.float64).astype(np.float32)]
    if rng.random() < 0.25:
        spared = rng.randrange(len(l))
        l = [-1e39 if i != spared and rng.random() < 0.4 else x for i, x in enumerate(l)]
    return l


def random_draw(rng):
    """A draw without samplers."""
    l = random_row(rng)
    few = rng.sample(range(len(l)), rng.choice((1, 2, 3, len(l) // 2, len(l))))
    history = [rng.choice(few) for _ in range(rng.choice((0, 1, 2, 80, rng.randint(0, 80), rng.randint(0, 80))))]
    if rng.random() < 0.5 and history:
        period = history[:rng.randint(1, 12)]
        history = [i if rng.random() < 0.95 else rng.randrange(len(l)) for i in (period * len(history))[:len(history)]]
    return {"samplers": [], "logits": l, "history": history, "breakers": rng.sample(range(len(l)), rng.choice((0, 0, 1, 3))),
            "mu": float(f32(rng.choice((0, -1, 60, rng.uniform(0, 12), rng.uniform(0, 12))))), "seed": rng.choice((0, 2**64 - 1, rng.getrandbits(64), rng.getrandbits(64))), "stream": rng.choice((0, 2**32 - 1, rng.getrandbits(32))),
            "position": rng.choice((len(history), rng.getrandbits(32), rng.getrandbits(40)))}


def edge(rng, a, step):
    """A value in 0 ... 1 at a or next to it: its neighbours in f64 and in f32, or a step away."""
    a = rng.choice((a, a, float(f32(a)), math.nextafter(a, 1), math.nextafter(a, 0), float(np.nextafter(f32(a), f32(1))), float(np.nextafter(f32(a), f32(0)))))
    return max(0.0, min(a + rng.choice((0, 0, -step, step)), 1.0))


def random_share(rng, chain, prefix):
    """A share in 0 ... 1, often at an edge: that of one candidate, or of a prefix of the order."""
    if rng.random() < 0.5:
        return rng.choice((0, 1, 0.5, 0.25, 1e-3, 1e-12, 1 - 1e-9, 0.9, rng.random(), rng.random()))
    w, W = chain.weights()
    ordered = order(chain.l)
    return edge(rng, sum(w[i] for i in ordered[:rng.randint(1, len(w))]) / W if prefix else rng.choice(w) / W, 2.0**-32)


def edge_cutoff(rng, chain):
    """An epsilon_cutoff that the last unit of one candidate's w, or nearly, decides."""
    w, W = chain.weights()
    return ["epsilon_cutoff", (rng.choice(w) * 2**32 // W + rng.randint(0, 1)) / 2.0**32]


def random_window(rng):
    """A window: all tokens, few, or more than there are."""
    return rng.choice((0, 0, 1, 2, 5, 20, rng.randint(1, 80), 1000))


def random_sampler(rng, chain, name):
    """A sampler with random values."""
    number = lambda *few: rng.choice(few + (rng.uniform(0, 3), rng.uniform(0, 3)))
    if name == "repetition_penalty":
        v = [number(1, 1.1, 0.02, 0.5, 50), random_window(rng)]
    elif name in ("frequency_penalty", "presence_penalty"):
        v = [number(0, 0.1, 2, -2, 1e3, -0.3), random_window(rng)]
    elif name == "no_repeat_ngram":
        v = [rng.choice((0, 1, 2, 3, 4, 6, 80, 1000))]
    elif name == "dry":
        v = [number(0, 0.8, 0.8, 0.3, 0.01, 1e9, 1e12), number(1, 1.75, 1.75, 1.1, 1.3, 1e5, 1e300, 0.5), rng.choice((1, 1, 2, 3, 5, 30)), random_window(rng)]
    elif name == "temperature":
        v = [number(0, 1, 0.01, 0.5, 1e-6, 1e6, LOG2_E)]
    elif name == "dynamic_temperature":
        v = [number(0.1, 0.5, 1, 1e-3), number(0.5, 1, 4, 100), number(0, 1, 0.5, 2, 10, 300)]
    elif name == "top_k":
        v = [rng.choice((0, 1, 2, 3, len(chain.ids), 1000, rng.randint(1, 60)))]
    elif name == "min_p":
        v = [edge(rng, rng.choice(chain.weights()[0]) / 2**30, 2.0**-31) if rng.random() < 0.6 else rng.choice((0, 1, 0.05, 1e-12, rng.random()))]
    elif name in ("top_p", "typical_p"):
        v = [random_share(rng, chain, True)]
    elif name == "top_n_sigma":
        n = (float(chain.l.max()) - float(rng.choice(chain.l))) / (chain.sigma() or 1)
        v = [number(0, 1, 0.5, 1e-9, 100) if rng.random() < 0.4 else rng.choice((n, n, math.nextafter(n, 0), math.nextafter(n, math.inf)))]
    elif name == "epsilon_cutoff":
        v = [random_share(rng, chain, False)]
    elif name == "eta_cutoff":
        a, e = random_share(rng, chain, False), exp(-chain.surprisal()[1])
        v = [rng.choice((a, min(1.0, (a / e)**2)))]
    elif name == "xtc":
        u = chain.u / 2.0**32
        v = [rng.choice((1, 1, 0, 0.5, u, u + 2.0**-33, u + 2.0**-32, 1e-12)), random_share(rng, chain, False)]
    elif name == "mirostat":
        v = [rng.choice((0, 5, 100, rng.uniform(0, 6), rng.uniform(0, 6))), rng.choice((0, 0.1, 1, rng.random()))]
        if rng.random() < 0.5:  # one candidate's surprise decides
            mu = f32(rng.choice(chain.surprises()))
            chain.draw["mu"] = float(min(f32(100), rng.choice((mu, np.nextafter(mu, f32(0)), np.nextafter(mu, f32(99))))))
    return [name] + v[:rng.choice([len(v)] * 9 + [rng.randint(0, len(v))])]


def names_for(rng, name):
    """The names of a chain about one sampler, or of a random one."""
    if name == "chains":
        if rng.random() < 0.3:
            return [n for n in SECTION_6 if rng.random() < 0.7] or ["temperature"]
        return [rng.choice(list(SAMPLERS)) for _ in range(rng.randint(2, 6))] + ["mirostat"] * (rng.random() < 0.2)
    before = rng.choice(([], ["powers"], ["temperature"]))
    return before + [name] + (["even"] if name in FILTERS else ["edge", "even"]) * (name != "mirostat" and rng.random() < 0.7)


def random_case(seed, name, n, count):
    """The nth row of a sampler: the whole input, its tokens, and that of section 6 where the chain is one."""
    rng = random.Random(f"{seed} {name} {n}")
    draw = random_draw(rng)
    draw["draws"] = count
    chain, fixed = Chain(draw), {"powers": ["temperature", LOG2_E], "even": ["temperature", 1e6]}
    for s in names_for(rng, name):
        draw["samplers"].append(fixed.get(s) or (edge_cutoff(rng, chain) if s == "edge" else random_sampler(rng, chain, s)))
        chain.apply(draw["samplers"][-1])
    six = as_section_6(draw["samplers"])
    return draw, tokens(draw, count), None if six is None else section_6(draw, **six)


# Cases that llama.cpp's test-sampling has published: sampler, probabilities, history, what is left of them by id (0: dropped), breakers.
EVEN_4, EVEN_5, FOUR = [0.25] * 4, [0.2] * 5, [0.4, 0.3, 0.2, 0.1]
PUBLISHED = [
    (["dry", 1.0, 1.1, 2, 4], EVEN_4, [0, 1], EVEN_4),
    (["dry", 1.0, 1.1, 2, 5], EVEN_4, [0, 1, 2, 0, 1], [0.296923, 0.296923, 0.109232, 0.296923]),
    (["dry", 1.0, 1.1, 2, 6], EVEN_5, [0, 1, 3, 4, 0, 1], EVEN_5, [3]),
    (["dry", 2.0, 1.1, 2, 5], EVEN_5, [0, 1, 2, 0, 1], [0.241818, 0.241818, 0.032727, 0.241818, 0.241818]),
    (["dry", 1.0, 1.1, 4, 7], EVEN_5, [0, 1, 2, 3, 4, 0, 1], EVEN_5),
    (["xtc", 1.0, 0.09], FOUR, [], [0, 0, 0, 1]),
    (["xtc", 1.0, 0.19], FOUR, [], [0, 0, 2 / 3, 1 / 3]),
    (["xtc", 1.0, 0.29], FOUR, [], [0, 0.5, 1 / 3, 1 / 6]),
    (["xtc", 1.0, 0.39], FOUR, [], FOUR),
    (["typical_p", 0.5], [0.97, 0.01, 0.01, 0.01], [], [1, 0, 0, 0]),
    (["typical_p", 0.5], [0.4, 0.2, 0.2, 0.2], [], [0, 1 / 3, 1 / 3, 1 / 3]),
    (["top_n_sigma", 1.0], [0.1, 0.2, 0.3, 0.4], [], [0, 0, 0.428571, 0.571429]),
    (["top_n_sigma", 3.0], [0.1, 0.2, 0.3, 0.4], [], [0.1, 0.2, 0.3, 0.4]),
]


def published():
    """How many of the published cases the text gives."""
    agree = 0
    for sampler, given, history, left, *breakers in PUBLISHED:
        chain = Chain({"logits": np.log(given).tolist(), "history": history, "breakers": breakers[0] if breakers else [], "seed": 1, "stream": 0, "position": 0})
        chain.apply(sampler)
        w, W = chain.weights()
        found = np.zeros(len(given))
        found[chain.ids] = np.array(w, np.float64) / W
        same = bool(np.abs(found - left).max() < 2e-6)
        agree += same
        if not same:
            print(f"{sampler} of {given} behind {history}: {found.tolist()}, published {left}")
    print(f"published cases of llama.cpp: {agree} of {len(PUBLISHED)} agree")
    return agree == len(PUBLISHED)


class Started:
    """The program at work on the rows of one sampler."""

    def __init__(self, options, name):
        self.options, self.name = options, name
        self.lines, self.answer, self.expected, self.sixes = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+"), [], []
        for n in range(options.rows):
            draw, drawn, six = random_case(options.seed, name, n, options.draws)
            self.lines.write(json.dumps(draw) + "\n")
            self.expected.append(drawn)
            self.sixes.append(six)
        self.lines.seek(0)
        self.program = subprocess.Popen([options.program], stdin=self.lines, stdout=self.answer, text=True)

    def agrees(self):
        """Waits for the program, and says what differs."""
        status = self.program.wait()
        self.answer.seek(0)
        got = [[int(token) for token in line.split()] for line in self.answer]
        got += [[]] * (len(self.expected) - len(got))
        same = sum(a == b for x, y in zip(self.expected, got) for a, b in zip(x, y))
        unlike_6 = [n for n, six in enumerate(self.sixes) if six is not None and six != self.expected[n][0]]
        different = [n for n in range(self.options.rows) if got[n] != self.expected[n]]
        print(f"{self.name}: {same} of {self.options.rows * self.options.draws} draws agree", flush=True)
        for n in (different + unlike_6)[:3]:
            draw, drawn, six = random_case(self.options.seed, self.name, n, self.options.draws)
            print(f"row {n}: the text gives {drawn}, the program {got[n]}, section 6 {six}\n{json.dumps(draw)}")
        return status == 0 and not different and not unlike_6


def main():
    """Makes the rows, sends them to the program, compares."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    agree = [published()]
    started = [Started(options, name) for name in NAMES]
    agree += [each.agrees() for each in started]
    compared = sum(six is not None for each in started for six in each.sixes)
    print(f"section 6: {compared} chains compared")
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
