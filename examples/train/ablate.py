"""What virtual scalars (Bungee) and clamping buy: small int8 models trained with and without, at two sizes and two rates.

    python3 ablate.py run --data DATA --out OUT [--steps 300] [--at-once 5]     trains all; a line of OUT/*.jsonl for each
    python3 ablate.py plot OUT --out docs/figures                              loss curves and the table (matplotlib)

What was published of Kaiju says that virtual scalars help mostly small models, and that clamping is dynamic, learned, and needed at inference. Neither
formula was published: one learned factor for each matrix, and one learned clip for each activation that becomes int8, are ours."""
import argparse
import json
import math
import os
import subprocess
import sys

# The first two are for a CPU.
SIZES = {"0.6 M": dict(d_model=64, n_heads=1, d_ff=192, pattern="SG", vocab_size=8192, context=128, window=64),
         "1.4 M": dict(d_model=128, n_heads=2, d_ff=384, pattern="SSG", vocab_size=8192, context=128, window=64),
         "8 M": dict(d_model=256, n_heads=4, d_ff=768, pattern="SSSGSSSGSS", vocab_size=8192, context=512, window=256),
         "23 M": dict(d_model=512, n_heads=8, d_ff=1536, pattern="SSSGSSSG", vocab_size=8192, context=512, window=256)}
# changes of the rates of optim.py, and factors on the clips that training begins with
VARIANTS = {"all": ({}, 1.0), "no virtual scalars": ({"scalar": 0.0}, 1.0), "clips that are not learned": ({"clip": 0.0}, 1.0), "clips of 16 x, not learned": ({"clip": 0.0}, 16.0), "bf16 twin": ({}, 1.0)}
RATES = (1.0, 4.0)  # factors on all rates
USUAL = {}  # rates of optim.py


def one(size, variant, rate, args):
    """Trains a model, and returns its line of results."""
    import numpy as np
    import torch

    import model
    import optim
    import train
    changed, wide = VARIANTS[variant]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    optim.RATES.clear()
    optim.RATES.update({**USUAL, **changed})
    run = train.Run(model.Config(**SIZES[size]), device, "twin" in variant, seed=args.seed)
    with torch.no_grad():
        for name, p in run.params.items():
            if name in model.CLIPS:
                p += math.log(wide)
    meta = json.load(open(os.path.join(args.data, "data.json")))
    data, held = (train.Data([args.data], name, run.cfg.context, device, meta["loss_weight"]) for name in ("train", "val"))
    curve = []
    for done in range(args.steps):
        which = data.order(done * args.batch, args.batch)
        loss, _ = run.step([data.rows(which)], float(data.weights(which)[0].sum()), 0.0, rate * optim.schedule(done / args.steps), False, done)
        if done % 10 == 9:
            curve.append((done + 1, round(float(loss), 4)))
            if not np.isfinite(curve[-1][1]):
                break
    w, total, count = run.weights(), 0.0, 0
    for first in range(0, min(held.count, args.held), args.batch):
        tokens, targets, weights, _, _ = held.rows(range(first, min(first + args.batch, held.count)))
        total += float((run.losses(w, tokens, targets, False) * weights).sum())
        count += float(weights.sum())
    return {"size": size, "variant": variant, "rate": rate, "seed": args.seed, "curve": curve, "held_out": round(total / count, 4), "steps": args.steps, "tokens": args.steps * args.batch * run.cfg.context, "device": device}


def worker(args):
    """Trains every so many-th model, and appends a line for each."""
    global USUAL
    import optim
    USUAL = dict(optim.RATES)
    share, shares = map(int, args.share.split("/"))
    for job in jobs(args)[share - 1::shares]:
        with open(os.path.join(args.out, "results_%d.jsonl" % share), "a") as f:
            f.write(json.dumps(one(*job, args)) + "\n")


def jobs(args):
    return [(size, variant, rate) for rate in args.rates for size in args.sizes for variant in VARIANTS]


