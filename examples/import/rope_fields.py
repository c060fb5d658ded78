"""RoPE of config.json and of GGUF's metadata."""

from fields import Fields
from model_config import Rope
from refused import Refused, shown

_CONTEXT = 1 << 24


def from_huggingface(fields: Fields, context: int, default_base: float) -> Rope:
    name = "rope_parameters" if "rope_parameters" in fields.values else "rope_scaling"
    given = fields.values.get("rope_parameters") or fields.values.get("rope_scaling") or {}
    rope = Fields(given, f"{fields.where}: {name}")
    for partial in (rope, fields):
        if partial.number("partial_rotary_factor", 0, 1, 1.0) != 1.0:
            raise partial.wrong("partial_rotary_factor", "kaiju's families rotate whole heads")
    base = rope.number("rope_theta", 1.01, 1e12, None) or fields.number("rope_theta", 1.01, 1e12, default_base)
    return scaled(rope, base, context)


def scaled(rope: Fields, base: float, context: int) -> Rope:
    """Of rope_parameters or rope_scaling."""
    kind = rope.text("rope_type", None) or rope.text("type", None) or "default"
    share = rope.number("partial_rotary_factor", 0, 1, 1.0)
    if kind == "proportional":
        factor = rope.number("factor", 1, 1e6, 1.0)
        return Rope(base, "linear" if factor != 1 else "none", factor, rotated=share)
    if share != 1:
        raise rope.wrong("partial_rotary_factor", "kaiju rotates parts of heads with proportional RoPE alone")
    if kind == "default":
        return Rope(base)
    if kind == "dynamic":
        raise Refused(
            f"{rope.where}: dynamic NTK scaling changes frequencies with the length of the text, so that cached "
            "keys become wrong; use a model with yarn, linear or llama3 scaling, or remove it to stay within "
            "the original context"
        )
    if kind == "longrope":
        raise Refused(
            f"{rope.where}: longrope changes frequencies with the length of the text, so that cached keys "
            "become wrong; use a model with yarn, linear or llama3 scaling"
        )
    if kind not in ("linear", "llama3", "yarn"):
        raise Refused(
            f"{rope.where}: the RoPE scaling {shown(kind)!r} is not supported; kaiju has linear, llama3 and yarn"
        )
    factor = rope.number("factor", 1, 1e6)
    if kind == "linear":
        return Rope(base, kind, factor)
    original = rope.whole("original_max_position_embeddings", 1, _CONTEXT, context)
    if kind == "llama3":
        low, high = rope.number("low_freq_factor", 1e-6, 1e6), rope.number("high_freq_factor", 1e-6, 1e6)
        if low >= high:
            raise rope.wrong("low_freq_factor", "it must be less than high_freq_factor")
        return Rope(base, kind, factor, original, low, high)
    attention = rope.number("attention_factor", 1e-3, 1e3, None)
    mscale, all_dim = rope.number("mscale", 0, 1e3, 0.0), rope.number("mscale_all_dim", 0, 1e3, 0.0)
    if attention is None and mscale and all_dim and mscale != all_dim:
        raise rope.wrong("mscale", "kaiju reads yarn with mscale and mscale_all_dim equal, or with attention_factor")
    if attention is None and mscale and all_dim:
        attention = 1.0
    return Rope(
        base,
        kind,
        factor,
        original,
        beta_fast=rope.number("beta_fast", 1e-6, 1e6, 32.0),
        beta_slow=rope.number("beta_slow", 1e-6, 1e6, 1.0),
        truncate=rope.flag("truncate", True),
        attention_factor=attention,
    )


def from_gguf(fields: Fields, factors: tuple[float, ...], context: int) -> Rope:
    base = fields.number("rope.freq_base", 1.01, 1e12, 1e4)
    kind = fields.text("rope.scaling.type", "none")
    if factors:
        if kind not in ("none", "linear") or fields.number("rope.scaling.factor", 0, 1e6, 1.0) not in (0.0, 1.0):
            raise fields.wrong("rope.scaling.type", "kaiju does not combine it with the tensor rope_freqs.weight")
        return Rope(base, "factors", factors=factors)
    if kind == "none":
        return Rope(base)
    factor = fields.number("rope.scaling.factor", 0, 1e6, 1.0) or 1.0
    if kind == "linear":
        return Rope(base, kind, factor) if factor != 1 else Rope(base)
    if kind != "yarn":
        raise fields.wrong("rope.scaling.type", "kaiju has linear and yarn")
    multiplier = fields.number("rope.scaling.attn_factor", 1e-3, 1e3, 1.0)
    if multiplier != 1 or fields.has("rope.scaling.yarn_log_multiplier"):
        raise fields.wrong("rope.scaling.attn_factor", "kaiju reads yarn without multipliers of attention")
    return Rope(
        base,
        kind,
        factor,
        fields.whole("rope.scaling.original_context_length", 1, _CONTEXT, context),
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 1e-6, 1e6, 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1e-6, 1e6, 1.0),
    )
