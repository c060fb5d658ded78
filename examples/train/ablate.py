"""What virtual scalars (Bungee) and clamping buy: small int8 models trained with and without, at two sizes and three rates.

    python3 ablate.py run --data DATA --out OUT [--steps 400] [--at-once 8]     trains all; OUT/RESULTS.json and the curves
    python3 ablate.py plot OUT/results.json --out docs/figures                 loss curves and the table (matplotlib)

What was published of Kaiju says that virtual scalars help mostly small models, and that clamping is dynamic, learned, and needed at inference. Neither
formula was published: one learned factor for each matrix, and one learned clip for each activation that becomes int8, are ours."""
import argparse
import json
import math
import os
import subprocess
import sys

SIZES = {"1.7 M": dict(d_model=128, n_heads=2, d_ff=384, pattern="SSGS", vocab_size=8192, context=512, window=256),
         "8.0 M": dict(d_model=256, n_heads=4, d_ff=768, pattern="SSSGSSSGSS", vocab_size=8192, context=512, window=256)}
# changes of the rates of optim.py, and factors on the clips that training begins with
VARIANTS = {"all": ({}, 1.0), "no virtual scalars": ({"scalar": 0.0}, 1.0), "clips that are not learned": ({"clip": 0.0}, 1.0), "clips of 4 x, not learned": ({"clip": 0.0}, 4.0),
            "clips of 16 x, not learned": ({"clip": 0.0}, 16.0), "clips of 4 x, learned": ({}, 4.0), "bf16 twin, no virtual scalars": ({"scalar": 0.0}, 1.0), "bf16 twin": ({}, 1.0)}
RATES = (0.5, 1.0, 4.0)  # factors on all rates


def one(args):
    import numpy as np
    import torch

    import attention
    import model
    import optim
    import train
    rates, wide = VARIANTS[args.variant]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    optim.RATES.update(rates)
    if device == "cuda":
        attention.BACKEND["flex"] = False
    run = train.Run(model.Config(**SIZES[args.size]), device, "twin" in args.variant, seed=args.seed)
    with torch.no_grad():
        for name, p in run.params.items():
            if name in model.CLIPS:
                p += math.log(wide)
    meta = json.load(open(os.path.join(args.data, "data.json")))
    data, held = (train.Data([args.data], name, run.cfg.context, device, meta["loss_weight"]) for name in ("train", "val"))
    curve = []
    for done in range(args.steps):
        which = data.order(done * args.batch, args.batch)
        loss, _ = run.step([data.rows(which)], float(data.weights(which)[0].sum()), 0.0, args.rate * optim.schedule(done / args.steps), False, done)
        if done % 10 == 9:
            curve.append((done + 1, round(float(loss), 4)))
            if not np.isfinite(curve[-1][1]):
                break
    w, total, count = run.weights(), 0.0, 0
    for first in range(0, min(held.count, 128), 32):
        tokens, targets, weights, _, _ = held.rows(range(first, min(first + 32, held.count)))
        total += float((run.losses(w, tokens, targets, False) * weights).sum())
        count += float(weights.sum())
    print(json.dumps({"size": args.size, "variant": args.variant, "rate": args.rate, "seed": args.seed, "curve": curve, "held_out": round(total / count, 4), "steps": args.steps,
                      "parameters": sum(p.numel() for p in run.params.values())}), flush=True)


def run_all(args):
    os.makedirs(args.out, exist_ok=True)
    jobs = [(size, variant, rate) for size in SIZES for rate in RATES for variant in VARIANTS]
    jobs.sort(key=lambda job: (job[2] != 1.0, job[2], job[0] != "1.7 M"))
    running, found = [], []

    def finish(process, job):
        out = process.communicate()[0].strip().splitlines()
        try:
            found.append(json.loads(out[-1]))
            print("%-7s x%-4g %-32s %.4f" % (*[found[-1][k] for k in ("size", "rate", "variant", "held_out")],), flush=True)
        except (ValueError, IndexError):
            print("failed:", job, out[-3:], flush=True)
        json.dump(found, open(os.path.join(args.out, "results.json"), "w"))

    for size, variant, rate in jobs:
        if len(running) >= args.at_once:
            finish(*running.pop(0))
        command = [sys.executable, os.path.abspath(__file__), "one", "--data", args.data, "--size", size, "--variant", variant, "--rate", str(rate), "--steps", str(args.steps), "--batch", str(args.batch)]
        running.append((subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}), (size, variant, rate)))
    for each in running:
        finish(*each)


def plot(args):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    found = json.load(open(args.results))
    os.makedirs(args.out, exist_ok=True)
    sizes, rates = sorted({r["size"] for r in found}), sorted({r["rate"] for r in found})
    figure, axes = plt.subplots(len(sizes), len(rates), figsize=(4.2 * len(rates), 3.2 * len(sizes)), squeeze=False, sharex=True)
    names = [v for v in VARIANTS if any(r["variant"] == v for r in found)]
    for r in found:
        axis = axes[sizes.index(r["size"])][rates.index(r["rate"])]
        axis.plot(*zip(*r["curve"]), label=r["variant"], color="C%d" % names.index(r["variant"]), linestyle="--" if "bf16" in r["variant"] else "-", linewidth=1)
        axis.set_title("%s parameters, rates x %g" % (r["size"], r["rate"]), fontsize=9)
        axis.set_ylim(top=8, bottom=2.5)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    for row in axes:
        row[0].set_ylabel("training loss")
    axes[0][-1].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(os.path.join(args.out, "ablations.png"), dpi=110)
    print("| variant | " + " | ".join("%s, x %g" % (s, r) for s in sizes for r in rates) + " |")
    print("| --- |" + " --- |" * (len(sizes) * len(rates)))
    values = {(r["variant"], r["size"], r["rate"]): r["held_out"] for r in found}
    for v in names:
        print("| %s | " % v + " | ".join("%.3f" % values[v, s, r] if (v, s, r) in values else "" for s in sizes for r in rates) + " |")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = a.add_subparsers(dest="command", required=True)
    every = commands.add_parser("run")
    every.add_argument("--out", required=True)
    every.add_argument("--at-once", type=int, default=8, help="processes beside one another")
    single = commands.add_parser("one")
    single.add_argument("--size", choices=SIZES, required=True)
    single.add_argument("--variant", choices=VARIANTS, required=True)
    single.add_argument("--rate", type=float, default=1.0)
    single.add_argument("--seed", type=int, default=1)
    for each in (every, single):
        each.add_argument("--data", required=True, help="folder of data.py build")
        each.add_argument("--steps", type=int, default=400)
        each.add_argument("--batch", type=int, default=32)
    p = commands.add_parser("plot")
    p.add_argument("results")
    p.add_argument("--out", required=True)
    args = a.parse_args()
    {"run": run_all, "one": one, "plot": plot}[args.command](args)


if __name__ == "__main__":
    main()
