"""What a checkpoint of version 2 of the arithmetic holds for a model: its config text and its tensors. Everything that
knows the format's names of fields and tensors is in this file."""

import json
from typing import Any

import numpy as np

from model_config import FLOATS, GELU_GATED, RELU_SQUARED, SILU_GATED, STATIC_INT8, ModelConfig, Rope
from refused import Refused
from rope import plain_scores, score_scale

ARITHMETIC = "2"
_VECTORS = {
    "attn.norm_gain": "attn.gain",
    "attn.post_norm_gain": "attn.post_gain",
    "ffn.norm_gain": "ffn.gain",
    "ffn.post_norm_gain": "ffn.post_gain",
    "attn.q_norm_gain": "attn.q_gain",
    "inputs.post_norm_gain": "inputs.post_gain",
}
_FFN = {SILU_GATED: "gated_silu", GELU_GATED: "gated_gelu", RELU_SQUARED: "squared_relu"}
_MOST = {"gain": 1e5, "bias": 1e6}  # what a loader accepts, in magnitude
LEAST_STEP, MOST_STEP = 1e-6, 1e6  # of keys and values
MOST_SCALE = 1e3  # of a matrix
LEAST_FACTOR, MOST_FACTOR, MOST_FACTORS = 1e-6, 1e3, 1e4  # of layers; of all that are above 1, multiplied

Tensors = dict[str, tuple[str, tuple[int, ...]]]


def hadamard_block(config: ModelConfig) -> int:
    """The largest block that divides every width which is transformed."""
    if config.stored != FLOATS:  # whose bytes were made for inputs as they are
        return 1
    return 64 if all(layer.head_dim % 64 == 0 for layer in config.each) else 1  # as is every other width


def check(config: ModelConfig, where: str) -> None:
    """Refuses what no checkpoint can hold."""
    head_dims = {layer.head_dim for layer in config.each} | {config.head_dim}
    for what, values, rule, holds in (
        ("the model's width", {config.d_model}, "a multiple of 64", lambda width: width % 64 == 0),
        (
            "the feed-forward width",
            {config.ffn_width(layer) for layer in range(config.layers)},
            "a multiple of 64",
            lambda width: width % 64 == 0,
        ),
        ("the width of layers' inputs", {config.layer_inputs}, "a multiple of 64 up to 4096", lambda width: width % 64 == 0 and width <= 4096),
        ("the heads' dimension", head_dims, "64, 128, 256 or 512", lambda size: size in (64, 128, 256, 512)),
    ):
        for value in values:
            if not holds(value):
                raise Refused(f"{where}: {what} is {value}; a checkpoint needs {rule}")
    if not plain_scores(config) and len({score_scale(config, layer) for layer in range(config.layers)}) > 1:
        raise Refused(
            f"{where}: yarn's attention factor beside layers without RoPE; a checkpoint has one factor for all"
        )
    check_factors(config, where)


def check_factors(config: ModelConfig, where: str) -> None:
    """Factors of layers that a loader accepts."""
    product = 1.0
    for number, layer in enumerate(config.each):
        product *= max(abs(layer.factor), 1.0)
        if not LEAST_FACTOR <= abs(layer.factor) <= MOST_FACTOR or product > MOST_FACTORS:
            raise Refused(
                f"{where}: layer {number} multiplies the residual by {layer.factor:g}; a checkpoint holds factors from "
                f"{LEAST_FACTOR:g} to {MOST_FACTOR:g}, whose product above 1 is at most {MOST_FACTORS:g}"
            )


def check_vector(name: str, values: np.ndarray) -> np.ndarray:
    """A gain or a bias that a loader accepts."""
    most = _MOST["bias" if name.endswith(".bias") else "gain"]
    if not (np.abs(values) <= most).all():
        raise Refused(
            f"{name} has the value {float(values[np.abs(values).argmax()]):g}; a checkpoint holds at most {most:g}"
        )
    return values


