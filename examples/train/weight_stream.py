"""Weight updates in numpy: steps of -1, 0 and 1 of int8 weights and of scales, five to a byte, and the messages of ../../docs/checkpoint.md ("Weight
updates"), with which an engine follows a training run (Engine.update_weights).

    stream = Stream(config, tensors)       # of the checkpoint that the engine has loaded: export.tensors(weights, tokenizer)
    engine.update_weights(stream.next(tensors))
    python3 weight_stream.py A.safetensors B.safetensors --out update.bin     # what makes B of A"""
import argparse
import json
import os
import struct
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import"))
from digest import digest_of

FIVE = 5
POWERS = np.array([1, 3, 9, 27, 81], np.int16)
TERNARY, WHOLE, SCALED = 1, 2, 3
SCALE_STEP = 1 / 128  # of a float32 value, by which a step changes it
HEAD = struct.Struct("<8sIIQQ32s32s32s")  # magic, version, entries, number, bytes, parent, after, check
ENTRY = struct.Struct("<HHIQ")  # form, bytes of the name, 0, bytes that follow the name


def pack(steps):
    """int8 [n] of -1, 0, 1 -> uint8 [ceil(n / 5)]: a byte is the sum of (step + 1) 3^i."""
    digits = np.concatenate([steps.reshape(-1).astype(np.int16), np.zeros(-steps.size % FIVE, np.int16)]) + 1
    return (digits.reshape(-1, FIVE) * POWERS).sum(1).astype(np.uint8)


def unpack(data, count):
    """uint8 -> int8 [count]."""
    return (data[:, None].astype(np.int16) // POWERS % 3 - 1).astype(np.int8).reshape(-1)[:count]


def root_digest(config, tensors, digests, arithmetic="1"):
    """Of docs/checkpoint.md, "Metadata". tensors: {name: (type, array)}."""
    def line(name):
        kind, array = tensors[name]
        return "%s %s %s %s\n" % (name, kind, ",".join(map(str, array.shape)), digests[name])
    return digest_of(("%s\n%s\n" % (arithmetic, config) + "".join(line(n) for n in sorted(tensors, key=str.encode))).encode())


def scaled(before, steps):
    """float32 values after their steps: one rounding each."""
    return before * (np.float32(1) + steps.astype(np.float32) * np.float32(SCALE_STEP))


def entry(name, before, after):
    """The entry of a tensor that has changed: ternary where it can be."""
    form, data = WHOLE, after
    if after.dtype == np.int8:
        steps = after.astype(np.int16) - before
        if np.abs(steps).max() <= 1:
            form, data = TERNARY, pack(steps)
    elif after.dtype == np.float32:
        steps = np.sign(np.abs(after) - np.abs(before)).astype(np.int8)
        if np.array_equal(scaled(before, steps).view(np.uint32), np.ascontiguousarray(after).view(np.uint32)):
            form, data = SCALED, pack(steps)
    data = np.ascontiguousarray(data).tobytes()
    return ENTRY.pack(form, len(name.encode()), 0, len(data)) + name.encode() + data


class Stream:
    """The updates of one run. Only int8 and float32 tensors may change; row sums follow from the weights."""

    def __init__(self, config, tensors, number=0, arithmetic="1"):
        self.config, self.arithmetic, self.number = config, arithmetic, number
        self.tensors = {name: (kind, array.copy()) for name, (kind, array) in tensors.items()}
        self.digests = {name: digest_of(np.ascontiguousarray(array)) for name, (_, array) in tensors.items()}
        self.digest = root_digest(config, self.tensors, self.digests, arithmetic)

    def next(self, tensors):
        """The update that leads to `tensors`, and is then where the stream is."""
        parent, entries = self.digest, []
        for name, (kind, array) in tensors.items():
            before = self.tensors[name][1]
            if np.array_equal(before, array):
                continue
            if not name.endswith(".row_sum"):
                assert kind in ("I8", "F32"), name + " may not change"
                entries.append(entry(name, before, array))
            self.tensors[name] = kind, array.copy()
            self.digests[name] = digest_of(np.ascontiguousarray(array))
        self.digest, self.number = root_digest(self.config, self.tensors, self.digests, self.arithmetic), self.number + 1
        body = b"".join(entries)
        digests = [d.encode() for d in (parent, self.digest, digest_of(body))]
        return HEAD.pack(b"KAIJUUPD", 1, len(entries), self.number, HEAD.size + len(body), *digests) + body


def read_checkpoint(path):
    """Config, arithmetic and {name: (type, array)} of a checkpoint."""
    with open(path, "rb") as f:
        raw = f.read()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    meta, kinds = header.pop("__metadata__"), {"I8": np.int8, "F32": np.float32, "I32": np.int32, "U64": np.uint64, "U8": np.uint8}
    return meta["config"], meta["arithmetic"], {
        name: (t["dtype"], np.frombuffer(raw[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]], kinds[t["dtype"]]).reshape(t["shape"]))
        for name, t in header.items()}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("before")
    a.add_argument("after")
    a.add_argument("--out", required=True)
    a.add_argument("--number", type=int, default=1)
    args = a.parse_args()
    config, arithmetic, tensors = read_checkpoint(args.before)
    other, _, after = read_checkpoint(args.after)
    if other != config:
        sys.exit("the two checkpoints have different configs")
    update = Stream(config, tensors, args.number - 1, arithmetic).next(after)
    with open(args.out, "wb") as f:
        f.write(update)
    weights = sum(array.size for kind, array in tensors.values() if kind == "I8")
    print("%d bytes, %.4f a weight" % (len(update), len(update) / weights))


if __name__ == "__main__":
    main()
