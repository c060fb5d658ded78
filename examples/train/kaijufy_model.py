"""The models of Kaijufy: the teacher, the student on its way to Kaiju's shape, and the student in int8 (arithmetic version 2).

All three keep weights stacked by kind, [layers or slots, out, in]. The student begins as the teacher; `mix` says how far it has gone: `ffn` and `kv`
are the shares of ReLU^2 and of the shared KV head, `window` what sliding layers see. In int8 the matrices are kept behind the block
transform (docs/arithmetic-2.md), every site is rounded as the contract does, gradients pass roundings straight through, and
`int8` is the share of the rounding: 0 at the switch, 1 soon after."""
import contextlib
import dataclasses
import math

import torch
import torch.nn.functional as F

import attention
import twin

BLOCK = 64
compiled = twin._compiled


@contextlib.contextmanager
def eager():
    """Within it nothing is compiled: for shapes that come once."""
    before, twin.COMPILE = twin.COMPILE, False
    try:
        yield
    finally:
        twin.COMPILE = before


@dataclasses.dataclass
class Mix:
    """How far the student has gone; ffn, kv and int8 are 0-dim tensors, so that no value of theirs compiles anything anew."""
    ffn: torch.Tensor
    kv: torch.Tensor
    int8: torch.Tensor
    window: int | None


def hadamard(device, dtype=torch.float32):
    """[64, 64], orthonormal and symmetric."""
    h = torch.ones(1, 1)
    while len(h) < BLOCK:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return (h / math.sqrt(BLOCK)).to(device=device, dtype=dtype)


def transform(x, h):
    return (x.unflatten(-1, (-1, BLOCK)) @ h).flatten(-2)


def angles(frequencies, context, device):
    """cos, sin [context, head_dim / 2] of frequencies in radians a token."""
    turns = torch.arange(context, dtype=torch.float64)[:, None] * torch.tensor(frequencies, dtype=torch.float64)
    return turns.cos().float().to(device), turns.sin().float().to(device)


def norm(x, gain, eps):
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * gain


def rotate(y, cos, sin):
    """y [B, T, heads, D] in float32; cos, sin [T, D / 2]"""
    a, b = y.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q, k, v, scale, window):
    """q [B, T, H, D], k and v [B, T, G, D]"""
    if q.is_cuda:
        return attention.Flash.apply(q, k, v, scale, window)
    t, each = q.shape[1], q.shape[2] // k.shape[2]
    i = torch.arange(t)
    seen = (i[None] <= i[:, None]) & (i[None] > i[:, None] - (window or t))
    q, k, v = q.transpose(1, 2), k.transpose(1, 2).repeat_interleave(each, 1), v.transpose(1, 2).repeat_interleave(each, 1)
    return F.scaled_dot_product_attention(q, k, v, seen, scale=scale).transpose(1, 2)


# ---------------------------------------------------------------- the teacher
@compiled
def teacher_in(x, gain, wq, wk, wv, cos, sin, eps, hd):
    a = norm(x, gain, eps).to(wq.dtype)
    q, k, v = (F.linear(a, w).unflatten(-1, (-1, hd)) for w in (wq, wk, wv))
    return rotate(q.float(), cos, sin).to(wq.dtype), rotate(k.float(), cos, sin).to(wq.dtype), v


@compiled
def teacher_out(x, o, wo, gain, gate, value, out, eps):
    x = x + F.linear(o, wo)
    a = norm(x, gain, eps).to(wo.dtype)
    return x + F.linear(F.silu(F.linear(a, gate)) * F.linear(a, value), out)


