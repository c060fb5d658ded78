"""Checks of the trainer that need no GPU (numpy 2.2 or older for Triton's interpreter).

    python3 check.py kernels      Triton kernels, interpreted, against numpy: forward ones to the bit
    python3 check.py gradients    backward.py against autograd over a straight-through model in float64
    python3 check.py ranks        train.py in two processes against one, toy models
    python3 check.py resume       train.py cut and resumed against the unbroken run, two processes, toy models"""
import contextlib
import io
import json
import math
import os
import shutil
import sys
import tempfile

if "kernels" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"
else:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # train.py would take a GPU for each process
try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"{error}: pip install -r requirements.txt")
    sys.exit(77)  # CTest counts it as skipped
if "kernels" in sys.argv and tuple(map(int, np.__version__.split(".")[:2])) > (2, 2):
    print(f"numpy {np.__version__}: Triton's interpreter wants 2.2 or older")
    sys.exit(77)

import arith
import attention
import backward
import export
import kernels
import marks
import model
import ops
import processes
import safety
import train
import weight_stream  # finds checkpoint_file in ../import
from checkpoint_file import read_checkpoint

torch.manual_seed(0)


def integers(*shape):
    return (torch.randn(shape) * 30).round().clamp(-127, 127)


def report(name, wrong):
    print("%-52s %s" % (name, "same bits" if wrong == 0 else "%d DIFFER" % wrong), flush=True)
    return wrong != 0


