"""Measures trained models.

    python3 evaluate.py MODEL --perplexity --data DATA             loss by kind of text on val.bin
    python3 evaluate.py MODEL --persona SET.jsonl [--replies OUT]  facts asked for, greedy, a table per kind (GPU)
    python3 evaluate.py MODEL --dump DIR --data DATA               10,240 held-out tokens with this forward pass' logits
    python3 evaluate.py MODEL --compare LOGITS.npy --tokens FILE   an engine's logits against this forward pass (mean KL, top token)
    python3 evaluate.py MODEL --check DIR                          this machine's forward pass against a --dump from another one

MODEL is a checkpoint (model.safetensors) or a RUN/state.pt, of the int8 model or the twin. On a GPU and on a CPU the int8 forward is
the same to the bit: attention by section 5 of docs/arithmetic.md either way. Tokens are whitespace-separated ids."""
import argparse
import json
import os
import time

import numpy as np
import torch

import attention
import export
import model
import train
import twin

END, CARD, ROLE = 6, 3, {"user": 4, "char": 5}
REPLY = 40  # tokens at most
BATCH_TOKENS = 400_000  # prompt tokens at a time


@torch.no_grad()
def open_model(path, device):
    """A train.Run with fixed weights `w`."""
    if path.endswith(".pt"):
        run, _ = train.load(path, device)
        run.w = run.weights()
    else:
        run = train.Run.__new__(train.Run)
        run.w, run.is_twin, run.device = export.weights(path, device), False, device
        run.cfg, run.ropes = run.w.cfg, run.w.ropes
        run.weights = lambda: run.w
    return run


@torch.no_grad()
def hidden(run, tokens):
    """Normed rows of tokens [B, T] for logits(), and the attention object with keys and values by slot."""
    if run.is_twin:
        kv = twin.Training(run.ropes)
        return twin.forward(run.w, run.cfg, tokens, kv), kv
    b, t = tokens.shape
    kv = model.Training((b, t), True)
    positions = torch.arange(t, device=tokens.device, dtype=torch.int32).repeat(b)
    return model.forward(run.w, tokens.reshape(-1), positions, kv)[1], kv


def logits(run, a):
    return twin.logits(run.w, a) if run.is_twin else model.logits(run.w, a)


@torch.no_grad()
def sequence_logits(run, tokens):
    """float32 [T, vocab] on the CPU. A GPU's sequences are padded to a whole number of blocks: attention looks back only."""
    t = torch.tensor(tokens, device=run.device)
    if run.device == "cuda":
        t = torch.nn.functional.pad(t, (0, -len(t) % attention.BLOCK))
    a = hidden(run, t[None])[0][:len(tokens)]
    return torch.cat([logits(run, part).cpu() for part in a.split(1024)])


# ---------------------------------------------------------------- persona
def prompt(item, encode):
    """Ids up to and with the marker after which the character speaks; see data.py."""
    ids = [1, CARD] + encode(item["card"]) + [END]
    for role, text in item["turns"]:
        ids += [ROLE[role]] + encode(text) + [END]
    return ids + [ROLE["char"]]


