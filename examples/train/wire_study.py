"""What each format of gradients, and ternary updates of weights, cost in loss: one small int8 model, the same data and seed, trained
once for each. The processes of a step are computed one after the other, and their gradients encoded and summed as on the wire
(wire.Rehearsal), so that one GPU is enough.

    python3 wire_study.py --text TEXT --out RESULTS.jsonl --formats fp32 bf16 squinch --steps 3000
    python3 wire_study.py --plot RESULTS.jsonl --out plot.png

TEXT is any text; the model reads its bytes. The last fiftieth is for validation."""
import argparse
import json
import time

import numpy as np
import torch

import attention
import backward
import model
import optim
import ternary
import train
import wire

SIZES = {"tiny": dict(d_model=64, n_heads=2, d_ff=128, pattern="SG", window=64, context=256),
         "small": dict(d_model=256, n_heads=4, d_ff=1024, pattern="SSGS", window=128, context=512),
         "larger": dict(d_model=512, n_heads=8, d_ff=1536, pattern="SSSGSSSS", window=128, context=512)}


class Text:
    def __init__(self, path, context, device):
        data = np.fromfile(path, np.uint8)
        cut = len(data) * 49 // 50
        self.train, self.held, self.context, self.device = data[:cut], data[cut:], context, device

    def rows(self, starts, data):
        at = np.array(starts)[:, None] + np.arange(self.context + 1)
        both = torch.from_numpy(data[at].astype(np.int64)).to(self.device)
        return both[:, :-1].reshape(-1), both[:, 1:].reshape(-1)

    def batch(self, step, count):
        return self.rows(np.random.default_rng((5, step)).integers(0, len(self.train) - self.context - 1, count), self.train)

    def held_out(self, count):
        return self.rows(np.linspace(0, len(self.held) - self.context - 1, count).astype(int), self.held)


