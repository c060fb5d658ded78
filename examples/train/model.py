"""The model, and its int8 training pass. Masters (float32) are quantised once a step to Weights, exactly what a checkpoint holds;
forward() is the contract (docs/arithmetic.md, section 4) over those; backward() passes every rounding straight through, stops at every
saturation, and gives the clips the gradients of LSQ (Esser et al. 2020), in log space. Written by hand rather than with autograd
because the tensors between two steps are bytes, which carry no gradient there."""
import dataclasses
import math
from types import SimpleNamespace

import torch

import arith
import attention
import ops

MATRICES = ("q", "o", "up", "down", "k", "v")  # stacked: [layers or slots, out, in]
CLIPS = ("attn_in", "q_clip", "out_clip", "ffn_in", "mid", "k_clip", "v_clip", "final_in")
HEAD_ROWS = 16384  # rows of logits that exist at a time


@dataclasses.dataclass
class Config:
    vocab_size: int = 8192
    d_model: int = 512
    n_heads: int = 8
    head_dim: int = 64
    d_ff: int = 1536
    context: int = 4096
    pattern: str = "SSSGSSSSSSGSSS"  # S sliding, G global
    window: int = 1024
    share: int = 3  # sliding layers that share keys and values, in order
    share_global: int = 1  # global layers that do
    theta: tuple = (10_000.0, 100_000.0)  # of S and G
    norm_eps: float = 1e-5
    n_kv_heads: int = 1
    labels: tuple = ()  # of the classifier head; none: the model has no head

    def __post_init__(self):
        self.fixed_z = None  # of section 3: what attention scales by, where q_clip is not learned
        names, seen = {}, {"S": 0, "G": 0}
        self.slot = []  # of each layer; numbers run in order of first use
        for kind in self.pattern:
            name = kind, seen[kind] // (self.share if kind == "S" else self.share_global)
            seen[kind] += 1
            self.slot.append(names.setdefault(name, len(names)))
        self.owner = [self.slot.index(s) for s in range(len(names))]
        kinds = list(dict.fromkeys(self.pattern))  # rope numbers too run in order of first use
        self.rope = [kinds.index(kind) for kind in self.pattern]
        self.frequencies = [arith.rope_frequencies(self.theta["SG".index(kind)], self.head_dim) for kind in kinds]
        self.windows = [self.window if kind == "S" else None for kind in self.pattern]

    def shape(self, name):
        layers, slots, d, a, f = len(self.pattern), len(self.owner), self.d_model, self.n_heads * self.head_dim, self.d_ff
        return {"q": (layers, a, d), "o": (layers, d, a), "up": (layers, f, d), "down": (layers, d, f), "k": (slots, self.head_dim, d), "v": (slots, self.head_dim, d)}[name]


def new_masters(cfg, device, seed=1):
    """Float32 parameters by name. Scalars and clips are logarithms, so that a step is relative and none can turn negative."""
    torch.manual_seed(seed)
    layers, slots, hd = len(cfg.pattern), len(cfg.owner), cfg.head_dim
    p = {name: torch.randn(cfg.shape(name)) / math.sqrt(cfg.shape(name)[2]) for name in MATRICES}
    for name in ("o", "down"):
        p[name] *= 1 / math.sqrt(2 * layers)
    p["embed"] = torch.randn(cfg.vocab_size, cfg.d_model) * 0.05

    def log(value, *shape):
        return torch.full(shape, math.log(value))

    for name in MATRICES:
        p[name + "_scalar"] = log(1.0, cfg.shape(name)[0])
    p["in_scalar"], p["out_scalar"] = log(20.0, 1), log(0.5, 1)
    # In the units of unit-variance inputs, about four standard deviations; attention averages many values, so its output is smaller.
    p.update(attn_in=log(4.5, layers), ffn_in=log(4.5, layers), final_in=log(4.5, 1), k_clip=log(4.0, slots, hd), v_clip=log(4.0, slots, hd),
             q_clip=log(16.0, layers), out_clip=log(2.0, layers), mid=log(4.5, layers))
    if cfg.labels:
        p.update(classifier=torch.randn(len(cfg.labels), cfg.d_model) * 0.05, classifier_scalar=log(0.5, 1), classifier_bias=torch.full((len(cfg.labels),), -3.0))
    return {k: v.to(device).contiguous() for k, v in p.items()}


class Matrix:
    """int8 weight [..., out, in], scale [..., out] and virtual scalar [...], float32."""

    def __init__(self, weight, scale, scalar):
        self.weight, self.scale, self.scalar = weight, scale, scalar
        self.product = scale.double() * scalar.double()[..., None]  # S_M of section 3

    @staticmethod
    def quantise(master, scalar):
        scale = (master.abs().amax(-1) / 127).clamp_min(1e-12)
        return Matrix((master / scale[..., None]).round().clamp(-127, 127).to(torch.int8), scale, scalar)

    def real(self):
        return (self.weight * self.product[..., None].float()).bfloat16()  # for the backward pass