@torch.no_grad()
def generate(run, prompts, choose=lambda logits: logits.argmax(-1), most=REPLY):
    """Replies (lists of ids) to a batch of prompts, padded at their ends to one length; greedy unless `choose` is another. A reply of `most` tokens was
    cut; a shorter one ended by itself."""
    cfg, device = run.cfg, run.device
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    t = -(-int(lengths.max()) // attention.BLOCK) * attention.BLOCK
    tokens = torch.zeros(len(prompts), t, dtype=torch.int64)
    for row, p in zip(tokens, prompts):
        row[:len(p)] = torch.tensor(p)
    a, kv = hidden(run, tokens.to(device))
    rows = torch.arange(len(prompts), device=device)
    cache = attention.Cache(lengths.clone(), t + most)
    for slot, (k, v) in kv.kv.items():
        cache.fill(slot, k, v)
    last = logits(run, a.view(len(prompts), t, -1)[rows, lengths - 1])
    del a, kv
    out = []
    for _ in range(most):
        token = choose(last)
        out.append(token)
        if run.is_twin:
            a = twin.forward(run.w, cfg, token[:, None], twin.Decoding(run.ropes, cache))
        else:
            _, a = model.forward(run.w, token, cache.at.int(), model.Decoding(cache))
        last = logits(run, a)
        cache.at += 1
    replies = torch.stack(out, 1).tolist()
    return [r[:r.index(END)] if END in r else r for r in replies]


def persona(run, path, tokenizer, replies_path=None):
    import sentencepiece

    from persona_eval import is_right
    sp = sentencepiece.SentencePieceProcessor(model_file=tokenizer)
    items = [json.loads(line) for line in open(path)]
    began = time.time()
    prompts = [prompt(item, sp.encode) for item in items]
    order = sorted((i for i in range(len(items)) if len(prompts[i]) + REPLY <= run.cfg.context), key=lambda i: len(prompts[i]))
    replies, at = [""] * len(items), 0
    while at < len(order):
        count = 32
        while at + count < len(order) and (count + 1) * len(prompts[order[at + count]]) <= BATCH_TOKENS and count < 512:
            count += 1
        batch = order[at:at + count]
        filler = [prompts[batch[0]]] * max(0, 32 - len(batch))  # int8 products want more than 16 rows
        for i, reply in zip(batch, generate(run, [prompts[i] for i in batch] + filler)):
            replies[i] = sp.decode(reply)
        at += count
    groups = {}
    for item, reply in zip(items, replies):
        right = is_right(reply, item["answers"], item.get("stems", False))
        for g in (item["kind"], "from " + item["from"] if "from" in item else None, "all"):
            if g:
                n = groups.setdefault(g, [0, 0])
                n[0] += right
                n[1] += 1
    if replies_path:
        with open(replies_path, "w") as f:
            for item, reply in zip(items, replies):
                f.write(json.dumps({"id": item["id"], "reply": reply}) + "\n")
    print("%s, %.0f s, %d of %d prompts too long" % (os.path.basename(path), time.time() - began, len(items) - len(order), len(items)))
    for g, (right, asked) in sorted(groups.items()):
        print("  %-12s %5.1f%%  %d of %d" % (g, 100 * right / asked, right, asked))
    return {g: {"right": r, "asked": n} for g, (r, n) in groups.items()}


# ---------------------------------------------------------------- engine against trainer
def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def compare(mine, theirs):
    """Per position: KL(mine || theirs) over the vocabulary in double, same top token, and whether all bits agree."""
    kl, top, bits = [], [], []
    for i in range(0, len(mine), 256):
        a, b = mine[i:i + 256], theirs[i:i + 256]
        p, q = log_softmax(a), log_softmax(b)
        kl.append((np.exp(p) * (p - q)).sum(-1))
        top.append(a.argmax(-1) == b.argmax(-1))
        bits.append((a.view(np.uint32) == np.ascontiguousarray(b, np.float32).view(np.uint32)).all(-1))
    return tuple(np.concatenate(x) for x in (kl, top, bits))


def held_out(data, count=10_240):
    """Lists of token ids: whole sequences of val.bin, the last one cut."""
    out, left = [], count
    for i in range(data.count):
        if left <= 0:
            break
        out.append(data.tokens[i][:left].tolist())
        left -= len(out[-1])
    return out


def dump(run, data, folder):
    """tokens_I.txt, and dump.npz: the 64 likeliest tokens with their log-probabilities at each position, XXH3-128 of each sequence's
    logits (float32, row after row: the `bits:` of kaiju-score), and 400 rows of logits in full."""
    os.makedirs(folder, exist_ok=True)
    saved = {}
    for n, tokens in enumerate(held_out(data)):
        open(os.path.join(folder, "tokens_%d.txt" % n), "w").write(" ".join(map(str, tokens)) + "\n")
        x = sequence_logits(run, tokens)
        top = x.log_softmax(-1).topk(64)
        saved["top_%d" % n], saved["logprob_%d" % n], saved["digest_%d" % n] = top.indices.numpy().astype(np.uint16), top.values.numpy(), export.digest(x.numpy().tobytes())
        if n == 0:
            saved["logits"] = x[-400:].numpy()
        print("sequence %d: %d tokens, bits: %s" % (n, len(tokens), saved["digest_%d" % n]), flush=True)
    np.savez(os.path.join(folder, "dump.npz"), **saved)


def check(run, folder):
    saved = np.load(os.path.join(folder, "dump.npz"))
    for n in range(sum(k.startswith("top_") for k in saved)):
        x = sequence_logits(run, [int(i) for i in open(os.path.join(folder, "tokens_%d.txt" % n)).read().split()])
        same = float((x.argmax(-1).numpy() == saved["top_%d" % n][:, 0]).mean())
        d = export.digest(x.numpy().tobytes())
        print("sequence %d: bits %s, same top token %.4f%%" % (n, "agree" if d == str(saved["digest_%d" % n]) else "differ (%s)" % d, 100 * same), flush=True)
        if n == 0:
            kl, top, bits = compare(saved["logits"], x[-400:].numpy())
            print("  400 rows in full: mean KL %.3g, same top token %.2f%%, rows of equal bits %.2f%%" % (kl.mean(), 100 * top.mean(), 100 * bits.mean()), flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("--data", help="folder written by data.py build")
    a.add_argument("--tokenizer", default="tokenizer.model")
    a.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a.add_argument("--perplexity", action="store_true")
    a.add_argument("--persona", metavar="SET.jsonl", action="append", default=[])
    a.add_argument("--replies", metavar="OUT.jsonl", help="of the last --persona")
    a.add_argument("--dump", metavar="DIR")
    a.add_argument("--check", metavar="DIR")
    a.add_argument("--compare", metavar="LOGITS.npy", nargs="+", help="one for each --tokens")
    a.add_argument("--tokens", nargs="+")
    a.add_argument("--json", metavar="OUT.json", help="write the figures here too")
    args = a.parse_args()
    twin.COMPILE = False
    run, report = open_model(args.model, args.device), {}
    if args.data:
        meta = json.load(open(os.path.join(args.data, "data.json")))
        data = train.Data([args.data], "val", run.cfg.context, args.device, meta["loss_weight"])
    if args.perplexity:
        report["validation"] = train.validate(run, data, 16)
        for name, r in report["validation"].items():
            print("  %-20s loss %.4f  perplexity %9.3f  %d tokens" % (name, r["loss"], r["perplexity"], r["tokens"]))
    for path in args.persona:
        report[os.path.basename(path)] = persona(run, path, args.tokenizer, args.replies if path == args.persona[-1] else None)
    if args.dump:
        dump(run, data, args.dump)
    if args.check:
        check(run, args.check)
    if args.compare:
        parts = []
        for engine, tokens in zip(args.compare, args.tokens, strict=True):
            mine = sequence_logits(run, [int(i) for i in open(tokens).read().split()]).numpy()
            parts.append(compare(mine, np.load(engine).reshape(mine.shape)))
        kl, top, bits = (np.concatenate(x) for x in zip(*parts))
        report["engine"] = {"tokens": len(kl), "mean_kl": float(kl.mean()), "same_top": float(top.mean()), "rows_of_equal_bits": float(bits.mean())}
        print("%d tokens: mean KL %.3g (largest %.3g), same top token %.3f%%, rows of equal bits %.3f%%" % (len(kl), kl.mean(), kl.max(), 100 * top.mean(), 100 * bits.mean()))
    if args.json:
        json.dump(report, open(args.json, "w"), indent=1)


if __name__ == "__main__":
    main()
