"""Kaijufy: an open model leaves with Kaiju's economics. It is trained by distillation from itself, every change switched on by a schedule.

    python3 kaijufy.py SOURCE --data DATA --out RUN --minutes 7           SOURCE: GGUF file or Hugging Face folder; DATA: of kaijufy_data.py
    python3 kaijufy.py SOURCE --data DATA --out RUN --steps 1500 --resume  goes on from the last state in RUN
    torchrun --nproc-per-node 2 -- kaijufy.py SOURCE --data DATA --out RUN --steps 1500
    python3 kaijufy_file.py RUN/model.pt --source SOURCE --out kaiju.safetensors

The loss is the mean KL of the teacher's next token against the student's; until HIDDEN_UNTIL the distance of some layers' residuals counts, too. The
teacher's logits are computed as they are needed, and a share of the text are dialogues that the teacher makes at the beginning
(kaijufy_talk.py). RUN gets state.pt, log.txt, report.json and model.pt: bytes and scales as a checkpoint holds them. The report has the loss of teacher and
student on held-out text, KL and equal likeliest tokens, needles found, persona questions answered, and KV bytes a token (kaijufy_eval.py)."""
import argparse
import functools
import json
import os
import time

import numpy as np
import torch

import attention
import kaijufy_eval
import kaijufy_model as M
import kaijufy_start
import kaijufy_steps as steps
import kaijufy_talk
import model
import optim
import train

# Progress at which a change begins and is complete. The switch to int8 is the beginning of the last one.
FFN, KV, WINDOW, INT8 = (0.0, 0.10), (0.04, 0.22), (0.08, 0.22), (0.34, 0.44)
HIDDEN, HIDDEN_UNTIL = 0.5, 0.34
PATTERN = "SSSSSSSSSGGSSSSSSSSSGGSSSSSSSS"  # of 30 layers: 26 sliding ones share by three, 4 global ones by two


def ramp(progress, span):
    return min(1.0, max(0.0, (progress - span[0]) / (span[1] - span[0])))


