"""A GGUF file of random Q8_0 weights of a shape, for llama.cpp (llama_steps.cpp): speeds do not depend on the values.

    python3 bench/cuda/torch_open.py llama-8b --config > llama-8b.json        also gemma-12b
    python3 bench/cuda/random_gguf.py llama-8b.json llama-8b.gguf

One buffer of random blocks is repeated, so 13 GB take seconds. The file has no vocabulary but a number of tokens.
"""
import json
import struct
import sys

import numpy as np

ALIGNMENT = 32
F32, Q8_0 = 0, 8
UINT32, FLOAT32, STRING = 4, 6, 8


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def field(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", FLOAT32, value)
    return text(key) + struct.pack("<II", UINT32, value)


def fields(config, gemma):
    arch = "gemma3" if gemma else "llama"
    made = {
        "context_length": config["context"], "embedding_length": config["d_model"], "block_count": len(config["layers"]),
        "feed_forward_length": config["d_ff"], "attention.head_count": config["n_heads"], "attention.head_count_kv": config["n_kv_heads"],
        "attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": float(config["norm_eps"]), "rope.dimension_count": config["head_dim"],
        "rope.freq_base": 1e6 if gemma else 5e5, "vocab_size": config["vocab_size"],
    }
    if gemma:
        made["attention.sliding_window"] = next(layer["window"] for layer in config["layers"] if layer["kind"] == "sliding")
    general = {"general.architecture": arch, "general.name": config["name"], "general.file_type": 7, "general.quantization_version": 2,
               "tokenizer.ggml.model": "no_vocab"}
    return general | {f"{arch}.{key}": value for key, value in made.items()}


def tensors(config, gemma):
    """(name, inputs, outputs); norms have 0 outputs."""
    width, ff, head = config["d_model"], config["d_ff"], config["head_dim"]
    q, kv = config["n_heads"] * head, config["n_kv_heads"] * head
    out = [("token_embd", width, config["vocab_size"]), ("output_norm", width, 0)]
    if not gemma:
        out.append(("output", width, config["vocab_size"]))
    of_layer = [("attn_norm", width, 0), ("attn_q", width, q), ("attn_k", width, kv), ("attn_v", width, kv), ("attn_output", q, width),
                ("ffn_norm", width, 0), ("ffn_gate", width, ff), ("ffn_up", width, ff), ("ffn_down", ff, width)]
    if gemma:
        of_layer += [("attn_q_norm", head, 0), ("attn_k_norm", head, 0), ("post_attention_norm", width, 0), ("post_ffw_norm", width, 0)]
    for i in range(len(config["layers"])):
        out += [(f"blk.{i}.{name}", inputs, outputs) for name, inputs, outputs in of_layer]
    return out


def size_of(inputs, outputs):
    return 34 * (inputs // 32) * outputs if outputs else 4 * inputs


def random_blocks(count):
    """Blocks of 32 int8 and an f16 scale, such that weights have a deviation of about 0.015."""
    random = np.random.default_rng(1)
    blocks = np.empty(count, dtype=[("scale", "<f2"), ("values", "i1", 32)])
    blocks["scale"] = random.uniform(1.5e-4, 2.5e-4, count)
    blocks["values"] = random.integers(-127, 128, (count, 32), dtype=np.int8)
    return memoryview(blocks.tobytes())


def main():
    with open(sys.argv[1]) as file:
        config = json.load(file)
    gemma = config["structure"]["head_norms"]
    made, metadata = tensors(config, gemma), fields(config, gemma)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(made), len(metadata)) + b"".join(field(key, value) for key, value in metadata.items())
    place = 0
    for name, inputs, outputs in made:
        dimensions = (inputs, outputs) if outputs else (inputs,)
        head += text(name + ".weight") + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, Q8_0 if outputs else F32, place)
        place += -(-size_of(inputs, outputs) // ALIGNMENT) * ALIGNMENT
    blocks = random_blocks(1 << 20)
    with open(sys.argv[2], "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for _, inputs, outputs in made:
            left = size_of(inputs, outputs)
            end = bytes(-left % ALIGNMENT)
            if not outputs:
                file.write(np.ones(inputs, dtype="<f4").tobytes())
                left = 0
            while left > 0:
                file.write(blocks[:left])
                left -= min(left, len(blocks))
            file.write(end)


if __name__ == "__main__":
    main()
