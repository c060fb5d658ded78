"""RoPE's frequencies, in decimal arithmetic: floating-point powers differ in their last bits between processors, and so
would an imported checkpoint's bytes. Formulas: transformers, modeling_rope_utils.py."""

import decimal
import functools
import math

from model_config import ModelConfig, Rope

_ARITHMETIC = decimal.Context(prec=50, Emin=-10000, Emax=10000)
_PI = decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def _decimal(value: float) -> decimal.Decimal:
    return decimal.Decimal(repr(float(value)))  # the number that the config's author wrote


def _between(low: float, high: float, at: int) -> decimal.Decimal:
    """0 up to `low`, 1 from `high` on, a line between."""
    low_, high_ = decimal.Decimal(low), decimal.Decimal(high)
    if low_ == high_:
        high_ += decimal.Decimal("0.001")
    return min(max((at - low_) / (high_ - low_), decimal.Decimal(0)), decimal.Decimal(1))


def _yarn(rope: Rope, plain: list[decimal.Decimal]) -> list[decimal.Decimal]:
    half = len(plain)

    def channel(turns: float) -> decimal.Decimal:
        """The channel, not always a whole one, that makes `turns` turns within the original context."""
        wanted = decimal.Decimal(rope.original_context) / (_decimal(turns) * 2 * _PI)
        return half * wanted.ln() / _decimal(rope.base).ln()

    low, high = channel(rope.beta_fast), channel(rope.beta_slow)
    if rope.truncate:
        low, high = decimal.Decimal(math.floor(low)), decimal.Decimal(math.ceil(high))
    low, high = max(low, decimal.Decimal(0)), min(high, decimal.Decimal(2 * half - 1))
    factor = _decimal(rope.factor)
    scaled = []
    for i, frequency in enumerate(plain):
        share = _between(low, high, i)  # of the scaled frequency
        scaled.append(frequency / factor * share + frequency * (1 - share))
    return scaled


def _llama3(rope: Rope, plain: list[decimal.Decimal]) -> list[decimal.Decimal]:
    factor, low, high = _decimal(rope.factor), _decimal(rope.low_frequency), _decimal(rope.high_frequency)
    scaled = []
    for frequency in plain:
        turns = rope.original_context * frequency / (2 * _PI)  # within the original context
        share = min(max((turns - low) / (high - low), decimal.Decimal(0)), decimal.Decimal(1))  # of the plain frequency
        scaled.append(frequency / factor * (1 - share) + frequency * share)
    return scaled


@functools.lru_cache(maxsize=8)
def frequencies(rope: Rope, head_dim: int) -> tuple[decimal.Decimal, ...]:
    """Radians per token of each of the head_dim / 2 pairs."""
    with decimal.localcontext(_ARITHMETIC):
        step = -(2 * _decimal(rope.base).ln()) / head_dim
        plain = [(step * i).exp() for i in range(head_dim // 2)]
        if rope.scaling == "linear":
            plain = [frequency / _decimal(rope.factor) for frequency in plain]
        elif rope.scaling == "llama3":
            plain = _llama3(rope, plain)
        elif rope.scaling == "yarn":
            plain = _yarn(rope, plain)
        elif rope.scaling == "factors":
            plain = [frequency / _decimal(factor) for frequency, factor in zip(plain, rope.factors)]
        turning = int(rope.rotated * head_dim // 2)
        plain[turning:] = [decimal.Decimal(0)] * (len(plain) - turning)
        return tuple(plain)


def turns_per_token(rope: Rope, head_dim: int) -> list[int]:
    """The same in units of 2^-64 turns, as a checkpoint stores them; a whole turn is none."""
    with decimal.localcontext(_ARITHMETIC):
        return [
            int((frequency / (2 * _PI) * 2**64).to_integral_value()) % 2**64
            for frequency in frequencies(rope, head_dim)
        ]


def attention_factor(rope: Rope) -> float:
    """What cosine and sine are multiplied by, and so the square root of what scores are."""
    if rope.scaling != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    with decimal.localcontext(_ARITHMETIC):
        factor = _decimal(rope.factor)
        return float(1 + factor.ln() / 10) if factor > 1 else 1.0


def score_scale(config: ModelConfig, layer: int) -> float:
    """What q · k is multiplied by before the softmax."""
    its = config.each[layer]
    scale = 1 / math.sqrt(its.head_dim) if config.score_scale is None else config.score_scale
    return (attention_factor(its.rope) ** 2 if its.rope else 1.0) * scale


def plain_scores(config: ModelConfig) -> bool:
    """Whether that is 1 / sqrt(head_dim) in every layer."""
    return all(score_scale(config, layer) == 1 / math.sqrt(its.head_dim) for layer, its in enumerate(config.each))