def check_kernels():
    from triton.runtime import interpreter
    handle = interpreter.TensorHandle  # the interpreter's own fma rounds twice
    interpreter.InterpreterBuilder.create_fma = lambda self, x, y, z: handle(arith.fma(x.data, y.data, z.data), z.dtype.scalar)
    bad = 0
    for t, window, z, bm, bn, branch in ((256, None, 1.8e-4, 128, 64, True), (1152, 600, 1.3e-3, 128, 64, True), (768, 200, 1.8e-4, 64, 32, False)):
        q, k, v, co = integers(1, t, 1, 64), integers(1, t, 64), integers(1, t, 64), torch.rand(64) * 4 + 1
        q[:, ::3] = 0  # flat rows
        a, o, lse = torch.zeros(1, t, 1, 64, dtype=torch.int8), torch.zeros(1, t, 1, 64), torch.zeros(1, 1, t)
        kernels.attend[(t // bm, 1)](q, k, v, co, a, o, lse, float(np.float32(z)), -24.0 / z, t, window or 1 << 30, 64, 1, bm, bn, branch)
        out, total, _ = arith.attention(q[0, :, 0].numpy(), k[0].numpy(), v[0].numpy(), np.float32(z), window)
        out = out * (np.float32(1) / total)[:, None]
        name = "attention, %d keys, window %s, tile %d" % (t, window, bn)
        bad += report(name, int((out != o[0, :, 0].numpy()).sum() + (arith.quantise(out, co.numpy()) != a[0, :, 0].numpy()).sum()))
    n, rope = 64, ops.Rope(arith.rope_frequencies(1e4, 64), 4096, "cpu")
    acc, s, c, pos = torch.randint(-60000, 60000, (n, 512), dtype=torch.int32), torch.rand(512) * 1e-4, torch.rand(512) * 40, torch.arange(n, dtype=torch.int32) * 60
    out = torch.zeros(n, 512)
    kernels.project[(n // 4,)](acc, s, c, rope.cos, rope.sin, pos, out, n, 512, 32, 8, 256, 4, True)
    bad += report("project", int((out != ops.project(acc, s, c, rope, pos, 8).float()).sum()))
    wide, alpha = torch.randint(-60000, 60000, (n, 1536), dtype=torch.int32), torch.rand(1536) * 1e-2
    u, h = torch.zeros(n, 1536, dtype=torch.uint8), torch.zeros(n, 1536, dtype=torch.int8)
    kernels.up[(n * 1536 // 2048,)](wide, alpha, u, h, n * 1536, 1536, 2048)
    bad += report("up", sum(int((x != y).sum()) for x, y in zip((u, h), ops.up(wide, alpha))))
    x, a, c = torch.randn(n, 512).bfloat16(), torch.zeros(n, 512, dtype=torch.int8), torch.tensor([28.2])
    kernels.add_norm[(n // 4,)](x, None, None, None, c, x, a, 1e-5, 512, 4, False, False)  # without the sum: interpreted bf16 casts truncate
    bad += report("norm", int((a != ops.add_norm(x, None, None, None, c, 1e-5)[1]).sum()))
    for width in (128, 576, 1024):
        x, a = torch.randn(4, width).bfloat16(), torch.zeros(4, width, dtype=torch.int8)
        kernels.add_norm_wide[(4,)](x, None, None, None, c, x, a, 1e-5, width, False, False)
        bad += report("norm of %d" % width, int((a != ops.add_norm(x, None, None, None, c, 1e-5)[1]).sum()))
    acc, s, c, out = acc[:, :192], s[:192], torch.rand(192) * 40, torch.zeros(n, 192)
    kernels.project[(n // 8,)](acc, s, c, rope.cos, rope.sin, pos, out, n, 512, 32, 3, 128, 8, True)
    bad += report("project, 3 heads", int((out != ops.project(acc, s, c, rope, pos, 3).float()).sum()))
    return bad


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def fake(x, clip):
    return Round.apply((x * 127 / clip).clamp(-127, 127)) * clip / 127


def reference(p, w, tokens, targets, weights, shape, found, head_norm):
    """The loss of the same model by autograd, every rounding passed straight through."""
    cfg, positions = w.cfg, torch.arange(shape[1]).repeat(shape[0])

    def whole(x):
        scale = (x.detach().abs().amax(-1, keepdim=True) / 127).float().double()
        return Round.apply(x / scale) * scale

    def bf16(x):
        return x + (x.detach().bfloat16().double() - x.detach())

    def matrix(name, i):
        return whole(p[name][i]) * p[name + "_scalar"][i].exp()

    def norm(x):
        return x / (x.square().mean(-1, keepdim=True) + cfg.norm_eps).sqrt()

    table, kv = whole(p["embed"]), {}
    x = bf16(p["in_scalar"].exp() * table[tokens])
    for i in range(len(cfg.pattern)):
        layer = w.layer(i)
        slot, cos, sin = layer.slot, layer.rope.cos[positions].double(), layer.rope.sin[positions].double()
        a = fake(norm(x), p["attn_in"][i].exp())
        if layer.owner:
            k = ops.rotate((a @ matrix("k", slot).T)[:, None], cos, sin)[:, 0]
            kv[slot] = [fake(y, p[c][slot].exp()).view(*shape, 1, -1) for y, c in ((k, "k_clip"), (a @ matrix("v", slot).T, "v_clip"))]
        q = ops.rotate((a @ matrix("q", i).T).view(len(a), cfg.n_heads, -1), cos, sin)
        q = fake(q, p["q_clip"][i].exp() / p["k_clip"][slot].exp()).view(*shape, cfg.n_heads, -1)
        s = attention.scores(q, kv[slot][0], 1 / math.sqrt(cfg.head_dim), layer.window).softmax(-1)
        o = torch.einsum("bhts,bshd->bthd", s, kv[slot][1].expand_as(q)).reshape(len(a), -1)
        x = bf16(x + fake(o, p["out_clip"][i].exp()) @ matrix("o", i).T)
        mid = p["mid"][i].exp() * (w.clips["mid"][i] / p["mid"][i].detach().exp())
        u = Round.apply((fake(norm(x), p["ffn_in"][i].exp()) @ matrix("up", i).T * 255 / mid).clamp(0, 255))
        x = bf16(x + Round.apply(u * u / 255) * mid * mid / 255 @ matrix("down", i).T)
    logits = fake(norm(x), p["final_in"].exp()) @ (table * p["out_scalar"].exp()).T
    scores = fake(norm(x), p["final_in"].exp())[found.rows] @ (whole(p["classifier"]) * p["classifier_scalar"].exp()).T + p["classifier_bias"]
    head = torch.nn.functional.binary_cross_entropy_with_logits(scores, found.right.double(), reduction="none") * found.weight.double()
    return (torch.nn.functional.cross_entropy(logits, targets, reduction="none") * weights.double()).sum() / weights.sum().double() + head.sum() * head_norm


def check_gradients():
    """Differences come from bf16 in backward.py, and from elements that round to a limit without passing it, which count as saturated."""
    cfg = model.Config(vocab_size=64, d_model=64, n_heads=2, head_dim=64, d_ff=128, context=64, pattern="SGSSG", window=16, labels=safety.LABELS)
    p, shape = model.new_masters(cfg, "cpu"), (2, 64)
    for name, less in (("k_clip", 0.3), ("v_clip", 0.3), ("q_clip", 0.5)):
        p[name] -= less
    w, n = model.quantise(p, cfg), shape[0] * shape[1]
    tokens, targets, weights = torch.randint(0, 64, (n,)), torch.randint(0, 64, (n,)), torch.rand(n)
    mine = backward.Gradients(w, rows=1)
    rng = np.random.default_rng(0)
    found = marks.Marks((rng.integers(0, 1 << 14, n) * (rng.random(n) < 0.3)).astype(np.uint16), "cpu")
    mine.run(tokens, torch.arange(shape[1], dtype=torch.int32).repeat(shape[0]), targets, weights, 1 / weights.sum().item(), shape, True, found, 0.01)
    leaves = {k: v.double().requires_grad_() for k, v in p.items()}
    loss = reference(leaves, w, tokens, targets, weights, shape, found, 0.01)
    loss.backward()
    print("loss %.6f, by autograd %.6f" % (mine.loss + mine.head_loss, loss.detach()))
    bad = abs(float(mine.loss + mine.head_loss - loss)) > 2e-3
    for name, g in mine.finish().items():
        a, b = g.double().flatten(), leaves[name].grad.flatten()
        cosine, ratio = float(a @ b / (a.norm() * b.norm())), float(a.norm() / b.norm())
        wrong = name in model.MATRICES + ("embed", "classifier", "classifier_bias") and (cosine < 0.99 or abs(ratio - 1) > 0.05)  # the rest are small sums of large terms
        bad += wrong
        print("  %-12s cosine %.4f, ratio of norms %.4f%s" % (name, cosine, ratio, "   WRONG" if wrong else ""))
    return bad


def write_data(folder):
    """What train.py reads, of random tokens."""
    rng = np.random.default_rng(0)
    for name, size in (("train", 64 * 256), ("val", 256)):
        rng.integers(8, 200, size).astype(np.uint16).tofile(os.path.join(folder, name + ".bin"))
        rng.integers(0, 5, size).astype(np.uint8).tofile(os.path.join(folder, name + ".weights.bin"))
        (rng.integers(0, 1 << 14, size) * (rng.random(size) < 0.1)).astype(np.uint16).tofile(os.path.join(folder, name + ".marks.bin"))
    with open(os.path.join(folder, "data.json"), "w") as f:
        json.dump({"loss_weight": [0.0, 0.1, 0.2, 1.0, 3.0]}, f)


def train_toy(arguments, dies_in):
    """Runs train.py, which saves its state after every second step, if it is time. dies_in: the number of a step, if any."""
    step, train.SAVE_EVERY = train.Run.step, 2

    def step_or_death(run, *given):
        return sys.exit() if given[-1] == dies_in else step(run, *given)
    sys.argv, train.Run.step = ["train.py", "--tiny", "--micro", "2", *arguments], step_or_death
    with contextlib.redirect_stdout(io.StringIO()):
        train.main()


def trained(folder, out, ranks, *arguments, dies_in=None):
    """The state and the log of a run of train.py in so many processes."""
    out = os.path.join(folder, out)
    processes.run(ranks, train_toy, ["--data", folder, "--out", out, *arguments], dies_in)
    with open(os.path.join(out, "log.txt")) as log:
        return torch.load(os.path.join(out, "state.pt"), weights_only=False), log.read()


def check_ranks():
    """The two agree to the bit with each other, and with one process but for the order of sums, which the roundings magnify."""
    bad, start = 0, model.new_masters(model.Config(**train.TINY), "cpu")
    with tempfile.TemporaryDirectory() as folder:
        write_data(folder)
        for kind, more in (([], []), (["--twin"], []), ([], ["--tensor", "2"]), ([], ["--tensor", "2", "--shard"])):
            name = " ".join(["twin" if kind else "int8", *more])
            (one, _), (two, text) = (trained(folder, "%s in %d" % (name, ranks), ranks, "--batch", "6", "--steps", "3", *kind, *(more if ranks > 1 else [])) for ranks in (1, 2))
            one, two = ({k: v.double() for k, v in state["params"].items()} for state in (one, two))
            far = math.sqrt(sum((two[k] - one[k]).square().sum() for k in one) / sum((one[k] - start[k]).square().sum() for k in one))
            wrong = far > 0.05 or "models agree" not in text
            bad += wrong
            print("%s: %s, %.2g of the way from one process%s" % (name, "models agree" if "models agree" in text else "models DIFFER", far, "   WRONG" if wrong else ""), flush=True)
    return bad


def differences(one, other, path=""):
    """Where two states are not equal, to the bit."""
    if isinstance(one, dict):
        return [found for k in {**one, **other} if k != "elapsed" for found in differences(one.get(k), other.get(k), "%s/%s" % (path, k))]
    same = one.dtype == other.dtype and torch.equal(one, other) if torch.is_tensor(one) and torch.is_tensor(other) else one == other
    return [] if same else [path]


def end_of_updates(folder, path):
    """Whether a folder's updates lead to a checkpoint."""
    config, _, tensors = read_checkpoint(path)
    return weight_stream.Folder(folder, config, tensors).stream.digest == export.read(path)[0]["digest"]


def check_resume():
    """A run that dies and is resumed ends with the bits of the unbroken run: its state, what its wires have lost, and its checkpoint. Its
    updates, whose last ones were lost with it, lead to that checkpoint nevertheless."""
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        write_data(folder)

        def files(out):
            state, *lost = (torch.load(os.path.join(folder, out, name), weights_only=False) for name in sorted(os.listdir(os.path.join(folder, out)), reverse=True) if name.endswith(".pt"))
            with open(os.path.join(folder, out, "model.safetensors"), "rb") as f:
                return {**state, "lost": dict(enumerate(lost)), "model": f.read()}
        fast, feedback = ["--batch", "3", "--exact-from", "1", "--steps", "4"], ["--wire", "squinch", "--feedback"]
        for kind in ([], feedback, ["--ternary"], ["--shard"], ["--shard", "--ternary", *feedback]):
            name = " ".join(kind) or "plain"
            trained(folder, name, 2, *fast, *kind)
            updates = ["--updates", os.path.join(folder, "updates"), "--update-steps", "1"]
            cut, _ = trained(folder, "cut", 2, *fast, "--save-minutes", "0", *updates, *kind, dies_in=3)
            _, text = trained(folder, "cut", 2, *fast, "--resume", *updates, *kind)
            found = differences(files(name), files("cut"))
            numbers = sorted(int(name.split(".")[0]) for name in os.listdir(updates[1]) if name.endswith(".update"))
            leads = end_of_updates(updates[1], os.path.join(folder, "cut", "model.safetensors"))
            # Three steps, back to the second, and the last two again.
            wrong = found or cut["done"] != 2 or "feedback begins anew" in text or not leads or numbers != [1, 2, 3, 4, 5, 6]
            bad += bool(wrong)
            print("%s: resumed after %d steps, %s, %d updates %s%s" % (name, cut["done"], " ".join(found) + " DIFFER" if found else "the bits of the unbroken run", len(numbers), "lead to its checkpoint" if leads else "DO NOT lead to its checkpoint", "   WRONG" if wrong else ""), flush=True)
            shutil.rmtree(os.path.join(folder, "cut"))
            shutil.rmtree(updates[1])
        for ranks in (1, 3):
            shutil.copytree(os.path.join(folder, name), os.path.join(folder, str(ranks)))
            _, text = trained(folder, str(ranks), ranks, *fast, "--resume", *kind)
            wrong = "feedback begins anew" not in text
            bad += wrong
            print("in %d processes instead of 2: feedback begins anew, and the log %s" % (ranks, "does not say so   WRONG" if wrong else "says so"), flush=True)
    return bad


if __name__ == "__main__":
    checks = {"kernels": check_kernels, "gradients": check_gradients, "ranks": check_ranks, "resume": check_resume}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    sys.exit(bool(checks[sys.argv[1]]()))