@torch.no_grad()
def teacher(t, cfg, tokens, cos, sin, keep=()):
    """tokens [B, T] -> normed rows [B, T, d], and the residual after the layers `keep`. t: weights, matrices in the compute type."""
    x, kept, n = F.embedding(tokens, t["embed"]).float(), [], tokens.shape[1]
    for i in range(len(cfg.pattern)):
        q, k, v = teacher_in(x, t["attn_gain"][i], t["q"][i], t["k"][i], t["v"][i], cos[:n], sin[:n], cfg.norm_eps, cfg.head_dim)
        o = attend(q, k, v, cfg.head_dim ** -0.5, None).flatten(2)
        x = teacher_out(x, o, t["o"][i], t["ffn_gain"][i], t["gate"][i], t["value"][i], t["out"][i], cfg.norm_eps)
        if i in keep:
            kept.append(x.to(t["q"].dtype))
    return norm(x, t["final_gain"], cfg.norm_eps).to(t["q"].dtype), kept


# ---------------------------------------------------------------- on the way
@compiled
def shared_heads(x, gain, wk, wv, eps):
    a = norm(x, gain, eps).to(wk.dtype)
    return F.linear(a, wk), F.linear(a, wv)


@compiled
def student_in(x, gain, wq, wk, wv, shared_k, shared_v, key_map, value_map, kv, cos, sin, eps, hd):
    """The layer's own KV heads, and the shared head mapped to each of them, mixed."""
    a = norm(x, gain, eps).to(wq.dtype)
    q, k, v = (F.linear(a, w).unflatten(-1, (-1, hd)).float() for w in (wq, wk, wv))
    first, second = shared_k.float()[..., None, :].chunk(2, -1)
    real, imaginary = key_map.unbind(-1)  # [groups, D / 2]
    mapped = torch.cat([first * real - second * imaginary, first * imaginary + second * real], -1)
    k = k + kv * (mapped - k)
    v = v + kv * (torch.einsum("btj,gij->btgi", shared_v, value_map.to(shared_v.dtype)).float() - v)
    return rotate(q, cos, sin).to(wq.dtype), rotate(k, cos, sin).to(wq.dtype), v.to(wq.dtype)


@compiled
def student_out(x, o, wo, gain, gate, value, out, up, down, ffn, eps):
    x = x + F.linear(o, wo)
    a = norm(x, gain, eps).to(wo.dtype)
    old = F.linear(F.silu(F.linear(a, gate)) * F.linear(a, value), out)
    new = F.linear(F.relu(F.linear(a, up)).square(), down)
    return x + old + ffn * (new - old)


def student(p, cfg, tokens, cos, sin, mix, keep=(), dtype=torch.bfloat16):
    """As teacher(), with autograd; p: float32 masters."""
    w = {k: v.to(dtype).unbind(0) for k, v in p.items() if v.ndim == 3 and k not in ("key_map", "value_map")}
    x, kept, n, shared = F.embedding(tokens, p["embed"].to(dtype)).float(), [], tokens.shape[1], {}
    for i in range(len(cfg.pattern)):
        slot, gain = cfg.slot[i], p["attn_gain"][i]
        if slot not in shared:
            shared[slot] = shared_heads(x, gain, w["shared_k"][slot], w["shared_v"][slot], cfg.norm_eps)
        q, k, v = student_in(x, gain, w["q"][i], w["k"][i], w["v"][i], *shared[slot], p["key_map"][i], p["value_map"][i], mix.kv, cos[:n], sin[:n], cfg.norm_eps, cfg.head_dim)
        window = mix.window if cfg.windows[i] else None
        o = attend(q, k, v, cfg.head_dim ** -0.5, window).flatten(2)
        x = student_out(x, o, w["o"][i], p["ffn_gain"][i], w["gate"][i], w["value"][i], w["out"][i], w["up"][i], w["down"][i], mix.ffn, cfg.norm_eps)
        if i in keep:
            kept.append(x)
    return norm(x, p["final_gain"], cfg.norm_eps).to(dtype), kept


# ---------------------------------------------------------------- in int8
def rounded(x, whole, share):
    """whole(x) forwards, by its share; straight through backwards."""
    return x + share * (whole - x).detach()


