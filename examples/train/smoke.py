"""Checks and times every part of the trainer on a GPU in about a minute and a half, before a long run is started.

    python3 smoke.py [--batch 64] [--micro 32]

Bits first (kernels, exact attention, whole forward pass against numpy), then milliseconds, then whole steps."""
import argparse
import sys
import time
import traceback

import torch

import attention
import export
import marks
import model
import numpy as np
import ops
import safety
import train

CFG = train.config(False)
FAILED = []


def part(name):
    """Runs a section, reports its time, and goes on after a failure."""
    def wrap(f):
        began = time.time()
        try:
            f()
            torch.cuda.synchronize()
            print("== %s: %.1f s\n" % (name, time.time() - began), flush=True)
        except Exception:
            FAILED.append(name)
            print("== %s FAILED\n%s" % (name, traceback.format_exc()[-1500:]), flush=True)
    return wrap


def same(name, mine, theirs):
    mine, theirs = mine.cpu(), theirs.cpu()
    wrong = int((mine != theirs).sum())
    print("  %-44s %s" % (name, "same bits" if wrong == 0 else "%d of %d DIFFER, largest difference %g" % (wrong, mine.numel(), (mine.double() - theirs.double()).abs().max())), flush=True)
    if wrong:
        FAILED.append(name)


