"""The bf16 twin: the same architecture and initial weights, nothing quantised or clamped, by autograd. Its figures say what int8 costs."""
import torch
import torch.nn.functional as F

import attention
import model
import ops


COMPILE = True  # evaluate.py, whose shapes keep changing, turns it off


def _compiled(f):
    """Fused on a GPU, plain elsewhere or when the compiler fails."""
    fast = torch.compile(f, dynamic=False)
    state = {"fast": True}

    def call(*args):
        if COMPILE and state["fast"] and args[0].is_cuda:
            try:
                return fast(*args)
            except Exception as e:  # slower, and as right
                print("torch.compile failed, going on without:", str(e)[:200], flush=True)
                state["fast"] = False
        return f(*args)
    return call


@_compiled
def norm(x):
    x = x.float()
    return (x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).bfloat16()


@_compiled
def rotated(y, cos, sin):  # y [B, T, heads, D]; cos, sin [T, D / 2] or [B, 1, D / 2]
    a, b = y.float().chunk(2, -1)
    cos, sin = cos[..., None, :], sin[..., None, :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).bfloat16()


@_compiled
def relu_squared(y):
    return F.relu(y.float()).square().bfloat16()


def new_masters(cfg, device, seed=1):
    return {k: v.requires_grad_() for k, v in model.new_masters(cfg, device, seed).items() if k not in model.CLIPS}


class Training:
    def __init__(self, ropes):
        self.ropes, self.kv = ropes, {}

    def angles(self, rope, t):
        return self.ropes[rope].cos[:t], self.ropes[rope].sin[:t]

    def put(self, slot, k, v):
        self.kv[slot] = (k, v)

    def attend(self, q, slot, scale, window):
        return attention.Flash.apply(q, *self.kv[slot], scale, window)


class Decoding(Training):
    def __init__(self, ropes, cache):
        super().__init__(ropes)
        self.cache = cache

    def angles(self, rope, t):
        return self.ropes[rope].cos[self.cache.at][:, None], self.ropes[rope].sin[self.cache.at][:, None]

    def put(self, slot, k, v):
        self.cache.append(slot, k, v)

    def attend(self, q, slot, scale, window):
        return self.cache.attend(slot, q, scale, window)[:, None].bfloat16()


def effective(p):
    """bf16 matrices by name, virtual scalars folded in; the embedding twice."""
    w = {name: (p[name] * p[name + "_scalar"].exp()[:, None, None]).bfloat16() for name in model.MATRICES}
    w["in"], w["out"] = ((p["embed"] * p[s].exp()).bfloat16() for s in ("in_scalar", "out_scalar"))
    if "classifier" in p:
        w["classifier"], w["bias"] = p["classifier"] * p["classifier_scalar"].exp(), p["classifier_bias"]
    return w


def forward(w, cfg, tokens, kv):
    """tokens [B, T] -> normed rows [B * T, d_model] for the head; w from effective()."""
    b, t = tokens.shape
    hd = cfg.head_dim
    x = F.embedding(tokens, w["in"])
    for i in range(len(cfg.pattern)):
        slot, angles = cfg.slot[i], kv.angles(cfg.rope[i], t)
        a = norm(x)
        if cfg.owner[slot] == i:
            k, v = F.linear(a, w["k"][slot]).view(b, t, 1, hd), F.linear(a, w["v"][slot]).view(b, t, 1, hd)
            kv.put(slot, rotated(k, *angles), v)
        q = rotated(F.linear(a, w["q"][i]).view(b, t, -1, hd), *angles)
        x = x + F.linear(kv.attend(q, slot, hd ** -0.5, cfg.windows[i]).flatten(2), w["o"][i])
        x = x + F.linear(relu_squared(F.linear(norm(x), w["up"][i])), w["down"][i])
    return norm(x).view(b * t, -1)


def logits(w, a):
    return (a @ w["out"].t()).float()


def scores(w, a):
    return a.float() @ w["classifier"].t() + w["bias"]


class Head(torch.autograd.Function):
    """Sum of weights * norm * loss over the rows of a, a slice of logits at a time."""

    @staticmethod
    def forward(ctx, a, out, targets, weights, norm):
        step, total = model.HEAD_ROWS, torch.zeros((), device=a.device)
        da, dout, ones = torch.empty_like(a), torch.zeros_like(out, dtype=torch.float32), torch.ones(len(out), device=a.device)
        for i in range(0, len(a), step):
            rows = slice(i, i + step)
            loss, dl = ops.cross_entropy(a[rows] @ out.t(), ones, targets[rows], weights[rows], norm, True)
            total += (loss * weights[rows]).sum() * norm
            torch.mm(dl, out, out=da[rows])
            dout += ops.outer(dl, a[rows])
        ctx.save_for_backward(da, dout)
        return total

    @staticmethod
    def backward(ctx, g):
        da, dout = ctx.saved_tensors
        return da * g, (dout * g).bfloat16(), None, None, None


def losses(w, a, targets):
    """Loss of every row."""
    ones, step = torch.ones(len(w["out"]), device=a.device), model.HEAD_ROWS
    return torch.cat([ops.cross_entropy(a[i:i + step] @ w["out"].t(), ones, targets[i:i + step], None, 0.0, False)[0] for i in range(0, len(a), step)])
