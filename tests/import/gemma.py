"""What Gemma has and other families have not: configs that say little, and tokenizers with byte fallback.

    python3 tests/import/gemma.py SOURCE_FOLDER [KAIJU_ENCODE]

With KAIJU_ENCODE and the package tokenizers, random texts are split by both."""

import json
import os
import random
import subprocess
import sys
import tempfile

from promises import promise, refusal
import small_models
import families
import native
import sentencepiece_file
import stored_tokenizer
from fields import Fields
from gemma import embed_factor
from model_config import GELU_GATED, Rope
from rope import frequencies, score_scale

SPACE = "\u2581"
# What the config.json of Gemma 3 4B says of its text model; the rest are defaults.
OF_4B = {
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
}
# As of Gemma 4 31B, with other dimensions.
OF_GEMMA4 = small_models.COMMON | small_models.CASES["gemma4"][0]


def config_of(values):
    return families.from_huggingface(values, "config.json", "folder")


def configs():
    config = config_of(OF_4B)
    windows = [layer.window for layer in config.each]
    promise(windows[:7] == [1024] * 5 + [None, 1024] and windows.count(None) == 5, "five layers of six have a window")
    promise(config.each[5].rope == Rope(1e6, "linear", 8.0), "layers without a window have the scaled RoPE")
    promise(config.each[4].rope == Rope(1e4), "layers with a window have their own")
    promise((config.n_heads, config.n_kv_heads, config.head_dim) == (8, 4, 256), "heads are the defaults")
    promise(config.vocab_size == 262208 and config.context == 131072 and config.tied, "so are sizes and the tied output")
    promise(config.activation == GELU_GATED and config.norms_after and config.head_norms, "layers are Gemma 3's")
    promise(config.embed_factor == 50.5 and config.score_scale is None, "sqrt(2560) in bf16; queries of 1 / sqrt(256)")
    stored = json.loads(native.config_text(config, "x", False, {}))
    promise([layer["rope"] for layer in stored["layers"][:7]] == [0] * 5 + [1, 0], "two tables of RoPE are stored")
    promise(stored["structure"]["ffn"] == "gated_gelu" and stored["structure"]["norms_after"], "the structure is stored")
    for width, factor in ((640, 25.25), (1152, 34.0), (3072, 55.5), (3840, 62.0), (5376, 73.5), (256, 16.0)):
        promise(embed_factor(width) == factor, f"sqrt({width}) in bf16 is {factor}, not {embed_factor(width)}")


def gemma4_configs():
    config = config_of(OF_GEMMA4)
    local, full = config.each[0], config.each[1]
    promise((local.head_dim, local.n_kv_heads, local.values_from_keys) == (128, 2, False), "layers with a window")
    promise((full.head_dim, full.n_kv_heads, full.values_from_keys) == (256, 1, True), "layers without one: K = V")
    turning = sum(frequency != 0 for frequency in frequencies(full.rope, 256))
    promise(turning == 32, f"a quarter of 128 pairs turns there, not {turning}")
    promise(score_scale(config, 0) == score_scale(config, 1) == 1, "scores are not scaled")
    promise(config.logit_cap == 30 and config.value_norms and config.layer_factors, "cap, V-norm and factors")
    promise("layers.1.attn.v" not in config.matrices() and "layers.0.attn.v" in config.matrices(), "no matrix of V")
    shared = config_of(small_models.COMMON | small_models.CASES["gemma4 shared"][0])
    promise([layer.kv_of for layer in shared.each] == [None] * 3 + [1, 2, 1], "the last layers read others' KV")
    promise([shared.ffn_width(layer) for layer in range(6)] == [192] * 3 + [384] * 3, "and are twice as wide")
    stored = json.loads(native.config_text(shared, "x", False, {}))["layers"]
    promise([layer["kv_slot"] for layer in stored] == [0, 1, 2, 1, 2, 1], "which slots say")
    promise([layer.get("d_ff") for layer in stored] == [None] * 3 + [384] * 3, "and widths")
    inputs = config_of(small_models.COMMON | small_models.CASES["gemma4 inputs"][0])
    matrices = inputs.matrices()
    promise(matrices["inputs.embed"] == (320 * 6, 64), "a token's row has one row of each layer")
    promise(matrices["inputs.projection"] == (6 * 64, 256), "the projection has rows of each layer")
    promise(matrices["layers.5.inputs.out"] == (256, 64), "and each layer has two matrices")
    stored = json.loads(native.config_text(inputs, "x", False, {}))["structure"]
    promise(stored["layer_inputs"] == 64 and "f32_rows" not in stored, "which the structure says")
    of_e2b = {"model_type": "gemma4_text", "hidden_size": 1536, "num_hidden_layers": 35, "num_kv_shared_layers": 20}
    promise(config_of(of_e2b).layer_inputs == 256, "a width of 256 is the default")
    new = {"per_layer_config": {str(layer): {"head_dim": 256, "num_key_value_heads": 1} for layer in (1, 3)}}
    old = {key: item for key, item in OF_GEMMA4.items() if not key.startswith(("global", "num_global"))}
    promise(config_of(old | new) == config, "transformers' newer files say the same in another way")
    last = config_of(OF_GEMMA4 | {"layer_types": ["sliding_attention"] * 4})
    promise(last.each[3].window is None, "the last layer never has a window")


