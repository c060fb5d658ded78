"""Checkpoints that a gate must block, and some that it must pass, made from another one."""

import json
import os
import sys

import numpy as np

from gate import SOURCE

sys.path.append(os.path.join(SOURCE, "examples", "import"))
from checkpoint_file import TYPES, read_checkpoint, write_checkpoint  # noqa: E402

SEED = 11
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}


class Checkpoint:
    """A config and tensors, to be changed and written."""

    def __init__(self, path):
        config, self.arithmetic, tensors = read_checkpoint(path)
        self.config = json.loads(config)
        self.tensors = {name: values.copy() for name, (_, values) in tensors.items()}

    def write(self, path):
        tensors = {name: (NAMES[values.dtype], values) for name, values in self.tensors.items()}
        write_checkpoint(path, self.arithmetic, json.dumps(self.config), tensors)
        return path

    def set_weight(self, matrix, weight):
        self.tensors[matrix + ".weight"] = weight.astype(np.int8)
        self.tensors[matrix + ".row_sum"] = weight.sum(axis=1, dtype=np.int32)

    def matrices(self):
        return [name[: -len(".weight")] for name in self.tensors if name.endswith(".weight")]


# -- wrong ones --
def damaged_scale(made):
    """One scale in 32 of a layer's output is four times too large."""
    made.tensors["layers.6.ffn.down.scale"][::32] *= 4


def coarse_weights(made):
    """Requantised to 4 bits, rounded to the nearest."""
    for matrix in made.matrices():
        if not matrix.startswith("classifier"):
            weight = made.tensors[matrix + ".weight"].astype(np.int32)
            made.set_weight(matrix, np.clip(np.round(weight / 16) * 16, -127, 127).astype(np.int32))


def swapped_roles(made):
    """The prompt format writes the user's symbol where the character speaks, and the other way round."""
    chat = made.config["chat"]
    chat["user"], chat["character"] = chat["character"], chat["user"]


def rewritten_history(made):
    """A prompt format that begins a reply otherwise than it is written in the history: what was computed is lost."""
    chat = made.config.pop("chat")
    made.config["chat"] = {name: chat[name] for name in ("begin", "end", "text")}
    around = {"after": [chat["close"]], "trim_left": "space", "trim_right": "space"}
    made.config["chat_format"] = {
        "begin": [chat["begin"]],
        "system": {"before": [chat["begin"], chat["card"]], **around},
        "user": {"before": [chat["user"]], **around},
        "assistant": {"before": [chat["character"]], **around},
        "reply": [chat["character"], chat["character"]],
        "user_first": False,
        "stop": [chat["close"], chat["end"]],
    }


def strict_head(made):
    """Every label is likelier than it should be."""
    made.tensors["classifier.bias"] += 2


def forgetful(made):
    """The second layer that sees the whole context sees nothing: what was said long ago is lost."""
    values = made.tensors["kv.4.v.weight"]
    made.set_weight("kv.4.v", np.zeros_like(values, np.int32))


def endless(made):
    """The symbol that closes a reply is less likely."""
    made.tensors["embed.scale"][made.config["chat"]["close"]] *= 0.6


def slow(made):
    """Three layers more for each, which change nothing."""
    count = len(made.config["layers"])
    last = made.config["layers"][-1]
    for layer in range(count, 4 * count):
        made.config["layers"].append(dict(last))
        for name in [name for name in made.tensors if name.startswith(f"layers.{count - 1}.")]:
            copy = name.replace(f"layers.{count - 1}.", f"layers.{layer}.")
            made.tensors[copy] = made.tensors[name].copy()
        for matrix in (f"layers.{layer}.attn.o", f"layers.{layer}.ffn.down"):
            made.set_weight(matrix, np.zeros_like(made.tensors[matrix + ".weight"], np.int32))


# -- right ones --
def same(made):
    """The file again."""


def renamed(made):
    """The same weights in another order of tensors, under another name and digest."""
    made.config["name"] = "kaiju-nano-again"
    made.tensors = dict(sorted(made.tensors.items(), reverse=True))


def tuned_head(made):
    """A head that a little more training has moved by a hundredth."""
    random = np.random.default_rng(SEED)
    scale = made.tensors["classifier.scale"]
    scale *= (1 + 0.01 * random.standard_normal(scale.shape)).astype(np.float32)
    made.tensors["classifier.bias"] += (0.01 * random.standard_normal(scale.shape)).astype(np.float32)


WRONG = (damaged_scale, coarse_weights, swapped_roles, rewritten_history, strict_head, forgetful, endless, slow)
RIGHT = (same, renamed, tuned_head)


def make(model, change, path):
    made = Checkpoint(model)
    change(made)
    return made.write(path)
