"""Checks of what processes send each other: codecs against their numpy statements, sums over processes, hooks.

    python3 check_wire.py numpy     the statements by themselves: no PyTorch
    python3 check_wire.py torch     PyTorch, and on a GPU CUDA, against numpy, byte for byte
    python3 check_wire.py ranks     sums of two processes, hooks of DistributedDataParallel and of both FSDPs (gloo, or NCCL on two GPUs)
    python3 check_wire.py sharded   masters divided among one, two and three processes; their export, and what goes on from a saved state
    python3 check_wire.py speed     codecs on a GPU, beside a copy"""
import os
import subprocess
import sys

try:
    import numpy as np
    if sys.argv[1:2] != ["numpy"]:
        import torch  # noqa: F401
except ImportError as error:
    print(f"{error}: pip install -r requirements.txt")
    sys.exit(77)  # CTest counts it as skipped

import squinch
import weight_stream

SEED = 39


def say(name, good):
    print("%-72s %s" % (name, "ok" if good else "WRONG"), flush=True)
    return not good


def samples(rng, count):
    """Values of all magnitudes, with what needs care."""
    x = (rng.standard_normal(count) * np.exp2(rng.uniform(-60, 40, count // 8).repeat(8)) * np.exp2(rng.uniform(-9, 0, count))).astype(np.float32)
    x[:64], x[64:72], x[80] = 0, [1, -1, 0, -0.0, 1e-38, 1e-45, 0.5, 2], np.inf
    x[88], x[96:104] = np.nan, np.exp2(np.arange(8) / 8)
    return x


def check_numpy():
    rng, bad = np.random.default_rng(SEED), 0
    x = samples(rng, 1 << 16)
    y = squinch.decode(squinch.encode(x))
    blocks = x.reshape(-1, 8)
    inside = np.isfinite(blocks).all(1) & (np.abs(blocks).max(1) > 2.0 ** -47) & (np.abs(blocks).max(1) < 2.0 ** 15)
    a, b = blocks[inside], y.reshape(-1, 8)[inside]
    near = np.abs(a) > np.abs(a).max(1, keepdims=True) / 150
    error = np.abs(np.log2(np.abs(b[near]) / np.abs(a[near])))
    bad += say("6 bits a value", len(squinch.encode(x)) * 8 == 6 * len(x))
    bad += say("squinch: within a quarter octave above the last level (%.4f)" % error.max(), error.max() < 0.2501)
    bad += say("squinch: mean log-error of an eighth of an octave (%.4f)" % error.mean(), abs(error.mean() - 0.125) < 0.01)
    bad += say("squinch: signs stay", (np.signbit(a) == np.signbit(b)).all())
    bad += say("squinch: what is decoded is encoded as itself", np.array_equal(squinch.decode(squinch.encode(y)), y, equal_nan=True))
    bad += say("squinch: a value that is not finite makes its block NaN", np.isnan(y[80:96]).all() and np.isfinite(y[96:]).all())
    bad += say("squinch: zeros stay zeros", (y[:64] == 0).all())
    for count in (5, 1, 4, 1001):
        steps = rng.integers(-1, 2, count).astype(np.int8)
        data = weight_stream.pack(steps)
        bad += say("ternary: %d steps in %d bytes, and back" % (count, len(data)), len(data) == -(-count // 5) and (weight_stream.unpack(data, count) == steps).all() and data.max() < 243)
    return bad


def check_torch():
    import torch

    import ternary
    import wire
    rng, bad = np.random.default_rng(SEED), 0
    for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
        x = np.stack([samples(rng, 1 << 14) for _ in range(3)])
        data = wire.squinch_encode(torch.from_numpy(x).to(device))
        bad += say("squinch on %s: bytes" % device, all((data[i].cpu().numpy() == squinch.encode(x[i])).all() for i in range(3)))
        total = np.zeros_like(x[0])
        for row in x:
            total += squinch.decode(squinch.encode(row))
        same = wire.squinch_decode(data, 0.5).cpu().numpy()
        bad += say("squinch on %s: sums" % device, np.array_equal(same, total * np.float32(0.5), equal_nan=True))
        given, lost = x, (rng.standard_normal(x.shape) * 1e-3).astype(np.float32)
        error = torch.from_numpy(lost.copy()).to(device)
        data = wire.squinch_encode(torch.from_numpy(given).to(device), error)
        bad += say("squinch on %s: feedback" % device, all(same_feedback(data[i].cpu().numpy(), error[i].cpu().numpy(), given[i] + lost[i]) for i in range(3)))
        steps = rng.integers(-1, 2, 1003).astype(np.int8)
        packed = ternary.pack(torch.from_numpy(steps).to(device))
        bad += say("ternary on %s: bytes and back" % device, (packed.cpu().numpy() == weight_stream.pack(steps)).all() and (ternary.unpack(packed, 1003).cpu().numpy() == steps).all())
        bad += check_kernels(rng, device)
        bad += check_rehearsal(torch, wire, rng, device)
    return bad


def same_feedback(data, error, given):
    """Whether both are those of the sum of gradients and what was lost before: nothing of a block that was not finite."""
    with np.errstate(invalid="ignore"):
        lost = given - squinch.decode(squinch.encode(given))
    return (data == squinch.encode(given)).all() and np.array_equal(error, np.where(np.isfinite(lost), lost, 0))


def check_kernels(rng, device):
    """The step of ternary.py on a GPU against the same in numpy."""
    import torch

    import ternary
    master, weight = rng.standard_normal((3, 40, 64)).astype(np.float32), rng.integers(-127, 128, (3, 40, 64)).astype(np.int8)
    scale = (np.abs(master).max(2) / 127).astype(np.float32)
    weight = np.where(rng.random(weight.shape) < 0.5, np.rint(master / scale[..., None]).astype(np.int8), weight)
    missing = np.clip(np.rint(master / scale[..., None]), -127, 127).astype(np.int16) - weight
    steps = np.clip(missing, -1, 1).astype(np.int8)
    moved, data = torch.from_numpy(weight.copy()).to(device), None
    data, behind = ternary.advance(torch.from_numpy(master).to(device), torch.from_numpy(scale).to(device), moved)
    good = (moved.cpu().numpy() == weight + steps).all() and (data.cpu().numpy() == weight_stream.pack(steps)).all() and int(behind) == int((np.abs(missing) > 1).sum())
    follower = torch.from_numpy(weight.copy()).to(device)
    ternary.add(data, follower)
    bad = say("ternary on %s: a step, and the same of who receives it" % device, good and (follower.cpu().numpy() == weight + steps).all())
    scale *= rng.choice(np.array([0.9, 1.9, 2, 2.01, 2.1, 4.1], np.float32), scale.shape)
    largest = np.abs(master).max(2)
    steps = (largest > scale * np.float32(ternary.FULL)).astype(np.int8) - (largest < scale * np.float32(ternary.LEAST)).astype(np.int8)
    far = (largest < scale * np.float32(ternary.FAR[0])) | (largest > scale * np.float32(ternary.FAR[1]))
    moved = torch.from_numpy(scale.copy()).to(device)
    data, found = ternary.fit(torch.from_numpy(master).to(device), moved)
    good = (data.cpu().numpy() == weight_stream.pack(steps)).all() and (moved.cpu().numpy() == weight_stream.scaled(scale, steps)).all() and int(found) == far.sum()
    name, after = b"scale", weight_stream.scaled(scale, steps)
    sent = weight_stream.entry("scale", scale, after)
    good &= sent == weight_stream.ENTRY.pack(weight_stream.SCALED, len(name), 0, len(data)) + name + data.cpu().numpy().tobytes()
    return bad + say("ternary on %s: steps of scales" % device, good and set(steps.flat) == {-1, 0, 1} and 0 < far.sum() < far.size)


def check_rehearsal(torch, wire, rng, device):
    """Every format's sum of three processes is about the sum, the same for all, and feedback makes the mean of many the truth."""
    bad, x = 0, torch.from_numpy((rng.standard_normal((3, 5000)) * np.exp(rng.standard_normal(5000))).astype(np.float32)).to(device)
    for name, most in (("fp32", 1e-6), ("bf16", 0.01), ("fp8", 0.06), ("squinch", 0.15), ("sign", 2.0)):
        for feedback in (False, True):
            rehearsal, total = wire.Rehearsal(name, feedback), torch.zeros(5000, device=device)
            for step in range(20):
                one = rehearsal.sum(list(x))
                total += one
            far = float((total / 20 - x.sum(0)).norm() / x.sum(0).norm())
            bad += say("%s%s on %s: %.4f of the sum away, %.3f bytes a value" % (name, ", feedback" if feedback else "", device, far, rehearsal.sent / 20 / 5000), far < (most / 3 if feedback and name not in ("fp32",) else most))
    return bad


def ranks_main():
    import torch
    import torch.distributed as dist

    import wire
    rank, cuda = int(os.environ["RANK"]), torch.cuda.device_count() > 1
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    bad, torch_seed = 0, torch.manual_seed(SEED)
    x = torch.randn(2, 5000).to(device)
    for name in wire.FORMATS:
        for feedback in (False, True):
            ours, rehearsal = wire.Wire(name, feedback), wire.Rehearsal(name, feedback)
            same = all(torch.equal(ours.sum(x[rank]), rehearsal.sum(list(x))) for _ in range(3))
            bad += say("rank %d: %s%s, the sum that a rehearsal gives; %d and %d bytes" % (rank, name, ", feedback" if feedback else "", ours.sent, rehearsal.sent), same and ours.sent == rehearsal.sent)
    bad += check_hooks(torch, dist, wire, device, rank)
    if cuda:
        compare_speed(torch, dist, wire, rank)
    dist.destroy_process_group()
    return bad


def check_hooks(torch, dist, wire, device, rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.nn.parallel import DistributedDataParallel
    bad, data = 0, torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(SEED)).to(device)

    def net():
        torch.manual_seed(SEED)
        return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).to(device)

    def divided(model, by):
        """By fully_shard, each layer for itself."""
        for part in (*model, model):
            fully_shard(part, mesh=init_device_mesh(device.type, (2,)))
        wire.reduce_scatter_by(by, model)
        return model

    def gradients(model):
        model.zero_grad()
        model(data[rank]).square().mean().backward()
        return [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in model.parameters()]
    plain = torch.cat([g.flatten() for g in gradients(DistributedDataParallel(net()))])
    for name, most in (("fp32", 1e-6), ("squinch", 0.15)):
        ddp = DistributedDataParallel(net())
        ddp.register_comm_hook(wire.Wire(name), wire.ddp_hook)
        far = float((torch.cat([g.flatten() for g in gradients(ddp)]) - plain).norm() / plain.norm())
        bad += say("rank %d: DDP with %s, %.4f away" % (rank, name, far), far < most)
        far = float((torch.cat([g.flatten() for g in gradients(divided(net(), wire.Wire(name)))]) - plain).norm() / plain.norm())
        bad += say("rank %d: fully_shard with %s, %.4f away" % (rank, name, far), far < most)
        if device.type != "cuda":
            continue  # FullyShardedDataParallel needs a GPU
        old = FullyShardedDataParallel(net(), use_orig_params=False)
        old.register_comm_hook(wire.Wire(name), wire.fsdp_hook)
        old(data[rank]).square().mean().backward()
        flat = old._handle.flat_param.grad
        everything = torch.empty(flat.numel() * 2, device=device)
        dist.all_gather_into_tensor(everything, flat)
        far = float((everything[:len(plain)] - plain).norm() / plain.norm())
        bad += say("rank %d: FSDP with %s, %.4f away" % (rank, name, far), far < most)

    class Sum(torch.nn.Sequential):
        """Two equal layers, the gradients of one 100 times those of the other. In the first step DDP has one bucket of both. From then on
        its first bucket is the second layer, whose gradients come first."""

        def __init__(self):
            torch.manual_seed(SEED)
            super().__init__(*(torch.nn.Linear(32, 32, bias=False, device=device) for _ in range(2)))

        def forward(self, x):
            return self[0](x) + self[1](0.01 * x)
    plain = gradients(DistributedDataParallel(Sum()))
    for way in ("DDP", "fully_shard"):
        made = wire.Wire("squinch", feedback=True)
        if way == "DDP":
            model = DistributedDataParallel(Sum(), bucket_cap_mb=1e-3)
            model.register_comm_hook(made, wire.ddp_hook)
        else:
            model = divided(Sum(), made)
        steps = [[g.clone() for g in gradients(model)] for _ in range(20)]
        for layer, truth in enumerate(plain):
            far = float((sum(step[layer] for step in steps) / len(steps) - truth).norm() / truth.norm())
            bad += say("rank %d: %s, feedback, mean of layer %d %.4f away, %.0e long" % (rank, way, layer, far, truth.norm()), far < 0.02)
        lost = sum(x.numel() for x in made.lost.values())
        bad += say("rank %d: %s, feedback of %d values for %d" % (rank, way, lost, 2 * 32 * 32), lost <= 6 * wire.GROUP)

    def refused(what, words):
        try:
            what()
        except ValueError as error:
            return words in str(error)
        return False
    bad += say("rank %d: FSDP's hook refuses feedback" % rank, refused(lambda: wire.fsdp_hook(wire.Wire("squinch", True), None, None), "fully_shard"))
    model = divided(net(), wire.Wire("squinch"))
    model[0].set_gradient_divide_factor(4.0)
    bad += say("rank %d: fully_shard refuses another factor than a mean's" % rank, refused(lambda: gradients(model), "set_gradient_divide_factor"))
    alone, part = dist.new_subgroups(1)[0], torch.zeros(8, device=device)
    bad += say("rank %d: fully_shard refuses another group than the wire's" % rank, refused(lambda: wire.WireReduceScatter(wire.Wire("squinch"))(part, part, alone, dist.ReduceOp.SUM), "group="))
    return bad


def compare_speed(torch, dist, wire, rank):
    """Seconds of a sum over both GPUs."""
    for n in (34 << 20, 1 << 28):
        x, half = torch.randn(n, device="cuda"), torch.randn(n, device="cuda").bfloat16()
        ways = {"all-reduce of float32": lambda: dist.all_reduce(x), "all-reduce of bf16": lambda: dist.all_reduce(half)}
        for name in ("bf16", "fp8", "squinch"):
            ways["wire, " + name] = lambda sums=wire.Wire(name): sums.sum(x)
        ways["wire, squinch, feedback"] = lambda sums=wire.Wire("squinch", True): sums.sum(x)
        for name, what in ways.items():
            seconds = timed(torch, what, 5)
            x.fill_(1.0), half.fill_(1.0)
            if rank == 0:
                print("%10d values  %-28s %8.3f ms" % (n, name, seconds * 1e3), flush=True)


def check_ranks():
    return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", os.path.abspath(__file__), "rank"]).returncode


def take_steps(path, start, in_steps):
    """Three steps of divided masters with gradients of a seed: from a state, if one is given, to the state that is written."""
    import torch
    import torch.distributed as dist

    import export
    import model
    import train
    dist.init_process_group("gloo")
    rank, ranks, begin = dist.get_rank(), dist.get_world_size(), 0
    run = train.Run(model.Config(**{**train.TINY, "vocab_size": 256, "pattern": "SGS"}), "cpu", False)
    if in_steps:
        run.pin()
    if start:
        state = torch.load(start, weights_only=False)
        run.begin_with(state["params"])
        run.optimiser.load(state["optimiser"])
        begin = state["done"]
        if in_steps:
            run.pinned.load(state["pinned"])
    shapes = {k: v.shape for k, v in run.params.items()}
    run.shard()
    for step in range(begin, begin + 3):
        whole = {k: torch.randn(shape, generator=torch.Generator().manual_seed(step * 100 + i)) for i, (k, shape) in enumerate(shapes.items())}
        parts = {k: v * (0.25 if rank == 0 else 0.75 / (ranks - 1)) if ranks > 1 else v for k, v in whole.items()}
        run.masters.step(parts, 0.05)
    w, state = run.weights(), run.state()
    assert train.agree([w.embed.weight, *(m.weight for m in w.matrices.values())]), "the weights of the processes differ"
    run.collect()
    last, exported = export.tensors(w), export.tensors(run.weights())
    other = [name for name in last if not np.array_equal(last[name][1], exported[name][1])]
    assert not other, "not exported as in the last step: " + ", ".join(other)
    if rank == 0:
        torch.save({**state, "done": begin + 3}, path)


def check_sharded():
    import tempfile

    import torch

    import processes
    import train  # noqa: F401  here, because it takes long, and not in each process
    with tempfile.TemporaryDirectory() as folder:
        def run(ranks, name, start=None):
            path = os.path.join(folder, name)
            processes.run(ranks, take_steps, path, start and os.path.join(folder, start), "steps" in name)
            return torch.load(path, weights_only=False)

        def far(a, b):
            return max(float((a["params"][k] - b["params"][k]).abs().max() / a["params"][k].abs().max()) for k in a["params"])
        bad, one, two, three = 0, run(1, "one"), run(2, "two"), run(3, "three")
        for name, other in (("two", two), ("three", three)):
            bad += say("%s processes are %.1e from one, their weights agree, and are exported" % (name, far(one, other)), far(one, other) < 5e-4)
        for kind in ("", "_steps"):
            run(2, "first" + kind)
            again = run(2, "second" + kind, "first" + kind)
            twice = run(2, "again" + kind, "first" + kind)
            bad += say("a saved state goes on the same way each time%s" % kind, far(again, twice) == 0)
            for ranks in (1, 3):
                other = run(ranks, "other%d%s" % (ranks, kind), "first" + kind)
                bad += say("and in %d processes, %.1e away%s" % (ranks, far(again, other), kind), far(again, other) < 5e-4)
        return bad


def timed(torch, what, times=20):
    what()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(times):
        what()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / times / 1e3


def check_speed():
    import torch

    import ternary
    import wire
    n = 1 << 28
    x, error = torch.randn(1, n, device="cuda"), torch.zeros(1, n, device="cuda")
    other = torch.empty_like(x)
    data = wire.squinch_encode(x)
    four = torch.cat([wire.squinch_encode(x[:, :n // 4]) for _ in range(4)])
    weight, scale = torch.zeros(n // 4096, 4096, dtype=torch.int8, device="cuda"), torch.ones(n // 4096, device="cuda")
    steps = ternary.advance(x.view_as(weight), scale, weight)[0]
    print("%s, %d values" % (torch.cuda.get_device_name(), n))
    copy = None
    for name, what, moved in (("copy of float32", lambda: other.copy_(x), (x, other)),  # moved: what is read, and what is written
                              ("squinch encode", lambda: wire.squinch_encode(x), (x, data)),
                              ("squinch encode, feedback", lambda: wire.squinch_encode(x, error), (x, error, error, data)),
                              ("squinch decode", lambda: wire.squinch_decode(data), (data, other)),
                              ("squinch decode, sum of 4", lambda: wire.squinch_decode(four), (four, other[:, :n // 4])),
                              ("ternary step", lambda: ternary.advance(x.view_as(weight), scale, weight), (x, weight, weight, steps)),
                              ("ternary add", lambda: ternary.add(steps, weight), (steps, weight, weight))):
        size = sum(t.numel() * t.element_size() for t in moved)
        seconds = timed(torch, what)
        speed = size / seconds
        copy = copy or speed
        print("%-28s %8.3f ms  %7.0f GB/s  %3.0f%% of the copy, %3.0f%% of 4,800 GB/s" % (name, seconds * 1e3, speed / 1e9, 100 * speed / copy, 100 * speed / 4.8e12), flush=True)
    return 0


if __name__ == "__main__":
    checks = {"numpy": check_numpy, "torch": check_torch, "ranks": check_ranks, "rank": ranks_main, "sharded": check_sharded, "speed": check_speed}
    if len(sys.argv) < 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    sys.exit(bool(checks[sys.argv[1]]()))
