"""What each format of gradients, and ternary updates of weights, cost in loss: one small int8 model, the same data and seed, trained
once for each. The processes of a step are computed one after the other, and their gradients encoded and summed as on the wire
(wire.Rehearsal), so that one GPU is enough.

    python3 wire_study.py --text TEXT --out RESULTS.jsonl --formats fp32 bf16 squinch --steps 3000
    python3 wire_study.py ... --graph        all formats beside one another, on a GPU
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

HELD = 512  # sequences
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

    def starts(self, step, count):
        return np.random.default_rng((5, step)).integers(0, len(self.train) - self.context - 1, count)

    def batch(self, step, count):
        return self.rows(self.starts(step, count), self.train)

    def held_out(self, count):
        return self.rows(np.linspace(0, len(self.held) - self.context - 1, count).astype(int), self.held)


def gradients(run, batch, ranks, sum_up, number):
    """Of one step with the batch divided among so many processes. Returns them and the mean loss."""
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
    return {k: part.view(x.shape) for (k, x), part in zip(grads.items(), parts)}, total


def step(run, batch, ranks, sum_up, factor, number):
    """Returns the mean loss."""
    grads, total = gradients(run, batch, ranks, sum_up, number)
    run.optimiser.step(grads, factor)
    if run.pinned:
        run.pinned.follow(run.params)
    return total


class Graph:
    """Steps as one CUDA graph: a tenth of the time where a model is so small that launching its kernels takes longest. The graph holds
    what the host would decide in each step: q_clip, by which attention scales, stays as it is, and clips learn from the same rows."""
    WARM = 5

    def __init__(self, run, text, args, rehearsal):
        self.run, self.ranks, self.rehearsal, self.graph, device = run, args.ranks, rehearsal, None, run.device
        self.stream = torch.cuda.Stream() if torch.cuda.is_available() else None
        self.data = torch.from_numpy(text.train).to(device)
        self.starts = torch.from_numpy(np.stack([text.starts(n, args.batch) for n in range(args.steps)])).to(device)
        self.factors = torch.tensor([optim.schedule(n / args.steps) for n in range(args.steps)], device=device)
        self.losses, self.number = torch.zeros(args.steps, device=device), torch.zeros(1, dtype=torch.int64, device=device)
        self.columns = torch.arange(run.cfg.context + 1, device=device)
        run.cfg.fixed_z = run.weights().const.z
        if self.stream:
            torch.cuda.synchronize()  # what was made so far was made on another stream

    def on_device(self):
        """The next step, all of whose inputs are tensors: as optim.Optimiser.step."""
        rows = self.data[self.starts.index_select(0, self.number).T + self.columns].long()
        batch, factor, count = (rows[:, :-1].reshape(-1), rows[:, 1:].reshape(-1)), self.factors.index_select(0, self.number), self.number + 1
        grads, total = gradients(self.run, batch, self.ranks, self.rehearsal.sum, 3)
        grads["q_clip"] = torch.zeros_like(grads["q_clip"])
        o = self.run.optimiser
        shrink = (1.0 / (torch.stack([g.float().square().sum() for g in grads.values()]).sum().sqrt() + 1e-12)).clamp_max(1.0)
        for name, p in o.params.items():
            g, m, group = grads[name].float() * shrink, o.first[name], o.group(name, p)
            rate = optim.RATES[group] * factor
            if group == "matrix":
                m.lerp_(g, 0.05)
                update = optim.orthogonalise(torch.lerp(g, m, 0.95))
                p.mul_(1 - rate * optim.WEIGHT_DECAY).sub_(update * (rate * (0.2 * max(p.shape[1:]) ** 0.5)))
            else:
                v, slow = o.second[name], 0.99 if group != "embed" else 0.95
                m.lerp_(g, 0.1)
                v.lerp_(g.square(), 1 - slow)
                p.sub_(m / (1 - 0.9 ** count) / ((v / (1 - slow ** count)).sqrt() + 1e-12) * rate)
        self.losses.index_copy_(0, self.number, total.reshape(1))
        self.number += 1

    @torch.no_grad()
    def step(self, number):
        """Does not wait for the device, unless weights follow by steps."""
        with torch.cuda.stream(self.stream):
            if self.stream is None or number < self.WARM:
                self.on_device()
            else:
                if self.graph is None:
                    self.capture()
                self.graph.replay()
            if self.run.pinned:
                self.run.pinned.follow(self.run.params)

    def capture(self):
        """Captures a step, which does not run it, and compares one replay with the step itself."""
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.on_device()
        o = self.run.optimiser
        state = [*o.params.values(), *o.first.values(), *o.second.values(), self.number, *self.rehearsal.lost.values()]
        before = [x.clone() for x in state]

        def taken(what):
            for x, old in zip(state, before):
                x.copy_(old)
            what()
            return torch.cat([(x - old).flatten() for x, old in zip(o.params.values(), before)]), float(self.losses[self.number - 1])
        (moved, loss), (moved_2, loss_2) = taken(self.graph.replay), taken(self.on_device)
        far = float((moved - moved_2).norm() / moved_2.norm())
        print("graph: loss %.6f, and %.6f without; the step is %.1e of its length apart" % (loss, loss_2, far), flush=True)
        if abs(loss - loss_2) > 1e-4 or far > 0.3:  # without order: sums of the embedding's gradient and of attention's
            raise SystemExit("the graph does something else")
        for x, old in zip(state, before):
            x.copy_(old)


class Training:
    """One run. name: FORMAT[+feedback][+ternary], or ternary alone: float32 gradients. ternary:SHARE sets ternary.BEHIND."""

    def __init__(self, args, name, device):
        parts = name.split("+")
        self.args, self.name, self.behind = args, name, float(parts[-1].partition(":")[2] or ternary.BEHIND)
        parts = [part.partition(":")[0] for part in parts]
        torch.manual_seed(args.seed)
        cfg = model.Config(vocab_size=256, **SIZES[args.size])
        self.run, self.text = train.Run(cfg, device, False, args.seed), Text(args.text, cfg.context, device)
        self.rehearsal = wire.Rehearsal("fp32" if parts[0] == "ternary" else parts[0], "feedback" in parts)
        if "ternary" in parts:
            self.run.pin()
            self.run.pinned.most_behind = self.behind
        self.graph = Graph(self.run, self.text, args, self.rehearsal) if args.graph else None
        self.losses, self.began, self.sent = [], time.time(), 0

    def step(self, n):
        if self.graph:
            self.graph.step(n)
        else:
            factor = optim.schedule(n / self.args.steps)
            self.losses.append(step(self.run, self.text.batch(n, self.args.batch), self.args.ranks, self.rehearsal.sum, factor, n))
        self.sent = self.sent or self.rehearsal.sent
        if n % 500 == 499:
            print(self.name, "seed %d" % self.args.seed, n + 1, "%.4f" % float(self.curve(n + 1)[-100:].mean()), "%.0f s" % (time.time() - self.began), self.run.pinned.bytes_per_weight() if self.run.pinned else "", flush=True)

    def curve(self, done):
        if self.graph and self.graph.stream:
            self.graph.stream.synchronize()
        return self.graph.losses[:done].cpu().numpy() if self.graph else torch.stack(self.losses).cpu().numpy()

    def found(self):
        """The line of results."""
        args, run, losses, seconds = self.args, self.run, self.curve(self.args.steps), time.time() - self.began
        with torch.no_grad():
            w, held, tokens = run.weights(), [], self.text.held_out(HELD)
            for i in range(0, HELD, 16):
                held.append(run.losses(w, *(x[i * run.cfg.context:(i + 16) * run.cfg.context] for x in tokens), exact=False))
        values = sum(p.numel() for p in run.params.values())
        found = {"name": self.name, "size": args.size, "ranks": args.ranks, "steps": args.steps, "seed": args.seed, "parameters": values, "held_out": float(torch.cat(held).mean()), "last_200": float(losses[-200:].mean()),
                 "bytes_per_value": self.sent / values, "seconds": round(seconds, 1), "curve": [round(float(part.mean()), 4) for part in np.array_split(losses, min(60, args.steps))]}
        if run.pinned:
            found.update(update_bytes_per_weight=run.pinned.bytes_per_weight(), whole=run.pinned.whole, behind=self.behind, lacking=run.pinned.share_lacking())
        return found


def train_one(args, name, device):
    training, began = Training(args, name, device), time.time()
    for n in range(args.steps):
        if n in (150, 400, 800) and args.within and (time.time() - began) / n * args.steps > args.within:
            print("%s: %.0f s for all steps are too many" % (name, (time.time() - began) / n * args.steps), flush=True)
            return None
        training.step(n)
    return training.found()


def train_together(args, device):
    """All formats in one process, each a graph on a stream of its own: their small kernels run beside one another."""
    every = []
    for name in args.formats:
        every.append(Training(args, name, device))
        for n in range(Graph.WARM + 1):  # warm and captured while nothing else runs
            every[-1].step(n)
        if device == "cuda":
            torch.cuda.synchronize()
    for n in range(Graph.WARM + 1, args.steps):
        for each in every:
            each.step(n)
    return [each.found() for each in every]


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
    updates = {"update_bytes_per_weight": pinned.bytes_per_weight(), "whole": pinned.whole, "lacking": pinned.share_lacking()} if pinned else {}
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
    right.set_xticks([], minor=True)
    right.set_xticks([0.125, 0.25, 0.5, 1, 2, 4], ["1/8", "1/4", "1/2", "1", "2", "4"])
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
    a.add_argument("--graph", action="store_true", help="all formats beside one another, a step of each as one CUDA graph")
    a.add_argument("--rate", type=float, default=3e-3, help="of Adam, for the toy")
    a.add_argument("--within", type=float, metavar="SECONDS", help="leave out what would take longer")
    args = a.parse_args()
    if args.plot:
        return plot(args.plot, args.out)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and args.size != "toy":
        print(attention.choose(), flush=True)
    for found in train_together(args, device) if args.graph else (train_toy(args, name) if args.size == "toy" else train_one(args, name, device) for name in args.formats):
        if not found:
            continue
        print({k: v for k, v in found.items() if k != "curve"}, flush=True)
        with open(args.out, "a") as f:
            f.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
