"""What kaijufy.py does in a step: the loss against the teacher, the optimiser, and the two times when the weights change their form."""
import math

import torch

import kaijufy_model as M
import kaijufy_start
import ops
import optim

ROWS = 4096  # of logits that exist at a time
RATES = {"matrix": 2.5e-3, "embed": 3e-4, "gain": 1e-3, "map": 5e-4, "step": 2e-3}
KEY_MARGIN, VALUE_MARGIN = 1.1, 1.25  # of the first steps of keys and values, over the largest ones of a sample; they are learned from there


def logits(a, embed):
    """float32: in bf16 they would be off by 1/16."""
    if a.is_cuda and a.dtype == torch.bfloat16:
        return torch.mm(a, embed.t(), out_dtype=torch.float32)
    return (a @ embed.t()).float()


@M.compiled
def divergence(mine, theirs, share):
    """Sum of KL(theirs || mine) over rows of logits, and the gradient of the sum * share."""
    m, t = mine.log_softmax(-1), theirs.log_softmax(-1)
    p = t.exp()
    return (p * (t - m)).sum(), ((m.exp() - p) * share).to(torch.bfloat16)


class Distil(torch.autograd.Function):
    """Mean KL of the teacher's next token against the student's, a slice of logits at a time. a, ta [N, d]; embeddings [V, d]"""

    @staticmethod
    def forward(ctx, a, embed, ta, tembed, share):
        total, da, dembed = torch.zeros((), device=a.device), torch.empty_like(a), torch.zeros(embed.shape, device=a.device)
        for i in range(0, len(a), ROWS):
            rows = slice(i, i + ROWS)
            loss, dl = divergence(logits(a[rows], embed), logits(ta[rows], tembed), share)
            total += loss * share
            dl = dl if a.is_cuda else dl.to(a.dtype)
            torch.mm(dl, embed, out=da[rows])
            dembed += ops.outer(dl, a[rows])
        ctx.save_for_backward(da, dembed)
        return total

    @staticmethod
    def backward(ctx, g):
        da, dembed = ctx.saved_tensors
        return da * g, dembed * g, None, None, None


@M.compiled
def distance(x, t):
    """Mean squared distance of residual rows in units of the teacher's."""
    t = t.float()
    return ((x - t).square().sum(-1) / (t.square().sum(-1) + 1e-6)).mean()


class Optimiser:
    """Muon for matrices, Adam for the rest (optim.py), with rates for a model that has been trained already."""

    def __init__(self, params):
        self.params, self.steps = params, 0
        self.first = {k: torch.zeros_like(p) for k, p in params.items()}
        self.second = {k: torch.zeros_like(p) for k, p in params.items() if self.group(k) != "matrix"}

    @staticmethod
    def group(name):
        for end, group in (("gain", "gain"), ("_map", "map"), ("_step", "step"), ("embed", "embed")):
            if name.endswith(end):
                return group
        return "matrix"

    @torch.no_grad()
    def step(self, grads, factor):
        self.steps += 1
        size = torch.stack([g.float().square().sum() for g in grads.values()]).sum().sqrt()
        shrink = (1.0 / (size + 1e-12)).clamp_max(1.0)
        for name, p in self.params.items():
            g, m, group = grads[name].float() * shrink, self.first[name], self.group(name)
            rate = RATES[group] * factor
            if group == "matrix":
                m.lerp_(g, 0.05)
                p.add_(optim.orthogonalise(torch.lerp(g, m, 0.95)), alpha=-rate * 0.2 * max(p.shape[1:]) ** 0.5)
                continue
            v = self.second[name]
            m.lerp_(g, 0.1)
            v.lerp_(g.square(), 0.02)
            p.add_(m / (1 - 0.9 ** self.steps) / ((v / (1 - 0.98 ** self.steps)).sqrt() + 1e-12), alpha=-rate)
        return size

    def state(self):
        return {"steps": self.steps, "first": self.first, "second": self.second}

    def load(self, state):
        self.steps = state["steps"]
        for mine, theirs in ((self.first, state["first"]), (self.second, state["second"])):
            for k, v in mine.items():
                v.copy_(theirs[k])


