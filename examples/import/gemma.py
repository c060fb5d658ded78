"""The configs of Gemma 3 and Gemma 4 as ModelConfig: of config.json (transformers, configuration_gemma3.py and
configuration_gemma4.py, whose defaults Google's files rely on), and Gemma 3's of GGUF's metadata (llama.cpp, which has
what the metadata does not say). Their vision and sound towers are left out."""

import dataclasses
import math
from typing import Any

import rope_fields
from fields import Fields
from model_config import GELU_GATED, Layer, ModelConfig, Rope
from refused import Refused, shown
from unsupported import refuse_model

FAMILIES = {
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "gemma4_unified_text": "gemma4",
}
_GLOBAL_BASE, _LOCAL_BASE = 1e6, 1e4
_EVERY = 6  # five layers with a window, then one without
_WIDTH, _CONTEXT = 1 << 16, 1 << 24
_LAYERS_OF_27B = 62  # whose queries are scaled by d_model / n_heads; GGUF does not say so


def embed_factor(d_model: int) -> float:
    """sqrt(d_model) in bf16, in which the models were trained: embeddings are multiplied by it."""
    fraction, exponent = math.frexp(math.sqrt(d_model))
    return math.ldexp(round(fraction * 256) / 256, exponent)


def _config(family: str, score_scale: float | None, **values: Any) -> ModelConfig:
    """What both families have."""
    return ModelConfig(
        family=family,
        activation=GELU_GATED,
        tied=True,
        head_norms=True,
        norms_after=True,
        embed_factor=embed_factor(values["d_model"]),
        score_scale=None if score_scale == 1 / math.sqrt(values["head_dim"]) else score_scale,
        **values,
    )


# Hugging Face


def _slides(fields: Fields, layers: int) -> list[bool]:
    """Of each layer, whether it has a window."""
    kinds = fields.list("layer_types", layers, str, None)
    if kinds is None:
        every = fields.whole("sliding_window_pattern", 1, 1 << 20, None)
        every = every or fields.whole("_sliding_window_pattern", 1, 1 << 20, _EVERY)
        return [(layer + 1) % every != 0 for layer in range(layers)]
    for kind in kinds:
        if kind not in ("sliding_attention", "full_attention"):
            raise Refused(
                f"{fields.where}: a layer of type {shown(kind)!r}; kaiju has sliding_attention and full_attention"
            )
    return [kind == "sliding_attention" for kind in kinds]


def _ropes(fields: Fields, context: int, share: float) -> tuple[Rope, Rope]:
    """(of layers without a window, of those with one). `share` of the former's pairs turn where nothing is said."""
    given = fields.values.get("rope_parameters")
    if given is None:  # as transformers wrote it before version 5
        scaling = Fields(fields.values.get("rope_scaling") or {}, f"{fields.where}: rope_scaling")
        base = fields.number("rope_theta", 1.01, 1e12, _GLOBAL_BASE)
        local = Rope(fields.number("rope_local_base_freq", 1.01, 1e12, _LOCAL_BASE))
        full = rope_fields.scaled(scaling, base, context)
        return (Rope(base, rotated=share) if full == Rope(base) else full), local
    found = []
    for kind, base in (("full_attention", _GLOBAL_BASE), ("sliding_attention", _LOCAL_BASE)):
        where = f"{fields.where}: rope_parameters"
        rope = Fields(Fields(given, where).values.get(kind), f"{where}.{kind}")
        found.append(rope_fields.scaled(rope, rope.number("rope_theta", 1.01, 1e12, base), context))
    return found[0], found[1]


def _refuse_other_gemma4(fields: Fields) -> None:
    """The models of the family that have more than kaiju computes."""
    if fields.flag("enable_moe_block", False):
        raise refuse_model("gemma4moe", fields.where)


def _layer_inputs(fields: Fields, kind: str, vocab_size: int) -> int:
    """The width of the layers' own embeddings, which E2B and E4B have."""
    width = fields.whole("hidden_size_per_layer_input", 0, _WIDTH, 256) if kind == "gemma4_text" else 0
    tokens = fields.whole("vocab_size_per_layer_input", 1, 1 << 20, 262144)
    if width and tokens != vocab_size:
        raise fields.wrong("vocab_size_per_layer_input", f"the other embedding has {vocab_size} tokens")
    return width


def _of_global_layers(fields: Fields, layer: int, shares_values: bool) -> tuple[int, int | None]:
    """(head_dim, n_kv_heads or None for the model's) of a layer of Gemma 4 without a window."""
    overrides = fields.values.get("per_layer_config")
    if overrides is None:
        heads = fields.whole("num_global_key_value_heads", 1, _WIDTH, None)
        return fields.whole("global_head_dim", 1, _WIDTH, 512), heads if shares_values else None
    where = f"{fields.where}: per_layer_config"
    its = Fields(Fields(overrides, where).values.get(str(layer), {}), f"{where}.{layer}")
    for name in its.values:
        if name not in ("head_dim", "num_key_value_heads"):
            raise its.wrong(name, "kaiju reads head_dim and num_key_value_heads there")
    head_dim = its.whole("head_dim", 1, _WIDTH, fields.whole("head_dim", 1, _WIDTH, 256))
    return head_dim, its.whole("num_key_value_heads", 1, _WIDTH, None)


