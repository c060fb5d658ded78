"""Trains the int8 model, or its bf16 twin, on the streams of data.py.

    python3 train.py --data DATA --out RUN --minutes 12                  the int8 model; ends on time
    python3 train.py --data DATA --out TWIN --twin --like RUN            its twin: as many steps, same data, same schedule
    python3 train.py ... --resume                                        goes on from the last state in --out
    python3 train.py ... --start MODEL.safetensors                       a second stretch: starts from the weights of a checkpoint
    torchrun --nproc-per-node 2 -- train.py ... --steps 9100             the same on two GPUs of one host, each with half of every step

RUN gets state.pt (masters, optimiser), progress.npy (the schedule as it went, for --like), log.txt, report.json, and of the int8 model
model.safetensors, the checkpoint (docs/checkpoint.md). With --updates an engine can follow the run while it serves. With --feedback each
process adds lost_RANK.pt, what its wire has lost."""
import argparse
import functools
import json
import os
import time

import numpy as np
import torch
import torch.distributed

import attention
import backward
import export
import marks
import model
import ops
import optim
import safety
import sharded
import tensor
import ternary
import twin
import weight_stream
import wire

TINY = dict(vocab_size=8192, d_model=64, n_heads=2, d_ff=128, context=256, pattern="SG", window=64, labels=safety.LABELS)
SAVE_EVERY = 16  # steps, after which several processes ask the first one whether it is time to save: it alone looks at the clock


def config(tiny):
    return model.Config(**TINY) if tiny else model.Config(labels=safety.LABELS)


def start():
    """Number of this process and how many torchrun started, one for each GPU; 0 of 1 without it."""
    rank, ranks = (int(os.environ.get(name, n)) for name, n in (("RANK", 0), ("WORLD_SIZE", 1)))
    if ranks > 1:
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl" if cuda else "gloo")
    return rank, ranks


def add_up(tensors, by=None):
    """Each tensor added up over all processes: the same bits in every one of them. by: a Wire, which sends fewer bytes."""
    if not torch.distributed.is_initialized() and not by:
        return tensors
    flat = torch.cat([t.flatten() for t in tensors])
    if by:
        flat = by.sum(flat)
    else:
        torch.distributed.all_reduce(flat)
    return [part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors)]


def told(value, device):
    """What the first process holds for true, in every process."""
    if not torch.distributed.is_initialized():
        return value
    answer = torch.tensor(float(value), device=device)
    torch.distributed.broadcast(answer, 0)
    return bool(answer)


def agree(tensors):
    """Whether all processes hold the same, as far as sums tell."""
    own = torch.stack([t.double().sum() for t in tensors])
    most = torch.stack([own, -own])
    torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
    return bool((most.sum(0) == 0).all())


