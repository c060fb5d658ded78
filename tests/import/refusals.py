"""Malformed, lying and unsupported sources: each is refused by name, and nothing is written.

    python3 tests/import/refusals.py SOURCE_FOLDER"""

import copy
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np

from promises import promise, refusal
import small_models
from importer import Options, import_model
from sources import open_source

CONFIG = small_models.config_of("qwen2")
TENSORS = small_models.weights_of(CONFIG, 1)
LLAMA = small_models.config_of("llama")
NAN, INFINITE = np.float32("nan"), np.float32("inf")
count = 0


def attempt(name, words, path, out):
    """The source at `path` is refused with those words."""
    global count
    count += 1
    with refusal(name, *words):
        import_model(open_source(path), f"{out}/model.safetensors", Options(check=False))
    promise(os.listdir(out) == [], f"{name} leaves nothing")


# GGUF


def gguf_cases():
    """(name, words of the refusal, bytes)"""
    good = small_models.gguf_of(CONFIG, TENSORS)
    whole = good.bytes()

    def changed(change):
        made = copy.deepcopy(good)
        change(made)
        return made.bytes()

    def metadata(**fields):
        return changed(lambda g: g.metadata.update({key.replace("__", "."): item for key, item in fields.items()}))

    def without(key):
        return changed(lambda g: g.metadata.pop(key))

    def tensor(name, **fields):
        def change(g):
            shape, kind, raw = g.tensors[name]
            g.tensors[name] = fields.get("shape", shape), fields.get("kind", kind), fields.get("raw", raw)

        return changed(change)

    def value_in(name, index, value):
        floats = np.frombuffer(good.tensors[name][2], "<f4").copy()
        floats[index] = value
        return tensor(name, raw=floats.tobytes())

    yield "an empty file", ["neither a GGUF file nor a folder"], b""
    yield "a text", ["neither a GGUF file nor a folder"], b"This is a text about GGUF."
    yield "a zip archive", ["pickle"], b"PK\x03\x04" + bytes(100)
    yield "a pickle", ["pickle"], b"\x80\x02}q\x00."
    yield "four bytes", ["ends in its header"], b"GGUF"
    for cut in (7, 20, 30, 100, 600, 3000, 6000):
        yield f"a file of {cut} bytes", ["ends in its header", "fetch it again"], whole[:cut]
    yield "a file without its last bytes", ["would end at byte", "fetch it again"], whole[:-40]
    yield "a file of half its size", ["would end at byte"], whole[: len(whole) // 2]
    yield "another version", ["version 1"], changed(lambda g: setattr(g, "version", 1))
    yield "a version from the future", ["version 77"], changed(lambda g: setattr(g, "version", 77))
    yield "another byte order", ["big-endian"], changed(lambda g: setattr(g, "version", 3 << 24))
    yield "2^60 tensors", ["tensors", "at most"], changed(lambda g: setattr(g, "counts", (1 << 60, len(g.metadata))))
    yield "2^60 keys", ["keys", "at most"], changed(lambda g: setattr(g, "counts", (len(g.tensors), 1 << 60)))
    yield (
        "one tensor too many",
        ["damaged"],
        changed(lambda g: setattr(g, "counts", (len(g.tensors) + 1, len(g.metadata)))),
    )
    yield "no tensors", ["token_embd.weight"], changed(lambda g: setattr(g, "counts", (0, len(g.metadata))))
    yield "a key twice", ["general.name", "twice"], changed(lambda g: setattr(g, "keys_twice", ("general.name",)))
    yield (
        "a tensor twice",
        ["output_norm.weight", "twice"],
        changed(lambda g: g.names.update({"blk.0.attn_norm.weight": "output_norm.weight"})),
    )
    yield "a value of an unknown type", ["general.name", "type 99"], metadata(general__name=struct.pack("<I", 99))
    yield (
        "a text of 2^50 bytes",
        ["general.name", "1125899906842624"],
        metadata(general__name=struct.pack("<IQ", 8, 1 << 50)),
    )
    yield (
        "a text longer than the file",
        ["ends in its header", "general.name"],
        metadata(general__name=struct.pack("<IQ", 8, 1 << 22)),
    )
    yield (
        "an array of 2^40 items",
        ["general.tags", "1099511627776"],
        metadata(general__tags=struct.pack("<IIQ", 9, 4, 1 << 40)),
    )
    yield (
        "an array longer than the file",
        ["ends in its header", "general.tags"],
        metadata(general__tags=struct.pack("<IIQ", 9, 10, 1 << 22)),
    )
    yield "an array of arrays", ["general.tags", "array"], metadata(general__tags=struct.pack("<IIQ", 9, 9, 1 << 20))
    yield "an alignment of 3", ["general.alignment", "power of two"], metadata(general__alignment=3)
    yield "an alignment of 0", ["general.alignment"], metadata(general__alignment=0)
    yield "a part of a model", ["llama-gguf-split"], metadata(split__count=4)
    yield (
        "a tensor past the end",
        ["blk.1.ffn_up.weight", "would end"],
        changed(lambda g: g.offsets.update({"blk.1.ffn_up.weight": 1 << 40})),
    )
    yield (
        "an offset of almost 2^64",
        ["blk.1.ffn_up.weight"],
        changed(lambda g: g.offsets.update({"blk.1.ffn_up.weight": (1 << 64) - 32})),
    )
    yield (
        "an offset that is not aligned",
        ["blk.1.ffn_up.weight", "multiple of 32"],
        changed(lambda g: g.offsets.update({"blk.1.ffn_up.weight": 33})),
    )
    yield "tensors that overlap", ["overlap"], changed(lambda g: g.offsets.update({"blk.1.ffn_up.weight": 32}))
    yield "a tensor of no dimensions", ["0 dimensions"], changed(lambda g: g.dimensions.update({"output.weight": ()}))
    yield (
        "a tensor of nine dimensions",
        ["9 dimensions"],
        changed(lambda g: g.dimensions.update({"output.weight": (2,) * 9})),
    )
    yield (
        "a dimension of 0",
        ["output.weight", "shape"],
        changed(lambda g: g.dimensions.update({"output.weight": (0, 320)})),
    )
    yield (
        "a dimension of 2^63",
        ["output.weight", "shape"],
        changed(lambda g: g.dimensions.update({"output.weight": (1 << 63, 320)})),
    )
    yield (
        "sizes whose product overflows",
        ["output.weight", "would end"],
        changed(lambda g: g.dimensions.update({"output.weight": (1 << 32, 1 << 32)})),
    )
    yield "a type that GGUF does not have", ["output.weight", "type 200"], tensor("output.weight", kind=200)
    yield "IQ2_XXS", ["output.weight", "IQ2_XXS", "Q8_0"], tensor("output.weight", kind=16)
    yield "MXFP4", ["output.weight", "MXFP4"], tensor("output.weight", kind=39)
    yield "rows that the type cannot store", ["output.weight", "Q6_K"], tensor("output.weight", kind=14)
    yield "an absent tensor", ["lacks", "blk.2.attn_k.weight"], changed(lambda g: g.tensors.pop("blk.2.attn_k.weight"))
    yield "an absent norm", ["lacks", "output_norm.weight"], changed(lambda g: g.tensors.pop("output_norm.weight"))
    yield "an absent bias", ["lacks", "blk.3.attn_v.bias"], changed(lambda g: g.tensors.pop("blk.3.attn_v.bias"))
    yield "an absent embedding", ["token_embd.weight"], changed(lambda g: g.tensors.pop("token_embd.weight"))
    yield (
        "an unknown tensor",
        ["blk.0.attn_sinks", "not known"],
        changed(lambda g: g.tensors.update({"blk.0.attn_sinks": ((2,), 0, bytes(8))})),
    )
    yield (
        "an adapter",
        ["blk.0.attn_q.weight.lora_a", "not known"],
        changed(lambda g: g.tensors.update({"blk.0.attn_q.weight.lora_a": ((8, 128), 0, bytes(4096))})),
    )
    yield (
        "a turned matrix",
        ["blk.0.ffn_up.weight", "contradicts"],
        changed(lambda g: g.dimensions.update({"blk.0.ffn_up.weight": (192, 128)})),
    )
    yield (
        "a gain of another size",
        ["blk.0.attn_norm.weight", "[64]", "[128]"],
        tensor("blk.0.attn_norm.weight", shape=(64,), raw=bytes(256)),
    )
    for key in (
        "general.architecture",
        "qwen2.block_count",
        "qwen2.embedding_length",
        "qwen2.attention.head_count",
        "qwen2.feed_forward_length",
        "qwen2.context_length",
        "qwen2.attention.layer_norm_rms_epsilon",
    ):
        yield f"no {key}", ["lacks", key], without(key)
    yield "more layers than there are", ["lacks", "blk.4."], metadata(qwen2__block_count=5)
    yield "fewer layers than there are", ["blk.3.", "not known"], metadata(qwen2__block_count=3)
    yield "no layers", ["block_count"], metadata(qwen2__block_count=0)
    yield "10^9 layers", ["block_count"], metadata(qwen2__block_count=10**9)
    yield "layers as a text", ["block_count", "whole number"], metadata(qwen2__block_count="4")
    yield "more heads than weights", ["attn_q.weight", "contradicts"], metadata(qwen2__attention__head_count=4)
    yield "no heads", ["head_count"], metadata(qwen2__attention__head_count=0)
    yield "three KV heads for two", ["KV heads"], metadata(qwen2__attention__head_count_kv=3)
    yield "KV heads by layer", ["head_count_kv"], metadata(qwen2__attention__head_count_kv=[1, 1, 2, 1])
    yield "values of another width than keys", ["value_length"], metadata(qwen2__attention__value_length=32)
    yield "half of a head rotated", ["rope.dimension_count"], metadata(qwen2__rope__dimension_count=32)
    yield (
        "an epsilon that is not a number",
        ["layer_norm_rms_epsilon"],
        metadata(qwen2__attention__layer_norm_rms_epsilon=struct.pack("<If", 6, float("nan"))),
    )
    yield "an epsilon of -1", ["layer_norm_rms_epsilon"], metadata(qwen2__attention__layer_norm_rms_epsilon=-1.0)
    yield "a RoPE base of 0", ["rope.freq_base"], metadata(qwen2__rope__freq_base=0.0)
    yield "longrope", ["rope.scaling.type"], metadata(qwen2__rope__scaling__type="longrope")
    yield (
        "RoPE factors of 0",
        ["rope_freqs.weight"],
        changed(lambda g: g.tensors.update({"rope_freqs.weight": ((32,), 0, bytes(128))})),
    )
    yield (
        "RoPE factors for half a head",
        ["rope_freqs.weight", "16 factors"],
        changed(lambda g: g.tensors.update({"rope_freqs.weight": ((16,), 0, np.ones(16, "<f4").tobytes())})),
    )
    yield "a window that no layer claims", ["sliding_window"], metadata(qwen2__attention__sliding_window=512)
    yield (
        "a vocabulary that is larger than the embedding",
        ["token_embd.weight", "contradicts"],
        metadata(qwen2__vocab_size=640),
    )
    yield (
        "a NaN in a matrix",
        ["layers.1.ffn.down.weight", "row 3", "not finite"],
        value_in("blk.1.ffn_down.weight", 3 * 192 + 5, NAN),
    )
    yield "an infinite value", ["layers.1.attn.q.weight", "not finite"], value_in("blk.1.attn_q.weight", 7, -INFINITE)
    yield "a NaN in a gain", ["layers.2.ffn.norm_gain", "not finite"], value_in("blk.2.ffn_norm.weight", 0, NAN)
    yield (
        "a NaN in the embedding of an unusual token",
        ["embed.weight", "row 319"],
        value_in("token_embd.weight", 319 * 128, NAN),
    )
    yield (
        "weights of 1e38",
        ["layers.0.attn.o.weight", "beyond 1e5"],
        tensor("blk.0.attn_output.weight", raw=np.full(128 * 128, 1e38, "<f4").tobytes()),
    )
    scales = np.zeros((192 * 4, 34), np.uint8)
    scales[:, :2] = np.frombuffer(np.float16("nan").tobytes(), np.uint8)
    yield (
        "NaN scales of Q8_0",
        ["layers.0.ffn.up.weight", "not finite"],
        tensor("blk.0.ffn_up.weight", kind=8, raw=scales.tobytes()),
    )
    scales[:, :2] = np.frombuffer(np.float16("inf").tobytes(), np.uint8)
    yield (
        "infinite scales of Q8_0",
        ["layers.0.ffn.up.weight", "not finite"],
        tensor("blk.0.ffn_up.weight", kind=8, raw=scales.tobytes()),
    )
    yield (
        "more tokens than rows",
        ["token", "320 rows"],
        metadata(
            **{
                "tokenizer__ggml__tokens": good.metadata["tokenizer.ggml.tokens"] + ["x"] * 9,
                "tokenizer__ggml__token_type": good.metadata["tokenizer.ggml.token_type"] + [3] * 9,
            }
        ),
    )
    yield (
        "10^5 added tokens",
        ["100000 added tokens"],
        metadata(tokenizer__ggml__tokens=[f"<{id}>" for id in range(100000)], tokenizer__ggml__token_type=[3] * 100000),
    )
    yield "tokens without types", ["tokenizer", "one length"], metadata(tokenizer__ggml__token_type=[1, 1])
    yield "tokens that are a number", ["tokenizer"], metadata(tokenizer__ggml__tokens=7)
    yield "merges of tokens that are not there", ["tokenizer", "merge"], metadata(tokenizer__ggml__merges=["q q"])
    yield "merges of three", ["tokenizer"], metadata(tokenizer__ggml__merges=["a b c"])
    yield "another kind of tokenizer", ["tokenizer", "bert"], metadata(tokenizer__ggml__model="bert")
    yield "an unknown split", ["tokenizer", "unheard-of"], metadata(tokenizer__ggml__pre="unheard-of")
    for arch, words in (
        ("gemma4", ["Hugging Face folder"]),
        ("gemma-embedding", ["no text"]),
        ("gemma2", ["softmax"]),
        ("gemma3n", ["residual streams"]),
        ("deepseek2", ["MLA"]),
        ("qwen3moe", ["mixture of experts"]),
        ("mamba", ["state-space"]),
        ("phi3", ["longrope"]),
        ("granitemoe", ["mixture of experts"]),
        ("llama\x1b[31m", ["\\x1b"]),
        ("clip", ["is not supported", "Qwen3"]),
    ):
        yield f"the architecture {arch!r}", [*words, "architecture"], metadata(general__architecture=arch)
    mixtral = small_models.gguf_of(LLAMA, small_models.weights_of(LLAMA, 2))
    mixtral.metadata["llama.expert_count"] = 8
    yield "Mixtral, whose architecture is llama", ["mixture of experts"], mixtral.bytes()


# Hugging Face


def config_with(**fields):
    def change(folder):
        config = {**CONFIG, **{key: item for key, item in fields.items() if item is not ...}}
        for key, item in fields.items():
            if item is ...:
                config.pop(key, None)
        with open(f"{folder}/config.json", "w") as file:
            json.dump(config, file)

    return change


def file_with(name, data):
    def change(folder):
        with open(f"{folder}/{name}", "wb" if isinstance(data, bytes) else "w") as file:
            file.write(data)

    return change


def weights_with(**fields):
    """Tensors replaced; ... removes one."""
    tensors = {**TENSORS, **{key: item for key, item in fields.items() if item is not ...}}
    return file_with(
        "model.safetensors",
        small_models.safetensors({key: item for key, item in tensors.items() if fields.get(key) is not ...}),
    )


def header_with(change, data=None):
    """The header of the safetensors file changed."""

    def apply(folder):
        raw = small_models.safetensors(TENSORS)
        size = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8 : 8 + size])
        change(header)
        text = json.dumps(header).encode()
        with open(f"{folder}/model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + raw[8 + size :])

    return apply


def tokenizer_with(change):
    def apply(folder):
        source = small_models.tokenizer_json(320)
        change(source)
        with open(f"{folder}/tokenizer.json", "w") as file:
            json.dump(source, file)

    return apply


def index_with(weight_map, files=()):
    def apply(folder):
        for name, tensors in files:
            with open(f"{folder}/{name}", "wb") as file:
                file.write(small_models.safetensors(tensors))
        with open(f"{folder}/model.safetensors.index.json", "w") as file:
            file.write(weight_map if isinstance(weight_map, str) else json.dumps({"weight_map": weight_map}))

    return apply


def removed(*names):
    return lambda folder: [os.unlink(f"{folder}/{name}") for name in names]


def both(*changes):
    return lambda folder: [change(folder) for change in changes]


def replaced(header, name, **fields):
    header[name] = {**header[name], **fields}


def folder_cases():
    """(name, words of the refusal, what changes the folder)"""
    raw = small_models.safetensors(TENSORS)
    embedding = TENSORS["model.embed_tokens.weight"]
    yield "no config.json", ["no config.json"], removed("config.json")
    yield "an empty config.json", ["config.json", "no JSON"], file_with("config.json", "")
    yield "a config.json of bytes", ["config.json", "no JSON"], file_with("config.json", b"\xff\xfe\x00")
    yield "a config.json that is a list", ["config.json"], file_with("config.json", "[]")
    yield "a config.json of brackets", ["config.json", "no JSON"], file_with("config.json", "[" * 100000)
    yield "no model_type", ["lacks", "model_type"], config_with(model_type=...)
    yield "a model_type that is a number", ["model_type"], config_with(model_type=3)
    for kind, words in (
        ("mixtral", ["mixture of experts", "Mistral"]),
        ("deepseek_v3", ["MLA"]),
        ("gemma", ["Gemma 3 1B"]),
        ("t5gemma", ["encoder"]),
        ("gemma3n", ["residual streams"]),
        ("gemma2", ["softmax"]),
        ("qwen3_next", ["linear attention"]),
        ("qwen2_5_vl", ["pictures"]),
        ("gpt2", ["is not supported", "SmolLM2"]),
        ("ministral3", ["position"]),
    ):
        yield f"the model_type {kind}", words, config_with(model_type=kind)
    yield "experts in a dense type", ["mixture of experts"], config_with(num_local_experts=8)
    for method, word in (
        ("gptq", "GPTQ"),
        ("awq", "AWQ"),
        ("bitsandbytes", "bitsandbytes"),
        ("fp8", "FP8"),
        ("compressed-tensors", "compressed-tensors"),
        ("new", "new"),
    ):
        yield f"weights of {method}", [word, "Q8_0"], config_with(quantization_config={"quant_method": method})
    yield "a quantization_config that is a text", ["config.json"], config_with(quantization_config="int4")
    for name in (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    ):
        yield f"no {name}", ["lacks", name], config_with(**{name: ...})
        yield f"{name} of -1", [name, "whole number"], config_with(**{name: -1})
    yield "a width of 1e9", ["hidden_size"], config_with(hidden_size=10**9)
    yield "a fractional width", ["hidden_size"], config_with(hidden_size=128.5)
    yield "a width that is true", ["hidden_size"], config_with(hidden_size=True)
    yield "heads that do not divide the width", ["no multiple"], config_with(num_attention_heads=3)
    yield "dynamic NTK", ["dynamic NTK"], config_with(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    yield (
        "longrope",
        ["longrope"],
        config_with(rope_scaling={"type": "longrope", "short_factor": [], "long_factor": []}),
    )
    yield "an unknown scaling", ["sphere"], config_with(rope_scaling={"rope_type": "sphere"})
    yield "a scaling that is a text", ["rope_scaling"], config_with(rope_scaling="yarn")
    yield "yarn without a factor", ["lacks", "factor"], config_with(rope_scaling={"rope_type": "yarn"})
    yield "yarn with a factor of 0", ["factor"], config_with(rope_scaling={"rope_type": "yarn", "factor": 0})
    yield (
        "llama3 scaling upside down",
        ["low_freq_factor"],
        config_with(rope_scaling={**small_models.LLAMA3, "low_freq_factor": 8.0}),
    )
    yield "partial rotation", ["partial_rotary_factor"], config_with(partial_rotary_factor=0.5)
    yield "another activation", ["hidden_act", "gelu"], config_with(hidden_act="gelu")
    yield "an epsilon of 0", ["rms_norm_eps"], config_with(rms_norm_eps=0)
    yield (
        "layers of an unknown type",
        ["chunked_attention"],
        config_with(use_sliding_window=True, sliding_window=16, layer_types=["chunked_attention"] * 4),
    )
    yield (
        "types of too few layers",
        ["layer_types"],
        config_with(use_sliding_window=True, sliding_window=16, layer_types=["full_attention"]),
    )
    yield "tied weights that are a text", ["tie_word_embeddings"], config_with(tie_word_embeddings="no")
    yield "a vocabulary of another size", ["model.embed_tokens.weight", "contradict"], config_with(vocab_size=336)
    yield "a feed-forward of another width", ["mlp", "contradict"], config_with(intermediate_size=256)
    yield "more layers", ["lacks", "model.layers.4."], config_with(num_hidden_layers=5)
    yield "fewer layers", ["model.layers.3.", "not known"], config_with(num_hidden_layers=3)
    yield (
        "biases that the type does not have",
        ["q_proj.bias", "not known"],
        config_with(model_type="llama", head_dim=64),
    )
    yield (
        "a width that no checkpoint has",
        ["head", "64, 128, 256 or 512"],
        both(config_with(num_attention_heads=4, num_key_value_heads=2)),
    )
    yield "no weights", ["neither"], removed("model.safetensors")
    yield "a pickle", ["pickle"], both(removed("model.safetensors"), file_with("pytorch_model.bin", b"PK\x03\x04"))
    yield (
        "a GGUF file in the folder",
        ["name that file"],
        both(removed("model.safetensors"), file_with("a.gguf", b"GGUF")),
    )
    yield "an empty weights file", ["0 bytes"], file_with("model.safetensors", b"")
    yield (
        "a pointer of Git LFS",
        ["Git LFS"],
        file_with("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
    )
    yield "a header of 2^62 bytes", ["header"], file_with("model.safetensors", struct.pack("<Q", 1 << 62) + bytes(100))
    yield (
        "a header that is no JSON",
        ["no JSON"],
        file_with("model.safetensors", struct.pack("<Q", 4) + b"abcd" + bytes(99)),
    )
    yield "a header that is a list", ["no JSON object"], file_with("model.safetensors", struct.pack("<Q", 4) + b"[  ]")
    yield "a name twice", ["twice"], file_with("model.safetensors", struct.pack("<Q", 15) + b'{"a":1, "a":2} ')
    yield (
        "a file without its last bytes",
        ["would end at byte", "fetch it again"],
        file_with("model.safetensors", raw[:-10]),
    )
    yield (
        "an entry that is a number",
        ["lm_head.weight", "damaged"],
        header_with(lambda h: h.update({"lm_head.weight": 5})),
    )
    yield "an unknown type", ["lm_head.weight", "Q7"], header_with(lambda h: replaced(h, "lm_head.weight", dtype="Q7"))
    yield "float8", ["lm_head.weight"], header_with(lambda h: replaced(h, "lm_head.weight", dtype="F8_E4M3"))
    yield "int8 weights", ["lm_head.weight", "I32"], header_with(lambda h: replaced(h, "lm_head.weight", dtype="I32"))
    yield (
        "negative offsets",
        ["lm_head.weight", "damaged"],
        header_with(lambda h: replaced(h, "lm_head.weight", data_offsets=[-8, 0])),
    )
    yield (
        "offsets the wrong way round",
        ["lm_head.weight"],
        header_with(lambda h: replaced(h, "lm_head.weight", data_offsets=h["lm_head.weight"]["data_offsets"][::-1])),
    )
    yield (
        "offsets past the end",
        ["lm_head.weight", "would end"],
        header_with(
            lambda h: replaced(
                h, "lm_head.weight", data_offsets=[at + (1 << 40) for at in h["lm_head.weight"]["data_offsets"]]
            )
        ),
    )
    yield (
        "tensors that overlap",
        ["overlap"],
        header_with(
            lambda h: replaced(h, "lm_head.weight", data_offsets=h["model.embed_tokens.weight"]["data_offsets"])
        ),
    )
    yield (
        "a shape whose size overflows",
        ["lm_head.weight"],
        header_with(lambda h: replaced(h, "lm_head.weight", shape=[1 << 40, 1 << 40])),
    )
    yield (
        "an absent tensor",
        ["lacks", "model.layers.1.mlp.up_proj.weight"],
        weights_with(**{"model.layers.1.mlp.up_proj.weight": ...}),
    )
    yield (
        "an absent output matrix",
        ["lacks", "lm_head.weight", "tie_word_embeddings"],
        weights_with(**{"lm_head.weight": ...}),
    )
    yield (
        "an unknown tensor",
        ["model.layers.0.self_attn.sinks", "not known"],
        weights_with(**{"model.layers.0.self_attn.sinks": np.zeros(2, np.float32)}),
    )
    yield (
        "a matrix of three dimensions",
        ["lm_head.weight", "contradict"],
        weights_with(**{"lm_head.weight": embedding[None]}),
    )
    yield (
        "a NaN",
        ["output.weight", "row 0", "not finite"],
        weights_with(**{"lm_head.weight": np.where(embedding == embedding[0, 0], NAN, embedding)}),
    )
    yield (
        "an infinite bias",
        ["layers.0.attn.q.bias", "not finite"],
        weights_with(**{"model.layers.0.self_attn.q_proj.bias": np.full(128, INFINITE)}),
    )
    yield "an index that is a list", ["weight_map"], index_with("[]")
    yield "an index of another folder's file", ["not in the folder"], index_with({"a": "../model.safetensors"})
    yield "an index of a file that is not there", ["is not there"], index_with({"a": "model-2.safetensors"})
    yield "an index of a tensor that is not there", ["lacks the tensor a"], index_with({"a": "model.safetensors"})
    yield (
        "a shard with a tensor that the index does not have",
        ["does not say"],
        index_with({"model.norm.weight": "model.safetensors"}),
    )
    yield "a tokenizer.json that is no JSON", ["tokenizer.json", "no JSON"], file_with("tokenizer.json", "{")
    yield "a tokenizer.json that is a list", ["tokenizer"], file_with("tokenizer.json", "[]")
    yield "a tokenizer without a model", ["tokenizer"], file_with("tokenizer.json", "{}")
    yield "WordPiece", ["WordPiece"], tokenizer_with(lambda t: t["model"].update(type="WordPiece"))
    yield (
        "10^5 added tokens",
        ["100000 added tokens"],
        tokenizer_with(
            lambda t: t.update(
                added_tokens=[{"id": 300 + id, "content": f"<{id}>", "special": True} for id in range(100000)]
            )
        ),
    )
    yield (
        "a token beyond the vocabulary",
        ["token 999999", "320 rows"],
        tokenizer_with(lambda t: t["added_tokens"][0].update(id=999999)),
    )
    yield "a negative token", ["token -5"], tokenizer_with(lambda t: t["added_tokens"][0].update(id=-5))
    yield "a token that is a text", ["tokenizer"], tokenizer_with(lambda t: t["model"]["vocab"].update(a="b"))
    yield (
        "merges in a circle",
        ["tokenizer", "merge"],
        tokenizer_with(lambda t: t["model"].update(merges=[["th", "eth"], ["eth", "th"]])),
    )
    yield "merges that are numbers", ["tokenizer"], tokenizer_with(lambda t: t["model"].update(merges=[1, 2]))


with tempfile.TemporaryDirectory() as folder:
    out = f"{folder}/out"
    os.mkdir(out)
    good = f"{folder}/good"
    small_models.write_folder(good, CONFIG, TENSORS)
    import_model(open_source(good), f"{out}/model.safetensors", Options(check=False))
    os.rename(f"{out}/model.safetensors", f"{folder}/imported.safetensors")
    for name, words, data in gguf_cases():
        path = f"{folder}/source.gguf"
        with open(path, "wb") as file:
            file.write(data)
        attempt(f"GGUF: {name}", words, path, out)
    for name, words, change in folder_cases():
        path = f"{folder}/source"
        shutil.copytree(good, path)
        change(path)
        attempt(f"folder: {name}", words, path, out)
        shutil.rmtree(path)
    attempt("a path where nothing is", ["cannot be read"], f"{folder}/nothing", out)
    attempt("a single safetensors file", ["name the folder"], f"{good}/model.safetensors", out)
    attempt("a kaiju checkpoint", ["needs no import"], f"{folder}/imported.safetensors", out)
    # Without numpy, which a stub hides: help and mistakes are told all the same, and what to install.
    stub = f"{folder}/stub"
    os.mkdir(stub)
    with open(f"{stub}/numpy.py", "w") as file:
        file.write("raise ImportError")
    for arguments, code, words in [
        (["--help"], 0, "SOURCE --out FILE"),
        ([good], 2, "--out"),
        ([good, "--out", f"{out}/model.safetensors"], 1, "pip install -r"),
    ]:
        told = subprocess.run(
            [sys.executable, os.path.join(sys.argv[1], "examples/import/kaiju-import"), *arguments],
            env={**os.environ, "PYTHONPATH": stub, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )
        promise(
            told.returncode == code and words in told.stdout + told.stderr and "Traceback" not in told.stderr,
            f"without numpy, {arguments[-1]}: {told.returncode} {told.stderr}",
        )
print(f"{count} sources are refused by name")
