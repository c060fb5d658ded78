"""The teacher's own dialogues: it answers prompts by sampling, many at a time, and the token streams become text for kaijufy.py."""
import time

import numpy as np
import torch
import torch.nn.functional as F

import kaijufy_model as M
from kaijufy_data import store

ROWS, MOST, TEMPERATURE, TOP = 512, 128, 0.8, 50  # prompts at a time, tokens of a reply, sampling


@torch.no_grad()
def one_token(t, cfg, token, at, keys, values, cos, sin):
    """token [N] at position `at` -> logits [N, vocab]; keys, values [layers][N, groups, positions, D] are written at `at`."""
    x = F.embedding(token[:, None], t["embed"]).float()
    for i in range(len(cfg.pattern)):
        a = M.norm(x, t["attn_gain"][i], cfg.norm_eps).to(t["q"].dtype)
        q, k, v = (F.linear(a, t[n][i]).unflatten(-1, (-1, cfg.head_dim)) for n in "qkv")
        q, k = (M.rotate(y.float(), cos[at:at + 1], sin[at:at + 1]).to(a.dtype) for y in (q, k))
        keys[i][:, :, at], values[i][:, :, at] = k[:, 0], v[:, 0]
        group = q.shape[2] // k.shape[2]  # the query heads of a KV head as rows of one product
        q = q[:, 0].unflatten(1, (-1, group))
        p = (q @ keys[i][:, :, :at + 1].mT * cfg.head_dim ** -0.5).float().softmax(-1)
        o = p.to(a.dtype) @ values[i][:, :, :at + 1]
        x = x + F.linear(o.flatten(1)[:, None], t["o"][i])
        a = M.norm(x, t["ffn_gain"][i], cfg.norm_eps).to(a.dtype)
        x = x + F.linear(F.silu(F.linear(a, t["gate"][i])) * F.linear(a, t["value"][i]), t["out"][i])
    return F.linear(M.norm(x, t["final_gain"], cfg.norm_eps).to(t["q"].dtype)[:, 0], t["embed"]).float()


def sample(logits):
    best, ids = (logits / TEMPERATURE).topk(min(TOP, logits.shape[1]))
    return ids.gather(1, torch.multinomial(best.softmax(-1), 1))[:, 0]


@torch.no_grad()
def replies(t, cfg, cos, sin, prompts, stop):
    """Prompts with their sampled replies, lists of ids. All rows walk together: while a prompt lasts its own token is next."""
    device, longest = t["embed"].device, max(map(len, prompts))
    total = min(longest + MOST, len(cos))
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    given = torch.zeros(len(prompts), longest, dtype=torch.int64)
    for row, p in zip(given, prompts):
        row[:len(p)] = torch.tensor(p.astype(np.int64))
    given, stops = given.to(device), torch.tensor(stop, device=device)
    groups = t["k"].shape[1] // cfg.head_dim
    keys, values = (torch.zeros(len(cfg.pattern), len(prompts), groups, total, cfg.head_dim, dtype=t["q"].dtype, device=device) for _ in "kv")
    token, out, open_rows = given[:, 0], [given[:, 0]], torch.ones(len(prompts), dtype=torch.bool, device=device)
    for at in range(total - 1):
        new = sample(one_token(t, cfg, token, at, keys, values, cos, sin))
        said = at + 1 >= lengths
        token = torch.where(said, new, given[:, min(at + 1, longest - 1)])
        open_rows &= ~(said & torch.isin(token, stops))
        out.append(token)
        if at % 16 == 15 and not open_rows.any():
            break
    found = torch.stack(out, 1).cpu().numpy()
    for row, p in zip(found, prompts):
        ends = np.flatnonzero(np.isin(row[len(p):], stop))
        if len(ends):
            yield row[:len(p) + ends[0] + 1]


def talk(t, cfg, cos, sin, prompts, path, seconds, seed=1):
    """Writes dialogues to `path` until so many seconds have passed, and returns a line for the log."""
    saved, began, random = np.load(prompts), time.time(), np.random.default_rng(seed)
    torch.manual_seed(seed)
    asked = np.split(saved["ids"], saved["ends"][:-1])
    found, count, rounds = [], 0, 0
    while rounds == 0 or time.time() - began < seconds:
        some = [asked[i] for i in random.permutation(len(asked))[:ROWS if t["embed"].is_cuda else 8]]
        found += list(replies(t, cfg, cos, sin, sorted(some, key=len), saved["stop"]))
        rounds, count = rounds + 1, count + len(some)
    random.shuffle(found)
    store(path, found)
    return "the teacher's own dialogues: %d of %d ended, %.2f M tokens in %.0f s" % (len(found), count, sum(map(len, found)) / 1e6, time.time() - began)