def refused_configs():
    gemma3 = small_models.COMMON | small_models.CASES["gemma3 own scale"][0]
    for base, fields, words in (
        (gemma3, {"use_bidirectional_attention": True}, ["use_bidirectional_attention"]),
        (gemma3, {"hidden_activation": "gelu"}, ["hidden_activation", "gelu_pytorch_tanh"]),
        (gemma3, {"attn_logit_softcapping": 50.0}, ["attn_logit_softcapping"]),
        (gemma3, {"tie_word_embeddings": False}, ["tie_word_embeddings"]),
        (gemma3, {"layer_types": ["chunked_attention"] * 4}, ["chunked_attention"]),
        (gemma3, {"layer_types": ["full_attention"]}, ["layer_types", "4 values"]),
        (gemma3, {"query_pre_attn_scalar": 0}, ["query_pre_attn_scalar"]),
        (gemma3, {"rope_parameters": {"rope_type": "default"}}, ["rope_parameters"]),
        (gemma3, {"rope_parameters": [1]}, ["rope_parameters"]),
        (gemma3, {"num_key_value_heads": 3}, ["4 heads cannot share 3"]),
        (OF_GEMMA4, {"hidden_size_per_layer_input": 256}, ["vocab_size_per_layer_input", "320 tokens"]),
        (OF_GEMMA4, {"hidden_size_per_layer_input": -1}, ["hidden_size_per_layer_input"]),
        (OF_GEMMA4, {"num_kv_shared_layers": 4}, ["num_kv_shared_layers", "share fewer"]),
        (OF_GEMMA4, {"num_kv_shared_layers": 3}, ["num_kv_shared_layers", "of the kind of layer 1"]),
        (OF_GEMMA4, {"enable_moe_block": True}, ["mixture of experts", "31B"]),
        (OF_GEMMA4, {"per_layer_config": {"1": {"sliding_window": 4}}}, ["per_layer_config.1", "sliding_window"]),
        (OF_GEMMA4, {"num_global_key_value_heads": 3}, ["4 heads cannot share 3"]),
        (OF_GEMMA4, {"final_logit_softcapping": -1.0}, ["final_logit_softcapping"]),
    ):
        with refusal(f"{base['model_type']} with {fields}", "config.json", *words):
            config_of(base | fields)


def gguf_configs():
    config = small_models.CASES["gemma3"][0] | small_models.COMMON
    config |= {"num_hidden_layers": 62} | {key: small_models.GEMMA[key] for key in ("hidden_size", "sliding_window")}
    file = small_models.gguf_of(config | {"num_hidden_layers": 62, "rope_scaling": None}, {}, tokenizer=False)
    shapes = {"token_embd.weight": (320, 256)}
    large = families.from_gguf(file.metadata, shapes, (), "x.gguf")
    promise(large.score_scale == (256 / 4) ** -0.5 or large.score_scale is None, "27B scales queries by its width")
    given = {"gemma3.rope.freq_base_swa": 5e4, "gemma3.attention.sliding_window_pattern": [True, False] * 31}
    other = families.from_gguf(file.metadata | given, shapes, (), "x.gguf")
    promise([layer.window for layer in other.each[:3]] == [24, None, 24], "a pattern that the file says")
    promise(other.each[0].rope == Rope(5e4), "a base that the file says")
    with refusal("a cap of scores", "attn_logit_softcapping"):
        families.from_gguf(file.metadata | {"gemma3.attn_logit_softcapping": 50.0}, shapes, (), "x.gguf")


# Tokenizers


def vocabulary_of(words):
    """Pieces that merge to the words, the frequent ones first."""
    return list(dict.fromkeys(
        piece for word in words for size in range(2, len(word) + 1) for piece in (word[:size], word[-size:])
    ))


