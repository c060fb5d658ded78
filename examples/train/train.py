"""Trains the int8 model, or its bf16 twin, on the streams of data.py.

    python3 train.py --data DATA --out RUN --minutes 12                  the int8 model; ends on time
    python3 train.py --data DATA --out TWIN --twin --like RUN            its twin: as many steps, same data, same schedule
    python3 train.py ... --resume                                        goes on from the last state in --out

RUN gets state.pt (masters, optimiser), progress.npy (the schedule as it went, for --like), log.txt, report.json, and of the int8 model
model.safetensors, the checkpoint (docs/checkpoint.md)."""
import argparse
import json
import os
import time

import numpy as np
import torch

import attention
import backward
import export
import model
import ops
import optim
import twin

TINY = dict(vocab_size=8192, d_model=64, n_heads=2, d_ff=128, context=256, pattern="SG", window=64)


class Data:
    """Sequences of data.py in a fixed random order, the same for every run."""

    def __init__(self, folder, name, context, device, table, seed=5):
        self.tokens, self.classes = (np.memmap(os.path.join(folder, name + end), dtype=kind, mode="r") for end, kind in ((".bin", np.uint16), (".weights.bin", np.uint8)))
        self.count = len(self.tokens) // context
        self.tokens, self.classes = (t[:self.count * context].reshape(-1, context) for t in (self.tokens, self.classes))
        self.context, self.device, self.table, self.seed = context, device, np.array(table, np.float32), seed

    def order(self, first, count):
        """Indices of sequences first ... in an endless walk, shuffled anew each epoch."""
        at = np.arange(first, first + count)
        epochs = {e: np.random.default_rng(self.seed + e).permutation(self.count) for e in set((at // self.count).tolist())}
        return [epochs[i // self.count][i % self.count] for i in at.tolist()]

    def rows(self, which):
        """tokens, targets [N] int64, weights [N] of the sequences `which`; a sequence's last position has no target. Also the classes."""
        tokens = np.stack([self.tokens[i] for i in which]).astype(np.int64)
        classes = np.pad(np.stack([self.classes[i] for i in which])[:, 1:], ((0, 0), (0, 1)))
        targets = np.pad(tokens[:, 1:], ((0, 0), (0, 1)))
        weights = self.table[classes]

        def put(x):
            x = torch.from_numpy(x.reshape(-1))
            return x.pin_memory().to(self.device, non_blocking=True) if self.device == "cuda" else x
        return put(tokens), put(targets), put(weights), classes, float(weights.sum())


class Run:
    """One model in training: `step` does one optimiser step, `losses` evaluates."""

    def __init__(self, cfg, device, is_twin, seed=1):
        self.cfg, self.device, self.is_twin = cfg, device, is_twin
        self.ropes = [ops.Rope(f, cfg.context, device) for f in cfg.frequencies]
        self.params = (twin if is_twin else model).new_masters(cfg, device, seed)
        self.optimiser = optim.Optimiser({k: p.detach() for k, p in self.params.items()})

    def positions(self, sequences):
        return torch.arange(self.cfg.context, device=self.device, dtype=torch.int32).repeat(sequences)

    def step(self, parts, factor, exact, number):
        """parts: micro-batches of Data.rows(). Returns the mean weighted loss, on the device."""
        norm = 1 / sum(part[4] for part in parts)
        shapes = [(len(part[0]) // self.cfg.context, self.cfg.context) for part in parts]
        if self.is_twin:
            loss = 0
            for (tokens, targets, weights, _, _), shape in zip(parts, shapes):
                w = twin.effective(self.params)
                part = twin.Head.apply(twin.forward(w, self.cfg, tokens.view(shape), twin.Training(self.ropes)), w["out"], targets, weights, norm)
                part.backward()
                loss += part.detach()
            grads = {k: p.grad for k, p in self.params.items()}
        else:
            w = model.quantise(self.params, self.cfg, self.ropes)
            gradients = backward.Gradients(w, first_row=number * 37 % backward.CLIP_ROWS)
            for (tokens, targets, weights, _, _), shape in zip(parts, shapes):
                gradients.run(tokens, self.positions(shape[0]), targets, weights, norm, shape, exact)
            grads, loss = gradients.finish(), gradients.loss
        self.optimiser.step(grads, factor)
        if self.is_twin:
            for p in self.params.values():
                p.grad = None
        return loss

    def weights(self):
        return twin.effective(self.params) if self.is_twin else model.quantise(self.params, self.cfg, self.ropes)

    @torch.no_grad()
    def losses(self, w, tokens, targets, exact=True):
        shape = (len(tokens) // self.cfg.context, self.cfg.context)
        if self.is_twin:
            return twin.losses(w, twin.forward(w, self.cfg, tokens.view(shape), twin.Training(self.ropes)), targets)
        return model.losses(w, model.forward(w, tokens, self.positions(shape[0]), model.Training(shape, exact))[1], targets)


def document_kinds(tokens):
    """0 prose, 1 chat without a card, 2 chat with a card, for every token of sequences of ids [n, T]: by what follows <s>."""
    kind = np.zeros(tokens.shape, np.int8)
    after = np.pad(tokens[:, 1:], ((0, 0), (0, 1)))
    first = np.where(after == 7, 0, np.where(after == 3, 2, 1))
    starts = np.where(tokens == 1, np.arange(tokens.shape[1]), 0)
    starts = np.maximum.accumulate(starts, 1)
    return np.take_along_axis(first, starts, 1).astype(kind.dtype)


def validate(run, data, micro, exact=True):
    """Mean loss by kind of document and weight class, and over everything that counts (class 2 and up)."""
    w, sums = run.weights(), {}
    for first in range(0, data.count, micro):
        which = range(first, min(first + micro, data.count))
        tokens, targets, _, classes, _ = data.rows(which)
        loss = run.losses(w, tokens, targets, exact).cpu().numpy().astype(np.float64)
        kinds = document_kinds(tokens.cpu().numpy().reshape(len(which), -1)).reshape(-1)
        for k, name in enumerate(("prose", "chat", "card chat")):
            for c in range(1, 5):
                some = (kinds == k) & (classes.reshape(-1) == c)
                s = sums.setdefault((name, c), [0.0, 0])
                s[0] += loss[some].sum()
                s[1] += int(some.sum())
    groups = {"all": [k for k in sums if k[1] >= 2], "everything": list(sums)}
    groups.update({"%s, class %d" % k: [k] for k in sums if sums[k][1]})
    groups.update({name: [k for k in sums if k[0] == name and k[1] >= 2] for name in ("prose", "chat", "card chat")})
    report = {}
    for name, keys in groups.items():
        total, count = sum(sums[k][0] for k in keys), sum(sums[k][1] for k in keys)
        if count:
            report[name] = {"loss": round(total / count, 5), "perplexity": round(float(np.exp(total / count)), 4), "tokens": count}
    return report


def save(path, run, done, elapsed, progress, args):
    torch.save({"params": {k: p.detach() for k, p in run.params.items()}, "optimiser": run.optimiser.state(), "done": done, "elapsed": elapsed, "progress": progress,
                "twin": run.is_twin, "tiny": args.tiny}, path + ".part")
    os.replace(path + ".part", path)
    np.save(os.path.join(os.path.dirname(path), "progress.npy"), np.array(progress))


def load(path, device):
    """The Run of a saved state, and the state."""
    state = torch.load(path, map_location=device, weights_only=False)
    run = Run(model.Config(**TINY) if state["tiny"] else model.Config(), device, state["twin"])
    with torch.no_grad():
        for k, p in run.params.items():
            p.copy_(state["params"][k])
    return run, state


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--data", required=True, help="folder written by data.py build")
    a.add_argument("--out", required=True)
    length = a.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float)
    length.add_argument("--steps", type=int)
    length.add_argument("--like", metavar="RUN", help="steps and schedule of an earlier run")
    a.add_argument("--twin", action="store_true", help="train the bf16 twin")
    a.add_argument("--batch", type=int, default=32, help="sequences a step")
    a.add_argument("--micro", type=int, default=32, help="sequences at a time")
    a.add_argument("--exact-from", type=float, default=0.67, help="progress from which the attention is the contract's to the bit")
    a.add_argument("--save-minutes", type=float, default=4)
    a.add_argument("--tokenizer", help="SentencePiece model to put into the checkpoint")
    a.add_argument("--resume", action="store_true")
    a.add_argument("--tiny", action="store_true", help="a toy, to try the program on a CPU")
    args = a.parse_args()
    os.makedirs(args.out, exist_ok=True)
    state_path, log_file = os.path.join(args.out, "state.pt"), open(os.path.join(args.out, "log.txt"), "a")

    def log(text):
        print(text, flush=True)
        print(text, file=log_file, flush=True)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    run, done, progress, before = Run(model.Config(**TINY) if args.tiny else model.Config(), device, args.twin), 0, [], 0.0
    if args.resume and os.path.exists(state_path):
        run, state = load(state_path, device)
        run.optimiser.load(state["optimiser"])
        done, progress, before = state["done"], state["progress"], state["elapsed"]
    cfg = run.cfg
    meta = json.load(open(os.path.join(args.data, "data.json")))
    data, held = (Data(args.data, name, cfg.context, device, meta["loss_weight"]) for name in ("train", "val"))
    like = np.load(os.path.join(args.like, "progress.npy")) if args.like else None
    steps = len(like) if like is not None else args.steps
    log("%s, %.1f M parameters, %d sequences of %d, %s" % ("bf16 twin" if args.twin else "int8", sum(p.numel() for p in run.params.values()) / 1e6, data.count, cfg.context, device))

    if device == "cuda":
        log(attention.choose())
    began = last_log = last_save = time.time()
    logged, loss = done, None
    while True:
        now = time.time()
        elapsed = before + now - began
        p = like[done] if like is not None and done < steps else done / steps if steps else elapsed / (args.minutes * 60)
        if p >= 1 or (steps and done >= steps):
            break
        which = data.order(done * args.batch, args.batch)
        parts = [data.rows(which[i:i + args.micro]) for i in range(0, args.batch, args.micro)]
        loss = run.step(parts, optim.schedule(p), p >= args.exact_from, done)
        progress.append(float(p))
        done += 1
        if now - last_log > 4 or done <= 3:
            value, now = float(loss), time.time()  # waits for the device
            speed = (done - logged) * args.batch * cfg.context / (now - last_log)
            left = (elapsed / p * (1 - p) if p > 0 else 0) if not steps else (steps - done) * (now - last_log) / max(1, done - logged)
            log("step %5d  %5.1f%%  loss %.4f  %4.0fk tokens/s  rate x%.3f%s  %3.0f s left" % (done, 100 * p, value, speed / 1e3, optim.schedule(p), "  exact" if p >= args.exact_from and not args.twin else "", left))
            if not np.isfinite(value):
                raise SystemExit("the loss is not finite: stopped before the last good state is overwritten")
            last_log, logged = now, done
        if now - last_save > args.save_minutes * 60:
            save(state_path, run, done, before + now - began, progress, args)
            last_save = now
    elapsed = before + time.time() - began
    save(state_path, run, done, elapsed, progress, args)
    report = {"twin": args.twin, "steps": done, "tokens": done * args.batch * cfg.context, "seconds": round(elapsed, 1), "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
              "batch": args.batch, "exact_from": args.exact_from, "rates": optim.RATES, "validation": validate(run, held, args.micro)}
    json.dump(report, open(os.path.join(args.out, "report.json"), "w"), indent=1)
    for name, r in report["validation"].items():
        log("  %-20s loss %.4f  perplexity %9.3f  %d tokens" % (name, r["loss"], r["perplexity"], r["tokens"]))
    if not args.twin:
        export.write(os.path.join(args.out, "model.safetensors"), run.weights(), args.tokenizer)
    log("%d steps, %.1f M tokens, %.0f s" % (done, report["tokens"] / 1e6, elapsed))


if __name__ == "__main__":
    main()
