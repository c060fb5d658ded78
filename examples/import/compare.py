"""How far a checkpoint is from its float model on a short text: each layer alone, and the whole."""

import dataclasses
from collections.abc import Callable

import numpy as np

from float_model import FloatModel, rms_norm
from int8_model import Int8Model


@dataclasses.dataclass
class Comparison:
    tokens: int
    k_clipped: list[float]  # of each layer, the share of keys beyond what their scale holds
    v_clipped: list[float]  # likewise of values
    layer_errors: list[float]  # of what a layer adds to the float model's residual, relative RMS
    kl: float  # mean, in nats
    same_top: float  # share of tokens whose likeliest successor is the same


def compare(model: FloatModel, path: str, ids: np.ndarray, done: Callable[[], None]) -> Comparison:
    """On a text of the token ids `ids`. `done` is called after each layer."""
    config, count, errors = model.config, len(ids), []
    int8 = Int8Model(path, config)
    expected, x = model.embed(ids), int8.embed(ids)

    def ignore(layer: int, what: str, values: np.ndarray) -> None:
        pass

    model.read_inputs(ids, expected)
    int8.read_inputs(np.concatenate([ids, ids]), np.concatenate([x, x]))
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in range(config.layers):
            both = int8.layer(layer, np.concatenate([expected, x]), [count, count], ignore)
            alone, x, before = both[:count], both[count:], expected  # of the layer alone; of all layers so far
            expected = model.layer(layer, before, [count], ignore)
            wrong, added = np.square(alone - expected).sum(), np.square(expected - before).sum()
            errors.append(float(np.sqrt(wrong / added)) if added else 0.0)
            done()
    gain = model.source.rows("final.norm_gain")
    hidden, expected = (rms_norm(rows, config.norm_eps, gain) for rows in (x, expected))
    kl, same = 0.0, 0
    for found, wanted in zip(int8.log_probs(hidden), model.log_probs(expected)):
        found = found[:, : config.vocab_size]
        kl += float((np.exp(wanted) * (wanted - found)).sum(dtype=np.float64))
        same += int((found.argmax(1) == wanted.argmax(1)).sum())
    return Comparison(count, int8.k_clipped, int8.v_clipped, errors, kl / count, same / count)