class Alone:
    """One process has every row and every head. tensor.Group divides them."""

    def own(self, rows):
        return rows

    def own_marks(self, found, count):
        return found

    def whole(self, rows):
        return rows

    def own_sum(self, parts):
        return parts

    def sampled(self, first, every, count):
        return slice(first, None, every)

    def expand(self, grads, cfg):
        return grads


class Weights:
    """What a checkpoint holds, and the constants that section 3 derives from it. `split` and `heads`: this process's part of a pass."""

    def __init__(self, cfg, matrices, embed, clips, ropes=None, classifier=None, bias=None):
        self.split, self.heads = Alone(), cfg.n_heads
        self.cfg, self.matrices, self.embed, self.clips, self.classifier, self.bias = cfg, matrices, embed, clips, classifier, bias
        self.ropes = ropes or [ops.Rope(f, cfg.context, embed.weight.device) for f in cfg.frequencies]
        m, heads = matrices, cfg.n_heads
        c = {k: v.double() for k, v in clips.items()}

        def pick(x, rows):  # x[rows] without a list that goes to the device
            return torch.stack([x[i] for i in rows])

        attn_in, k_clip, v_clip = c["attn_in"][:, None] / 127, pick(c["k_clip"], cfg.slot), pick(c["v_clip"], cfg.slot)
        q_clip, out_clip, mid = c["q_clip"], c["out_clip"][:, None], c["mid"][:, None]

        def all_heads(x):
            return x.float().repeat(1, heads)

        z = ((q_clip / 16129) * (1.4426950408889634 / math.sqrt(cfg.head_dim))).float()
        self.const = SimpleNamespace(
            e=(embed.scale.double() * embed.in_scalar.double()).float(),
            sl=((embed.scale.double() * embed.out_scalar.double()) * (c["final_in"] / 127)).float(),
            attn_in=(127 / c["attn_in"]).float(), ffn_in=(127 / c["ffn_in"]).float(), final_in=(127 / c["final_in"]).float(),
            sq=(m["q"].product * attn_in).float(), sk=(m["k"].product * pick(attn_in, cfg.owner)).float(), sv=(m["v"].product * pick(attn_in, cfg.owner)).float(),
            ck=(127 / c["k_clip"]).float(), cv=(127 / c["v_clip"]).float(), cq=all_heads((127 * k_clip) / q_clip[:, None]),
            co=all_heads(v_clip / out_clip), so=(m["o"].product * (out_clip / 127)).float(),
            alpha=((m["up"].product * (c["ffn_in"][:, None] / 127)) * (255 / mid)).float(), sd=(m["down"].product * ((mid * mid) / 255)).float(),
            shift=m["down"].weight.sum(-1, dtype=torch.int32) * 128,  # relu^2 is stored less 128; the row sums put it back
            z=cfg.fixed_z or z.tolist(),  # the one wait for the device in a step: kernels take z by value
            sc=None if classifier is None else (classifier.product * (c["final_in"] / 127)).float())
        self.kv = torch.cat([m["k"].weight, m["v"].weight], 1)  # [slots, 2 * head_dim, d_model]

    def layer(self, i):
        cfg = self.cfg
        return SimpleNamespace(slot=cfg.slot[i], owner=i in cfg.owner, rope=self.ropes[cfg.rope[i]], window=cfg.windows[i])


def quantise(p, cfg, ropes=None, pinned=None):
    """Masters to Weights. mid_clip = learned factor * sqrt(fan_in) * rms(W_up), so that it follows the weights. pinned: int8 weights and
    scales that follow the masters (ternary.Pinned, sharded.Masters)."""
    def matrix(name, scalar):
        return Matrix(pinned.weight[name], pinned.scale[name], scalar) if pinned and name in pinned.weight else Matrix.quantise(p[name], scalar)
    matrices = {name: matrix(name, p[name + "_scalar"].exp()) for name in MATRICES}
    embed = matrix("embed", p["in_scalar"].exp()[0])
    embed.in_scalar, embed.out_scalar = p["in_scalar"].exp(), p["out_scalar"].exp()
    clips = {name: p[name].exp() for name in CLIPS}
    squares = p["up_squares"] if "up_squares" in p else p["up"].square().sum((1, 2))  # of each layer, added up
    clips["mid"] = clips["mid"] * matrices["up"].scalar * squares.div(cfg.d_ff).sqrt()
    head = matrix("classifier", p["classifier_scalar"].exp()[0]) if cfg.labels else None
    return Weights(cfg, matrices, embed, clips, ropes, head, p["classifier_bias"].detach() if head else None)


