#!/usr/bin/env python3
"""Version 2 of the kaiju arithmetic in numpy alone, written from docs/arithmetic-2.md and the pages that it names and from nothing else.

    python3 reproduce_2.py CHECKPOINT --tokens FILE|- [--logits OUT.npy] [--scores OUT.npy]

Reads decimal token ids separated by white space or commas, computes the logits of every position (and the classifier's scores) bit for
bit and prints the logits' digest, `bits: ` as kaiju-score prints it (this needs the xxhash package).
§ numbers are those of arithmetic-2.md. What both versions share is in reproduce.py.
"""
import argparse
import math
import sys

import numpy as np

sys.dont_write_bytecode = True  # nothing is left in the source tree
from reproduce import (BIAS, LOG2E, Checkpoint, E, Total, bf16, chunks, exp2, f32, f64, fma, print_bits, product, read_tokens,
                       reciprocal_rms, rotate, rotations)

TINY, HUGE = f32(2.0 ** -100), f32(2.0 ** 50)


# ---- §2: functions --------------------------------------------------------------------------------------------------------------------

def sigmoid(x):
    return f32(1) / (f32(1) + exp2(np.clip(x * -f32(LOG2E), f32(-126), f32(126))))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    return x * sigmoid((x * fma(x * x, f32(0.044715), f32(1))) * f32(1.5957691216057308))


def cap(x, c):
    return c * fma(f32(2), sigmoid(f32(2) * (x / c)), f32(-1))


def transform(v, B):
    """H of the last axis."""
    shape, s = v.shape, 1
    while s < B:
        pairs = v.reshape(*shape[:-1], -1, 2, s)
        u, w = pairs[..., 0, :], pairs[..., 1, :]
        v = np.stack([u + w, u - w], axis=-2).reshape(shape)
        s *= 2
    return v


def largest(v):
    A = abs(v).max(axis=-1, keepdims=True)
    return np.where(A < TINY, f32(0), A)


def over(n, A):
    """n / A, 0 where A is 0."""
    return np.where(A == 0, f32(0), f32(n) / np.where(A == 0, f32(1), A))


def norm(x, gain, eps):
    """Of the last axis; gain is None where there is none."""
    y = x * reciprocal_rms(x.reshape(-1, x.shape[-1]), eps).reshape(*x.shape[:-1], 1)
    return y if gain is None else y * gain


def row_bytes(t, limit):
    """Integers and the scale of each row, by the row's own largest value."""
    A = largest(t)
    return np.clip(np.rint(t * over(limit, A)), -limit, limit), A / f32(limit)


def keep(t, static):
    """§5: the bytes that the cache keeps and their scales."""
    if static:
        return np.clip(np.rint(t), -127, 127), np.ones(t.shape[:-1] + (1,), f32)
    scale = bf16(largest(t) / f32(127))
    return np.clip(np.rint(t * over(1, scale)), -127, 127), scale


# ---- §6: attention --------------------------------------------------------------------------------------------------------------------

def attention(Q, z, K, sk, V, sv, window):
    """All rows of one head: Q, K, V [tokens, head_dim], integers held as floats; z, sk, sv [tokens]."""
    total = Total(*Q.shape, f32)
    for rows, keys, visible in chunks(len(Q), window):
        t = product(K[keys], Q[rows]) * sk[keys]
        M = np.where(visible, t, f32(-np.inf)).max(axis=1)
        z_of = np.broadcast_to(z[rows, None], t.shape)
        p = np.zeros(t.shape, f32)
        p[visible] = fma(f32(65535), E((t - M[:, None])[visible], z_of[visible]), BIAS) - BIAS
        R = np.where(visible, sv[keys], f32(0)).max(axis=1, keepdims=True)
        w = fma(p, sv[keys] * over(1, R), BIAS) - BIAS
        total.fold(rows, M, p.astype(f64).sum(axis=1).astype(f32), product(V[keys].T, w) * R, z[rows])
    return total.mean()


# ---- §3, §5: forward pass -------------------------------------------------------------------------------------------------------------

