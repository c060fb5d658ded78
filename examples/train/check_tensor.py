"""Checks tensor.py, on CPUs with gloo or on GPUs with NCCL:

    python3 check_tensor.py [--ranks 2 4] [--size tiny|nano|small] [--speed]

One pass in one process and divided over each number: rows and losses have the same bits, gradients are as near as sums in another order are. Then steps of
training with the state saved in the middle: it goes on in every number of processes."""
import argparse
import os
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("no PyTorch here")
    sys.exit(77)

import attention
import backward
import model
import optim
import tensor
import train
import wire

# small: layers of the preset of that name
SIZES = {"tiny": dict(vocab_size=256, d_model=64, n_heads=4, d_ff=128, pattern="SGS", context=128, window=64),
         "nano": dict(vocab_size=8192, d_model=512, n_heads=8, d_ff=1536, pattern="SSSG", context=1024, window=512),
         "small": dict(vocab_size=8192, d_model=5120, n_heads=40, head_dim=128, d_ff=20480, pattern="SG", context=1024, window=512)}
SEQUENCES = {"tiny": 4, "nano": 16, "small": 8}
STEPS = 6
SAMPLE = 997  # of the gradients of a large matrix, every so many-th value is compared


def device():
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def batch(cfg, count, step):
    made = torch.Generator().manual_seed(step)
    starts = torch.randint(0, cfg.vocab_size, (count, 1), generator=made)
    tokens = (starts + torch.arange(cfg.context)[None] * (1 + starts % 3)) % cfg.vocab_size  # something that can be learned
    noise = torch.randint(0, cfg.vocab_size, tokens.shape, generator=made)
    tokens = torch.where(torch.rand(tokens.shape, generator=made) < 0.1, noise, tokens).to(device())
    return tokens.reshape(-1), torch.roll(tokens, -1, 1).reshape(-1)


def one_pass(run, exact, count):
    """Rows of the last norm, whole; losses of all rows; gradients of all processes' parts, added up; the loss."""
    cfg, group = run.cfg, run.group
    w = run.weights()
    w = tensor.part_of(w, group) if group else w
    tokens, targets = batch(cfg, count, 0)
    shape = (count, cfg.context)
    rows = model.forward(w, tokens, run.positions(count), model.Training(shape, exact))[1]
    losses = model.losses(w, rows, w.split.own(targets))
    gradients = backward.Gradients(w, rows=8, first_row=3)
    gradients.run(tokens, run.positions(count), targets, torch.ones(len(tokens), device=run.device), 1 / len(tokens), shape, exact)
    grads = gradients.finish()
    added = train.add_up([*grads.values(), gradients.loss])
    some = {k: v.flatten()[::SAMPLE if v.numel() > 1 << 24 else 1].cpu() for k, v in zip(grads, added)}
    return w.split.whole(rows).cpu(), w.split.whole(losses).cpu(), some, added[-1].cpu()


def steps(run, first, last, count):
    found = []
    for step in range(first, last):
        tokens, targets = batch(run.cfg, count, step)
        part = tokens, targets, torch.ones(len(tokens), device=run.device), None, None
        found.append(run.step([part], len(tokens), 0.0, 0.3 * optim.schedule(0.1), False, step)[0])
    return torch.stack(found).cpu()


def speed(run, count):
    """Milliseconds of a pass, forward and backward, without adding gradients up; and of a whole step."""
    cfg = run.cfg
    tokens, targets = batch(cfg, count, 0)
    ones, positions = torch.ones(len(tokens), device=run.device), run.positions(count)

    def alone():
        w = run.weights()
        gradients = backward.Gradients(tensor.part_of(w, run.group) if run.group else w)
        gradients.run(tokens, positions, targets, ones, 1 / len(tokens), (count, cfg.context), False)
        return gradients.loss

    def wait():
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def timed(f):
        for n in range(6):
            if n == 2:
                wait()
                began = time.time()
            f()
        wait()
        return (time.time() - began) / 4 * 1e3
    return timed(alone), timed(lambda: steps(run, 0, 1, count))