def masters_of(w):
    """What quantise() would make these Weights of; the float32 masters that they came from had more digits."""
    p = {name: m.weight.float() * m.scale[..., None] for name, m in w.matrices.items()}
    p.update({name + "_scalar": m.scalar.log() for name, m in w.matrices.items()})
    p["embed"] = w.embed.weight.float() * w.embed.scale[:, None]
    p["in_scalar"], p["out_scalar"] = w.embed.in_scalar.log(), w.embed.out_scalar.log()
    clips = dict(w.clips)
    clips["mid"] = clips["mid"] / (w.matrices["up"].scalar * p["up"].square().sum((1, 2)).div(w.cfg.d_ff).sqrt())
    p.update({name: clips[name].log() for name in CLIPS})
    if w.classifier:
        p.update(classifier=w.classifier.weight.float() * w.classifier.scale[:, None], classifier_scalar=w.classifier.scalar.log().reshape(1), classifier_bias=w.bias.clone())
    return p


class Training:
    """Attention over whole sequences: exact, or fast and then rounded."""

    def __init__(self, shape, exact):
        self.shape, self.exact, self.kv = shape, exact, {}

    def put(self, slot, k, v):
        self.kv[slot] = tuple(t.view(*self.shape, 1, -1) for t in (k, v))

    def attend(self, q, slot, z, co, window):
        q = q.view(*self.shape, -1, self.kv[slot][0].shape[-1])
        if self.exact:
            a, o, lse = attention.exact(q, *self.kv[slot], z, co, window)
        else:
            o, lse = attention.fast(q, *self.kv[slot], z * attention.LN2, window)
            a = ops.project(o.flatten(2).flatten(0, 1), torch.ones_like(co), co, None, None, o.shape[2], torch.int8)
        return a.view(self.shape[0] * self.shape[1], -1), (q, o, lse)


class Decoding:
    """Attention of one new position per sequence over an attention.Cache."""

    def __init__(self, cache):
        self.cache = cache

    def put(self, slot, k, v):
        self.cache.append(slot, k[:, None, None], v[:, None, None])

    def attend(self, q, slot, z, co, window):
        q = q.view(len(q), 1, -1, self.cache.slots[slot][0].shape[-1])
        o = self.cache.attend(slot, q, z * attention.LN2, window).flatten(1)
        return (o * co).round().clamp(-127, 127).to(torch.int8), None


def forward(w, tokens, positions, kv, tape=None):
    """tokens, positions [N] -> residual stream and normed int8 rows [N, d_model] for head(): the rows of this process, if w.split divides
    them. Appends to tape what backward() needs."""
    c, m, eps, heads, split = w.const, w.matrices, w.cfg.norm_eps, w.heads, w.split
    x, acc, s, shift = ops.embed(w.embed.weight, c.e, split.own(tokens)), None, None, None
    for i in range(len(w.cfg.pattern)):
        layer = w.layer(i)
        slot, hd = layer.slot, w.cfg.head_dim
        x0, a0 = ops.add_norm(x, acc, s, shift, c.attn_in[i:i + 1], eps)
        a0 = split.whole(a0)
        if layer.owner:
            acc = ops.int_mm(a0, w.kv[slot])
            k = ops.project(acc[:, :hd], c.sk[slot], c.ck[slot], layer.rope, positions, 1)
            kv.put(slot, k, ops.project(acc[:, hd:], c.sv[slot], c.cv[slot], None, positions, 1))
        q = ops.project(ops.int_mm(a0, m["q"].weight[i]), c.sq[i], c.cq[i], layer.rope, positions, heads)
        a1, saved = kv.attend(q, slot, c.z[i], c.co[i], layer.window)
        x1, a2 = ops.add_norm(x0, split.own_sum(ops.int_mm(a1, m["o"].weight[i])), c.so[i], None, c.ffn_in[i:i + 1], eps)
        a2 = split.whole(a2)
        u, h = ops.up(ops.int_mm(a2, m["up"].weight[i]), c.alpha[i])
        x, acc, s, shift = x1, split.own_sum(ops.int_mm(h, m["down"].weight[i])), c.sd[i], c.shift[i]
        if tape is not None:
            tape.append(SimpleNamespace(x0=x0, a0=a0, attention=saved, a1=a1, x1=x1, a2=a2, u=u))
        del x0, a0, q, a1, saved, x1, a2, u, h
    return ops.add_norm(x, acc, s, shift, c.final_in, eps)


def logits(w, a):
    """float32 [N, vocab]; mind the size."""
    return ops.int_mm(a, w.embed.weight).float() * w.const.sl


def scores(w, a):
    """The classifier's scores of rows, float32 [N, labels]. float32 holds the sums exactly while d_model * 127^2 < 2^24."""
    return (a.float() @ w.classifier.weight.float().T) * w.const.sc + w.bias


def losses(w, a, targets):
    """Loss of every row."""
    parts = [ops.cross_entropy(ops.int_mm(a[i:i + HEAD_ROWS], w.embed.weight), w.const.sl, targets[i:i + HEAD_ROWS], None, 0.0, False)[0] for i in range(0, len(a), HEAD_ROWS)]
    return torch.cat(parts)
