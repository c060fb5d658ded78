"""Where Kaijufy begins: an open model's float weights, and the weights of Kaiju's shape that come nearest to them.

Keys and values. All KV heads of the layers that will share a slot are fitted by one head. Values: the best common 64 dimensions
(singular vectors of the stacked matrices); each head's map from those, `value_map`, is folded into the output projection at the end.
Keys: RoPE turns pairs of channels, so what commutes with it is a complex factor for each pair; each pair's rows get their best
common row, and each head its factor, `key_map`, which is folded into the queries. With all factors 1 and all maps the identity this is
the mean of the heads (Ainslie et al. 2023), which `fit="mean"` gives.

Feed-forward. silu(g) u is near max(g, 0) u, and (relu(g + u)^2 - relu(g - u)^2) / 4 is exactly max(g, 0) u where |u| < |g|. So a gated unit
becomes two units of ReLU^2, rows g + u and g - u, and columns d / 4 and -d / 4; the best of those are kept. g is stretched by a factor and u
shrunk by it, for each unit, and each column gets the factor of least squares on a sample. This start is ours; nothing of the kind was published for
Kaiju."""
import os
import sys

import numpy as np
import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import"))
STRETCHES = (0.5, 0.7, 1.0, 1.4, 2.0)


def read(path):
    """Float32 weights of a GGUF file or a Hugging Face folder of a gated model without biases, and its ModelConfig."""
    import sources
    source = sources.open_source(path)
    c = source.config
    if c.activation != "silu_gated" or not c.tied or c.qkv_bias or c.head_norms or c.norms_after or c.layer_factors:
        raise SystemExit("%s: Kaijufy takes models of the Llama kind: SiLU gate, tied embedding, no biases, no norms of heads" % path)
    each = {"q": "attn.q.weight", "k": "attn.k.weight", "v": "attn.v.weight", "o": "attn.o.weight", "gate": "ffn.gate.weight", "value": "ffn.up.weight", "out": "ffn.down.weight",
            "attn_gain": "attn.norm_gain", "ffn_gain": "ffn.norm_gain"}
    t = {name: torch.from_numpy(np.stack([source.rows("layers.%d.%s" % (i, place)) for i in range(c.layers)])) for name, place in each.items()}
    t["embed"], t["final_gain"] = (torch.from_numpy(source.rows(n).copy()) for n in ("embed.weight", "final.norm_gain"))
    return t, c


def common_values(stack, rank):
    """stack [n, D, d] -> common rows [rank, d] and maps [n, D, rank] of least squares: map @ common ~ stack."""
    _, _, rows = torch.linalg.svd(stack.flatten(0, 1), full_matrices=False)
    rows = rows[:rank]
    maps = stack @ rows.T
    size = stack.flatten(1).norm(dim=1).mean() / rows.norm()  # so that the common rows are as large as one head's
    return rows * size, maps / size


def common_keys(stack):
    """stack [n, D, d] -> common rows [D, d] and complex factors [n, D / 2]: factor * pair of the common rows ~ pair of the stack."""
    half = stack.shape[1] // 2
    c = torch.complex(stack[:, :half], stack[:, half:]).transpose(0, 1)  # [D / 2, n, d]
    left, size, right = torch.linalg.svd(c, full_matrices=False)
    factors, rows = left[:, :, 0] * size[:, :1], right[:, 0]
    scale = c.abs().square().sum(-1).mean(1).sqrt()[:, None]  # as large as one head's
    return torch.cat([(rows * scale).real, (rows * scale).imag]), (factors / scale).T


