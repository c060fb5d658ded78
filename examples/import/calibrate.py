"""The steps of int8 keys and values, by KV head and channel, from what the float model computes for a text.

A key k is cached as H(k / k_step), rounded, and a query q used as H(q · k_step), rounded, where H is the block transform.
So any positive k_step computes the same scores but for rounding. With constant scales 127 steps must hold the largest key;
with a scale for each token only the steps' proportions c matter. H spreads both roundings over the block's channels: that
of keys is in proportion to sqrt(sum (k / c)²), that of queries to sqrt(sum (q · c)²). By the inequality of Cauchy and
Schwarz their product is least for c = sqrt(|k| / |q|)."""

import dataclasses
from collections.abc import Callable

import numpy as np

import hadamard
from float_model import FloatModel
from model_config import ModelConfig
from native import LEAST_STEP
from rope import frequencies

MARGIN = 1.25  # the largest keys of other texts against those of this one
VALUE_MARGIN = 1.5  # the same for values, whose rounding costs less
_LITTLE = 1e-12
_SHIFTS = (0, 61, 509, 2039, 8191, 32749, 131071)  # positions further on at which keys are looked at, too


@dataclasses.dataclass
class Steps:
    k_step: np.ndarray  # float32 [n_kv_heads, head_dim]
    v_step: np.ndarray  # the same
    k_clipped: float  # share of the check text's keys and values beyond what 127 steps hold
    v_clipped: float


def _shifted(k: np.ndarray, config: ModelConfig, layer: int, shift: int) -> np.ndarray:
    """Keys [tokens, n_kv_heads, head_dim] as they would be `shift` positions further on."""
    if not config.rotates[layer] or shift == 0:
        return k
    angle = shift * np.array(frequencies(config.rope, config.head_dim), np.float64)
    c, s, half = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32), config.head_dim // 2
    a, b = k[..., :half], k[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def _by_pair(squares: np.ndarray) -> np.ndarray:
    """Means of the two channels of each RoPE pair, which turn into each other."""
    half = squares.shape[-1] // 2
    means = (squares[..., :half] + squares[..., half:]) / 2
    return np.concatenate([means, means], -1)


def balanced(q: np.ndarray, k: np.ndarray, config: ModelConfig) -> np.ndarray:
    """c of each KV head and channel, float32 [n_kv_heads, head_dim]."""
    group = config.n_heads // config.n_kv_heads
    k_power = _by_pair(np.square(k).mean(0, dtype=np.float64))
    q_power = _by_pair(np.square(q).mean(0, dtype=np.float64)).reshape(config.n_kv_heads, group, -1).mean(1)
    return ((k_power + _LITTLE) / (q_power + _LITTLE)).astype(np.float32) ** np.float32(0.25)


def key_steps(q: np.ndarray, k: np.ndarray, config: ModelConfig, layer: int, block: int) -> np.ndarray:
    c = balanced(q, k, config)
    largest = np.zeros(config.n_kv_heads, np.float32)
    for shift in _SHIFTS:
        if shift < config.context:
            folded = hadamard.transform(_shifted(k, config, layer, shift) / c, block)
            largest = np.maximum(largest, np.abs(folded).max((0, 2)))
    return np.maximum(c * (largest * np.float32(MARGIN / 127))[:, None], np.float32(LEAST_STEP))


def value_steps(v: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(v).max(0) * np.float32(VALUE_MARGIN / 127), np.float32(LEAST_STEP))


@dataclasses.dataclass
class Calibration:
    steps: list[Steps]  # of each layer
    residuals: list[np.ndarray]  # of the check text: before each layer, and behind the last; [tokens, d_model]


def calibrate(model: FloatModel, block: int, texts: list[np.ndarray], check: np.ndarray, done: Callable[[], None]) \
        -> Calibration:
    """Steps of every layer from token ids `texts`; what they clip of `check`. `done` is called after each layer."""
    count, found = sum(map(len, texts)), Calibration([], [model.embed(check)])
    seen: dict[str, np.ndarray] = {}

    def observe(layer: int, what: str, values: np.ndarray) -> None:
        seen[what] = values
        if what == "x":
            found.residuals.append(values[count:])
            done()
        if what == "v":
            k_step = key_steps(seen["q"][:count], seen["k"][:count], model.config, layer, block)
            v_step = value_steps(values[:count])
            stored = hadamard.transform(seen["k"][count:] / k_step, block)
            found.steps.append(Steps(k_step, v_step, float((np.abs(stored) > 127.5).mean()),
                                     float((np.abs(values[count:] / v_step) > 127.5).mean())))

    model.hidden([*texts, check], observe)
    return found