class Sequences:
    """The sequences of several files, one file after the other."""

    def __init__(self, folders, name, kind, context):
        self.files = [np.memmap(os.path.join(folder, name), dtype=kind, mode="r") for folder in folders]
        self.files = [f[:len(f) // context * context].reshape(-1, context) for f in self.files]
        self.ends = np.cumsum([len(f) for f in self.files])

    def __len__(self):
        return int(self.ends[-1])

    def __getitem__(self, i):
        file = int(np.searchsorted(self.ends, i, side="right"))
        return self.files[file][i - (self.ends[file - 1] if file else 0)]


class Data:
    """Sequences of data.py's folders in a fixed random order, the same for every run."""

    def __init__(self, folders, name, context, device, table, seed=5):
        self.tokens, self.classes, self.marks = (Sequences(folders, name + end, kind, context) for end, kind in ((".bin", np.uint16), (".weights.bin", np.uint8), (".marks.bin", np.uint16)))
        self.count = len(self.tokens)
        self.context, self.device, self.table = context, device, np.array(table, np.float32)
        self.shuffled = functools.lru_cache(2)(lambda epoch: np.random.default_rng(seed + epoch).permutation(self.count))

    def order(self, first, count):
        """Indices of sequences first ... in an endless walk, shuffled anew each epoch."""
        return [self.shuffled(i // self.count)[i % self.count] for i in range(first, first + count)]

    def weights(self, which):
        """Of each target of the sequences `which`, and their classes; a sequence's last position has no target."""
        classes = np.pad(np.stack([self.classes[i] for i in which])[:, 1:], ((0, 0), (0, 1)))
        return self.table[classes], classes

    def head_weight(self, which):
        """Sum of the weights of the sequences' marks."""
        found = np.stack([self.marks[i] for i in which])
        return float(marks.weigh(found[found != 0]).sum())

    def rows(self, which):
        """tokens, targets [N] int64, weights [N] of the sequences `which`, the classes, and the Marks (None: there are none)."""
        tokens = np.stack([self.tokens[i] for i in which]).astype(np.int64)
        targets, (weights, classes) = np.pad(tokens[:, 1:], ((0, 0), (0, 1))), self.weights(which)

        def put(x):
            x = torch.from_numpy(x.reshape(-1))
            return x.pin_memory().to(self.device, non_blocking=True) if self.device == "cuda" else x
        found = np.stack([self.marks[i] for i in which]).reshape(-1)
        return put(tokens), put(targets), put(weights), classes, marks.Marks(found, self.device) if found.any() else None


class Run:
    """One model in training: `step` does one optimiser step, `losses` evaluates."""

    def __init__(self, cfg, device, is_twin, seed=1):
        self.cfg, self.device, self.is_twin = cfg, device, is_twin
        self.wire = None  # a Wire for the gradients of several processes; None: float32 as they are
        self.pinned = None  # after pin()
        self.masters = None  # after shard()
        self.group = None  # a tensor.Group, whose processes share every pass
        self.ropes = [ops.Rope(f, cfg.context, device) for f in cfg.frequencies]
        self.params = (twin if is_twin else model).new_masters(cfg, device, seed)
        self.optimiser = optim.Optimiser({k: p.detach() for k, p in self.params.items()})

    def begin_with(self, masters):
        """Copies those of the masters that this model has; the twin has no clips."""
        with torch.no_grad():
            for name, p in self.params.items():
                p.copy_(masters[name].view_as(p))

    def positions(self, sequences):
        return torch.arange(self.cfg.context, device=self.device, dtype=torch.int32).repeat(sequences)

    def step(self, parts, weight, head_weight, factor, exact, number):
        """parts: this process's micro-batches of Data.rows(); weights: sums over all processes' parts. Returns the mean weighted loss of the
        language model and of the classifier head, on the device."""
        norm, head_norm = 1 / weight, marks.LOSS_SHARE / max(head_weight, 1.0)
        shapes = [(len(part[0]) // self.cfg.context, self.cfg.context) for part in parts]
        if self.is_twin:
            loss = head_loss = torch.zeros((), device=self.device)
            for (tokens, targets, weights, _, found), shape in zip(parts, shapes):
                w = twin.effective(self.params)
                a = twin.forward(w, self.cfg, tokens.view(shape), twin.Training(self.ropes))
                part = twin.Head.apply(a, w["out"], targets, weights, norm)
                head = found.loss(twin.scores(w, a[found.rows]), head_norm)[0] if self.cfg.labels and found else torch.zeros_like(part)
                (part + head).backward()
                loss, head_loss = loss + part.detach(), head_loss + head.detach()
            grads = {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in self.params.items()}
        else:
            w = self.weights()
            w = tensor.part_of(w, self.group) if self.group else w
            gradients = backward.Gradients(w, first_row=number * 37 % backward.CLIP_ROWS)
            for (tokens, targets, weights, _, found), shape in zip(parts, shapes):
                gradients.run(tokens, self.positions(shape[0]), targets, weights, norm, shape, exact, found, head_norm)
            grads, loss, head_loss = gradients.finish(), gradients.loss, gradients.head_loss
        loss, head_loss = add_up([loss, head_loss])
        if self.masters:
            self.masters.step(grads, factor)
            return loss, head_loss / marks.LOSS_SHARE
        self.optimiser.step(dict(zip(grads, add_up(list(grads.values()), self.wire))), factor)
        if self.pinned:
            self.pinned.follow(self.params)
        if self.is_twin:
            for p in self.params.values():
                p.grad = None
        return loss, head_loss / marks.LOSS_SHARE

    def weights(self):
        if self.masters:
            return model.quantise(self.masters.params(), self.cfg, self.ropes, self.masters)
        return twin.effective(self.params) if self.is_twin else model.quantise(self.params, self.cfg, self.ropes, self.pinned)

    def pin(self):
        """From now on the weights follow the masters by ternary steps."""
        self.pinned = ternary.Pinned(self.params)

    def shard(self):
        """From now on each process has a part of the masters and of the optimiser's state."""
        self.masters = sharded.Masters(self.params, self.wire, bool(self.pinned))
        self.masters.resume(self.optimiser.state(), self.pinned)
        if self.pinned:
            self.pinned.weight, self.pinned.scale = self.masters.weight, self.masters.scale
        self.params, self.optimiser = {}, None

    def collect(self):
        """The reverse, in every process."""
        self.params, state = self.masters.whole()
        self.optimiser = optim.Optimiser(self.params)
        self.optimiser.load(state)
        self.masters = None

    def state(self):
        """What load() makes a Run of. All processes must call it, because masters may be divided."""
        params, optimiser = self.masters.whole() if self.masters else ({k: p.detach() for k, p in self.params.items()}, self.optimiser.state())
        pinned = {"pinned": self.pinned.state()} if self.pinned else {}
        return {**pinned, "params": params, "optimiser": optimiser, "twin": self.is_twin}

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


def write(path, value):
    torch.save(value, path + ".part")
    os.replace(path + ".part", path)


def save(folder, run, rank, **more):
    """In all processes: the first one writes the state, and each one what its wire has lost."""
    state = {**run.state(), **more}
    if run.wire and run.wire.feedback:
        write(lost_path(folder, rank), {**lost_of(run, state["done"]), "lost": run.wire.lost})
    if rank == 0:
        write(os.path.join(folder, "state.pt"), state)
        np.save(os.path.join(folder, "progress.npy"), np.array(state["progress"]))


def lost_path(folder, rank):
    return os.path.join(folder, "lost_%d.pt" % rank)


def lost_of(run, done):
    """Of which state, and of which division of the gradients, a wire's losses are."""
    return {"done": done, "ranks": torch.distributed.get_world_size(), "sharded": bool(run.masters)}


def resume_lost(folder, run, rank, done):
    """Whether every process goes on with what its wire had lost when the state was saved. Otherwise none does."""
    path = lost_path(folder, rank)
    found = torch.load(path, map_location=run.device, weights_only=False) if os.path.exists(path) else {}
    fits = torch.tensor(float(all(found.get(k) == v for k, v in lost_of(run, done).items())), device=run.device)
    if float(add_up([fits])[0]) < torch.distributed.get_world_size():
        return False
    run.wire.lost = found["lost"]
    return True


def load(path, device):
    """The Run of a saved state, and the state."""
    state = torch.load(path, map_location=device, weights_only=False)
    run = Run(config(state["tiny"]), device, state["twin"])
    with torch.no_grad():
        for k, p in run.params.items():
            p.copy_(state["params"][k])
    if "pinned" in state:
        run.pin()
        run.pinned.load(state["pinned"])
    return run, state


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--data", required=True, nargs="+", help="folders written by data.py build")
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
    a.add_argument("--start", metavar="MODEL", help="checkpoint whose weights the masters are at the beginning")
    a.add_argument("--wire", choices=wire.FORMATS, help="how several processes send gradients (wire.py); default: an all-reduce of float32")
    a.add_argument("--feedback", action="store_true", help="what --wire loses in a step is added to the next one's gradients")
    a.add_argument("--ternary", action="store_true", help="weights follow the masters by steps of -1, 0 and 1 (ternary.py)")
    a.add_argument("--updates", metavar="FOLDER", help="gets first.safetensors, the weights at the beginning, and what changes them, 00000001.update and so on, for engines that follow the run (check_stream.py --folder)")
    a.add_argument("--update-steps", type=int, default=10, metavar="N", help="steps from one update to the next (default: %(default)s)")
    a.add_argument("--tensor", type=int, default=1, metavar="SIZE", help="so many processes share every sequence: each has some heads, hidden units and rows (tensor.py)")
    a.add_argument("--shard", action="store_true", help="masters and optimiser divided among the processes (sharded.py)")
    a.add_argument("--tiny", action="store_true", help="a toy, to try the program on a CPU")
    args = a.parse_args()
    rank, ranks = start()
    if args.minutes and ranks > 1:
        a.error("several processes have no common clock: --steps or --like instead of --minutes")
    if args.updates and (args.twin or args.update_steps < 1):
        a.error("--updates: of the int8 model, after one step or more")
    os.makedirs(args.out, exist_ok=True)
    state_path, log_file = os.path.join(args.out, "state.pt"), open(os.path.join(args.out, "log.txt"), "a")

    def log(text):
        if rank == 0:
            print(text, flush=True)
            print(text, file=log_file, flush=True)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    run, done, progress, before = Run(config(args.tiny), device, args.twin), 0, [], 0.0
    if args.start:
        run.begin_with(model.masters_of(export.weights(args.start, device)))
    if args.resume and os.path.exists(state_path):
        run, state = load(state_path, device)
        run.optimiser.load(state["optimiser"])
        done, progress, before = state["done"], state["progress"], state["elapsed"]
    if args.wire and ranks > 1:
        run.wire = wire.Wire(args.wire, args.feedback)
    if args.ternary and not run.pinned:
        run.pin()
    if args.tensor > 1:
        if args.twin or ranks % args.tensor:
            a.error("--tensor: for the int8 model, in a multiple of %d processes" % args.tensor)
        run.group = tensor.Group(args.tensor)
    parameters = sum(p.numel() for p in run.params.values())
    if args.shard and ranks > 1:
        run.shard()
    if done and args.feedback and not (run.wire and resume_lost(args.out, run, rank, done)):
        log("feedback begins anew: there is none of this state in %d processes%s" % (ranks, " with --shard" if args.shard else ""))
    cfg, updates = run.cfg, None

    def publish():
        """In all processes, because masters may be divided: brings the folder of updates to the present weights."""
        nonlocal updates
        tensors = export.tensors(run.weights(), args.tokenizer)
        if rank == 0:
            try:
                updates = updates or weight_stream.Folder(args.updates, export.config_json(cfg), tensors)
            except ValueError as error:
                raise SystemExit("--updates: %s" % error) from None
            updates.next(tensors)

    meta = json.load(open(os.path.join(args.data[0], "data.json")))
    data, held = (Data(args.data, name, cfg.context, device, meta["loss_weight"]) for name in ("train", "val"))
    like = np.load(os.path.join(args.like, "progress.npy")) if args.like else None
    steps = len(like) if like is not None else args.steps
    log("%s, %.1f M parameters, %d sequences of %d, %d x %s" % ("bf16 twin" if args.twin else "int8", parameters / 1e6, data.count, cfg.context, ranks, device))

    if device == "cuda":
        log(attention.choose())
    if args.updates:
        publish()
    began = last_log = last_save = time.time()
    logged, loss = done, None
    while True:
        now = time.time()
        elapsed = before + now - began
        p = like[done] if like is not None and done < steps else done / steps if steps else elapsed / (args.minutes * 60)
        if p >= 1 or (steps and done >= steps):
            break
        which = data.order(done * args.batch, args.batch)
        weight = sum(float(data.weights(which[i:i + args.micro])[0].sum()) for i in range(0, args.batch, args.micro))
        head_weight = sum(data.head_weight(which[i:i + args.micro]) for i in range(0, args.batch, args.micro))
        share, shares = rank // args.tensor, ranks // args.tensor
        mine = which[share * args.batch // shares:(share + 1) * args.batch // shares]
        parts = [data.rows(mine[i:i + args.micro]) for i in range(0, len(mine), args.micro)]
        loss, head_loss = run.step(parts, weight, head_weight, optim.schedule(p), p >= args.exact_from, done)
        progress.append(float(p))
        done += 1
        if args.updates and done % args.update_steps == 0:
            publish()
        if rank == 0 and (now - last_log > 4 or done <= 3):
            value, now = float(loss), time.time()  # waits for the device
            speed = (done - logged) * args.batch * cfg.context / (now - last_log)
            left = (elapsed / p * (1 - p) if p > 0 else 0) if not steps else (steps - done) * (now - last_log) / max(1, done - logged)
            log("step %5d  %5.1f%%  loss %.4f  head %.4f  %4.0fk tokens/s  rate x%.3f%s  %3.0f s left" % (done, 100 * p, value, float(head_loss), speed / 1e3, optim.schedule(p), "  exact" if p >= args.exact_from and not args.twin else "", left))
            if not np.isfinite(value):
                raise SystemExit("the loss is not finite: stopped before the last good state is overwritten")
            last_log, logged = now, done
        if (ranks == 1 or done % SAVE_EVERY == 0) and told(now - last_save > args.save_minutes * 60, device):
            save(args.out, run, rank, done=done, elapsed=before + now - began, progress=progress, tiny=args.tiny)
            last_save = now
    elapsed = before + time.time() - began
    save(args.out, run, rank, done=done, elapsed=elapsed, progress=progress, tiny=args.tiny)
    if run.masters:
        run.collect()
    if args.updates:
        publish()
    if ranks > 1:
        log("the %d models %s" % (ranks, "agree" if agree([p.detach() for p in run.params.values()]) else "DIFFER"))
        torch.distributed.destroy_process_group()
    if rank:
        return  # the rest is work for one
    report = {"twin": args.twin, "steps": done, "tokens": done * args.batch * cfg.context, "seconds": round(elapsed, 1), "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "ranks": ranks,
              "batch": args.batch, "exact_from": args.exact_from, "rates": optim.RATES, "validation": validate(run, held, args.micro)}
    json.dump(report, open(os.path.join(args.out, "report.json"), "w"), indent=1)
    for name, r in report["validation"].items():
        log("  %-20s loss %.4f  perplexity %9.3f  %d tokens" % (name, r["loss"], r["perplexity"], r["tokens"]))
    if not args.twin:
        export.write(os.path.join(args.out, "model.safetensors"), run.weights(), args.tokenizer)
    log("%d steps, %.1f M tokens, %.0f s" % (done, report["tokens"] / 1e6, elapsed))


if __name__ == "__main__":
    main()
