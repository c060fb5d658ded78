"""How far a checkpoint is from its float model on a short text: each layer alone, and the whole."""

import dataclasses
from collections.abc import Callable

import numpy as np

from float_model import FloatModel, rms_norm
from int8_model import Int8Model


@dataclasses.dataclass
class Comparison:
    tokens: int
    layer_errors: list[float]  # of what a layer adds to the float model's residual, relative RMS
    kl: float  # mean, in nats
    same_top: float  # share of tokens whose likeliest successor is the same


def compare(model: FloatModel, path: str, residuals: list[np.ndarray], ids: np.ndarray, done: Callable[[], None]) -> Comparison:
    """`residuals` are the float model's before each layer and behind the last, for the token ids `ids`."""
    config, count, errors = model.config, len(ids), []
    int8 = Int8Model(path, config)
    x = int8.embed(ids)
    with np.errstate(over="ignore", invalid="ignore"):
        for layer in range(config.layers):
            both = np.concatenate([residuals[layer], x])  # the layer alone; all layers so far
            both = int8.layer(layer, both, [count, count], lambda layer, what, values: None)
            added = residuals[layer + 1] - residuals[layer]
            errors.append(float(np.sqrt(np.square(both[:count] - residuals[layer + 1]).sum() / np.square(added).sum())))
            x = both[count:]
            done()
    gain = model.source.rows("final.norm_gain")
    hidden, expected = (rms_norm(rows, config.norm_eps, gain) for rows in (x, residuals[-1]))
    kl, same = 0.0, 0
    for found, wanted in zip(int8.log_probs(hidden), model.log_probs(expected)):
        found = found[:, :config.vocab_size]
        kl += float((np.exp(wanted) * (wanted - found)).sum(dtype=np.float64))
        same += int((found.argmax(1) == wanted.argmax(1)).sum())
    return Comparison(count, errors, kl / count, same / count)
