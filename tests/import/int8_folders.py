"""Small models with random int8 weights, in folders as compressed-tensors, Quark and Google (mobile Gemma) write them."""

import dataclasses
import re

import numpy as np

import small_models

COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
            "output_activations": None,
        }
    },
}
QUARK = {
    "quant_method": "quark",
    "global_quant_config": {
        "weight": {"dtype": "int8", "qscheme": "per_channel", "ch_axis": 0, "is_dynamic": False, "symmetric": True},
        "input_tensors": {
            "dtype": "int8",
            "qscheme": "per_channel",
            "ch_axis": 1,
            "is_dynamic": True,
            "symmetric": True,
        },
        "output_tensors": None,
        "bias": None,
    },
    "exclude": ["lm_head"],
    "layer_quant_config": {},
    "layer_type_quant_config": {},
    "kv_cache_quant_config": {},
}
# The first that matches; others have 4 bits.
BITS = {r"self_attn\.v_proj": 8, r"mlp\.(gate|up)_proj": 2, r"embed_tokens": 8, r"lm_head": 8}


def quantised(floats, bits, least=None):
    """int8 from `least` on and float32 [rows, 1]; without it, the lowest value is in some rows."""
    most = 2 ** (bits - 1)
    scale = (np.abs(floats).max(1, keepdims=True) / (most - 0.5)).astype(np.float32)
    least = -most if least is None else max(least, -most)
    return np.clip(np.rint(floats / scale), least, most - 1).astype(np.int8), scale


def packed(integers, bits):
    if bits == 8:
        return integers
    parts = 8 // bits
    padded = np.pad(integers.astype(np.int16), ((0, 0), (0, -integers.shape[1] % parts))) + 2 ** (bits - 1)
    return sum(padded[:, part::parts] << bits * part for part in range(parts)).astype(np.uint8)


def changed(tensors, change):
    for name, value in change.items():
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value
    return tensors


def write_w8a8(folder, family, method, seed, change={}):
    """Returns {name: int8} and {name: scales}, of matrices of layers."""
    config = small_models.config_of(family)
    tensors, integers, scales = {}, {}, {}
    for name, array in small_models.weights_of(config, seed).items():
        stem = name.removesuffix(".weight")
        if not stem.endswith("_proj"):
            tensors[name] = array
            continue
        integers[stem], scales[stem] = quantised(array, 8)
        tensors[name] = integers[stem]
        tensors[stem + ".weight_scale"] = scales[stem] if method != "quark" else scales[stem].reshape(-1)
        if method == "quark":
            tensors[stem + ".weight_zero_point"] = np.zeros(len(array), np.int8)
    given = COMPRESSED if method == "compressed-tensors" else QUARK
    small_models.write_folder(folder, config | {"quantization_config": given}, changed(tensors, change))
    return integers, scales


@dataclasses.dataclass
class Gemma:
    config: dict
    integers: dict = dataclasses.field(default_factory=dict)
    scales: dict = dataclasses.field(default_factory=dict)
    inputs: dict = dataclasses.field(default_factory=dict)
    outputs: dict = dataclasses.field(default_factory=dict)
    caches: dict = dataclasses.field(default_factory=dict)


def bits_of(stem):
    return next((bits for pattern, bits in BITS.items() if re.search(pattern, stem)), 4)


def write_gemma(folder, case, seed, cache, change={}, scales_by_layer=False):
    """As GemmaQuantizer reads it: matrices of 2, 4 and 8 bits, constant scales of inputs and outputs."""
    base = small_models.config_of(case)
    given = {
        "quant_method": "gemma",
        "num_bits": 4,
        "quantize_embeddings": True,
        "modules_to_not_convert": ["vision_tower"],
        "module_quant_configs": {pattern: {"num_bits": bits} for pattern, bits in BITS.items()},
    }
    made, tensors = Gemma(base | {"quantization_config": given, "tie_word_embeddings": False}), {}
    random = np.random.RandomState(seed + 100)
    weights = small_models.weights_of(base, seed)
    weights["lm_head.weight"] = (random.standard_normal(weights["model.embed_tokens.weight"].shape) * 0.1).astype("f4")
    sites = {}
    for name, array in weights.items():
        stem = name.removesuffix(".weight")
        if array.ndim != 2:
            tensors[name] = array
            continue
        bits = bits_of(stem)
        made.integers[stem], made.scales[stem] = quantised(array, bits, -127)
        if stem == "model.embed_tokens_per_layer":
            groups = base["num_hidden_layers"] if scales_by_layer else 1
            integers, scales = quantised(array.reshape(len(array) * groups, -1), bits, -127)
            made.integers[stem], made.scales[stem] = integers.reshape(array.shape), scales.reshape(len(array), groups)
        if stem.startswith("model.embed_tokens"):
            tensors[stem + ".embedding_quantized"] = packed(made.integers[stem], bits)
            tensors[stem + ".embedding_scale"] = made.scales[stem]
            continue
        tensors[name], tensors[stem + ".weight_scale"] = packed(made.integers[stem], bits), made.scales[stem]
        quiet = stem == "lm_head"
        site = stem.replace("k_proj", "q_proj").replace("v_proj", "q_proj").replace("gate_proj", "up_proj")
        step = np.float32(random.uniform(0.03, 0.06))
        made.inputs[stem] = 0.0 if quiet else float(sites.setdefault(site, step))
        made.outputs[stem] = 0.0 if quiet else float(np.float32(random.uniform(0.02, 0.08)))
        for which, step in (("input", made.inputs[stem]), ("output", made.outputs[stem])):
            tensors[f"{stem}.{which}_activation_scale"] = np.array(step, np.float32)
    own = base["num_hidden_layers"] - base.get("num_kv_shared_layers", 0)
    for layer in range(own if cache else 0):
        made.caches[layer] = tuple(float(np.float32(random.uniform(0.02, 0.04))) for _ in "kv")
        for which, step in zip("kv", made.caches[layer]):
            tensors[f"model.layers.{layer}.self_attn.{which}_cache_scale"] = np.array(step, np.float32)
    small_models.write_folder(folder, made.config, changed(tensors, change))
    return made
