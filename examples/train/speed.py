"""How fast int8 training is beside bf16 training of the same shape, on one GPU:

    python3 speed.py [--shapes nano small] [--tokens 32768]

A pass is what depends on the number format: rounding the masters, forward and backward. A step also has the optimiser, which is the same in both. The
products of both passes are timed alone, too."""
import argparse
import statistics
import time

import torch

import attention
import backward
import model
import ops
import optim
import train
import twin

# A few layers of the shapes, so that they train on one GPU; `wide` is between the two.
SHAPES = {"nano": dict(d_model=512, n_heads=8, head_dim=64, d_ff=1536, pattern="SSSGSSSSSSGSSS", context=2048, window=1024),
          "wide": dict(d_model=2048, n_heads=16, head_dim=128, d_ff=8192, pattern="SSSG", context=2048, window=1024),
          "small": dict(d_model=5120, n_heads=40, head_dim=128, d_ff=20480, pattern="SG", context=2048, window=1024)}


def seconds(f, times=7):
    """The median of so many runs, after three."""
    found = []
    for n in range(times + 3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        f()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return statistics.median(found[3:])


def products(cfg, rows):
    """Seconds of the forward products of a layer, in int8 and in bf16."""
    a, b = 0.0, 0.0
    for out, inner in (cfg.shape(name)[1:] for name in ("q", "o", "up", "down")):
        x, w = (torch.randint(-127, 128, shape, dtype=torch.int8, device="cuda") for shape in ((rows, inner), (out, inner)))
        y, v = x.bfloat16(), w.bfloat16()
        a += seconds(lambda x=x, w=w: ops.int_mm(x, w))
        b += seconds(lambda y=y, v=v: y @ v.t())
    return a, b


def passes(run, batch):
    """Functions of a pass and of a step."""
    tokens, targets, weights = batch
    cfg, count = run.cfg, len(tokens) // run.cfg.context
    part = tokens, targets, weights, None, None

    def int8():
        gradients = backward.Gradients(run.weights())
        gradients.run(tokens, run.positions(count), targets, weights, 1 / len(tokens), (count, cfg.context), False)
        return gradients.finish()

    def bf16():
        w = twin.effective(run.params)
        a = twin.forward(w, cfg, tokens.view(count, -1), twin.Training(run.ropes))
        twin.Head.apply(a, w["out"], targets, weights, 1 / len(tokens)).backward()
        for p in run.params.values():
            p.grad = None
    return (bf16 if run.is_twin else int8), lambda: run.step([part], len(tokens), 0.0, optim.schedule(0.5), False, 1)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    a.add_argument("--tokens", type=int, default=32768, help="of a step")
    args = a.parse_args()
    print(torch.cuda.get_device_name(), attention.choose(), flush=True)
    for name in args.shapes:
        cfg = model.Config(vocab_size=8192, **SHAPES[name])
        tokens = torch.randint(0, cfg.vocab_size, (args.tokens,), device="cuda")
        batch = tokens, tokens.roll(-1), torch.ones(args.tokens, device="cuda")
        alone, found = products(cfg, args.tokens), {}
        for is_twin in (False, True):
            run = train.Run(cfg, torch.device("cuda"), is_twin)
            found[is_twin] = [seconds(f) for f in passes(run, batch)]
            del run
        print("%s, %d layers of %d, %d tokens: products of a layer %.2f ms in int8, %.2f ms in bf16" % (name, len(cfg.pattern), cfg.d_model, args.tokens, alone[0] * 1e3, alone[1] * 1e3))
        for n, what in enumerate(("pass", "step")):
            int8, bf16 = found[False][n], found[True][n]
            print("  %s: int8 %.1f ms, %.0f tokens/s; bf16 %.1f ms, %.0f tokens/s; int8 is %+.1f%% faster" % (what, int8 * 1e3, args.tokens / int8, bf16 * 1e3, args.tokens / bf16, 100 * (bf16 / int8 - 1)), flush=True)


if __name__ == "__main__":
    main()