def by_row(x, share):
    """x rounded to 127 steps of the row's largest magnitude."""
    step = (x.detach().abs().amax(-1, keepdim=True) / 127).clamp_min(1e-30)
    return rounded(x, (x / step).round() * step, share)


def clamped(x, share):
    """In units of a constant step: the clamp is always on, the rounding by its share."""
    x = x.clamp(-127, 127)
    return rounded(x, x.round(), share)


def weights(w, share, dtype):
    return by_row(w, share).to(dtype)


@compiled
def int8_heads(x, gain, wk, wv, k_step, v_step, h, share, cos, sin, eps):
    """The KV rows of a slot in units of their steps, [B, T, 1, D]."""
    a = by_row(transform(norm(x, gain, eps), h), share).to(wk.dtype)
    k = rotate(F.linear(a, wk)[..., None, :].float(), cos, sin)
    k = clamped(transform(k / k_step, h) * math.sqrt(BLOCK), share)
    return k.to(wk.dtype), clamped(F.linear(a, wv)[..., None, :].float() / v_step, share).to(wk.dtype)


@compiled
def int8_in(x, gain, wq, k_step, h, share, cos, sin, eps, hd):
    a = by_row(transform(norm(x, gain, eps), h), share).to(wq.dtype)
    q = rotate(F.linear(a, wq).unflatten(-1, (-1, hd)).float(), cos, sin) * k_step
    return by_row(transform(q, h) / math.sqrt(BLOCK), share).to(wq.dtype)


@compiled
def int8_out(x, o, v_step, wo, gain, up, down, h, half, share, eps):
    """h in float32, `half` the same in the compute type: the two sites that are rounded to bf16 first."""
    o = transform((o * v_step).to(wo.dtype).flatten(2), half)
    x = x + F.linear(by_row(o.float(), share).to(wo.dtype), wo)
    a = by_row(transform(norm(x, gain, eps), h), share).to(wo.dtype)
    m = transform(F.relu(F.linear(a, up)).square(), half)
    return x + F.linear(by_row(m.float(), share).to(wo.dtype), down)


def int8(p, cfg, tokens, cos, sin, mix, keep=(), dtype=torch.bfloat16, seen=None):
    """As student(), for masters that to_int8() made: q, o, up, down, shared_k, shared_v, embed behind the transform. `seen` gets the KV."""
    h = hadamard(tokens.device)
    half, n = h.to(dtype), tokens.shape[1]
    w = {k: weights(p[k], mix.int8, dtype).unbind(0) for k in ("q", "o", "up", "down", "shared_k", "shared_v")}
    embed = weights(p["embed"], mix.int8, dtype)
    steps = {k: p[k].exp().unbind(0) for k in ("k_step", "v_step")}
    x, kept, kv = transform(F.embedding(tokens, embed).float(), h), [], {} if seen is None else seen
    for i in range(len(cfg.pattern)):
        slot, gain = cfg.slot[i], p["attn_gain"][i]
        k_step, v_step = steps["k_step"][slot], steps["v_step"][slot]
        if slot not in kv:
            kv[slot] = int8_heads(x, gain, w["shared_k"][slot], w["shared_v"][slot], k_step, v_step, h, mix.int8, cos[:n], sin[:n], cfg.norm_eps)
        q = int8_in(x, gain, w["q"][i], k_step, h, mix.int8, cos[:n], sin[:n], cfg.norm_eps, cfg.head_dim)
        o = attend(q, *kv[slot], cfg.head_dim ** -0.5, mix.window if cfg.windows[i] else None)
        x = int8_out(x, o, v_step, w["o"][i], p["ffn_gain"][i], w["up"][i], w["down"][i], h, half, mix.int8, cfg.norm_eps)
        if i in keep:
            kept.append(x)
    return transform(norm(x, p["final_gain"], cfg.norm_eps), h).to(dtype), kept