def pattern_of(layers):
    """PATTERN as far as it goes, again and again; of fewer than eleven layers, one after the first half is global."""
    return (PATTERN * (layers // len(PATTERN) + 1) if layers >= 11 else "S" * ((layers + 1) // 2) + "G" + "S" * layers)[:layers]


class Run:
    """Teacher and student of one process."""

    def __init__(self, args, device):
        self.device, self.dtype = device, torch.bfloat16 if device == "cuda" else torch.float32
        weights, c = kaijufy_start.read(args.source)
        pattern = args.pattern or pattern_of(c.layers)
        d_ff = args.d_ff or 64 * round(c.d_ff * 1.5 / 64)
        self.cfg = model.Config(vocab_size=weights["embed"].shape[0], d_model=c.d_model, n_heads=c.n_heads, head_dim=c.head_dim, d_ff=d_ff, context=c.context, pattern=pattern,
                                window=args.window, share=3, share_global=2, norm_eps=c.norm_eps)
        self.masters = {k: v.to(device) for k, v in weights.items()}
        self.teacher = {k: v.to(self.dtype) if v.ndim == 3 or k == "embed" else v for k, v in self.masters.items()}
        from rope import frequencies
        self.cos, self.sin = M.angles(frequencies(c.each[0].rope, c.head_dim), max(args.length, 1024), device)
        self.keep = tuple(range(4, c.layers, 5))
        self.is_int8, self.params = False, None

    def set_params(self, p, is_int8):
        self.params, self.is_int8 = {k: v.detach().float().contiguous().requires_grad_() for k, v in p.items()}, is_int8
        self.optimiser = steps.Optimiser({k: v.detach() for k, v in self.params.items()})

    def mix(self, p, length):
        def put(x):
            return torch.tensor(float(x), device=self.device)
        window = int(length + (self.cfg.window - length) * ramp(p, WINDOW)) if length > self.cfg.window else self.cfg.window
        return M.Mix(put(ramp(p, FFN)), put(ramp(p, KV)), put(ramp(p, INT8)), window)

    def forward(self, tokens, mix, keep=()):
        f = M.int8 if self.is_int8 else M.student
        return f(self.params, self.cfg, tokens, self.cos, self.sin, mix, keep, self.dtype)

    def embedding(self, mix):
        return M.weights(self.params["embed"], mix.int8, self.dtype) if self.is_int8 else self.params["embed"].to(self.dtype)

    def backward(self, tokens, mix, hidden, share):
        """Adds the gradients of one micro-batch; share: of its sequences among those of all processes. Returns KL and distance, times share."""
        keep = self.keep if hidden else ()
        rows, theirs = M.teacher(self.teacher, self.cfg, tokens, self.cos, self.sin, keep)
        mine, kept = self.forward(tokens, mix, keep)
        loss = steps.Distil.apply(mine.flatten(0, 1), self.embedding(mix), rows.flatten(0, 1), self.teacher["embed"], 1 / tokens.numel())
        far = sum(steps.distance(x, t) for x, t in zip(kept, theirs)) / max(1, len(kept)) if kept else torch.zeros_like(loss)
        ((loss + hidden * far) * share).backward()
        return torch.stack([loss, far]).detach() * share

    def step(self, parts, p, length, batch):
        """parts: this process's micro-batches; batch: sequences of all processes. Returns the means of KL and distance."""
        mix, hidden = self.mix(p, length), HIDDEN if p < HIDDEN_UNTIL else 0.0
        found = sum(self.backward(tokens, mix, hidden, len(tokens) / batch) for tokens in parts)
        grads = {k: torch.zeros_like(v) if v.grad is None else v.grad for k, v in self.params.items()}
        *values, loss = train.add_up([*grads.values(), found])
        self.optimiser.step(dict(zip(grads, values)), optim.schedule(p))
        for v in self.params.values():
            v.grad = None
        return loss

    def warm_up(self, tokens):
        """Compiles both passes, so that the schedule, which may follow the clock, does not wait for that. Leaves nothing."""
        params, optimiser = self.params, self.optimiser
        self.backward(tokens, self.mix(0.05, tokens.shape[1]), HIDDEN, 1.0)
        with M.eager():
            made = steps.to_int8({k: v.detach() for k, v in params.items()}, self.cfg, tokens[:8], self.cos, self.sin, self.dtype)
        self.set_params(made, True)
        self.backward(tokens, self.mix(0.5, tokens.shape[1]), 0.0, 1.0)
        self.params, self.optimiser, self.is_int8 = params, optimiser, False
        for v in params.values():
            v.grad = None

    @torch.no_grad()
    def measure(self, tokens, p):
        """Of sequences [n, T]: loss of the student and the teacher against the text, KL between them, share of equal likeliest tokens."""
        sums, count, mix = np.zeros(4), 0, self.mix(p, tokens.shape[1])
        for part in tokens.split(8):
            with M.eager():
                theirs = M.teacher(self.teacher, self.cfg, part, self.cos, self.sin)[0]
                mine, _ = self.forward(part, mix)
            for a, b, ids in zip(mine, theirs, part):
                m, t = steps.logits(a[:-1], self.embedding(mix)).log_softmax(-1), steps.logits(b[:-1], self.teacher["embed"]).log_softmax(-1)
                own, other = (torch.nn.functional.nll_loss(x, ids[1:], reduction="sum") for x in (m, t))
                sums += torch.stack([own, other, (t.exp() * (t - m)).sum(), (m.argmax(-1) == t.argmax(-1)).sum().float()]).double().cpu().numpy()
                count += len(ids) - 1
        return dict(zip(("loss", "teacher_loss", "kl", "same_top"), (sums / count).round(5).tolist()))


class Text:
    """Sequences of the streams, shuffled anew each epoch; a share of each step from the teacher's own dialogues."""

    def __init__(self, files, length, device):
        self.streams = [np.load(f, mmap_mode="r") for f in files]
        self.streams = [s[:len(s) // length * length].reshape(-1, length) for s in self.streams]
        self.device = device

    def rows(self, stream, first, count):
        """Sequences first ... of an endless walk over the stream."""
        s = self.streams[stream]
        epochs = {e: np.random.default_rng((stream, e)).permutation(len(s)) for e in range(first // len(s), (first + count - 1) // len(s) + 1)}
        return s[[epochs[i // len(s)][i % len(s)] for i in range(first, first + count)]]

    def batch(self, step, size, share):
        own = int(size * share) if len(self.streams) > 1 else 0
        rows = [self.rows(0, step * (size - own), size - own)] + ([self.rows(1, step * own, own)] if own else [])
        return torch.from_numpy(np.concatenate(rows).astype(np.int64)).to(self.device)


def save(path, run, done, elapsed):
    torch.save({"params": {k: v.detach() for k, v in run.params.items()}, "optimiser": run.optimiser.state(), "int8": run.is_int8, "done": done, "elapsed": elapsed}, path + ".part")
    os.replace(path + ".part", path)


def store(folder, run):
    if run.is_int8:
        path = os.path.join(folder, "model.pt")
        torch.save({"tensors": steps.stored({k: v.detach() for k, v in run.params.items()}), "pattern": run.cfg.pattern, "window": run.cfg.window, "d_ff": run.cfg.d_ff}, path + ".part")
        os.replace(path + ".part", path)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("source")
    a.add_argument("--data", required=True)
    a.add_argument("--out", required=True)
    span = a.add_mutually_exclusive_group(required=True)
    span.add_argument("--minutes", type=float, help="of the whole run: preparation, compiling and the last figures included")
    span.add_argument("--steps", type=int)
    a.add_argument("--length", type=int, default=1024, help="tokens of a sequence")
    a.add_argument("--batch", type=int, default=64, help="sequences a step")
    a.add_argument("--micro", type=int, default=32, help="sequences at a time")
    a.add_argument("--window", type=int, default=512)
    a.add_argument("--d-ff", type=int, help="hidden units of ReLU^2; default: one and a half times the gated ones, which is as many weights")
    a.add_argument("--pattern", help="S sliding, G global, for each layer")
    a.add_argument("--fit", choices=("best", "mean"), default="best", help="how the shared KV heads begin")
    a.add_argument("--own", type=float, default=0.25, help="share of the text that the teacher makes itself")
    a.add_argument("--talk-seconds", type=float, default=20, help="how long it makes dialogues at the beginning")
    a.add_argument("--last-seconds", type=float, default=60, help="of --minutes, what is kept for the last figures")
    a.add_argument("--save-minutes", type=float, default=2)
    a.add_argument("--stop-after", type=int, metavar="STEPS", help="end here, with the state saved for --resume")
    a.add_argument("--resume", action="store_true")
    args = a.parse_args()
    rank, ranks = train.start()
    started = time.time()
    if args.minutes and ranks > 1:
        a.error("several processes have no common clock: --steps instead of --minutes")
    os.makedirs(args.out, exist_ok=True)
    log_file = open(os.path.join(args.out, "log.txt"), "a")

    def log(text):
        if rank == 0:
            print(text, flush=True)
            print(text, file=log_file, flush=True)

    torch.backends.cuda.matmul.allow_tf32 = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        log(attention.choose())
    run, began = Run(args, device), time.time()
    own = os.path.join(args.out, "own.npy")
    if args.own and rank == 0 and not os.path.exists(own):
        log(kaijufy_talk.talk(run.teacher, run.cfg, run.cos, run.sin, os.path.join(args.data, "prompts.npz"), own, args.talk_seconds))
    if ranks > 1:
        torch.distributed.barrier()
    text = Text([os.path.join(args.data, "train.npy")] + [own] * bool(args.own), args.length, device)
    held = Text([os.path.join(args.data, "val.npy")], args.length, device)
    held = torch.from_numpy(held.streams[0][:64].astype(np.int64)).to(device)
    state_path, report_path, done, before = os.path.join(args.out, "state.pt"), os.path.join(args.out, "report.json"), 0, 0.0
    report = {"kv": kaijufy_eval.kv_bytes(run.cfg, run.teacher["k"].shape[1])}
    if args.resume and os.path.exists(state_path):
        state = torch.load(state_path, map_location=device)
        run.set_params(state["params"], state["int8"])
        run.optimiser.load(state["optimiser"])
        done, before = state["done"], state["elapsed"]
        if os.path.exists(report_path):
            report = {**json.load(open(report_path)), **report}
    else:
        with M.eager():
            run.set_params(steps.begin(run.teacher, run.masters, run.cfg, text.batch(0, min(8, args.batch), 0), run.cos, run.sin, args.fit), False)
        if device == "cuda":
            run.warm_up(text.batch(0, args.micro, 0))
    del run.masters
    log("%d layers %s, window %d, %d KV slots, %.1f M weights; %s of %d, %d x %s; prepared in %.0f s" % (len(run.cfg.pattern), run.cfg.pattern, run.cfg.window, len(run.cfg.owner),
        sum(run.params[k].numel() for k in ("q", "o", "up", "down", "shared_k", "shared_v", "embed")) / 1e6, " + ".join(str(len(s)) for s in text.streams), args.length, ranks, device, time.time() - began))
    began = last_log = last_save = time.time()
    seconds = args.minutes and args.minutes * 60 - args.last_seconds - (began - started)  # of training
    if seconds is not None and seconds < 10:
        a.error("--minutes: preparing took %.0f s, and %.0f s are kept for the last figures: nothing is left to train in" % (began - started, args.last_seconds))
    logged = done

    def note(name, found):
        """Into the report, which is written anew: a run that is cut leaves what it has."""
        report[name] = found
        if rank == 0:
            with open(report_path + ".part", "w") as f:
                json.dump(report, f, indent=1)
            os.replace(report_path + ".part", report_path)

    if done == 0:
        note("start", run.measure(held, 0.0))
    log("as it began: %s; KV: %s" % (report.get("start"), report["kv"]))
    while True:
        now = time.time()
        elapsed = before + now - began
        p = done / args.steps if args.steps else elapsed / (before + seconds)
        if p >= 1 or done == args.stop_after:
            break
        if p >= INT8[0] and not run.is_int8:
            note("float", run.measure(held, p))
            log("Kaiju's shape in floats, step %d: %s" % (done, report["float"]))
            sample = text.batch(done, min(16, args.batch), args.own)
            with M.eager():
                run.set_params(steps.to_int8({k: v.detach() for k, v in run.params.items()}, run.cfg, sample, run.cos, run.sin, run.dtype), True)
        batch = text.batch(done, args.batch, args.own)
        mine = batch[rank * len(batch) // ranks:(rank + 1) * len(batch) // ranks]
        loss = run.step(mine.split(args.micro), p, args.length, len(batch))
        done += 1
        if rank == 0 and (now - last_log > 5 or done <= 3):
            kl, far = loss.tolist()
            now = time.time()
            log("step %5d %5.1f%%  KL %.4f  distance %.4f  %4.0fk tokens/s  %s" % (done, 100 * p, kl, far, (done - logged) * args.batch * args.length / (now - last_log) / 1e3, "int8" if run.is_int8 else "float"))
            if not np.isfinite(kl):
                raise SystemExit("the loss is not finite: stopped before the last good state is overwritten")
            last_log, logged = now, done
        if rank == 0 and now - last_save > args.save_minutes * 60:
            save(state_path, run, done, before + now - began)
            store(args.out, run)
            last_save = now
    if rank == 0:
        report.update(steps=done, tokens=done * args.batch * args.length, seconds=round(before + time.time() - began, 1))
        store(args.out, run)
        note("end", run.measure(held, 1.0))
        log("at the end: %s" % report["end"])
        if os.path.exists(os.path.join(args.data, "eval.json")):
            kaijufy_eval.asked(run, os.path.join(args.data, "eval.json"), args.last_seconds - 20 if args.minutes else None, log, functools.partial(note, "asked"))
        save(state_path, run, done, report["seconds"])
        log("%d steps, %.1f M tokens, %.0f s" % (done, report["tokens"] / 1e6, report["seconds"]))


if __name__ == "__main__":
    main()
