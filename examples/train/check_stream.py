"""An engine that takes weight updates while it serves, against a file of the final weights.

    KAIJU_LIBRARY=libkaiju.so PYTHONPATH=../../capi/python python3 check_stream.py MODEL.safetensors --updates 1000 --backend cuda

    ... check_stream.py UPDATES/first.safetensors --folder UPDATES --final RUN/model.safetensors     # beside train.py --out RUN --updates UPDATES

The learner is a random walk: each update moves about a third of all weights by -1 or 1, and as many scales by a step. With --clips every
tenth update changes the clips of the activations as well, with --whole a matrix by more than 1. With --folder it is a training run instead,
which may be under way; it has ended when --final is there. Requests are under way all the time; their replies are checked for completeness,
and in the end the engine's tokens and log-probabilities against those of an engine that loads the file. The updates are of one seed, so that
a CPU and a GPU print the same digests."""
import argparse
import os
import sys
import tempfile
import time

try:
    import numpy as np
except ImportError as error:
    print(f"{error}: pip install numpy")
    sys.exit(77)  # CTest counts it as skipped

import kaiju

import weight_stream  # finds checkpoint_file in ../import
from checkpoint_file import read_checkpoint, write_checkpoint


class Learner:
    def __init__(self, path, seed):
        self.config, self.arithmetic, tensors = read_checkpoint(path)
        self.tensors = {name: (kind, array.copy()) for name, (kind, array) in tensors.items()}
        self.stream = weight_stream.Stream(self.config, self.tensors, 0, self.arithmetic)
        self.random = np.random.default_rng(seed)
        most = max(array.size for _, array in self.tensors.values())
        self.steps = self.random.choice(np.array([-1, 0, 0, 0, 0, 1], np.int8), most + 4096)

    def next(self, clips=False, whole=False):
        """The next update, as bytes."""
        for name, (kind, array) in self.tensors.items():
            if kind == "I8" or name.endswith(".scale"):
                at = int(self.random.integers(4096))
                steps = self.steps[at:at + array.size].reshape(array.shape) * np.int8(self.random.choice([-1, 1]))
            if name.endswith(".scale"):
                array[:] = weight_stream.scaled(array, steps)
            elif kind == "I8":
                array += np.where(np.abs(array + steps.astype(np.int16)) > 127, 0, steps)
            elif clips and name.endswith("_clip"):
                array *= np.float32(self.random.uniform(0.98, 1.02))
        if whole:
            row = self.tensors["embed.weight"][1][3]
            row[:] = -row
        for name, (kind, array) in self.tensors.items():
            if name.endswith(".row_sum"):
                array[:] = self.tensors[name[:-8] + ".weight"][1].sum(1, dtype=np.int32)
        return self.stream.next(self.tensors)

    def updates(self, args):
        for number in range(args.updates):
            yield self.next(args.clips and number % 10 == 9, args.whole and number % 25 == 24)

    def write(self, path):
        return write_checkpoint(path, self.arithmetic, self.config, self.tensors)


class Trained:
    """A run of train.py --updates, which may be under way, in place of a Learner."""

    def __init__(self, folder, final):
        self.folder, self.final = folder, final
        self.tensors = read_checkpoint(os.path.join(folder, "first.safetensors"))[2]

    def updates(self, _):
        """Each update; None as long as the next one is not there, until the run has ended."""
        number = 1
        while True:
            ended, path = os.path.exists(self.final), os.path.join(self.folder, "%08d.update" % number)
            if os.path.exists(path):
                with open(path, "rb") as f:
                    yield f.read()
                number += 1
            elif ended:
                return
            else:
                yield None