def padded_vocabulary(config: ModelConfig) -> int:
    """Rows of the embedding: a multiple of 16. Those added are zeros, and their logits 0."""
    return -(-config.vocab_size // 16) * 16


def matrix_rows(canonical: str, config: ModelConfig) -> int:
    if canonical == "inputs.embed":
        return padded_vocabulary(config) * config.layers
    return padded_vocabulary(config) if canonical in ("embed", "output") else config.matrices()[canonical][0]


def matrix_name(canonical: str) -> str:
    """kv.S.k for layers.S.attn.k: the first layers have KV slots of their own, and the others read those."""
    parts = canonical.split(".")
    return f"kv.{parts[1]}.{parts[3]}" if parts[-1] in ("k", "v") else canonical


def site_name(matrix: str) -> str:
    """What the constant step of the matrix's input is called, with static_scales."""
    sublayer, which = matrix.rsplit(".", 1)
    return sublayer + {"o": ".out_step", "down": ".mid_step", "out": ".mid_step"}.get(which, ".in_step")


def is_static(matrix: str) -> bool:
    """Whether its input and output have constant steps, with static_scales."""
    return matrix.startswith(("layers.", "inputs.projection"))


def static_steps(config: ModelConfig) -> set[str]:
    """Tensors that a checkpoint with static_scales has besides: of a layer's sites, and of its matrices' outputs."""
    if config.stored != STATIC_INT8:
        return set()
    matrices = [name for name in config.matrices() if is_static(name)]
    return {name for matrix in matrices for name in (site_name(matrix), matrix_name(matrix) + ".out_step")}


def is_vector(canonical: str) -> bool:
    """Whether it is a tensor that a checkpoint holds as it is: a gain or a bias."""
    return not canonical.endswith((".weight", ".factor"))


def vector_name(canonical: str) -> str:
    """Of a gain or a bias."""
    if canonical in ("final.norm_gain", "inputs.norm_gain"):
        return canonical.replace("norm_gain", "gain")
    if canonical.endswith(".bias"):
        return matrix_name(canonical.removesuffix(".bias")) + ".bias"
    _, layer, rest = canonical.split(".", 2)
    return f"kv.{layer}.k_gain" if rest == "attn.k_norm_gain" else f"layers.{layer}.{_VECTORS[rest]}"


def _biases(config: ModelConfig) -> str:
    return "all" if config.o_bias or config.ffn_bias else "qkv" if config.qkv_bias else "none"


def absent_biases(config: ModelConfig) -> dict[str, int]:
    """Biases that the checkpoint has and the model does not, for a checkpoint has none, those of q, k and v, or all."""
    if _biases(config) != "all":
        return {}
    return {
        matrix_name(name) + ".bias": matrix_rows(name, config)
        for name in config.matrices()
        if name not in ("embed", "inputs.embed") and (name == "output" or not config.has_bias(name))
    }


def rope_tables(config: ModelConfig) -> list[tuple[Rope | None, int]]:
    """(RoPE, head_dim) of each table, in order of first use. Layers without RoPE have a table of zeros."""
    return list(dict.fromkeys((layer.rope, layer.head_dim) for layer in config.each))


def _layer_fields(config: ModelConfig) -> list[dict[str, Any]]:
    tables, found = rope_tables(config), []
    for number, layer in enumerate(config.each):
        fields: dict[str, Any] = {"kind": "global"} if layer.window is None else {"kind": "sliding"}
        if layer.window is not None:
            fields["window"] = layer.window
        fields |= {"kv_slot": config.slot(number), "rope": tables.index((layer.rope, layer.head_dim))}
        if layer.head_dim != config.head_dim:
            fields["head_dim"] = layer.head_dim
        if layer.n_kv_heads != config.n_kv_heads:
            fields["n_kv_heads"] = layer.n_kv_heads
        if config.ffn_width(number) != config.d_ff:
            fields["d_ff"] = config.ffn_width(number)
        if layer.values_from_keys:
            fields["values_from_keys"] = True
        if layer.factor != 1:
            fields["factor"] = layer.factor
        found.append(fields)
    return found


def config_text(config: ModelConfig, name: str, static_kv: bool, extra: dict[str, Any]) -> str:
    """The config as it goes into the header and the root digest. `extra` are fields such as chat."""
    block = hadamard_block(config)
    structure = {
        "activations": "static_scales" if config.stored == STATIC_INT8 else "token_scales",
        "hadamard": block if block > 1 else 0,
        "ffn": _FFN[config.activation],
        "residual": "f32",
        "output": "embedding" if config.tied else "own",
        "biases": _biases(config),
        "norms_after": config.norms_after,
        "norm_gains": True,
        "head_norms": config.head_norms,
        "value_norms": config.value_norms,
        "static_kv": static_kv,
        "wide_logits": True,
        "logit_cap": config.logit_cap or 0,
        "score_scale": 0 if plain_scores(config) else float(str(np.float32(score_scale(config, 0)))),
    }
    if config.layer_inputs:
        structure["layer_inputs"] = config.layer_inputs
    if config.stored == STATIC_INT8:
        structure["f32_rows"] = True
    fields = {
        "name": "".join(c for c in name if c.isprintable()).encode()[:128].decode(errors="ignore"),
        "vocab_size": padded_vocabulary(config),
        "d_model": config.d_model,
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "d_ff": config.d_ff,
        "context": config.context,
        "norm_eps": config.norm_eps,
        "layers": _layer_fields(config),
        "structure": structure,
    }
    return json.dumps(fields | extra, ensure_ascii=False)


def scalars(config: ModelConfig) -> dict[str, float]:
    """Virtual scalars, 1 but for the factor of embeddings: scales have no common factor here."""
    names = [matrix_name(name) + ".scalar" for name in config.matrices() if name != "embed"]
    return {"embed.in_scalar": config.embed_factor} | dict.fromkeys(["embed.out_scalar"] * config.tied + names, 1.0)


def tensors(config: ModelConfig, tokenizer_bytes: int) -> Tensors:
    found: Tensors = {}
    for canonical, (_, width) in config.matrices().items():
        name, out = matrix_name(canonical), matrix_rows(canonical, config)
        found |= {
            name + ".weight": ("I8", (out, width)),
            name + ".scale": ("F32", (out,)),
            name + ".row_sum": ("I32", (out,)),
        }
    for canonical, shape in config.tensors().items():
        if is_vector(canonical):
            found[vector_name(canonical)] = ("F32", shape)
    found |= {name: ("F32", (size,)) for name, size in absent_biases(config).items()}
    found |= {name: ("F32", (1,)) for name in [*scalars(config), *sorted(static_steps(config))]}
    for layer in config.own_kv:
        for which in ("k_step", "v_step"):
            found[f"kv.{layer}.{which}"] = ("F32", (config.kv_width(layer),))
    for table, (_, head_dim) in enumerate(rope_tables(config)):
        found[f"rope.{table}"] = ("U64", (head_dim // 2,))
    if tokenizer_bytes:
        found["tokenizer"] = ("U8", (tokenizer_bytes,))
    return found