def shared_kv(t, cfg, fit="best"):
    """Adds the shared heads of every slot, and every layer's maps to its own heads."""
    layers, d = t["attn_gain"].shape
    hd, groups = cfg.head_dim, t["k"].shape[1] // cfg.head_dim
    keys, values = torch.empty(len(cfg.owner), hd, d), torch.empty(len(cfg.owner), hd, d)
    key_map, value_map = torch.zeros(layers, groups, hd // 2, dtype=torch.complex64), torch.zeros(layers, groups, hd, hd)
    for slot, owner in enumerate(cfg.owner):
        members = [i for i in range(layers) if cfg.slot[i] == slot]
        k, v = ((t[n][members] * t["attn_gain"][members][:, None]).reshape(-1, hd, d) for n in "kv")
        if fit == "mean":
            common_k, factors = k.mean(0), torch.ones(len(k), hd // 2, dtype=torch.complex64)
            common_v, maps = v.mean(0), torch.eye(hd).expand(len(v), hd, hd)
        else:
            (common_k, factors), (common_v, maps) = common_keys(k), common_values(v, hd)
        gain = t["attn_gain"][owner]
        gain = torch.where(gain.abs() < 1e-4, 1e-4, gain)
        keys[slot], values[slot] = common_k / gain, common_v / gain
        key_map[members] = factors.view(len(members), groups, -1)
        value_map[members] = maps.reshape(len(members), groups, hd, hd)
    return {"shared_k": keys, "shared_v": values, "key_map": torch.view_as_real(key_map), "value_map": value_map}


def relu_squared(gate, value, out, g, u, width):
    """A layer's up [width, d] and down [d, width] from its gated matrices, and a sample g, u [tokens, units] of the two products."""
    target = torch.nn.functional.silu(g) * u
    best = None
    for stretch in STRETCHES:
        plus, minus = torch.relu(stretch * g + u / stretch).square(), torch.relu(stretch * g - u / stretch).square()
        pp, mm, pm = ((a * b).sum(0) for a, b in ((plus, plus), (minus, minus), (plus, minus)))
        pt, mt = (plus * target).sum(0), (minus * target).sum(0)
        ridge = 0.01 * (pp + mm) + 1e-9
        det = (pp + ridge) * (mm + ridge) - pm * pm
        a, b = ((mm + ridge) * pt - pm * mt) / det, ((pp + ridge) * mt - pm * pt) / det
        error = (a * plus + b * minus - target).square().sum(0)
        found = torch.stack([error, torch.full_like(a, stretch), a, b, pp, mm])
        best = found if best is None else torch.where(found[0] < best[0], found, best)
    _, s, a, b, pp, mm = best
    rows = torch.cat([gate * s[:, None] + value / s[:, None], gate * s[:, None] - value / s[:, None]])
    columns = torch.cat([out * a, out * b], 1)
    power = torch.cat([pp, mm])
    kept = (columns.square().sum(0) * power).topk(width).indices.sort().values
    # relu^2 grows with the square: rows and columns as large as one another, for int8 and for the optimiser
    rows, columns = rows[kept], columns[:, kept]
    balance = (columns.norm(dim=0) / rows.norm(dim=1)).clamp(1e-3, 1e3).pow(1 / 3)
    return rows * balance[:, None], columns / balance.square()


def wide(k, groups):
    """Rows of KV heads beside those of the query heads that use them: [groups, ...] -> [groups * heads each, ...]."""
    return k.repeat_interleave(groups, 0)


def fold(p, heads):
    """The maps of shared_kv() folded into queries and output projection, once nothing else reads them: [L, H D, d], [L, d, H D]."""
    q, o, maps, turn = p["q"], p["o"], p["value_map"], torch.view_as_complex(p["key_map"].contiguous())
    layers, hd = len(q), maps.shape[-1]
    each = heads // maps.shape[1]
    turn, maps = turn.repeat_interleave(each, 1)[..., None], maps.repeat_interleave(each, 1)
    q = q.view(layers, heads, 2, hd // 2, -1)
    q = torch.complex(q[:, :, 0], q[:, :, 1]) * turn.conj()
    q = torch.stack([q.real, q.imag], 2).reshape(layers, heads * hd, -1)
    o = torch.einsum("ldhi,lhij->ldhj", o.view(layers, -1, heads, hd), maps).reshape(layers, -1, heads * hd)
    return q.contiguous(), o.contiguous()
