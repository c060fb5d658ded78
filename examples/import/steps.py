"""The steps of int8 keys and values, by KV head and channel.

A key k is cached as H(k / k_step), rounded, and a query q used as H(q · k_step), rounded, where H is the block
transform. So any positive k_step computes the same scores but for rounding. With a scale for each token, which is the
rule, only the steps' proportions c matter. H spreads both roundings over the block's channels: that of keys is in
proportion to sqrt(sum (k / c)²), that of queries to sqrt(sum (q · c)²). By the inequality of Cauchy and Schwarz their
product is least for c = sqrt(|k| / |q|). How large k and q are the weights say: inputs are normed, so an output's mean
square is about that of its row times the norm's gains, plus its bias. That needs no text.

With constant scales (--kv constant) 127 steps must hold the largest key and value, and how large those are only a text
shows."""

import dataclasses
from collections.abc import Callable

import numpy as np

import hadamard
from float_model import FloatModel
from model_config import ModelConfig
from native import LEAST_STEP
from rope import frequencies
from sources.source import Source

KEY_MARGIN, VALUE_MARGIN = 1.25, 1.5  # the largest keys and values of other texts against those of the sample
_LITTLE = 1e-20
_SHIFTS = (0, 61, 509, 2039, 8191, 32749, 131071)  # positions further on at which keys are looked at, too


@dataclasses.dataclass
class Steps:
    k_step: np.ndarray  # float32 [n_kv_heads, head_dim]
    v_step: np.ndarray  # the same


def _by_pair(power: np.ndarray) -> np.ndarray:
    """Means of the two channels of each RoPE pair, which turn into each other."""
    half = power.shape[-1] // 2
    means = (power[..., :half] + power[..., half:]) / 2
    return np.concatenate([means, means], -1)


def _rounded(steps: np.ndarray) -> np.ndarray:
    """To 8 significant bits: sums and roots differ in their last bits between machines, and checkpoints must not."""
    fraction, exponent = np.frexp(steps)
    return np.maximum(np.ldexp(np.rint(fraction * 256) / 256, exponent), LEAST_STEP).astype(np.float32)


def _balanced(q_power: np.ndarray, k_power: np.ndarray) -> np.ndarray:
    """c of each KV head and channel, of mean squares [n_heads or n_kv_heads, head_dim]."""
    of_group = q_power.reshape(len(k_power), -1, k_power.shape[1]).mean(1)
    return ((_by_pair(k_power) + _LITTLE) / (_by_pair(of_group) + _LITTLE)) ** 0.25


def steps_of_weights(row_power: dict[str, np.ndarray | None], source: Source, layer: int) -> Steps:
    """`row_power` has for q, k and v the sums of squares of each row times the gains, float64; None for a v that is k."""
    config, its, p = source.config, source.config.each[layer], f"layers.{layer}.attn."
    power = {}
    for which, heads in (("q", config.n_heads), ("k", its.n_kv_heads), ("v", its.n_kv_heads)):
        matrix = "k" if which == "v" and its.values_from_keys else which
        found = row_power[matrix]
        if config.qkv_bias:
            found = found + np.square(source.rows(f"{p}{matrix}.bias").astype(np.float64))
        power[which] = found.reshape(heads, its.head_dim)
        if config.head_norms and which != "v":
            gain = source.rows(f"{p}{which}_norm_gain").astype(np.float64)
            power[which] = np.tile(np.square(gain), (heads, 1))
        if config.value_norms and which == "v":
            power[which] = np.ones((heads, its.head_dim))
    v_step = np.sqrt(power["v"] + _LITTLE) * (4 / 127)
    return Steps(_rounded(_balanced(power["q"], power["k"])), _rounded(v_step))


def _shifted(k: np.ndarray, config: ModelConfig, layer: int, shift: int) -> np.ndarray:
    """Keys [tokens, n_kv_heads, head_dim] as they would be `shift` positions further on."""
    its = config.each[layer]
    if its.rope is None or shift == 0:
        return k
    angle = shift * np.array(frequencies(its.rope, its.head_dim), np.float64)
    c, s, half = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32), its.head_dim // 2
    a, b = k[..., :half], k[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def constant_steps(model: FloatModel, block: int, texts: list[np.ndarray], done: Callable[[], None]) -> list[Steps]:
    """Of every layer, from the token ids of texts. `done` is called after each layer."""
    config, found = model.config, []
    seen: dict[str, np.ndarray] = {}

    def observe(layer: int, what: str, values: np.ndarray) -> None:
        seen[what] = values
        if what == "x":
            done()
        if what != "v":
            return
        q_power, k_power = (np.square(seen[which]).mean(0, dtype=np.float64) for which in "qk")
        c = _balanced(q_power, k_power).astype(np.float32)
        largest = np.zeros(len(c), np.float32)
        for shift in _SHIFTS:
            if shift < config.context:
                folded = hadamard.transform(_shifted(seen["k"], config, layer, shift) / c, block)
                largest = np.maximum(largest, np.abs(folded).max((0, 2)))
        found.append(
            Steps(
                _rounded(c * (largest * np.float32(KEY_MARGIN / 127))[:, None]),
                _rounded(np.abs(values).max(0) * np.float32(VALUE_MARGIN / 127)),
            )
        )

    model.hidden(texts, observe)
    return found
