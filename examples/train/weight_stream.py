"""Weight updates in numpy: steps of -1, 0 and 1 of int8 weights and of scales, five to a byte, and the messages of ../../docs/checkpoint.md ("Weight
updates"), with which an engine follows a training run (Engine.update_weights).

    stream = Stream(config, tensors)       # of the checkpoint that the engine has loaded: export.tensors(weights, tokenizer)
    engine.update_weights(stream.next(tensors))
    python3 weight_stream.py A.safetensors B.safetensors --out update.bin     # what makes B of A"""
import argparse
import os
import struct
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import"))
from checkpoint_file import read_checkpoint, write_checkpoint
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


def applied(update, tensors):
    """{name: array} of the int8 and float32 tensors that an update changes, and the digest after it."""
    magic, version, entries, _, size, _, after, check = HEAD.unpack(update[:HEAD.size].ljust(HEAD.size))
    if magic != b"KAIJUUPD" or version != 1 or size != len(update) or digest_of(update[HEAD.size:]) != check.decode(errors="replace"):
        raise ValueError("is damaged")
    out, at = {}, HEAD.size
    for _ in range(entries):
        form, letters, _, size = ENTRY.unpack_from(update, at)
        at += ENTRY.size
        name, data = update[at:at + letters].decode(), np.frombuffer(update, np.uint8, size, at + letters)
        at += letters + size
        before = tensors[name][1]
        if form == WHOLE:
            out[name] = data.view(before.dtype).reshape(before.shape)
        else:
            steps = unpack(data, before.size).reshape(before.shape)
            out[name] = before + steps if form == TERNARY else scaled(before, steps)
    return out, after.decode()


class Folder:
    """The updates of a training run as files, for engines that follow it: FOLDER/first.safetensors, the weights that it begins with, then
    00000001.update and so on. A file has its name when it is complete. A folder that has some already is gone on with, so that a run which
    is resumed, from an earlier state too, goes on for the same engines."""

    def __init__(self, path, config, tensors, arithmetic="1"):
        self.path, first = path, os.path.join(path, "first.safetensors")
        os.makedirs(path, exist_ok=True)
        if not os.path.exists(first):
            write_checkpoint(first, arithmetic, config, tensors)
        found, version, before = read_checkpoint(first)
        if (found, version) != (config, arithmetic) or {n: (k, a.shape) for n, (k, a) in before.items()} != {n: (k, a.shape) for n, (k, a) in tensors.items()}:
            raise ValueError("%s has the updates of another model: give another folder" % path)
        self.stream = Stream(config, before, 0, arithmetic)
        while os.path.exists(self.file(self.stream.number + 1)):
            self._take(self.file(self.stream.number + 1))

    def file(self, number):
        return os.path.join(self.path, "%08d.update" % number)

    def _take(self, path):
        """What next() did when it wrote that file."""
        with open(path, "rb") as f:
            data = f.read()
        tensors = dict(self.stream.tensors)
        try:
            changed, after = applied(data, tensors)
        except ValueError as error:
            raise ValueError("%s %s: give another folder" % (path, error)) from None
        for name, array in changed.items():
            tensors[name] = tensors[name][0], array
            if name.endswith(".weight"):
                tensors[name[:-7] + ".row_sum"] = "I32", array.sum(-1, dtype=np.int32)
        self.stream.next(tensors)
        if self.stream.digest != after:
            raise ValueError("%s does not follow from the files before it: give another folder" % path)

    def next(self, tensors):
        """Writes the update that leads to `tensors`, if they differ from what is there."""
        if all(np.array_equal(array, self.stream.tensors[name][1]) for name, (_, array) in tensors.items()):
            return
        update, path = self.stream.next(tensors), self.file(self.stream.number)
        with open(path + ".part", "wb") as f:
            f.write(update)
        os.replace(path + ".part", path)


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
