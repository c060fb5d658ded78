"""Factors that balance the channels of a model, folded into its weights: the model computes what it did, and int8 loses
less of it.

A channel that is large in the input of a matrix takes the range of the others, and one that is small in the input has
weights that take theirs. So a channel of the input is divided by a factor s and the matrix's column multiplied by it:
s = sqrt(|input| / |weights|), as in SmoothQuant (Xiao et al., 2022, with its alpha = 1/2). The division is folded into
what makes the input: the gain of the norm before, or the rows of the up projection. How large inputs are, a text shows.

Values can be rotated: attention only adds them up, and so a rotation of a head's channels can be folded into the value
projection and undone in the output projection. The transform of all channels of a head leaves none that is large."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import hadamard
from float_model import FloatModel
from model_config import ModelConfig
from sources.source import Source
from stored_tokenizer import StoredTokenizer

_LITTLE = 1e-3  # of the mean magnitude, added to each channel's: channels that a text never uses
_MOST = 64.0  # factors, against their geometric mean


class _Watched(FloatModel):
    """Keeps the mean squares of matrices' inputs."""

    def __init__(self, source: Source):
        super().__init__(source)
        self.power: dict[str, np.ndarray] = {}  # float64 [in]

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        self.power[name] = np.square(x).mean(0, dtype=np.float64)
        return super().linear(x, name)


def _factors(power: np.ndarray, source: Source, matrices: list[str]) -> np.ndarray:
    """float32 [in], what the columns of the matrices are multiplied by. `power` is the mean squares of their input."""
    columns = sum(np.square(source.rows(name + ".weight")).sum(0, dtype=np.float64) for name in matrices)
    inputs, weights = np.sqrt(power), np.sqrt(columns)
    wanted = np.log((inputs + _LITTLE * inputs.mean() + 1e-30) / (weights + _LITTLE * weights.mean() + 1e-30)) / 2
    wanted -= wanted.mean()
    return np.exp(np.clip(wanted, -math.log(_MOST), math.log(_MOST))).astype(np.float32)


def rotates_values(config: ModelConfig, layer: int) -> bool:
    """A norm between projection and attention, or keys that are values too, leave no place for the rotation."""
    return not (config.value_norms or config.each[layer].values_from_keys)


def _rotated(x: np.ndarray, head_dim: int) -> np.ndarray:
    """Of the last axis, head by head; its own inverse."""
    return hadamard.transform(x, head_dim) / np.float32(math.sqrt(head_dim))


class BalancedSource(Source):
    """A source whose weights have the factors of `measured` in them."""

    def __init__(self, source: Source, multiplied: dict[str, np.ndarray], divided: dict[str, np.ndarray]):
        """`multiplied` are factors of columns, `divided` of rows or of a vector's elements, by the names of tensors."""
        self.path, self.config, self.left_out = source.path, source.config, source.left_out
        self.chat_template = source.chat_template
        self._source, self._multiplied, self._divided = source, multiplied, divided

    def __reduce__(self) -> tuple[Any, ...]:
        return BalancedSource, (self._source, self._multiplied, self._divided)

    def stored_as(self, name: str) -> str:
        return self._source.stored_as(name)

    def tokenizer(self) -> StoredTokenizer | None:
        return self._source.tokenizer()

    def _rows(self, name: str, first: int, count: int) -> np.ndarray:
        rows = self._source.unchecked_rows(name, first, count)
        if name in self._multiplied:
            rows = rows * self._multiplied[name]
        if name in self._divided:
            its = self._divided[name][first : first + count]
            rows = rows / (its if rows.ndim == 1 else its[:, None])
        return rows

    def unchecked_rows(self, name: str, first: int, count: int) -> np.ndarray:
        parts = name.split(".")
        if parts[0] != "layers" or parts[2] != "attn" or not rotates_values(self.config, int(parts[1])):
            return self._rows(name, first, count)
        head_dim = self.config.each[int(parts[1])].head_dim
        if parts[3:] == ["o", "weight"]:
            return _rotated(self._rows(name, first, count), head_dim)
        if parts[3] != "v":
            return self._rows(name, first, count)
        begin, end = first // head_dim * head_dim, -(-(first + count) // head_dim) * head_dim  # whole heads
        heads = self._rows(name, begin, end - begin)
        turned = _rotated(heads.T, head_dim).T
        return np.ascontiguousarray(turned[first - begin : first - begin + count])


def balanced(source: Source, texts: list[np.ndarray], done: Callable[[], None]) -> BalancedSource:
    """`texts` are token ids that show how large inputs are. `done` is called after each layer."""
    config, model = source.config, _Watched(source)
    multiplied: dict[str, np.ndarray] = {}
    divided: dict[str, np.ndarray] = {}

    def observe(layer: int, what: str, values: np.ndarray) -> None:
        if what != "x":
            return
        p = f"layers.{layer}."
        of_ffn = [p + "ffn.gate", p + "ffn.up"] if config.gated else [p + "ffn.up"]
        of_attention = [name for name in (p + "attn.q", p + "attn.k", p + "attn.v") if name in model.power]
        for norm, matrices in ((p + "attn.norm_gain", of_attention), (p + "ffn.norm_gain", of_ffn)):
            divided[norm] = _factors(model.power[matrices[0]], source, matrices)
            multiplied.update((name + ".weight", divided[norm]) for name in matrices)
        down = _factors(model.power[p + "ffn.down"], source, [p + "ffn.down"])
        multiplied[p + "ffn.down.weight"] = down
        divided[p + "ffn.up.weight"] = down if config.gated else np.sqrt(down)  # the square without a gate
        if config.has_bias(p + "ffn.up"):
            divided[p + "ffn.up.bias"] = divided[p + "ffn.up.weight"]
        model.power.clear()
        done()

    model.hidden(texts, observe)
    return BalancedSource(source, multiplied, divided)