def _layers(fields: Fields, family: str, head_dim: int, kv_heads: int, context: int) -> tuple[Layer, ...]:
    count = fields.whole("num_hidden_layers", 1, 256, 26 if family == "gemma3" else 30)
    slides = _slides(fields, count)
    if family == "gemma4":
        slides[-1] = False
    window = fields.whole("sliding_window", 1, _CONTEXT, 4096 if family == "gemma3" else 512) if any(slides) else None
    full, local = _ropes(fields, context, 1.0 if family == "gemma3" else 0.25)
    shares_values = family == "gemma4" and fields.flag("attention_k_eq_v", False)
    found = []
    for layer, slide in enumerate(slides):
        if slide:
            found.append(Layer(head_dim, kv_heads, local, window))
        elif family == "gemma3":
            found.append(Layer(head_dim, kv_heads, full))
        else:
            its_dim, its_heads = _of_global_layers(fields, layer, shares_values)
            found.append(Layer(its_dim, its_heads or kv_heads, full, values_from_keys=shares_values))
    return _sharing(fields, found) if family == "gemma4" else tuple(found)


def _sharing(fields: Fields, layers: list[Layer]) -> tuple[Layer, ...]:
    """The last layers read the keys and values of the last layer of their kind before them."""
    own = len(layers) - fields.whole("num_kv_shared_layers", 0, 256, 0)
    if own < 1:
        raise fields.wrong("num_kv_shared_layers", f"kaiju reads models of {len(layers)} layers that share fewer")
    wide = fields.flag("use_double_wide_mlp", False)
    d_ff = 2 * fields.whole("intermediate_size", 1, _WIDTH, 9216) if wide else None
    found = list(layers[:own])
    for number in range(own, len(layers)):
        last = [before for before in range(own) if layers[before].window == layers[number].window]
        if not last:
            raise fields.wrong("num_kv_shared_layers", f"no layer before layer {own} is of the kind of layer {number}")
        found.append(dataclasses.replace(layers[number], kv_of=last[-1], d_ff=d_ff))
    return tuple(found)


def from_huggingface(fields: Fields, name: str) -> ModelConfig:
    """Of the text model's part of config.json; `name` is the model's name if the file has none."""
    kind = fields.text("model_type")
    family = FAMILIES[kind]
    if fields.values.get("use_bidirectional_attention") not in (None, False, "vision"):
        raise fields.wrong("use_bidirectional_attention", "a model that sees what follows cannot write text")
    if fields.text("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh":
        raise fields.wrong("hidden_activation", f"kaiju computes {family} with gelu_pytorch_tanh")
    if fields.number("attn_logit_softcapping", 0, 1e6, 0.0):
        raise fields.wrong("attn_logit_softcapping", "kaiju does not cap attention scores")
    if not fields.flag("tie_word_embeddings", True):
        raise fields.wrong("tie_word_embeddings", f"kaiju reads {family} with the embedding as output matrix")
    if family == "gemma4":
        _refuse_other_gemma4(fields)
    head_dim, kv_heads = fields.whole("head_dim", 1, _WIDTH, 256), fields.whole("num_key_value_heads", 1, _WIDTH, 4)
    context = fields.whole("max_position_embeddings", 1, _CONTEXT, 1 << 18 if "unified" in kind else 1 << 17)
    bias = fields.flag("attention_bias", False)
    query_scalar = fields.number("query_pre_attn_scalar", 1, 1e6, 256.0)
    vocab_size = fields.whole("vocab_size", 1, 1 << 20, 262208 if family == "gemma3" else 262144)
    return _config(
        family,
        1 / math.sqrt(query_scalar) if family == "gemma3" else 1.0,
        name=fields.text("_name_or_path", None) or name,
        vocab_size=vocab_size,
        d_model=fields.whole("hidden_size", 1, _WIDTH, 2304),
        n_heads=fields.whole("num_attention_heads", 1, _WIDTH, 8),
        n_kv_heads=kv_heads,
        head_dim=head_dim,
        d_ff=fields.whole("intermediate_size", 1, _WIDTH, 9216),
        context=context,
        norm_eps=fields.number("rms_norm_eps", 1e-12, 1, 1e-6),
        each=_layers(fields, family, head_dim, kv_heads, context),
        qkv_bias=bias,
        o_bias=bias,
        value_norms=family == "gemma4",
        layer_factors=family == "gemma4",
        logit_cap=fields.number("final_logit_softcapping", 1, 1e6, 0.0),
        layer_inputs=_layer_inputs(fields, kind, vocab_size) if family == "gemma4" else 0,
    )


# GGUF


def _gguf_slides(fields: Fields, layers: int) -> list[bool]:
    pattern = fields.values.get(fields.prefix + "attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return fields.list("attention.sliding_window_pattern", layers, bool)
    every = fields.whole("attention.sliding_window_pattern", 1, 1 << 20, _EVERY)
    return [(layer + 1) % every != 0 for layer in range(layers)]


def from_gguf(fields: Fields, common: dict[str, Any], layers: int, rope: Rope) -> ModelConfig:
    """`common` are values that all families have, `rope` is that of layers without a window."""
    head_dim, kv_heads, d_model = common["head_dim"], common["n_kv_heads"], common["d_model"]
    if fields.number("attn_logit_softcapping", 0, 1e6, 0.0):
        raise fields.wrong("attn_logit_softcapping", "kaiju does not cap attention scores")
    window = fields.whole("attention.sliding_window", 1, _CONTEXT)
    local = Rope(fields.number("rope.freq_base_swa", 1.01, 1e12, _LOCAL_BASE))
    query_scalar = d_model / common["n_heads"] if layers == _LAYERS_OF_27B else head_dim
    return _config(
        "gemma3",
        1 / math.sqrt(query_scalar),
        each=tuple(
            Layer(head_dim, kv_heads, local, window) if slides else Layer(head_dim, kv_heads, rope)
            for slides in _gguf_slides(fields, layers)
        ),
        logit_cap=fields.number("final_logit_softcapping", 1, 1e6, 0.0),
        **common,
    )