def rank_main(args):
    rank, ranks = train.start()
    cfg, count = model.Config(**SIZES[args.size]), SEQUENCES[args.size]
    if torch.cuda.is_available():
        attention.choose()
    group = tensor.Group(ranks) if ranks > 1 else None

    def new(state=None):
        with device():  # drawn there: a processor takes long for small
            run = train.Run(cfg, device(), False)
        run.group = group
        if state:
            run.begin_with(state["params"])
            run.optimiser.load(state["optimiser"])
        return run
    run = new()
    found = {"pass": one_pass(run, False, count)}
    if args.size != "small":
        found["exact"] = one_pass(run, True, count)
    found["first"] = steps(run, 0, STEPS, count)
    if args.start:
        run = new(torch.load(args.start, map_location=device(), weights_only=False))
    elif args.size != "small":
        torch.save({"params": run.params, "optimiser": run.optimiser.state()}, args.out + ".state")
        again = new(torch.load(args.out + ".state", map_location=device(), weights_only=False))
    found["second"] = steps(run, STEPS, 2 * STEPS, count)
    if not args.start and args.size != "small":
        found["again"] = steps(again, STEPS, 2 * STEPS, count)
    if args.start and args.shard:
        run = new(torch.load(args.start, map_location=device(), weights_only=False))
        run.wire = wire.Wire("fp32")
        run.shard()
        found["sharded"] = steps(run, STEPS, 2 * STEPS, count)
    if args.speed:
        found["ms"] = speed(run, count)
    if rank == 0:
        torch.save(found, args.out)
    if ranks > 1:
        dist.destroy_process_group()


def launch(ranks, path, args, start=None):
    command = [sys.executable] + (["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone", "--"] if ranks > 1 else []) + [os.path.abspath(__file__)]
    command += ["--rank", "--size", args.size, "--out", path] + ["--speed"] * args.speed + ["--shard"] * args.shard + (["--start", start] if start else [])
    done = subprocess.run(command, capture_output=True, text=True, env={"OMP_NUM_THREADS": "1", **os.environ})
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return torch.load(path, map_location="cpu", weights_only=False)


def compare(one, other, ranks):
    """Whether all is as it should be; prints the differences."""
    bad = 0

    def say(text, good):
        nonlocal bad
        bad += not good
        print("%d processes: %-66s %s" % (ranks, text, "ok" if good else "WRONG"), flush=True)
    for kind in ("pass", "exact"):
        if kind not in one or kind not in other:
            continue
        (rows, losses, grads, loss), (rows_2, losses_2, grads_2, loss_2) = one[kind], other[kind]
        name = "fast attention" if kind == "pass" else "attention to the bit"
        say("%s: rows of the last norm and %d losses, to the bit" % (name, len(losses)), torch.equal(rows, rows_2) and torch.equal(losses, losses_2))
        say("%s: mean loss, %.1e of it apart" % (name, abs(float(loss - loss_2)) / float(loss)), abs(float(loss - loss_2)) < 1e-6 * float(loss))
        far = {k: float((grads[k] - grads_2[k]).norm() / grads[k].norm().clamp_min(1e-20)) for k in grads}
        for what, names, limit in (("matrices", [k for k in far if k in model.MATRICES + ("embed",)], 0.02), ("scalars and clips", [k for k in far if k not in model.MATRICES + ("embed",)], 0.2)):
            most = max(names, key=far.get)
            say("%s: gradients of %s, at most %.1e of their length apart (%s)" % (name, what, far[most], most), far[most] < limit)
    for kind in ("first", "second", "sharded"):
        if kind in other:
            far = float((one["second" if kind == "sharded" else kind] - other[kind]).abs().max())
            say("%s %d steps: losses %s, at most %.1e apart" % (kind, STEPS, " ".join("%.4f" % x for x in other[kind].tolist()), far), far < 0.02)
    if "ms" in one:
        print("%d processes: pass %.1f ms, step %.1f ms; one process: pass %.1f ms, step %.1f ms" % (ranks, *other["ms"], *one["ms"]), flush=True)
    return bad


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    a.add_argument("--size", choices=SIZES, default="tiny")
    a.add_argument("--speed", action="store_true")
    a.add_argument("--shard", action="store_true", help="the second steps with divided masters, too")
    a.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    a.add_argument("--out", help=argparse.SUPPRESS)
    a.add_argument("--start", help=argparse.SUPPRESS)
    args = a.parse_args()
    if args.rank:
        return rank_main(args)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        first = os.path.join(folder, "1")
        one = launch(1, first, args)
        print("one process: losses %s" % " ".join("%.4f" % x for x in torch.cat([one["first"], one["second"]]).tolist()), flush=True)
        if "again" in one:
            far = float((one["second"] - one["again"]).abs().max())
            bad += far > (0.02 if torch.cuda.is_available() else 0)  # a GPU adds up the embedding's gradient in no order
            print("one process that goes on from the state: losses at most %.1e apart" % far, flush=True)
        for ranks in args.ranks:
            bad += compare(one, launch(ranks, os.path.join(folder, str(ranks)), args, None if args.size == "small" else first + ".state"), ranks)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