def tokenizer_json():
    """As Gemma's: special tokens, runs of newlines and spaces, HTML, bytes, then pieces and characters."""
    control = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    runs = ["\n" * count for count in range(1, 8)] + [SPACE * count for count in range(2, 32)] + ["<b>", "</table>"]
    pieces = vocabulary_of([SPACE + "the", SPACE + "then", "ing", SPACE + "other", "日本語", "é1", "and", SPACE + "1"])
    characters = sorted(set("".join(pieces)) | set("abcxyz.,<>/")) + [SPACE]
    texts = control + runs + [f"<0x{byte:02X}>" for byte in range(256)] + pieces + characters
    vocabulary = {text: id for id, text in enumerate(dict.fromkeys(texts))}
    merges = []
    for piece in runs[7:37] + pieces:
        splits = [[piece[:at], piece[at:]] for at in range(1, len(piece))]
        merges += [split for split in splits if split[0] in vocabulary and split[1] in vocabulary]
    added = [
        {"id": vocabulary[text], "content": text, "special": text in control, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for text in control + runs
    ]
    begin = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def stored_in(folder, **files):
    """The tokenizer of a folder with these files."""
    for name in os.listdir(folder):
        os.unlink(f"{folder}/{name}")
    for name, data in files.items():
        with open(f"{folder}/{name.replace('__', '.')}", "wb") as file:
            file.write(data if isinstance(data, bytes) else json.dumps(data).encode())
    return stored_tokenizer.from_folder(folder, 1 << 20)


def kinds_of(model):
    return [dict(sentencepiece_file.fields(piece)).get(3, 1) for number, piece in sentencepiece_file.fields(model) if number == 1]


def converted_tokenizers(folder):
    source = tokenizer_json()
    found = stored_in(folder, tokenizer__json=source)
    ids, kinds = source["model"]["vocab"], kinds_of(found.data)
    promise(sentencepiece_file.piece_texts(found.data) == list(ids), "every token is a piece")
    promise(found.begin == 2 and found.end is None, "the token before a text is the post_processor's")
    promise([kinds[ids[text]] for text in ("<bos>", "<unk>", "<b>", "<0x00>", "ing")] == [3, 2, 4, 6, 1], "kinds")
    forgeable = stored_in(folder, tokenizer__model=found.data)
    promise(forgeable.data == found.data, "a tokenizer.model alone is kept as it is")
    listed = {"added_tokens_decoder": {str(ids["<b>"]): {"special": True}, str(ids["\n"]): {"special": False}}}
    guarded = stored_in(folder, tokenizer__model=found.data, tokenizer_config__json=listed)
    changed = [id for id, kind in enumerate(kinds_of(guarded.data)) if kind != kinds[id]]
    promise(changed == [ids["<b>"]], "special tokens become control pieces, and no other")
    return source, found.data


def refused_tokenizers(folder, source):
    def changed(**fields):
        return source | {"model": source["model"] | fields}

    merges = source["model"]["merges"]
    merge = next(at for at, pair in enumerate(merges) if pair == [SPACE + "t", "he"])
    for name, other, words in (
        ("a merge less", changed(merges=merges[:merge] + merges[merge + 1 :]), ["no merge", "he"]),
        ("merges at two places", changed(merges=[*merges, merges[40]]), ["two places"]),
        ("ignore_merges", changed(ignore_merges=True), ["ignore_merges"]),
        ("a prefix", source | {"normalizer": {"type": "Prepend", "prepend": SPACE}}, ["Prepend", "tokenizer.model"]),
        ("no normalizer", source | {"normalizer": None}, ["normalizer"]),
        ("another split", source | {"pre_tokenizer": {"type": "Digits"}}, ["Digits"]),
        ("a missing token", changed(vocab={**source["model"]["vocab"], "x": 5000}), ["no token"]),
    ):
        with refusal(f"a tokenizer with {name}", "tokenizer.json", *words):
            stored_in(folder, tokenizer__json=other)


def random_text(draw):
    words = ["the", "then", "other", " the", "and", "ing", "日本語", "é1", "<b>", "</table>", "<bos>", "<unk>", "\n", "1",
             "xyz", "\t", "🦆", "ü", SPACE, "<0x41>", "<start_of_turn>"]  # fmt: skip
    parts = [draw.choice(words) for _ in range(draw.randrange(12))]
    for _ in range(draw.randrange(4)):
        parts.insert(draw.randrange(len(parts) + 1), draw.choice(" \n") * draw.randrange(1, 31))
    parts += [chr(draw.randrange(1, 0xD800)) for _ in range(draw.randrange(3))]
    return "".join(parts)


def same_splits(folder, source, model):
    try:
        import tokenizers
    except ImportError:
        return
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    reference = tokenizers.Tokenizer.from_str(json.dumps(source))
    reference.encode_special_tokens = True
    # A longer run of spaces is another case: SentencePiece finds the longest run that is a piece, tokenizers merges.
    texts = [random_text(draw) for _ in range(3000)]
    texts = [text for text in texts if " " * 32 not in text.replace(SPACE, " ") and SPACE * 2 not in text]
    wanted = [" ".join(map(str, one.ids)) for one in reference.encode_batch(texts, add_special_tokens=False)]
    with open(f"{folder}/tokenizer", "wb") as file:
        file.write(model)
    data = b"".join(b"%d\n%b" % (len(text.encode()), text.encode()) for text in texts)
    done = subprocess.run([sys.argv[2], f"{folder}/tokenizer"], input=data, capture_output=True)
    promise(done.returncode == 0, f"kaiju reads the tokenizer: {done.stderr.decode()}")
    found = done.stdout.decode().split("\n")
    different = [(text, a, b) for text, a, b in zip(texts, wanted, found) if a != b]
    promise(not different, f"{len(different)} of {len(texts)} texts are split otherwise: {different[:1]}")


configs()
gemma4_configs()
refused_configs()
gguf_configs()
with tempfile.TemporaryDirectory() as folder:
    source, model = converted_tokenizers(folder)
    refused_tokenizers(folder, source)
    if len(sys.argv) > 2:
        same_splits(folder, source, model)
print("Gemma keeps its promises")