def step(run, batch, ranks, sum_up, factor, number):
    """One step with the batch divided among so many processes. Returns the mean loss."""
    cfg, flats, total = run.cfg, [], 0.0
    w = run.weights()
    tokens, targets = batch
    for rank in range(ranks):
        own = slice(rank * len(tokens) // ranks, (rank + 1) * len(tokens) // ranks)
        count = len(tokens[own])
        g = backward.Gradients(w, rows=8, first_row=number % 8)
        g.run(tokens[own], run.positions(count // cfg.context), targets[own], torch.ones(count, device=run.device), 1 / len(tokens), (count // cfg.context, cfg.context), False)
        grads = g.finish()
        flats.append(torch.cat([x.flatten() for x in grads.values()]))
        total = total + g.loss
    flat = sum_up(flats)
    parts = flat.split([x.numel() for x in grads.values()])
    run.optimiser.step({k: part.view(x.shape) for (k, x), part in zip(grads.items(), parts)}, factor)
    if run.pinned:
        run.pinned.follow(run.params)
    return total


def train_one(args, name, device):
    """name: FORMAT[+feedback][+ternary], or ternary alone: float32 gradients. ternary:SHARE sets ternary.BEHIND."""
    parts = name.split("+")
    behind = float(parts[-1].partition(":")[2] or ternary.BEHIND)
    parts = [part.partition(":")[0] for part in parts]
    kind = "fp32" if parts[0] == "ternary" else parts[0]
    torch.manual_seed(args.seed)
    cfg = model.Config(vocab_size=256, **SIZES[args.size])
    run, text = train.Run(cfg, device, False, args.seed), Text(args.text, cfg.context, device)
    rehearsal = wire.Rehearsal(kind, "feedback" in parts)
    if "ternary" in parts:
        run.pin()
        run.pinned.most_behind = behind
    losses, began = [], time.time()
    for n in range(args.steps):
        if n in (150, 400, 800) and args.within and (time.time() - began) / n * args.steps > args.within:
            print("%s: %.0f s for all steps are too many" % (name, (time.time() - began) / n * args.steps), flush=True)
            return None
        losses.append(step(run, text.batch(n, args.batch), args.ranks, rehearsal.sum, optim.schedule(n / args.steps), n))
        if n % 500 == 499:
            print(name, "seed %d" % args.seed, n + 1, "%.4f" % float(torch.stack(losses[-100:]).mean()), "%.0f s" % (time.time() - began), run.pinned.bytes_per_weight() if run.pinned else "", flush=True)
    seconds = time.time() - began
    losses = torch.stack(losses).cpu().numpy()
    with torch.no_grad():
        w, held = run.weights(), []
        for i in range(0, 64, 16):
            tokens, targets = (x[i * cfg.context:(i + 16) * cfg.context] for x in text.held_out(64))
            held.append(run.losses(w, tokens, targets, exact=False))
    values = sum(p.numel() for p in run.params.values())
    found = {"name": name, "size": args.size, "ranks": args.ranks, "steps": args.steps, "seed": args.seed, "parameters": values, "held_out": float(torch.cat(held).mean()), "last_200": float(losses[-200:].mean()),
             "bytes_per_value": rehearsal.sent / args.steps / values, "seconds": round(seconds, 1), "curve": [round(float(part.mean()), 4) for part in np.array_split(losses, min(60, args.steps))]}
    if run.pinned:
        found.update(update_bytes_per_weight=run.pinned.bytes_per_weight(), whole=run.pinned.whole, behind=behind)
    return found


class Toy(torch.nn.Module):
    """A transformer of 70,000 parameters in float32, for a CPU."""

    def __init__(self, width=48, heads=3, layers=2, context=64):
        super().__init__()
        self.context = context
        self.embed, self.places, self.out = torch.nn.Embedding(256, width), torch.nn.Embedding(context, width), torch.nn.Linear(width, 256, bias=False)
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(width, heads, 128, 0.0, torch.nn.functional.relu, batch_first=True, norm_first=True) for _ in range(layers))
        self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

    def loss(self, tokens, targets):
        x = self.embed(tokens.view(-1, self.context)) + self.places.weight
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return torch.nn.functional.cross_entropy(self.out(x).flatten(0, 1), targets)


def train_toy(args, name):
    """The same for the toy, with Adam and a rate that falls to zero. int8: float32 gradients, and matrices that are rounded anew in each
    step; ternary:SHARE: matrices that follow by steps."""
    first, _, feedback = name.partition("+")
    first, _, behind = first.partition(":")
    torch.manual_seed(args.seed)
    net, rehearsal = Toy(), wire.Rehearsal("fp32" if first in ("int8", "ternary") else first, bool(feedback))
    masters = {k: p.detach().clone() for k, p in net.named_parameters()}
    matrices = [k for k, p in masters.items() if p.ndim == 2] if first in ("int8", "ternary") else []
    pinned = ternary.Pinned(masters, float(behind or ternary.BEHIND), matrices) if first == "ternary" else None
    text, adam = Text(args.text, net.context, "cpu"), torch.optim.Adam(list(masters.values()), args.rate)
    rate = torch.optim.lr_scheduler.LambdaLR(adam, lambda n: min(1, (n + 1) / 100) * (1 - n / args.steps))
    parameters, losses, began = list(net.parameters()), [], time.time()
    for n in range(args.steps):
        flats, total, (tokens, targets) = [], 0.0, text.batch(n, args.batch)
        for part, right in zip(tokens.chunk(args.ranks), targets.chunk(args.ranks)):
            loss = net.loss(part, right) / args.ranks
            flats.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
            total += loss.item()
        for p, g in zip(masters.values(), rehearsal.sum(flats).split([p.numel() for p in parameters])):
            p.grad = g.view_as(p)
        adam.step()
        rate.step()
        if pinned:
            pinned.follow(masters)
        with torch.no_grad():
            for k, p in net.named_parameters():
                m = pinned if k in matrices and pinned else model.Matrix.quantise(masters[k], torch.ones(())) if k in matrices else None
                p.copy_(masters[k] if m is None else m.weight[k] * m.scale[k][:, None] if pinned else m.weight * m.scale[:, None])
        losses.append(total)
        if n % 500 == 499:
            print(name, n + 1, "%.4f" % np.mean(losses[-100:]), "%.0f s" % (time.time() - began), flush=True)
    with torch.no_grad():
        held = float(net.loss(*text.held_out(1024)))
    values = sum(p.numel() for p in parameters)
    updates = {"update_bytes_per_weight": pinned.bytes_per_weight(), "whole": pinned.whole} if pinned else {}
    return {**updates, "name": name, "size": "toy", "ranks": args.ranks, "steps": args.steps, "seed": args.seed, "parameters": values, "held_out": held, "last_200": float(np.mean(losses[-200:])),
            "bytes_per_value": rehearsal.sent / args.steps / values, "seconds": round(time.time() - began, 1), "curve": [round(float(part.mean()), 4) for part in np.array_split(losses, 60)]}


def plot(path, out):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    found = [json.loads(line) for line in open(path)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for run in found:
        steps = np.arange(len(run["curve"])) * run["steps"] // len(run["curve"])
        left.plot(steps, run["curve"], label=run["name"], linewidth=1)
        right.plot(run["bytes_per_value"], run["held_out"], "o")
        right.annotate(run["name"], (run["bytes_per_value"], run["held_out"]), fontsize=7, xytext=(3, 3), textcoords="offset points")
    left.set(xlabel="step", ylabel="training loss, nats a byte", yscale="log")
    left.legend(fontsize=7)
    right.set(xlabel="bytes sent a value and step, by each process", ylabel="held-out loss", xscale="log")
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--text")
    a.add_argument("--out", required=True)
    a.add_argument("--plot", metavar="RESULTS")
    a.add_argument("--formats", nargs="+", default=["fp32", "bf16", "fp8", "squinch", "squinch+feedback", "sign+feedback", "ternary", "squinch+ternary"])
    a.add_argument("--size", choices=[*SIZES, "toy"], default="small", help="toy: a float32 model without ternary updates, for a CPU")
    a.add_argument("--steps", type=int, default=3000)
    a.add_argument("--batch", type=int, default=32)
    a.add_argument("--ranks", type=int, default=2)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--rate", type=float, default=3e-3, help="of Adam, for the toy")
    a.add_argument("--within", type=float, metavar="SECONDS", help="leave out what would take longer")
    args = a.parse_args()
    if args.plot:
        return plot(args.plot, args.out)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and args.size != "toy":
        print(attention.choose(), flush=True)
    for name in args.formats:
        found = train_toy(args, name) if args.size == "toy" else train_one(args, name, device)
        if not found:
            continue
        print({k: v for k, v in found.items() if k != "curve"}, flush=True)
        with open(args.out, "a") as f:
            f.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
