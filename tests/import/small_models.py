"""Small models with random weights, of every family that examples/import reads, and writers of the files that such
models come in. Everything is made with the standard library and numpy."""

import json
import math
import os
import struct

import numpy as np

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
COMMON = {
    "vocab_size": 320,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GEMMA = {
    "hidden_size": 256,
    "rms_norm_eps": 1e-6,
    "num_hidden_layers": 4,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 64,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 24,
}
GEMMA_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
}
GEMMA4 = GEMMA | {
    "head_dim": 128,
    "global_head_dim": 256,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 30.0,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    },
}
GEMMA4_SHARED = GEMMA4 | {
    "attention_k_eq_v": False,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
}
# name: (config.json, whether GGUF can hold it)
CASES = {
    "llama": ({"model_type": "llama"}, True),
    "llama 3.1": ({"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA3}, True),
    "llama biased, tied": (
        {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        True,
    ),
    "llama linear": ({"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 3.0}}, True),
    "smollm3": ({"model_type": "smollm3", "rope_theta": 2e6}, True),
    "smollm3 windows": (
        {"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 24, "no_rope_layers": [1, 0, 0, 1]},
        False,
    ),
    "mistral": ({"model_type": "mistral", "sliding_window": None, "rope_theta": 1e6}, True),
    "mistral windows": ({"model_type": "mistral", "sliding_window": 20}, True),
    "qwen2": ({"model_type": "qwen2", "rope_theta": 1e6}, True),
    "qwen2 yarn": ({"model_type": "qwen2", "rope_theta": 1e6, "rope_scaling": YARN}, True),
    "qwen2 windows": (
        {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
        False,
    ),
    "qwen3": ({"model_type": "qwen3", "tie_word_embeddings": True}, True),
    "arcee": ({"model_type": "arcee", "hidden_act": "relu2", "rope_scaling": {**YARN, "factor": 20.0}}, True),
    "arcee yarn": (
        {
            "model_type": "arcee",
            "hidden_act": "relu2",
            "rope_scaling": {**YARN, "factor": 20.0, "beta_fast": 16.0, "truncate": False},
        },
        False,
    ),
    "gemma3": (
        {
            "model_type": "gemma3_text",
            **GEMMA,
            "num_hidden_layers": 7,
            "layer_types": None,
            "sliding_window_pattern": 6,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        True,
    ),
    "gemma3 own scale": (
        {"model_type": "gemma3_text", **GEMMA, "query_pre_attn_scalar": 96, "rope_parameters": GEMMA_ROPES},
        False,
    ),
    "gemma4": ({"model_type": "gemma4_text", **GEMMA4}, False),
    "gemma4 unified": (
        {
            "model_type": "gemma4_unified_text",
            **GEMMA4,
            "attention_k_eq_v": False,
            "use_bidirectional_attention": "vision",
        },
        False,
    ),
    "gemma4 shared": ({"model_type": "gemma4_text", **GEMMA4_SHARED}, False),
    # As E2B: one KV head, heads of 256 and 512, an embedding for each layer.
    "gemma4 inputs": (
        {
            "model_type": "gemma4_text",
            **GEMMA4_SHARED,
            "num_key_value_heads": 1,
            "num_global_key_value_heads": None,
            "head_dim": 256,
            "global_head_dim": 512,
            "hidden_size_per_layer_input": 64,
            "vocab_size_per_layer_input": 320,
        },
        False,
    ),
    # As E4B: two KV heads, four windows before a layer that sees all, a wider embedding.
    "gemma4 wide inputs": (
        {
            "model_type": "gemma4_text",
            **GEMMA4_SHARED,
            "num_hidden_layers": 7,
            "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2 + ["full_attention"],
            "use_double_wide_mlp": False,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 320,
        },
        False,
    ),
    # As 12B: keys are values in heads of 512.
    "gemma4 large heads": (
        {"model_type": "gemma4_unified_text", **GEMMA4, "head_dim": 256, "global_head_dim": 512},
        False,
    ),
    # As 270M: one KV head of 256.
    "gemma3 one KV head": (
        {
            "model_type": "gemma3_text",
            **GEMMA,
            "num_hidden_layers": 6,
            "layer_types": (["sliding_attention"] * 5 + ["full_attention"]),
            "num_key_value_heads": 1,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "rope_parameters": GEMMA_ROPES | {"full_attention": {"rope_type": "default", "rope_theta": 1e6}},
        },
        False,
    ),
}


def config_of(case):
    config = COMMON | CASES[case][0]
    if config["model_type"] == "qwen2":
        config = {k: v for k, v in config.items() if k != "head_dim"} | {
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
        }
    return config


def weights_of(config, seed):
    """{Hugging Face's name: float32 array}"""
    random = np.random.RandomState(seed)
    d, ff, kind = config["hidden_size"], config["intermediate_size"], config["model_type"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", d // heads)
    found = {}

    def matrix(name, out, width, bias=False):
        found[name + ".weight"] = (random.standard_normal((out, width)) * 0.1).astype(np.float32)
        if bias:
            found[name + ".bias"] = (random.standard_normal(out) * 0.1).astype(np.float32)

    def gain(name, size):
        mean = 0 if kind == "gemma3_text" else 1  # there the gain is 1 + the weight
        found[name + ".weight"] = (mean + 0.3 * random.standard_normal(size)).astype(np.float32)

    attention_bias, mlp_bias = config.get("attention_bias", False), config.get("mlp_bias", False)
    matrix("model.embed_tokens", config["vocab_size"], d)
    if not config["tie_word_embeddings"]:
        matrix("lm_head", config["vocab_size"], d)
    gain("model.norm", d)
    its_inputs, layers = config.get("hidden_size_per_layer_input", 0), config["num_hidden_layers"]
    if its_inputs:
        matrix("model.embed_tokens_per_layer", config["vocab_size"], layers * its_inputs)
        matrix("model.per_layer_model_projection", layers * its_inputs, d)
        gain("model.per_layer_projection_norm", its_inputs)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        gain(p + "input_layernorm", d)
        gain(p + "post_attention_layernorm", d)
        if kind.startswith("gemma"):
            gain(p + "pre_feedforward_layernorm", d)
            gain(p + "post_feedforward_layernorm", d)
        its_kv, its_dim, with_v = kv, head_dim, True
        if "global_head_dim" in config and config["layer_types"][layer] == "full_attention":
            its_dim, with_v = config["global_head_dim"], not config["attention_k_eq_v"]
            its_kv = kv if with_v else config["num_global_key_value_heads"]
        own_kv = layer < config["num_hidden_layers"] - config.get("num_kv_shared_layers", 0)
        its_ff = ff if own_kv or not config.get("use_double_wide_mlp") else 2 * ff
        for which, count in (("q", heads), *[("k", its_kv)] * own_kv, *[("v", its_kv)] * (with_v and own_kv)):
            matrix(f"{p}self_attn.{which}_proj", count * its_dim, d, attention_bias or kind == "qwen2")
        matrix(p + "self_attn.o_proj", d, heads * its_dim, attention_bias)
        if kind == "qwen3" or kind.startswith("gemma"):
            gain(p + "self_attn.q_norm", its_dim)
            if kind.startswith("gemma4"):  # whose scores are not divided by anything
                found[p + "self_attn.q_norm.weight"] *= 0.1
            if own_kv:
                gain(p + "self_attn.k_norm", its_dim)
        if its_inputs:
            matrix(p + "per_layer_input_gate", its_inputs, d)
            matrix(p + "per_layer_projection", d, its_inputs)
            gain(p + "post_per_layer_input_norm", d)
        if kind.startswith("gemma4"):
            found[p + "layer_scalar"] = np.array([0.6 + 0.2 * layer], np.float32)
        if kind != "arcee":
            matrix(p + "mlp.gate_proj", its_ff, d, mlp_bias)
        matrix(p + "mlp.up_proj", its_ff, d, mlp_bias)
        matrix(p + "mlp.down_proj", d, its_ff, mlp_bias)
    return found


def bf16_bytes(array):
    return (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


BYTES = {
    "F32": lambda a: np.ascontiguousarray(a, "<f4").tobytes(),
    "F16": lambda a: np.asarray(a).astype("<f2").tobytes(),
    "BF16": bf16_bytes,
    "I8": lambda a: np.ascontiguousarray(a, np.int8).tobytes(),
    "U8": lambda a: np.ascontiguousarray(a, np.uint8).tobytes(),
}


def safetensors(tensors, kind="F32"):
    """The bytes of a file, of {name: array}."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        its = {"int8": "I8", "uint8": "U8"}.get(str(array.dtype), kind)
        raw = BYTES[its](array)
        header[name] = {"dtype": its, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def tokenizer_json(size):
    """Byte-level BPE of 256 bytes, a few merges and three special tokens."""
    shown, other = [], 0x100
    for byte in range(256):
        printable = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xFF and byte != 0xAD
        shown.append(chr(byte if printable else other))
        other += not printable
    vocabulary = {text: id for id, text in enumerate(shown)}
    merges = []
    for left, right in (("t", "h"), ("th", "e"), ("\u0120", "a"), ("e", "r")):
        merges.append([left, right])
        vocabulary[left + right] = len(vocabulary)
    added = [
        {
            "id": len(vocabulary) + i,
            "content": text,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for i, text in enumerate(("<|end|>", "<|im_start|>", "<|im_end|>"))
    ]
    assert len(vocabulary) + 3 <= size
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges, "byte_fallback": False},
    }


def write_folder(folder, config, tensors, kind="F32", shards=1, tokenizer=True):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    if tokenizer:
        with open(os.path.join(folder, "tokenizer.json"), "w") as file:
            json.dump(tokenizer_json(config["vocab_size"]), file)
    if shards == 1:
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(safetensors(tensors, kind))
        return
    names = list(tensors)
    places = {}
    for shard in range(shards):
        called = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        its = {name: tensors[name] for name in names[shard::shards]}
        places |= dict.fromkeys(its, called)
        with open(os.path.join(folder, called), "wb") as file:
            file.write(safetensors(its, kind))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": places}, file)


# GGUF

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item):
    """A value of metadata with its type before it."""
    if isinstance(item, bytes):
        return item  # made elsewhere
    if isinstance(item, bool):
        return struct.pack("<I?", BOOL, item)
    if isinstance(item, str):
        return struct.pack("<I", STRING) + text(item)
    if isinstance(item, int):
        return struct.pack("<II", U32, item)
    if isinstance(item, float):
        return struct.pack("<If", F32, item)
    if isinstance(item[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(item)) + b"".join(map(text, item))
    if isinstance(item[0], float):
        return struct.pack("<IIQ", ARRAY, F32, len(item)) + np.array(item, "<f4").tobytes()
    return struct.pack("<IIQ", ARRAY, I32, len(item)) + np.array(item, "<i4").tobytes()


class Gguf:
    """A GGUF file in parts that a test may change before `bytes`."""

    def __init__(self, metadata, tensors):
        """`tensors`: {name: (shape as numpy has it, type, bytes)}"""
        self.magic, self.version, self.metadata, self.tensors = b"GGUF", 3, dict(metadata), dict(tensors)
        self.counts, self.keys_twice, self.offsets, self.dimensions, self.names = None, (), {}, {}, {}
        self.alignment = 32

    def bytes(self):
        keys = [(key, item) for key, item in self.metadata.items()] + [
            (key, self.metadata[key]) for key in self.keys_twice
        ]
        described, data = b"", b""
        for name, (shape, kind, raw) in self.tensors.items():
            offset = self.offsets.get(name, len(data))
            dimensions = self.dimensions.get(name, shape[::-1])
            described += text(self.names.get(name, name)) + struct.pack("<I", len(dimensions))
            described += b"".join(struct.pack("<Q", size) for size in dimensions) + struct.pack("<IQ", kind, offset)
            data += raw + bytes(-len(raw) % self.alignment)
        counts = self.counts or (len(self.tensors), len(keys))
        header = self.magic + struct.pack("<IQQ", self.version, *counts)
        header += b"".join(text(key) + value(item) for key, item in keys) + described
        return header + bytes(-len(header) % self.alignment) + data


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


GGUF_GEMMA_NAMES = GGUF_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def in_pairs(array, heads):
    """As llama.cpp's converter stores q and k of most families."""
    return array.reshape(heads, 2, len(array) // heads // 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def gguf_tokenizer(size):
    source = tokenizer_json(size)
    tokens, kinds = [f"<unused{id}>" for id in range(size)], [5] * size
    for shown, id in source["model"]["vocab"].items():
        tokens[id], kinds[id] = shown, 1
    for entry in source["added_tokens"]:
        tokens[entry["id"]], kinds[entry["id"]] = entry["content"], 3
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in source["model"]["merges"]],
    }


def rope_factors(config):
    """rope_freqs.weight, which is how GGUF says llama3 scaling."""
    scaling, base, found = config["rope_scaling"], config["rope_theta"], []
    for i in range(0, 64, 2):
        wavelength = 2 * math.pi * base ** (i / 64)
        turns = scaling["original_max_position_embeddings"] / wavelength
        smooth = min(
            max((turns - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"]), 0), 1
        )
        found.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(found, np.float32)


def gguf_of(config, tensors, tokenizer=True, matrix=lambda name, array: (0, BYTES["F32"](array))):
    """`matrix` gives the type and the bytes of a matrix."""
    kind = config["model_type"]
    arch = {"mistral": "llama", "gemma3_text": "gemma3"}.get(kind, kind)
    names = GGUF_GEMMA_NAMES if arch == "gemma3" else GGUF_NAMES
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    metadata = {
        "general.architecture": arch,
        "general.name": "small",
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config["max_position_embeddings"],
        f"{arch}.embedding_length": config["hidden_size"],
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": kv,
        f"{arch}.rope.freq_base": float(config["rope_theta"]),
        f"{arch}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{arch}.attention.key_length": head_dim,
        f"{arch}.attention.value_length": head_dim,
        f"{arch}.vocab_size": config["vocab_size"],
    }
    scaling = config.get("rope_scaling") or {"rope_type": "default"}
    if scaling["rope_type"] in ("linear", "yarn"):
        metadata |= {
            f"{arch}.rope.scaling.type": scaling["rope_type"],
            f"{arch}.rope.scaling.factor": scaling["factor"],
        }
    if scaling["rope_type"] == "yarn":
        metadata[f"{arch}.rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
    if config.get("sliding_window"):
        metadata[f"{arch}.attention.sliding_window"] = config["sliding_window"]
    if tokenizer:
        metadata |= gguf_tokenizer(config["vocab_size"])
    found = {}
    for name, array in tensors.items():
        stem, part = name.rsplit(".", 1)
        if stem.startswith("model.layers."):
            _, _, layer, rest = stem.split(".", 3)
            called = f"blk.{layer}.{names[rest]}.{part}"
        else:
            called = f"{names[stem]}.{part}"
        if arch == "gemma3" and stem.endswith("norm"):
            array = array + 1
        if ("q_proj" in name or "k_proj" in name) and arch in ("llama", "smollm3", "arcee"):
            array = in_pairs(array, heads if "q_proj" in name else kv)
        type_, raw = matrix(called, array) if array.ndim == 2 else (0, BYTES["F32"](array))
        found[called] = array.shape, type_, raw
    if scaling["rope_type"] == "llama3":
        factors = rope_factors(config)
        found["rope_freqs.weight"] = factors.shape, 0, BYTES["F32"](factors)
    return Gguf(metadata, found)