class Forward:
    def __init__(self, ck):
        self.ck, self.config, self.structure = ck, ck.config, ck.config["structure"]
        self.static = self.structure["activations"] == "static_scales"
        self.B = max(1, self.structure["hadamard"])
        self.eps = f32(self.config["norm_eps"])

    def optional(self, name):
        return self.ck.tensors.get(name)

    def quantise(self, v, site, bf16_row=False):
        """(bytes, scale of each row, constant step) at a site inside a layer."""
        t = transform(v, self.B)
        if bf16_row and not self.structure.get("f32_rows"):
            t = bf16(t)
        if self.static:
            e = self.ck[site + "_step"]
            return np.clip(np.rint(t * (f32(1) / e)), -128, 127), f32(1), self.ck.f64(site + "_step")
        return *row_bytes(t, 127), f64(1)

    def value(self, M, quantised):
        a, s, step = quantised
        y = product(self.ck[M + ".weight"], a) * (self.ck.scale(M) * step).astype(f32)
        y = y * s
        bias, e = self.optional(M + ".bias"), self.optional(M + ".out_step")
        if bias is not None:
            y = y + bias
        if e is not None:
            y = np.clip(np.rint(y * (f32(1) / e)), -128, 127) * e
        return y

    def gated(self, gates, ups):
        """The middle of a feed-forward, or of a layer's input."""
        return np.clip((silu if self.structure["ffn"] == "gated_silu" else gelu)(gates) * ups, -HUGE, HUGE)

    def layer_inputs(self, x, tokens):
        """[tokens, layers, width]"""
        ck, width, layers = self.ck, self.structure["layer_inputs"], len(self.config["layers"])
        y = self.value("inputs.projection", self.quantise(x, "inputs.in"))
        y = norm(y.reshape(len(tokens), layers, width), ck["inputs.gain"], self.eps)
        row = np.asarray(tokens)[:, None] * layers + np.arange(layers)
        t = ck["inputs.embed.weight"][row].astype(f32) * ck.scale("inputs.embed").astype(f32)[row][..., None]
        return (t + y) * f32(2 ** -0.5)

    def residual(self, x):
        return bf16(x) if self.structure["residual"] == "bf16" else x

    def rows(self, tokens):
        """(logits, scores or None) of every position."""
        ck, config, structure, B, eps = self.ck, self.config, self.structure, self.B, self.eps
        T, H = len(tokens), config["n_heads"]
        tied = structure["output"] == "embedding"
        rope, slots = {}, {}

        x = ck["embed.weight"][tokens].astype(f32) * ck.scale("embed", "in_scalar").astype(f32)[tokens][:, None]
        x = self.residual(transform(x, B) if tied else x)
        P = self.layer_inputs(x, tokens) if structure.get("layer_inputs") else None
        for index, layer in enumerate(config["layers"]):
            name, slot = f"layers.{index}.", f"kv.{layer['kv_slot']}."
            D, G = layer.get("head_dim", config["head_dim"]), layer.get("n_kv_heads", config["n_kv_heads"])
            window = layer["window"] if layer["kind"] == "sliding" else 0
            if layer["rope"] not in rope:
                rope[layer["rope"]] = rotations(T, ck[f"rope.{layer['rope']}"])
            rotation = rope[layer["rope"]]
            heads = lambda y: y.reshape(T, -1, D)
            k_step, v_step = ck[slot + "k_step"].reshape(G, D), ck[slot + "v_step"].reshape(G, D)

            a = self.quantise(norm(x, self.optional(name + "attn.gain"), eps), name + "attn.in")
            if slot not in slots:
                k = heads(self.value(slot + "k", a))
                v = k if layer.get("values_from_keys") else heads(self.value(slot + "v", a))
                if structure["head_norms"]:
                    k = norm(k, ck[slot + "k_gain"], eps)
                if structure["value_norms"]:
                    v = norm(v, None, eps)
                k = rotate(k, rotation)
                static_kv = structure["static_kv"]
                slots[slot] = (*keep(transform(k * (1 / k_step.astype(f64)).astype(f32), B), static_kv),
                               *keep(v * (1 / v_step.astype(f64)).astype(f32), static_kv))
            K, sk, V, sv = slots[slot]
            q = heads(self.value(name + "attn.q", a))
            if structure["head_norms"]:
                q = norm(q, ck[name + "attn.q_gain"], eps)
            g = [h * G // H for h in range(H)]
            t = transform(rotate(q, rotation) * k_step[g], B)
            score_scale = f64(f32(structure["score_scale"])) or 1 / math.sqrt(D)
            z = largest(t) * f32(((1 / 127) / B) * (LOG2E * score_scale))
            Q, _ = row_bytes(t, 127)
            o = np.stack([attention(Q[:, h], z[:, h, 0], K[:, g[h]], sk[:, g[h], 0], V[:, g[h]], sv[:, g[h], 0], window) * v_step[g[h]]
                          for h in range(H)], axis=1)
            a = self.quantise(o.reshape(T, H * D), name + "attn.out", bf16_row=True)
            x = self.add(x, self.value(name + "attn.o", a), name + "attn.post_gain", 1)

            a = self.quantise(norm(x, self.optional(name + "ffn.gain"), eps), name + "ffn.in")
            u = self.value(name + "ffn.up", a)
            if structure["ffn"] == "squared_relu":
                h = np.clip(np.maximum(u, f32(0)) * np.maximum(u, f32(0)), -HUGE, HUGE)
            else:
                h = self.gated(self.value(name + "ffn.gate", a), u)
            a = self.quantise(h, name + "ffn.mid", bf16_row=True)
            factor = layer.get("factor", 1)
            x = self.add(x, self.value(name + "ffn.down", a), name + "ffn.post_gain", factor if P is None else 1)
            if P is not None:
                a = self.quantise(x, name + "inputs.in")
                h = self.gated(self.value(name + "inputs.gate", a), P[:, index])
                a = self.quantise(h, name + "inputs.mid", bf16_row=True)
                x = self.add(x, self.value(name + "inputs.out", a), name + "inputs.post_gain", factor)

        t = transform(norm(x, self.optional("final.gain"), eps), B)
        last = row_bytes(t, 32512 if structure["wide_logits"] else 127)
        S = ck.scale("embed", "out_scalar") if tied else ck.scale("output")
        logits = self.last_value(ck["embed.weight" if tied else "output.weight"], S, last)
        if structure["biases"] == "all" and not tied:
            logits = logits + ck["output.bias"]
        if structure["logit_cap"]:
            logits = cap(logits, f32(structure["logit_cap"]))
        if "classifier" not in config:
            return logits, None
        return logits, self.last_value(ck["classifier.weight"], ck.scale("classifier"), last) + ck["classifier.bias"]

    def add(self, x, y, post_gain, factor):
        if self.structure["norms_after"]:
            y = norm(y, self.ck[post_gain], self.eps)
        return self.residual((x + y) * f32(factor))

    def last_value(self, weight, S, last):
        """value() of the final row, which always has token scales."""
        (b, s), S = last, S.astype(f32)
        if not self.structure["wide_logits"]:
            return product(weight, b) * S * s
        high = np.floor((b + f32(128)) / f32(256))
        low = b - f32(256) * high
        return fma(f32(256), product(weight, high) * S, product(weight, low) * S) * s


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--tokens", required=True, help="file of token ids, - for standard input")
    parser.add_argument("--logits", help="write the logits here, float32 [tokens, vocab_size]")
    parser.add_argument("--scores", help="write the classifier's scores here, float32 [tokens, labels]")
    args = parser.parse_args()
    checkpoint = Checkpoint(args.checkpoint, "2")
    np.seterr(over="ignore")                                 # the sum of a norm may reach infinity
    logits, scores = Forward(checkpoint).rows(read_tokens(args.tokens, checkpoint))
    if args.logits:
        np.save(args.logits, logits)
    if args.scores:
        np.save(args.scores, scores)
    print_bits(logits)


if __name__ == "__main__":
    main()