# ---------------------------------------------------------------- changes of form
@torch.no_grad()
def products(t, cfg, tokens, cos, sin, most=4096):
    """For each layer of the teacher, a sample of what its gate and its value give: the start of ReLU^2 is fitted to them."""
    x, n = torch.nn.functional.embedding(tokens, t["embed"]).float(), tokens.shape[1]
    for i in range(len(cfg.pattern)):
        q, k, v = M.teacher_in(x, t["attn_gain"][i], t["q"][i], t["k"][i], t["v"][i], cos[:n], sin[:n], cfg.norm_eps, cfg.head_dim)
        o = M.attend(q, k, v, cfg.head_dim ** -0.5, None).flatten(2)
        a = M.norm(x + o @ t["o"][i].T, t["ffn_gain"][i], cfg.norm_eps).flatten(0, 1)
        a = a[:: max(1, len(a) // most)][:most].to(t["q"].dtype)
        yield (a @ t["gate"][i].T).float(), (a @ t["value"][i].T).float()
        x = M.teacher_out(x, o, t["o"][i], t["ffn_gain"][i], t["gate"][i], t["value"][i], t["out"][i], cfg.norm_eps)


def begin(t, weights, cfg, tokens, cos, sin, fit="best"):
    """The student's float32 masters: the teacher's own weights beside those of Kaiju's shape. t: the teacher for its forward pass."""
    p = {k: v.clone() for k, v in weights.items()}
    p.update({k: v.to(tokens.device) for k, v in kaijufy_start.shared_kv({k: weights[k].cpu() for k in ("k", "v", "attn_gain")}, cfg, fit).items()})
    both = [kaijufy_start.relu_squared(weights["gate"][i], weights["value"][i], weights["out"][i], *gu, cfg.d_ff) for i, gu in enumerate(products(t, cfg, tokens, cos, sin))]
    p["up"], p["down"] = torch.stack([up for up, _ in both]), torch.stack([down for _, down in both])
    return p


def key_proportions(p, cfg):
    """Proportions of the key steps of every slot [slots, D], as the importer takes them from weights: sqrt(|k| / |q|), by RoPE pair."""
    out, half, hd = [], cfg.head_dim // 2, cfg.head_dim
    for slot, owner in enumerate(cfg.owner):
        k = (p["shared_k"][slot] * p["attn_gain"][owner]).square().sum(1)
        members = [i for i in range(len(cfg.pattern)) if cfg.slot[i] == slot]
        q = torch.stack([(p["q"][i] * p["attn_gain"][i]).square().sum(1).view(-1, hd).mean(0) for i in members]).mean(0)
        k, q = (x[:half] + x[half:] for x in (k, q))
        out.append(((k + 1e-20) / (q + 1e-20)).pow(0.25).repeat(2))
    return torch.stack(out)


@torch.no_grad()
def to_int8(p, cfg, tokens, cos, sin, dtype):
    """Masters of the int8 model: maps folded, everything that the new shape does not need left out, matrices behind the transform."""
    h = M.hadamard(tokens.device)
    out = {k: p[k].clone() for k in ("up", "down", "shared_k", "shared_v", "embed", "attn_gain", "ffn_gain", "final_gain")}
    out["q"], out["o"] = kaijufy_start.fold(p, cfg.n_heads)
    proportions = key_proportions(out, cfg)
    for k in ("q", "o", "up", "down", "shared_k", "shared_v", "embed"):
        out[k] = M.transform(out[k], h).contiguous()
    far = 1e3  # steps so large that nothing is clamped
    out["k_step"], out["v_step"] = (proportions * far).log(), torch.full_like(proportions, far).log()
    none = torch.zeros((), device=tokens.device)
    seen = {}
    M.int8(out, cfg, tokens, cos, sin, M.Mix(none, none, none, cfg.window), dtype=dtype, seen=seen)
    for slot, (k, v) in seen.items():
        k, v = k.float().abs().amax() * far, v.float().abs().amax((0, 1, 2)) * far
        out["k_step"][slot] = (proportions[slot] * k * KEY_MARGIN / 127).log()
        out["v_step"][slot] = (v.clamp_min(1e-4) * VALUE_MARGIN / 127).log()
    return out


def stored(p):
    """What a checkpoint holds of int8 masters: bytes and scales of matrices, the rest as it is. The contract's transform has no factor, hence the 8."""
    out = {}
    for name, x in p.items():
        if name in ("q", "o", "up", "down", "shared_k", "shared_v", "embed"):
            scale = (x.abs().amax(-1) / 127).clamp_min(1e-18)
            out[name] = (x / scale[..., None]).round().clamp(-127, 127).to(torch.int8).cpu()
            out[name + ".scale"] = (scale / math.sqrt(M.BLOCK)).cpu()
        else:
            out[name] = (x.exp() if name.endswith("_step") else x).cpu()
    return out