def ms(f, n=5):
    f()
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(n):
        a.record()
        f()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return sorted(times)[n // 2]


def integers(*shape, spread=30.0):
    return (torch.randn(shape) * spread).round().clamp(-127, 127)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--batch", type=int, default=64)
    arguments.add_argument("--micro", type=int, default=32)
    args = arguments.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    torch.manual_seed(0)

    @part("kernels, bits")
    def _():
        n, d, f = 512, 512, 1536
        x, s, c = torch.randn(n, d).bfloat16(), torch.rand(d) * 1e-4, torch.tensor([28.2])
        acc, shift = torch.randint(-60000, 60000, (n, d), dtype=torch.int32), torch.randint(-999, 999, (d,), dtype=torch.int32)
        pos, rope = torch.arange(n, dtype=torch.int32) * 7, [ops.Rope(CFG.frequencies[0], 4096, dev) for dev in ("cpu", "cuda")]
        for name, sh in (("add_norm", None), ("add_norm, shifted", shift)):
            for what, a, b in zip(("x", "a"), ops.add_norm(x.cuda(), acc.cuda(), s.cuda(), sh if sh is None else sh.cuda(), c.cuda(), 1e-5), ops.add_norm(x, acc, s, sh, c, 1e-5)):
                same(name + " " + what, a, b)
        for wide in (128, 1024, 5120):
            y, sums, scale = torch.randn(64, wide).bfloat16(), torch.randint(-60000, 60000, (64, wide), dtype=torch.int32), torch.rand(wide) * 1e-4
            for what, a, b in zip(("x", "a"), ops.add_norm(y.cuda(), sums.cuda(), scale.cuda(), None, c.cuda(), 1e-5), ops.add_norm(y, sums, scale, None, c, 1e-5)):
                same("add_norm of %d, %s" % (wide, what), a, b)
            same("project, %d heads" % (wide // 128), ops.project(sums.cuda(), scale.cuda(), scale.cuda() * 4e5, None, pos.cuda(), wide // 128), ops.project(sums, scale, scale * 4e5, None, pos, wide // 128))
        s, c = torch.rand(d) * 1e-4, torch.rand(d) * 40
        same("project, rotated", ops.project(acc.cuda(), s.cuda(), c.cuda(), rope[1], pos.cuda(), 8), ops.project(acc, s, c, rope[0], pos, 8))
        same("project, slice", ops.project(acc.cuda()[:, 64:128], s.cuda(), c.cuda(), None, pos.cuda(), 1), ops.project(acc[:, 64:128], s[:64], c[:64], None, pos, 1))
        acc, alpha = torch.randint(-60000, 60000, (n, f), dtype=torch.int32), torch.rand(f) * 1e-2
        for what, a, b in zip(("u", "h"), ops.up(acc.cuda(), alpha.cuda()), ops.up(acc, alpha)):
            same("up " + what, a, b)
        a, w = integers(64, f).to(torch.int8), integers(d, f).to(torch.int8)
        same("int_mm", ops.int_mm(a.cuda(), w.cuda()), ops.int_mm(a, w))

    working, spent = [], {}

    @part("exact attention, bits")
    def _():
        q, k, v, co = integers(1, 1792, 2, 64).bfloat16(), integers(1, 1792, 1, 64).bfloat16(), integers(1, 1792, 1, 64).bfloat16(), torch.rand(128) * 4 + 1
        q[:, ::3] *= 0  # flat rows
        for window, z in ((1024, 1.8e-4), (None, 1.8e-4), (None, 1.3e-3)):
            z = float(torch.tensor(z))
            theirs = attention.exact(q, k, v, z, co, window)
            for tiling in attention.TILINGS:
                try:
                    mine = attention.exact(q.cuda(), k.cuda(), v.cuda(), z, co.cuda(), window, tiling)
                except Exception as e:
                    print("  tiling", tiling, "does not run:", str(e)[:200])
                    continue
                for what, a, b in list(zip(("a", "o"), mine, theirs)):
                    same("window %s z %g %s %s" % (window, z, tiling, what), a, b)
                print("    lse: largest difference %.2e" % (mine[2].cpu() - theirs[2]).abs().max())
                working.append(tiling)

    @part("whole forward pass, bits")
    def _():
        p = model.new_masters(CFG, "cpu", 3)
        for name in ("attn_in", "ffn_in", "mid", "k_clip", "v_clip", "out_clip"):
            p[name] -= 0.8  # so that some values saturate
        w = model.quantise(p, CFG)
        g = model.quantise({k: v.cuda() for k, v in p.items()}, CFG)
        same("down's scale", g.matrices["down"].scale, w.matrices["down"].scale)
        same("up's alpha", g.const.alpha, w.const.alpha)
        export.write("/tmp/smoke.safetensors", g)  # both sides now start from the same file
        w, g = export.weights("/tmp/smoke.safetensors"), export.weights("/tmp/smoke.safetensors", "cuda")
        for name in ("e", "sl", "sq", "sk", "sv", "ck", "cv", "cq", "co", "so", "alpha", "sd"):
            same("constant " + name, getattr(g.const, name), getattr(w.const, name))
        tokens, pos = torch.randint(8, 8192, (1280,)), torch.arange(1280, dtype=torch.int32)
        mine = model.forward(g, tokens.cuda(), pos.cuda(), model.Training((1, 1280), True))
        theirs = model.forward(w, tokens, pos, model.Training((1, 1280), True))
        same("residual stream after 14 layers", mine[0], theirs[0])
        same("logits", model.logits(g, mine[1]), model.logits(w, theirs[1]))

    @part("fast attention against float64")
    def _():
        print("  " + attention.choose())

    @part("attention, times for one micro-batch and layer")
    def _():
        b, t = args.micro, CFG.context
        q, k, v, do = (integers(b, t, h, 64).bfloat16().cuda() for h in (8, 1, 1, 8))
        co = torch.ones(512).cuda()
        for window in (1024, None):
            pairs = b * 8 * sum(min(i + 1, window or t) for i in range(t))
            o, lse = attention.fast(q, k, v, 1e-4, window)
            f, r = ms(lambda: attention.fast(q, k, v, 1e-4, window)), ms(lambda: attention.backward(do, q, k, v, o, lse, 1e-4, window))
            print("  window %s: fast forward %.2f ms (%.0f TFLOP/s), backward %.2f ms (%.0f)" % (window, f, pairs * 256 / f / 1e9, r, pairs * 640 / r / 1e9))
            for tiling in dict.fromkeys(working):
                e = ms(lambda: attention.exact(q, k, v, 1.4e-4, co, window, tiling), 3)
                spent[tiling] = spent.get(tiling, 0) + e * (6 if window else 1)  # six sliding layers to a global one
                print("    exact %s: %.2f ms, %.1f G pairs/s" % (tiling, e, pairs / e / 1e6), flush=True)

    @part("row kernels and products, times for one micro-batch")
    def _():
        n = args.micro * CFG.context
        a, h = torch.randint(-127, 128, (n, 512), dtype=torch.int8, device="cuda"), torch.randint(-127, 128, (n, 1536), dtype=torch.int8, device="cuda")
        x, g, dr = (torch.randn(n, w, device="cuda").bfloat16() for w in (512, 512, 1536))
        wq, wu, wd, we = (torch.randint(-127, 128, s, dtype=torch.int8, device="cuda") for s in ((512, 512), (1536, 512), (512, 1536), (8192, 512)))
        acc, au = ops.int_mm(a, wq), ops.int_mm(a, wu)
        one, al, c = torch.ones(512, device="cuda") * 1e-4, torch.ones(1536, device="cuda") * 1e-4, torch.tensor([28.0], device="cuda")
        pos, rope = torch.arange(4096, dtype=torch.int32, device="cuda").repeat(args.micro), ops.Rope(CFG.frequencies[0], 4096, "cuda")
        u, _ = ops.up(au, al)
        q = ops.project(acc, one, one, rope, pos, 8)
        bf = wu.bfloat16()

        def show(name, f, flop=0, size=0):
            t = ms(f)
            print("  %-26s %7.3f ms  %s" % (name, t, "%.0f TOP/s" % (flop / t / 1e9) if flop else "%.2f TB/s" % (size / t / 1e9)))
        show("int_mm q", lambda: ops.int_mm(a, wq), 2 * n * 512 * 512)
        show("int_mm up", lambda: ops.int_mm(a, wu), 2 * n * 512 * 1536)
        show("int_mm down", lambda: ops.int_mm(h, wd), 2 * n * 512 * 1536)
        show("int_mm logits, 16k rows", lambda: ops.int_mm(a[:16384], we), 2 * 16384 * 512 * 8192)
        show("bf16 dx of up", lambda: dr @ bf, 2 * n * 512 * 1536)
        show("bf16 dw of up", lambda: ops.outer(dr, x), 2 * n * 512 * 1536)
        show("bf16 dw of q", lambda: ops.outer(g, x), 2 * n * 512 * 512)
        show("add_norm", lambda: ops.add_norm(x, acc, one, None, c, 1e-5), size=n * 512 * 9)
        show("add_norm_backward", lambda: ops.add_norm_backward(g, x, g, c, 1e-5), size=n * 512 * 8)
        show("project", lambda: ops.project(acc, one, one, rope, pos, 8), size=n * 512 * 6)
        show("project_backward", lambda: ops.project_backward(g, q, one, rope, pos, 8, x), size=n * 512 * 6)
        show("up", lambda: ops.up(au, al), size=n * 1536 * 6)
        show("up_backward", lambda: ops.up_backward(dr, u, c), size=n * 1536 * 7)
        lo, tg, wt = ops.int_mm(a[:16384], we), torch.randint(0, 8192, (16384,), device="cuda"), torch.ones(16384, device="cuda")
        show("cross_entropy, 16k rows", lambda: ops.cross_entropy(lo, torch.ones(8192, device="cuda") * 1e-4, tg, wt, 1.0, True), size=16384 * 8192 * 6)

    def steps(is_twin):
        run = train.Run(CFG, "cuda", is_twin)
        tokens = torch.randint(8, 1000, (args.batch * CFG.context,), device="cuda")
        n = args.micro * CFG.context
        marked = np.where(np.arange(n) % 20 == 0, safety.ALL << 6, 0).astype(np.uint16)  # as many as in data.py
        parts = [(tokens[i:i + n], tokens[i:i + n] * 3, torch.ones(n, device="cuda"), None, marks.Marks(marked, "cuda")) for i in range(0, len(tokens), n)]
        head_weight = float(marks.weigh(marked[marked != 0]).sum()) * len(parts)
        for exact in (False,) if is_twin else (False, True):
            if exact:
                attention.TILINGS.sort(key=lambda tiling: spent.get(tiling, 1e9))
                print("  fastest exact tiling: %s (put it first in attention.py)" % (attention.TILINGS[0],))
            torch.cuda.reset_peak_memory_stats()
            began = time.time()
            first = float(run.step(parts, len(tokens), head_weight, 0.5, exact, 0)[0])
            warm = time.time() - began
            began = time.time()
            for i in range(4):
                last = run.step(parts, len(tokens), head_weight, 0.5, exact, i)[0]
            last = float(last)
            seconds = (time.time() - began) / 4
            print("  %s%s: %.0f ms a step, %.0fk tokens/s, %.1f GB, first step %.1f s; loss %.3f -> %.3f" % ("twin" if is_twin else "int8", ", exact attention" if exact else "", seconds * 1e3,
                  len(tokens) / seconds / 1e3, torch.cuda.max_memory_allocated() / 1e9, warm, first, last), flush=True)
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            run.step(parts, len(tokens), head_weight, 0.5, not is_twin, 0)
            torch.cuda.synchronize()
        rows = sorted(prof.key_averages(), key=lambda r: -r.device_time_total)
        total = sum(r.device_time_total for r in rows)
        for r in rows[:22]:
            print("    %5.1f%%  %8.2f ms  %5d x  %s" % (100 * r.device_time_total / total, r.device_time_total / 1e3, r.count, r.key[:90]))

    part("whole steps, int8")(lambda: steps(False))
    torch.cuda.empty_cache()
    part("whole steps, twin")(lambda: steps(True))
    print("FAILED: " + ", ".join(FAILED) if FAILED else "all good")
    sys.exit(bool(FAILED))


if __name__ == "__main__":
    main()