def run_all(args):
    os.makedirs(args.out, exist_ok=True)
    command = [sys.executable, os.path.abspath(__file__), "worker", *sys.argv[2:]]
    running = [subprocess.Popen([*command, "--share", "%d/%d" % (n + 1, args.at_once)], env={**os.environ, "OMP_NUM_THREADS": "1"}) for n in range(args.at_once)]
    for each in running:
        each.wait()
    print(len(results(args.out)), "of", len(jobs(args)), "models")


def results(folder):
    return [json.loads(line) for name in sorted(os.listdir(folder)) if name.endswith(".jsonl") for line in open(os.path.join(folder, name))]


def ended(result):
    """The held-out loss as the table has it."""
    return "%.3f" % result["held_out"] if math.isfinite(result["curve"][-1][1]) else "diverged"


def beside(curve, other):
    """Steps and differences of two curves, as far as both go: one that diverges ends early."""
    other = dict(other)
    return [(step, loss - other[step]) for step, loss in curve if math.isfinite(loss) and math.isfinite(other.get(step, math.nan))]


def plot(args):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    found = results(args.results)
    os.makedirs(args.out, exist_ok=True)
    sizes, rates = [s for s in SIZES if any(r["size"] == s for r in found)], sorted({r["rate"] for r in found})
    figure, axes = plt.subplots(2 * len(rates), len(sizes), figsize=(5.2 * len(sizes), 5.4 * len(rates)), squeeze=False, sharex=True, sharey="row")
    names = [v for v in VARIANTS if any(r["variant"] == v for r in found)]
    whole = {(r["size"], r["rate"]): r["curve"] for r in found if r["variant"] == "all"}
    lowest = min(loss for r in found for _, loss in r["curve"][-1:] if math.isfinite(loss))
    for r in found:
        above, below = (axes[2 * rates.index(r["rate"]) + row][sizes.index(r["size"])] for row in (0, 1))
        style = {"label": r["variant"], "color": "C%d" % names.index(r["variant"]), "linestyle": "--" if "bf16" in r["variant"] else "-", "linewidth": 1}
        above.plot(*zip(*r["curve"]), **style)
        above.set_title("%s parameters, rates x %g" % (r["size"], r["rate"]), fontsize=9)
        above.set_ylim(top=max(2 + lowest, 5.5))
        below.plot(*zip(*beside(r["curve"], whole.get((r["size"], r["rate"]), ()))), **style)
        below.set_ylim(-0.08, 0.2)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    for number, row in enumerate(axes):
        row[0].set_ylabel("training loss" + " above that of all" * (number % 2))
    axes[0][0].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(os.path.join(args.out, "ablations.png"), dpi=110)
    print("| variant | " + " | ".join("%s, x %g" % (s, r) for s in sizes for r in rates) + " |")
    print("| --- |" + " --- |" * (len(sizes) * len(rates)))
    values = {(r["variant"], r["size"], r["rate"]): ended(r) for r in found}
    for v in names:
        print("| %s | " % v + " | ".join(values.get((v, s, r), "") for s in sizes for r in rates) + " |")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = a.add_subparsers(dest="command", required=True)
    for name, about in (("run", "train all"), ("worker", "a process of run")):
        p = commands.add_parser(name, help=about)
        p.add_argument("--data", required=True, help="folder of data.py build")
        p.add_argument("--out", required=True)
        p.add_argument("--steps", type=int, default=300)
        p.add_argument("--batch", type=int, default=32)
        p.add_argument("--held", type=int, default=128, help="held-out sequences")
        p.add_argument("--rates", type=float, nargs="+", default=RATES)
        p.add_argument("--sizes", nargs="+", choices=SIZES, default=["8 M", "23 M"])
        p.add_argument("--seed", type=int, default=1)
        p.add_argument("--at-once", type=int, default=5, help="processes beside one another")
        p.add_argument("--share", default="1/1", help=argparse.SUPPRESS)
    p = commands.add_parser("plot")
    p.add_argument("results")
    p.add_argument("--out", required=True)
    args = a.parse_args()
    {"run": run_all, "worker": worker, "plot": plot}[args.command](args)


if __name__ == "__main__":
    main()