class Load:
    """Requests that are under way all the time."""

    def __init__(self, engine, streams, seed):
        self.engine, self.streams, self.random, self.tokens, self.finished, self.open = engine, streams, np.random.default_rng(seed), 0, 0, {}

    def step(self):
        while len(self.open) < self.streams:
            session = self.engine.session()
            prompt = self.random.integers(8, 200, int(self.random.integers(20, 120))).tolist()
            request = session.submit(prompt, max_tokens=24, stop_token=-1, temperature=1.0, seed=int(self.random.integers(1 << 30)))
            self.open[request.id] = session, 0
        self.engine.step()
        for event in self.engine.poll():
            request = event.request.id if hasattr(event.request, "id") else event.request
            session, count = self.open[request]
            count += len(event.tokens[:1])
            self.tokens += len(event.tokens[:1])
            self.open[request] = session, count
            if event.kind == kaiju.Kind.DONE:
                assert count == 24, "a reply has %d tokens" % count
                self.finished += 1
                self.open.pop(request)[0].close()

    def drain(self):
        self.streams = 0
        while self.open:
            self.step()


def answers(engine):
    """Tokens and log-probabilities of a few prompts."""
    out = []
    for first in (9, 50, 130):
        session = engine.session()
        reply = session.generate([first + i % 60 for i in range(100)], max_tokens=40, stop_token=-1, temperature=1.0, seed=first, logprobs=3)
        out.append((reply.tokens, reply.logprobs))
        session.close()
    return out


def refuses(engine, update, words):
    try:
        engine.update_weights(update)
    except kaiju.Error as error:
        assert words in str(error), error
        return
    raise AssertionError("taken, and should be refused: " + words)


def median(values):
    return sorted(values)[len(values) // 2] * 1e3


def follow(args):
    options = {"max_running": args.streams + 2, "backend": args.backend, **({"threads": args.threads} if args.threads else {}), **({"devices": args.devices} if args.devices else {})}
    engine = kaiju.Model(args.model).engine(**options)
    learner, load = Trained(args.folder, args.final) if args.folder else Learner(args.model, args.seed), Load(engine, args.streams, args.seed)
    weights = sum(array.size for kind, array in learner.tensors.values() if kind == "I8")
    seconds, sizes, with_clips, before = [], [], [], None
    began = time.monotonic()
    for update in learner.updates(args):
        for _ in range(args.steps):
            load.step()
        if update is None:
            continue
        number = len(sizes)
        clips = args.clips and number % 10 == 9
        start = time.monotonic()
        engine.update_weights(update)
        (with_clips if clips else seconds).append(time.monotonic() - start)
        sizes.append(len(update))
        if number % 50 == 7:
            refuses(engine, update, "comes after")
            refuses(engine, before, "comes after")
            refuses(engine, update[:-1] + bytes([update[-1] ^ 1]), "damaged")
        before = update
    if not sizes:
        sys.exit("there is no update in %s" % args.folder)
    load.drain()
    total = time.monotonic() - began
    print("%s: %d updates of %d weights in %.1f s, %d replies and %d tokens beside them" % (engine.describe().backend, len(sizes), weights, total, load.finished, load.tokens))
    print("%.4f bytes a weight (median), %.2f ms an update%s" % (sorted(sizes)[len(sizes) // 2] / weights, median(seconds), ", %.2f ms with clips" % median(with_clips) if with_clips else ""), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = args.final or os.path.join(folder, "final.safetensors")
        if not args.folder:
            learner.write(path)
        fresh = kaiju.Model(path).engine(**options)
        same = answers(engine) == answers(fresh)
        scrubbed = engine.scrub()
    print("weights %s, %s" % (before[64:96].decode(), "equal to the file" if same else "NOT EQUAL to the file"), flush=True)
    return same and scrubbed is not None


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("--updates", type=int, default=1000)
    a.add_argument("--folder", help="what train.py --updates writes or has written; MODEL is its first.safetensors")
    a.add_argument("--final", metavar="MODEL", help="with --folder: the checkpoint that the run ends with")
    a.add_argument("--steps", type=int, default=2, help="engine steps between two updates")
    a.add_argument("--streams", type=int, default=8, help="requests under way")
    a.add_argument("--backend", default="auto")
    a.add_argument("--devices", type=int, nargs="+", help="GPUs that share the model")
    a.add_argument("--threads", type=int, default=0)
    a.add_argument("--seed", type=int, default=39)
    a.add_argument("--clips", action="store_true")
    a.add_argument("--whole", action="store_true")
    args = a.parse_args()
    if bool(args.folder) != bool(args.final):
        a.error("--folder and --final belong together")
    sys.exit(not follow(args))


if __name__ == "__main__":
    main()
