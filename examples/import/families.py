"""The families that kaiju imports: their configs, of Hugging Face's config.json and of GGUF's metadata, as ModelConfig,
and what either calls their tensors."""

import re
from typing import Any

from fields import Fields
from model_config import RELU_SQUARED, SILU_GATED, ModelConfig, Rope
from refused import Refused, shown
from unsupported import refuse_model, refuse_quantised

FAMILIES = ("llama", "smollm3", "mistral", "qwen2", "qwen3", "arcee")
_GGUF_FAMILIES = tuple(family for family in FAMILIES if family != "mistral")  # there Mistral's architecture is llama
# GGUF stores q and k of these for pairs (2i, 2i + 1) of RoPE instead of (i, i + head_dim / 2).
INTERLEAVED_IN_GGUF = ("llama", "smollm3", "arcee")
_WIDTH, _CONTEXT = 1 << 16, 1 << 24
_NO_ROPE_STEP = 4  # SmolLM3: every fourth layer has none; GGUF does not say so

_HF_LAYER = {
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.o": "self_attn.o_proj",
    "attn.norm_gain": "input_layernorm.weight",
    "attn.q_norm_gain": "self_attn.q_norm.weight",
    "attn.k_norm_gain": "self_attn.k_norm.weight",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
    "ffn.norm_gain": "post_attention_layernorm.weight",
}
_HF_MODEL = {
    "embed.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "final.norm_gain": "model.norm.weight",
}
_GGUF_LAYER = {
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.o": "attn_output",
    "attn.norm_gain": "attn_norm.weight",
    "attn.q_norm_gain": "attn_q_norm.weight",
    "attn.k_norm_gain": "attn_k_norm.weight",
    "ffn.gate": "ffn_gate",
    "ffn.up": "ffn_up",
    "ffn.down": "ffn_down",
    "ffn.norm_gain": "ffn_norm.weight",
}
_GGUF_MODEL = {
    "embed.weight": "token_embd.weight",
    "output.weight": "output.weight",
    "final.norm_gain": "output_norm.weight",
}


def _source_name(canonical: str, of_model: dict[str, str], of_layer: dict[str, str], layers: str) -> str:
    if canonical in of_model:
        return of_model[canonical]
    _, layer, rest = canonical.split(".", 2)
    if rest in of_layer:
        return f"{layers}.{layer}.{of_layer[rest]}"
    matrix, part = rest.rsplit(".", 1)
    return f"{layers}.{layer}.{of_layer[matrix]}.{part}"


def huggingface_name(canonical: str) -> str:
    return _source_name(canonical, _HF_MODEL, _HF_LAYER, "model.layers")


def gguf_name(canonical: str) -> str:
    return _source_name(canonical, _GGUF_MODEL, _GGUF_LAYER, "blk")


def _check(config: ModelConfig, where: str) -> ModelConfig:
    """What no single field shows."""
    if config.n_heads % config.n_kv_heads:
        raise Refused(f"{where}: {config.n_heads} heads cannot share {config.n_kv_heads} KV heads")
    if config.head_dim % 2:
        raise Refused(f"{where}: a head_dim of {config.head_dim} has no pairs to rotate")
    if config.q_width > _WIDTH or config.kv_width > _WIDTH:
        raise Refused(f"{where}: {config.n_heads} heads of {config.head_dim} are wider than {_WIDTH}")
    return config


# Hugging Face


def _hf_rope(fields: Fields, context: int, default_base: float) -> Rope:
    given = fields.values.get("rope_parameters") or fields.values.get("rope_scaling") or {}
    rope = Fields(
        given, f"{fields.where}: {'rope_parameters' if 'rope_parameters' in fields.values else 'rope_scaling'}"
    )
    base = rope.number("rope_theta", 1.01, 1e12, None) or fields.number("rope_theta", 1.01, 1e12, default_base)
    kind = rope.text("rope_type", None) or rope.text("type", None) or "default"
    for partial in (rope, fields):
        if partial.number("partial_rotary_factor", 0, 1, 1.0) != 1.0:
            raise partial.wrong("partial_rotary_factor", "kaiju's families rotate whole heads")
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


