"""Checkpoints that differ from another in what a test needs: their names, how sure they are of their tokens, their
classifier's labels. They have its tokenizer."""

import json
import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "import"))
from checkpoint_file import read_checkpoint, write_checkpoint  # noqa: E402


def changed(source, path, logits=1.0, tokenizer=None, **config):
    """Copies a checkpoint. `logits`: what all logits are multiplied by; far from 1 the model is worse. `tokenizer`:
    a function of its bytes. The rest: other values of the config."""
    said, arithmetic, tensors = read_checkpoint(source)
    kind, scalar = tensors["embed.out_scalar"]
    tensors["embed.out_scalar"] = kind, scalar * np.float32(logits)
    if tokenizer:
        tensors["tokenizer"] = "U8", np.frombuffer(tokenizer(tensors["tokenizer"][1].tobytes()), np.uint8)
    return write_checkpoint(str(path), arithmetic, json.dumps({**json.loads(said), **config}), tensors)
