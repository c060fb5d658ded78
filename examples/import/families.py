"""The families that kaiju imports: their configs, of Hugging Face's config.json and of GGUF's metadata, as ModelConfig,
and what either calls their tensors."""

import dataclasses
import re
from typing import Any

import gemma
import quantised
import rope_fields
from fields import Fields
from model_config import RELU_SQUARED, SILU_GATED, STATIC_INT8, Layer, ModelConfig
from refused import Refused, shown
from unsupported import refuse_model

FAMILIES = ("llama", "smollm3", "mistral", "qwen2", "qwen3", "arcee")
# There Mistral's architecture is llama.
_GGUF_FAMILIES = (*(family for family in FAMILIES if family != "mistral"), "gemma3")
# Models of several parts, of which the text model is imported, and whether its embedding is tied where nothing is said.
_WITH_TEXT_CONFIG = {"mistral3": False, "gemma3": True, "gemma4": True, "gemma4_unified": True}
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
_HF_GEMMA_LAYER = _HF_LAYER | {
    "attn.post_norm_gain": "post_attention_layernorm.weight",
    "ffn.norm_gain": "pre_feedforward_layernorm.weight",
    "ffn.post_norm_gain": "post_feedforward_layernorm.weight",
    "factor": "layer_scalar",
    "inputs.gate": "per_layer_input_gate",
    "inputs.out": "per_layer_projection",
    "inputs.post_norm_gain": "post_per_layer_input_norm.weight",
}
_HF_MODEL = {
    "embed.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "final.norm_gain": "model.norm.weight",
    "inputs.embed.weight": "model.embed_tokens_per_layer.weight",
    "inputs.projection.weight": "model.per_layer_model_projection.weight",
    "inputs.norm_gain": "model.per_layer_projection_norm.weight",
}
_GGUF_LAYER = {
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.o": "attn_output",
    "attn.norm_gain": "attn_norm.weight",
    "attn.post_norm_gain": "post_attention_norm.weight",
    "attn.q_norm_gain": "attn_q_norm.weight",
    "attn.k_norm_gain": "attn_k_norm.weight",
    "ffn.gate": "ffn_gate",
    "ffn.up": "ffn_up",
    "ffn.down": "ffn_down",
    "ffn.norm_gain": "ffn_norm.weight",
    "ffn.post_norm_gain": "post_ffw_norm.weight",
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


def huggingface_name(canonical: str, family: str) -> str:
    of_layer = _HF_GEMMA_LAYER if family in ("gemma3", "gemma4") else _HF_LAYER
    return _source_name(canonical, _HF_MODEL, of_layer, "model.layers")


def gain_offset(family: str) -> float:
    """What is added to the gains of norms in Hugging Face's files. GGUF's have it already."""
    return 1.0 if family == "gemma3" else 0.0


def weight_factor(matrix: str, config: ModelConfig) -> float:
    """What the matrix of Hugging Face's files is multiplied by, which the model does to what comes of it."""
    if matrix == "inputs.embed":
        return gemma.embed_factor(config.layer_inputs)
    return config.d_model**-0.5 if matrix == "inputs.projection" else 1.0


def gguf_name(canonical: str) -> str:
    return _source_name(canonical, _GGUF_MODEL, _GGUF_LAYER, "blk")


def _check(config: ModelConfig, where: str) -> ModelConfig:
    """What no single field shows."""
    for head_dim, kv_heads in {(layer.head_dim, layer.n_kv_heads) for layer in config.each}:
        if config.n_heads % kv_heads:
            raise Refused(f"{where}: {config.n_heads} heads cannot share {kv_heads} KV heads")
        if head_dim % 2:
            raise Refused(f"{where}: a head_dim of {head_dim} has no pairs to rotate")
        if config.n_heads * head_dim > _WIDTH:
            raise Refused(f"{where}: {config.n_heads} heads of {head_dim} are wider than {_WIDTH}")
    return config


# Hugging Face


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


def is_quantised(values: Any) -> bool:
    """Whether config.json says that matrices are quantised already."""
    return isinstance(values, dict) and isinstance(values.get("quantization_config"), dict)


def from_huggingface(values: Any, where: str, name: str) -> ModelConfig:
    """Of the parsed config.json; `where` is what messages call it, `name` the model's name if the file has none."""
    fields = Fields(values, where)
    kind = fields.text("model_type")
    if kind in _WITH_TEXT_CONFIG and isinstance(values.get("text_config"), dict):
        tied = values.get("tie_word_embeddings", _WITH_TEXT_CONFIG[kind])
        text = {"model_type": kind + "_text", "tie_word_embeddings": tied, **values["text_config"]}
        return from_huggingface(text | {"quantization_config": values.get("quantization_config")}, where, name)
    if fields.has("quantization_config"):
        stored = quantised.stored_as(Fields(values["quantization_config"], f"{where}: quantization_config"), kind)
        plain = {key: item for key, item in values.items() if key != "quantization_config"}
        if stored == STATIC_INT8:  # where the output may have a matrix of its own
            tied = fields.flag("tie_word_embeddings", True)
            config = from_huggingface(plain | {"tie_word_embeddings": True}, where, name)
            return dataclasses.replace(config, stored=stored, tied=tied)
        return dataclasses.replace(from_huggingface(plain, where, name), stored=stored)
    if kind in gemma.FAMILIES:
        return _check(gemma.from_huggingface(fields, name), where)
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
    kv_heads = fields.whole("num_key_value_heads", 1, _WIDTH, heads)
    rope = rope_fields.from_huggingface(fields, context, 2e6 if kind == "smollm3" else 1e4)
    rotates = _hf_rotates(fields, kind, layers)
    windows = _hf_windows(fields, kind, layers, rotates)
    return _check(
        ModelConfig(
            family=kind,
            name=fields.text("_name_or_path", None) or name,
            vocab_size=fields.whole("vocab_size", 1, 1 << 20),
            d_model=d_model,
            n_heads=heads,
            n_kv_heads=kv_heads,
            head_dim=head_dim,
            d_ff=fields.whole("intermediate_size", 1, _WIDTH),
            context=context,
            norm_eps=fields.number("rms_norm_eps", 1e-12, 1, 1e-5 if kind == "arcee" else 1e-6),
            each=tuple(
                Layer(head_dim, kv_heads, rope if turns else None, window) for turns, window in zip(rotates, windows)
            ),
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
    common = {
        "name": general.text("name", None) or kind,
        "vocab_size": vocab_size,
        "d_model": d_model,
        "n_heads": heads,
        "n_kv_heads": fields.whole("attention.head_count_kv", 1, _WIDTH, heads),
        "head_dim": head_dim,
        "d_ff": fields.whole("feed_forward_length", 1, _WIDTH),
        "context": context,
        "norm_eps": fields.number("attention.layer_norm_rms_epsilon", 1e-12, 1),
        "qkv_bias": "blk.0.attn_q.bias" in shapes,
        "o_bias": "blk.0.attn_output.bias" in shapes,
        "ffn_bias": "blk.0.ffn_up.bias" in shapes,
    }
    rope = rope_fields.from_gguf(fields, rope_factors, context)
    if kind == "gemma3":
        return _check(gemma.from_gguf(fields, common, layers, rope), where)
    window = fields.whole("attention.sliding_window", 0, _CONTEXT, None) or None
    if window is not None and kind != "llama":
        raise fields.wrong(
            "attention.sliding_window",
            f"{kind} files do not say which layers have it; import the model's Hugging Face folder",
        )
    rotates = [kind != "smollm3" or (layer + 1) % _NO_ROPE_STEP != 0 for layer in range(layers)]
    return _check(
        ModelConfig(
            family=kind,
            each=tuple(Layer(head_dim, common["n_kv_heads"], rope if turns else None, window) for turns in rotates),
            activation=RELU_SQUARED if kind == "arcee" else SILU_GATED,
            tied="output.weight" not in shapes,
            head_norms=kind == "qwen3",
            **common,
        ),
        where,
    )


def ignored_in_gguf(name: str) -> bool:
    return name == "rope_freqs.weight" or re.fullmatch(r"blk\.\d+\.attn_rot_embd.*", name) is not None


_KV = re.compile(r".*\blayers\.(\d+)\.self_attn\.[kv]_(proj|norm)\..*")


def ignored_in_huggingface(name: str, config: ModelConfig) -> bool:
    """Tensors that repeat what the config says, or the embedding, or that nothing reads: of layers with other layers' KV."""
    kv = _KV.fullmatch(name)
    if kv and int(kv[1]) < config.layers and config.each[int(kv[1])].kv_of is not None:
        return True
    return name.endswith("rotary_emb.inv_freq") or (config.tied and name == "lm_head.weight")
