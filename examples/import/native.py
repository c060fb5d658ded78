"""What a checkpoint of version 2 of the arithmetic holds for a model: its config text and its tensors. Everything that
knows the format's names of fields and tensors is in this file."""

import json
from typing import Any

import numpy as np

from model_config import ModelConfig
from refused import Refused
from rope import attention_factor, score_scale

ARITHMETIC = "2"
_VECTORS = {"attn.norm_gain": "attn.gain", "ffn.norm_gain": "ffn.gain", "attn.q_norm_gain": "attn.q_gain"}
_MOST = {"gain": 1e5, "bias": 1e6}  # what a loader accepts, in magnitude
LEAST_STEP, MOST_STEP = 1e-6, 1e6  # of keys and values
MOST_SCALE = 1e3  # of a matrix

Tensors = dict[str, tuple[str, tuple[int, ...]]]


def hadamard_block(config: ModelConfig) -> int:
    """The largest block that divides every width which is transformed."""
    return 64 if config.head_dim % 64 == 0 else 1  # as is every other width


def check(config: ModelConfig, where: str) -> None:
    """Refuses what no checkpoint can hold."""
    for what, value, rule, holds in (
        ("the model's width", config.d_model, "a multiple of 64", config.d_model % 64 == 0),
        ("the feed-forward width", config.d_ff, "a multiple of 64", config.d_ff % 64 == 0),
        ("the heads' dimension", config.head_dim, "64, 128, 256 or 512", config.head_dim in (64, 128, 256, 512)),
    ):
        if not holds:
            raise Refused(f"{where}: {what} is {value}; a checkpoint needs {rule}")
    if attention_factor(config.rope) != 1 and not all(config.rotates):
        raise Refused(
            f"{where}: yarn's attention factor beside layers without RoPE; a checkpoint has one factor for all"
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
    return padded_vocabulary(config) if canonical in ("embed", "output") else config.matrices()[canonical][0]


def matrix_name(canonical: str) -> str:
    """kv.S.k for layers.S.attn.k: every layer has a KV slot of its own."""
    parts = canonical.split(".")
    return f"kv.{parts[1]}.{parts[3]}" if parts[-1] in ("k", "v") else canonical


def vector_name(canonical: str) -> str:
    """Of a gain or a bias."""
    if canonical == "final.norm_gain":
        return "final.gain"
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
        if name != "embed" and (name == "output" or not config.has_bias(name))
    }


def rope_tables(config: ModelConfig) -> list[bool]:
    """Of each table, whether it rotates, in order of first use; layers without RoPE have one of zeros."""
    return list(dict.fromkeys(config.rotates))


def config_text(config: ModelConfig, name: str, static_kv: bool, extra: dict[str, Any]) -> str:
    """The config as it goes into the header and the root digest. `extra` are fields such as chat."""
    tables = rope_tables(config)
    layers = []
    for layer, window in enumerate(config.windows):
        kind: dict[str, Any] = {"kind": "global"} if window is None else {"kind": "sliding", "window": window}
        layers.append(kind | {"kv_slot": layer, "rope": tables.index(config.rotates[layer])})
    block = hadamard_block(config)
    scaled = attention_factor(config.rope) != 1
    structure = {
        "activations": "token_scales",
        "hadamard": block if block > 1 else 0,
        "ffn": "gated_silu" if config.gated else "squared_relu",
        "residual": "f32",
        "output": "embedding" if config.tied else "own",
        "biases": _biases(config),
        "norms_after": False,
        "norm_gains": True,
        "head_norms": config.head_norms,
        "value_norms": False,
        "static_kv": static_kv,
        "wide_logits": True,
        "logit_cap": 0,
        "score_scale": float(str(np.float32(score_scale(config, 0)))) if scaled else 0,
    }
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
        "layers": layers,
        "structure": structure,
    }
    return json.dumps(fields | extra, ensure_ascii=False)


def scalars(config: ModelConfig) -> list[str]:
    """Virtual scalars, all 1: scales have no common factor here."""
    names = [matrix_name(name) + ".scalar" for name in config.matrices() if name != "embed"]
    return ["embed.in_scalar", *["embed.out_scalar"] * config.tied, *names]


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
        if not canonical.endswith(".weight"):
            found[vector_name(canonical)] = ("F32", shape)
    found |= {name: ("F32", (size,)) for name, size in absent_biases(config).items()}
    found |= {name: ("F32", (1,)) for name in scalars(config)}
    for layer in range(config.layers):
        for which in ("k_step", "v_step"):
            found[f"kv.{layer}.{which}"] = ("F32", (config.kv_width,))
    for table in range(len(rope_tables(config))):
        found[f"rope.{table}"] = ("U64", (config.head_dim // 2,))
    if tokenizer_bytes:
        found["tokenizer"] = ("U8", (tokenizer_bytes,))
    return found
