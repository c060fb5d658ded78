"""Attention of the trainer. q [B, T, heads, D], k and v [B, T, 1, D]: bytes as bf16 integers (or real numbers, for the bf16 twin);
the score of a pair is q . k * scale, `window` is None in global layers.
    exact     section 5 of the contract to the bit: Triton on a GPU, numpy on a CPU
    fast      FlashAttention-2 over the same integers: for most of training, where the last bits do not matter
    backward  FlashAttention-2's, from either forward's output: the rounding of p is passed straight through"""
import math

import numpy as np
import torch

import arith
import ops

LN2 = 0.6931471805599453
BLOCK = 128  # sequence lengths on a GPU are multiples of it
# BM, BN, BRANCH, warps, stages of the exact kernel; the first one is used, smoke.py times them all
TILINGS = [(128, 64, True, 8, 2), (64, 64, True, 4, 2), (64, 64, False, 4, 2), (128, 64, False, 8, 2), (64, 32, False, 4, 3), (128, 32, False, 8, 3)]


def exact(q, k, v, z, co, window, tiling=None):
    """int8 outputs [B, T, heads, D], the same in units of v before rounding, and the log-sum-exp [B, heads, T]."""
    b, t, h, d = q.shape
    a, o, lse = torch.empty_like(q, dtype=torch.int8), torch.empty_like(q), torch.empty(b, h, t, device=q.device)
    if q.is_cuda:
        bm, bn, branch, warps, stages = tiling or TILINGS[0]
        ops.kernels.attend[(t // bm, b * h)](q, k, v, co, a, o, lse, z, -24.0 / z, t, window or 1 << 30, d, h, bm, bn, branch, num_warps=warps, num_stages=stages, **ops.EXACT)
        return a, o, lse
    c = ops.numpy(co).reshape(h, d)
    for i in range(b):
        for j in range(h):
            out, total, most = arith.attention(ops.numpy(q[i, :, j]), ops.numpy(k[i, :, 0]), ops.numpy(v[i, :, 0]), np.float32(z), window)
            out = out * (np.float32(1) / total)[:, None]
            a[i, :, j], o[i, :, j] = torch.from_numpy(arith.quantise(out, c[j])), torch.from_numpy(out)
            lse[i, j] = torch.from_numpy(most * z * LN2 + np.log(total / 65535))
    return a, o, lse


def fast(q, k, v, scale, window):
    """Output in units of v, log-sum-exp."""
    if q.is_cuda and BACKEND["flex"]:
        return tuple(t.transpose(1, 2).contiguous() if t.ndim == 4 else t for t in _flex(*(t.transpose(1, 2) for t in (q, k, v)), scale, window))
    if q.is_cuda:
        left = None if window is None else window - 1
        return torch.ops.aten._flash_attention_forward(q, k, v, None, None, q.shape[1], q.shape[1], 0.0, True, False, scale=scale, window_size_left=left, window_size_right=0)[:2]
    s = scores(q, k, scale, window)
    return torch.einsum("bhts,bshd->bthd", s.softmax(-1), v.expand_as(q).to(s.dtype)).to(q.dtype).contiguous(), s.logsumexp(-1)


def backward(do, q, k, v, o, lse, scale, window):
    if q.is_cuda and BACKEND["flex"]:  # computes its own forward again: slower, and only a way out
        with torch.enable_grad():
            leaves = [t.detach().transpose(1, 2).requires_grad_() for t in (q, k, v)]
            grads = torch.autograd.grad(_flex(*leaves, scale, window)[0], leaves, do.transpose(1, 2))
        return tuple(g.transpose(1, 2).contiguous() for g in grads)
    if q.is_cuda:
        left = None if window is None else window - 1
        rng = torch.zeros(2, dtype=torch.int64, device=q.device).view(torch.uint64)  # of dropout, which there is none of
        return torch.ops.aten._flash_attention_backward(do, q, k, v, o, lse, None, None, q.shape[1], q.shape[1], 0.0, True, rng, rng, scale=scale, window_size_left=left, window_size_right=0)
    p = torch.exp(scores(q, k, scale, window) - lse[..., None])
    do, wide = do.to(p.dtype), v.expand_as(q).to(p.dtype)
    dv = torch.einsum("bhts,bthd->bshd", p, do).sum(2, keepdim=True)
    dp = torch.einsum("bthd,bshd->bhts", do, wide)
    ds = p * (dp - (do * o).sum(-1).transpose(1, 2)[..., None]) * scale
    return (torch.einsum("bhts,bshd->bthd", ds, k.expand_as(q).to(p.dtype)), torch.einsum("bhts,bthd->bshd", ds, q.to(p.dtype)).sum(2, keepdim=True), dv)


BACKEND = {"flex": False}
_masks = {}


def _flex(q, k, v, scale, window):
    """PyTorch's generated attention over [B, heads, T, D]."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    t = q.shape[2]
    if (t, window) not in _masks:
        _masks[t, window] = create_block_mask(lambda b, h, i, j: (j <= i) & (j > i - (window or t)), None, None, t, t, device=q.device)
    if "f" not in _masks:
        _masks["f"] = torch.compile(flex_attention, dynamic=False)
    return _masks["f"](q, k, v, block_mask=_masks[t, window], scale=scale, enable_gqa=True, return_lse=True)


def error_of_fast():
    """Largest relative error of fast() and backward() on this GPU against dense attention in float64, windows with and without."""
    torch.manual_seed(1)
    q, k, v, do = ((torch.randn(1, 640, h, 64) * 20).round().bfloat16() for h in (4, 1, 1, 4))
    worst = 0.0
    for window in (200, None):
        o, lse = fast(q.double(), k.double(), v.double(), 2e-3, window)
        theirs = (o, lse, *backward(do.double(), q.double(), k.double(), v.double(), o, lse, 2e-3, window))
        o, lse = fast(q.cuda(), k.cuda(), v.cuda(), 2e-3, window)
        mine = (o, lse, *backward(do.cuda(), q.cuda(), k.cuda(), v.cuda(), o, lse, 2e-3, window))
        worst = max([worst] + [float((a.cpu().double() - b).norm() / b.norm()) for a, b in zip(mine, theirs)])
    return worst


def choose():
    """FlashAttention-2 where it works with windows and one head of keys, else PyTorch's flex attention. Returns a line for the log."""
    for flex in (False, True):
        BACKEND["flex"], name = flex, "flex attention" if flex else "FlashAttention-2"
        try:
            error = error_of_fast()
            if error < 0.02:
                return "fast attention: %s, relative error %.4f" % (name, error)
            print("%s is off by %.3f" % (name, error), flush=True)
        except Exception as e:
            print("%s does not run: %s" % (name, str(e)[:300]), flush=True)
    raise SystemExit("no fast attention works here")


def scores(q, k, scale, window):
    """Dense scores for the CPU, hidden ones -inf."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    s = torch.einsum("bthd,bshd->bhts", q.to(wide), k.expand_as(q).to(wide)) * scale
    i = torch.arange(q.shape[1])
    hidden = i[None] > i[:, None]
    if window:
        hidden |= i[None] <= i[:, None] - window
    return s.masked_fill(hidden, -math.inf)


class Flash(torch.autograd.Function):
    """fast() for autograd: the twin's attention."""

    @staticmethod
    def forward(ctx, q, k, v, scale, window):
        o, lse = fast(q, k, v, scale, window)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.scale, ctx.window = scale, window
        return o

    @staticmethod
    def backward(ctx, do):
        dq, dk, dv = backward(do.contiguous(), *ctx.saved_tensors, ctx.scale, ctx.window)
        return dq.to(do.dtype), dk.to(do.dtype), dv.to(do.dtype), None, None


class Cache:
    """Keys and values of sequences being continued, for generation: one new row per sequence against everything before it. Softmax in
    float32: not the contract's bits, yet far below a rounding step of the output."""

    def __init__(self, lengths, context):
        self.at, self.context, self.slots = lengths, context, {}

    def fill(self, slot, k, v):
        """k, v [B, T, 1, D] of the prompts, padded at their ends."""
        pad = (0, 0, 0, self.context - k.shape[1])
        self.slots[slot] = [torch.nn.functional.pad(t[:, :, 0].float(), pad) for t in (k, v)]

    def append(self, slot, k, v):
        rows = torch.arange(len(self.at), device=self.at.device)
        for old, new in zip(self.slots[slot], (k, v)):
            old[rows, self.at] = new[:, 0, 0].float()

    def attend(self, slot, q, scale, window):
        """q [B, 1, heads, D] at position `at` -> float32 [B, heads, D]."""
        k, v = self.slots[slot]
        j = torch.arange(self.context, device=q.device)[None, None]
        at = self.at[:, None, None]
        hidden = j > at if window is None else (j > at) | (j <= at - window)
        s = (q[:, 0].float() @ k.transpose(1, 2) * scale).masked_fill(hidden, -math.inf)
        return s.softmax(-1) @ v
