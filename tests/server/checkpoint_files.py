"""Checkpoints that differ from another in what a test needs: their names, how sure they are of their tokens, their
classifier's labels. They have its tokenizer."""

import json
import pathlib
import struct
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "import"))
from checkpoint_file import TYPES, CheckpointFile  # noqa: E402


def changed(source, path, logits=1.0, tokenizer=None, **config):
    """Copies a checkpoint. `logits`: what all logits are multiplied by; far from 1 the model is worse. `tokenizer`:
    a function of its bytes. The rest: other values of the config."""
    data = pathlib.Path(source).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    said = header.pop("__metadata__")
    values = {}
    for name, tensor in header.items():
        first, end = (8 + size + at for at in tensor["data_offsets"])
        values[name] = np.frombuffer(data[first:end], TYPES[tensor["dtype"]])
    values["embed.out_scalar"] = values["embed.out_scalar"] * np.float32(logits)
    if tokenizer:
        values["tokenizer"] = np.frombuffer(tokenizer(values["tokenizer"].tobytes()), np.uint8)
    shapes = {name: (tensor["dtype"], tuple(tensor["shape"])) for name, tensor in header.items()}
    shapes["tokenizer"] = ("U8", (len(values["tokenizer"]),))
    file = CheckpointFile(str(path), said["arithmetic"], json.dumps({**json.loads(said["config"]), **config}), shapes)
    try:
        file.open()
        for name, array in values.items():
            file.put(name, array)
        return file.finish()
    finally:
        file.discard()