def _hf_windows(fields: Fields, family: str, layers: int, rotates: tuple[bool, ...]) -> tuple[int | None, ...]:
    window = fields.whole("sliding_window", 1, _CONTEXT, None)
    if family == "mistral":
        return (window,) * layers
    if family not in ("qwen2", "qwen3", "smollm3") or window is None or not fields.flag("use_sliding_window", False):
        return (None,) * layers
    kinds = fields.list("layer_types", layers, str, None)
    if kinds is None:
        first = fields.whole("max_window_layers", 0, 1 << 20, 28)
        sliding = [not turns for turns in rotates] if family == "smollm3" else [i >= first for i in range(layers)]
    else:
        for kind in kinds:
            if kind not in ("sliding_attention", "full_attention"):
                raise Refused(
                    f"{fields.where}: a layer of type {shown(kind)!r}; kaiju has sliding_attention and full_attention"
                )
        sliding = [kind == "sliding_attention" for kind in kinds]
    return tuple(window if slides else None for slides in sliding)


def _hf_rotates(fields: Fields, family: str, layers: int) -> tuple[bool, ...]:
    if family != "smollm3":
        return (True,) * layers
    flags = fields.list("no_rope_layers", layers, int, None)  # despite its name, 1 where there is RoPE
    if flags is None:
        step = fields.whole("no_rope_layer_interval", 1, 1 << 20, _NO_ROPE_STEP)
        return tuple((layer + 1) % step != 0 for layer in range(layers))
    return tuple(flag != 0 for flag in flags)


def _hf_activation(fields: Fields, family: str) -> str:
    wanted, made = ("relu2", RELU_SQUARED) if family == "arcee" else ("silu", SILU_GATED)
    if fields.text("hidden_act", wanted) != wanted:
        raise fields.wrong("hidden_act", f"kaiju computes {family} with {wanted}")
    return made


def from_huggingface(values: Any, where: str, name: str) -> ModelConfig:
    """Of the parsed config.json; `where` is what messages call it, `name` the model's name if the file has none."""
    fields = Fields(values, where)
    kind = fields.text("model_type")
    if kind == "mistral3" and isinstance(values.get("text_config"), dict):  # with an eye; the text model is Mistral
        text = {"tie_word_embeddings": values.get("tie_word_embeddings", False), **values["text_config"]}
        return from_huggingface(text | {"quantization_config": values.get("quantization_config")}, where, name)
    if fields.has("quantization_config"):
        raise refuse_quantised(Fields(values["quantization_config"], where).values.get("quant_method"), where)
    if kind not in FAMILIES:
        raise refuse_model(kind, where)
    for experts in ("num_local_experts", "num_experts", "n_routed_experts"):
        if fields.whole(experts, 0, 1 << 20, 0) > 1:
            raise Refused(
                f"{where}: {experts} says that this is a mixture of experts, which kaiju does not compute; use a "
                "dense model, such as Qwen3-8B"
            )
    layers = fields.whole("num_hidden_layers", 1, 256)
    heads, d_model = fields.whole("num_attention_heads", 1, _WIDTH), fields.whole("hidden_size", 1, _WIDTH)
    context = fields.whole("max_position_embeddings", 1, _CONTEXT)
    head_dim = fields.whole("head_dim", 1, _WIDTH, 128 if kind == "qwen3" else None)
    if head_dim is None:
        if d_model % heads:
            raise Refused(f"{where}: hidden_size {d_model} is no multiple of {heads} heads, and there is no head_dim")
        head_dim = d_model // heads
    attention_bias = fields.flag("attention_bias", False) if kind in ("llama", "smollm3", "qwen3", "arcee") else False
    rotates = _hf_rotates(fields, kind, layers)
    return _check(
        ModelConfig(
            family=kind,
            name=fields.text("_name_or_path", None) or name,
            vocab_size=fields.whole("vocab_size", 1, 1 << 20),
            layers=layers,
            d_model=d_model,
            n_heads=heads,
            n_kv_heads=fields.whole("num_key_value_heads", 1, _WIDTH, heads),
            head_dim=head_dim,
            d_ff=fields.whole("intermediate_size", 1, _WIDTH),
            context=context,
            norm_eps=fields.number("rms_norm_eps", 1e-12, 1, 1e-5 if kind == "arcee" else 1e-6),
            rope=_hf_rope(fields, context, 2e6 if kind == "smollm3" else 1e4),
            rotates=rotates,
            windows=_hf_windows(fields, kind, layers, rotates),
            activation=_hf_activation(fields, kind),
            tied=fields.flag("tie_word_embeddings", kind == "smollm3"),
            qkv_bias=attention_bias or kind == "qwen2",
            o_bias=attention_bias,
            ffn_bias=fields.flag("mlp_bias", False) if kind in ("llama", "smollm3", "arcee") else False,
            head_norms=kind == "qwen3",
        ),
        where,
    )


