"""What a checkpoint of version 2 holds for a model: its config text and its tensors. Everything that knows the format's
names of fields and tensors is in this file."""

import json
from typing import Any

from model_config import ModelConfig
from refused import Refused
from rope import attention_factor

VERSION = "2"

Tensors = dict[str, tuple[str, tuple[int, ...]]]


def hadamard_block(config: ModelConfig) -> int:
    """The largest block that divides every width which is transformed."""
    for block in (64, 32, 16):
        if all(width % block == 0 for width in (config.d_model, config.q_width, config.d_ff, config.head_dim)):
            return block
    return 1


def check(config: ModelConfig, where: str) -> None:
    """Refuses what no checkpoint can hold."""
    for what, value, rule, holds in (
            ("the model's width", config.d_model, "a multiple of 64", config.d_model % 64 == 0),
            ("the feed-forward width", config.d_ff, "a multiple of 64", config.d_ff % 64 == 0),
            ("the heads' dimension", config.head_dim, "64, 128 or 256", config.head_dim in (64, 128, 256))):
        if not holds:
            raise Refused(f"{where}: {what} is {value}; a checkpoint needs {rule}")


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
    if canonical.endswith("attn.k_norm_gain"):
        return f"kv.{canonical.split('.')[1]}.k_norm_gain"
    stem, last = canonical.rsplit(".", 1)
    return f"{matrix_name(stem)}.{last}" if last == "bias" else canonical


def rope_tables(config: ModelConfig) -> list[bool]:
    """Of each table, whether it rotates; layers without RoPE have one of zeros."""
    return sorted(set(config.rotates), reverse=True)


def config_text(config: ModelConfig, name: str, extra: dict[str, Any]) -> str:
    """The config as it goes into the header and the root digest. `extra` are fields such as chat."""
    tables = rope_tables(config)
    layers = []
    for layer, window in enumerate(config.windows):
        kind: dict[str, Any] = {"kind": "global"} if window is None else {"kind": "sliding", "window": window}
        layers.append(kind | {"kv_slot": layer, "rope": tables.index(config.rotates[layer])})
    fields = {
        "name": "".join(c for c in name if c.isprintable()).encode()[:128].decode(errors="ignore"),
        "vocab_size": padded_vocabulary(config), "d_model": config.d_model, "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads, "head_dim": config.head_dim, "d_ff": config.d_ff, "context": config.context,
        "norm_eps": config.norm_eps, "hadamard": hadamard_block(config), "activation": config.activation,
        "tied": config.tied, "score_factor": attention_factor(config.rope) ** 2, "layers": layers,
    }
    return json.dumps(fields | extra, ensure_ascii=False)


def scalars(config: ModelConfig) -> list[str]:
    """Virtual scalars, all 1: scales have no common factor here."""
    names = [matrix_name(name) + ".scalar" for name in config.matrices() if name != "embed"]
    return ["embed.in_scalar", "embed.out_scalar", *names]


def tensors(config: ModelConfig, tokenizer_bytes: int) -> Tensors:
    found: Tensors = {}
    for canonical, (_, width) in config.matrices().items():
        name, out = matrix_name(canonical), matrix_rows(canonical, config)
        found |= {name + ".weight": ("I8", (out, width)), name + ".scale": ("F32", (out,)),
                  name + ".row_sum": ("I32", (out,))}
    for canonical, shape in config.tensors().items():
        if not canonical.endswith(".weight"):
            found[vector_name(canonical)] = ("F32", shape)
    found |= {name: ("F32", (1,)) for name in scalars(config)}
    for layer in range(config.layers):
        for which in ("k_step", "v_step"):
            found[f"kv.{layer}.{which}"] = ("F32", (config.n_kv_heads, config.head_dim))
    for table in range(len(rope_tables(config))):
        found[f"rope.{table}"] = ("U64", (config.head_dim // 2,))
    if tokenizer_bytes:
        found["tokenizer"] = ("U8", (tokenizer_bytes,))
    return found