# GGUF


def _gguf_rope(fields: Fields, factors: tuple[float, ...], context: int) -> Rope:
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


def from_gguf(
    metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]], rope_factors: tuple[float, ...], where: str
) -> ModelConfig:
    """Of the file's metadata, its tensors' names and shapes as numpy has them, and rope_freqs.weight or ()."""
    general = Fields(metadata, where, "general.")
    kind = general.text("architecture")
    if kind not in _GGUF_FAMILIES:
        raise refuse_model(kind, where)
    fields = Fields(metadata, where, kind + ".")
    if fields.whole("expert_count", 0, 1 << 20, 0) > 0:
        raise refuse_model("mixtral" if kind == "llama" else kind + "moe", where)
    if "token_embd.weight" not in shapes or len(shapes["token_embd.weight"]) != 2:
        raise Refused(
            f"{where} lacks the tensor token_embd.weight; a file of metadata, of an adapter or of a draft head "
            "alone cannot be imported"
        )
    layers, d_model = fields.whole("block_count", 1, 256), fields.whole("embedding_length", 1, _WIDTH)
    heads = fields.whole("attention.head_count", 1, _WIDTH)
    head_dim = fields.whole("attention.key_length", 1, _WIDTH, None)
    if head_dim is None:
        if d_model % heads:
            raise Refused(
                f"{where}: embedding_length {d_model} is no multiple of {heads} heads, and there is no key_length"
            )
        head_dim = d_model // heads
    for same in ("attention.value_length", "rope.dimension_count"):
        if fields.whole(same, 0, _WIDTH, head_dim) != head_dim:
            raise fields.wrong(same, f"kaiju's families have the heads' dimension there, {head_dim}")
    vocab_size = fields.whole("vocab_size", 1, 1 << 20, shapes["token_embd.weight"][0])
    context = fields.whole("context_length", 1, _CONTEXT)
    window = fields.whole("attention.sliding_window", 0, _CONTEXT, None) or None
    if window is not None and kind != "llama":
        raise fields.wrong(
            "attention.sliding_window",
            f"{kind} files do not say which layers have it; import the model's Hugging Face folder",
        )
    rotates = tuple(kind != "smollm3" or (layer + 1) % _NO_ROPE_STEP != 0 for layer in range(layers))
    return _check(
        ModelConfig(
            family=kind,
            name=general.text("name", None) or kind,
            vocab_size=vocab_size,
            layers=layers,
            d_model=d_model,
            n_heads=heads,
            n_kv_heads=fields.whole("attention.head_count_kv", 1, _WIDTH, heads),
            head_dim=head_dim,
            d_ff=fields.whole("feed_forward_length", 1, _WIDTH),
            context=context,
            norm_eps=fields.number("attention.layer_norm_rms_epsilon", 1e-12, 1),
            rope=_gguf_rope(fields, rope_factors, context),
            rotates=rotates,
            windows=(window,) * layers,
            activation=RELU_SQUARED if kind == "arcee" else SILU_GATED,
            tied="output.weight" not in shapes,
            qkv_bias="blk.0.attn_q.bias" in shapes,
            o_bias="blk.0.attn_output.bias" in shapes,
            ffn_bias="blk.0.ffn_up.bias" in shapes,
            head_norms=kind == "qwen3",
        ),
        where,
    )


def ignored_in_gguf(name: str) -> bool:
    return name == "rope_freqs.weight" or re.fullmatch(r"blk\.\d+\.attn_rot_embd.*", name) is not None


def ignored_in_huggingface(name: str, tied: bool) -> bool:
    """Tensors that repeat what the config says, or the embedding."""
    return name.endswith("rotary_emb.inv_freq") or (tied and name == "lm_head.weight")
