"""Folders whose weights are int8 already: their bytes and scales are in the checkpoint as they are, and schemes that
kaiju does not compute are refused by name.

    python3 tests/import/quantised.py SOURCE_FOLDER [FOLDER_OF_PROGRAMS]

With kaiju's programs, the engine too reads the files and computes nearly what numpy computes."""

import copy
import json
import pathlib
import sys
import tempfile

import numpy as np

from promises import engine_log_probs, promise, refusal
import families
import int8_folders
import small_models
import importer
import native
from float_model import FloatModel
from int8_model import CheckpointTensors, Int8Model
from sources import open_source

IDS = np.random.RandomState(11).randint(0, 320, 50)


def log_probs(model):
    return np.concatenate(list(model.log_probs(model.hidden([IDS]))))


def check_engine(path, case, numpys):
    """The engine computes what numpy computes, but for the bits of exponentials, which decide roundings of keys."""
    if len(sys.argv) < 3 or not sys.argv[2]:
        return
    found = engine_log_probs(pathlib.Path(sys.argv[2]), path, case, IDS, numpys.shape[1])
    kl = (np.exp(numpys) * (numpys - found)).sum(1)
    promise(np.abs(kl[0]) < 1e-5, f"{case}: the engine's KL of the first token against numpy is {kl[0]:.1e}")
    promise(-1e-4 < kl.mean() < 1e-2, f"{case}: the engine's KL against numpy is {kl.mean():.1e}")


def imported(folder, case, most_kl):
    """Imports the folder; returns its source and the checkpoint's tensors."""
    source, path = open_source(f"{folder}/{case}"), f"{folder}/{case}.safetensors"
    said = importer.import_model(source, path, importer.Options(chat=False))
    promise("already" in said and "KL" in said, f"{case}: the report says that nothing was rounded")
    expected, found = log_probs(FloatModel(source)), log_probs(Int8Model(path, source.config))
    found = found[:, : expected.shape[1]]
    kl = float((np.exp(expected) * (expected - found)).sum(1).mean())
    promise(-1e-4 < kl < most_kl, f"{case}: the KL against float is {kl:.1e}")
    check_engine(path, case, found)
    return source, CheckpointTensors(path), said


def same_bytes(source, stored, integers, scales, case):
    for matrix in source.config.matrices():
        stem = native.matrix_name(matrix)
        called = source._called[matrix + ".weight"].removesuffix(".weight")
        if called not in integers:
            continue
        weight = stored.rows(stem + ".weight")
        same = np.array_equal(weight, np.maximum(integers[called], -127).reshape(weight.shape))
        promise(same, f"{case}: {matrix} has the source's bytes")
        its, wanted = stored.rows(stem + ".scale"), scales[called].reshape(-1)
        wanted = np.repeat(wanted, len(its) // len(wanted))  # a token's embeddings of all layers may share one
        wanted = wanted * np.float32(families.weight_factor(matrix, source.config))
        promise(np.array_equal(its, wanted), f"{case}: {matrix} has the source's scales")
        promise(np.array_equal(stored.rows(stem + ".row_sum"), weight.sum(1, dtype=np.int32)), f"{case}: row sums")


def token_scales(folder):
    for seed, (case, family) in enumerate((("compressed-tensors", "llama"), ("quark", "qwen2"), ("no gate", "arcee"))):
        method = "quark" if case == "quark" else "compressed-tensors"
        integers, scales = int8_folders.write_w8a8(f"{folder}/{case}", family, method, seed)
        source, stored, said = imported(folder, case, 5e-2)
        same_bytes(source, stored, integers, scales, case)
        promise("of -128 became -127" in said, f"{case}: the report says what became of -128")
        structure = stored.config["structure"]
        promise(structure["hadamard"] == 0 and structure["activations"] == "token_scales", "the inputs are not turned")
        with refusal("int8 that is to be balanced", "balanced"):
            importer.import_model(source, f"{folder}/x.safetensors", importer.Options(balance=True))


def static_scales(folder):
    for seed, (case, cache) in enumerate(
        (
            ("gemma3 own scale", True),
            ("gemma4", True),
            ("gemma4 unified", False),
            ("gemma4 shared", True),
            ("gemma4 inputs", True),
            ("gemma4 wide inputs", False),
        )
    ):
        made = int8_folders.write_gemma(f"{folder}/{case}", case, seed, cache, scales_by_layer=case == "gemma4 inputs")
        source, stored, _ = imported(folder, case, 0.8)
        same_bytes(source, stored, made.integers, made.scales, case)
        structure = stored.config["structure"]
        promise(structure["activations"] == "static_scales" and structure["hadamard"] == 0, f"{case}: static scales")
        promise(structure["f32_rows"], f"{case}: no row is rounded before it is quantised")
        promise(structure["static_kv"] is cache, f"{case}: scales of keys and values as trained, where there are some")
        called = "model.layers.1.self_attn.o_proj"
        promise(stored.rows("layers.1.attn.out_step")[0] == made.inputs[called], f"{case}: the step of an input")
        promise(stored.rows("layers.1.attn.o.out_step")[0] == made.outputs[called], f"{case}: the step of an output")
        if source.config.layer_inputs:
            called = "model.layers.2.per_layer_projection"
            promise(stored.rows("layers.2.inputs.mid_step")[0] == made.inputs[called], f"{case}: a step of layer inputs")
            wanted = np.float32(made.outputs["model.per_layer_model_projection"] / 16)  # sqrt(d_model)
            promise(stored.rows("inputs.projection.out_step")[0] == wanted, f"{case}: the step of the projection")
        if cache:
            promise((stored.rows("kv.1.k_step") == made.caches[1][0]).all(), f"{case}: the step of keys")
            promise((stored.rows("kv.1.v_step") == made.caches[1][1]).all(), f"{case}: the step of values")


def grouped_embedding(folder):
    """An embedding may have several scales in a row; it is then rounded as floats are."""
    made = int8_folders.write_gemma(f"{folder}/groups", "gemma4", 5, True)
    scales = (made.scales["model.embed_tokens"] * [1, 2, 1, 0.5]).astype(np.float32)
    int8_folders.write_gemma(f"{folder}/groups", "gemma4", 5, True, {"model.embed_tokens.embedding_scale": scales})
    source, stored, _ = imported(folder, "groups", 0.5)
    integers = made.integers["model.embed_tokens"]
    rows = (integers.reshape(len(integers), 4, -1) * scales[:, :, None]).reshape(integers.shape)
    promise(np.array_equal(source.rows("embed.weight"), rows), "each group of a row has its scale")
    found = stored.rows("embed.weight") * stored.rows("embed.scale")[:, None]
    promise(np.abs(found - rows).max() <= 0.51 * stored.rows("embed.scale").max(), "and is rounded with the others")


def refused(folder):
    """Changes of quantization_config and of tensors, and words of the refusal."""
    w8a8, group = int8_folders.COMPRESSED, "config_groups"
    for method, path, value, words in (
        ("compressed-tensors", ("format",), "pack-quantized", ["format", "int-quantized"]),
        ("compressed-tensors", ("kv_cache_scheme",), {"num_bits": 8}, ["kv_cache_scheme"]),
        ("compressed-tensors", ("sparsity_config",), {"format": "dense"}, ["sparsity_config"]),
        ("compressed-tensors", (group, "group_1"), w8a8[group]["group_0"], ["2 config_groups"]),
        ("compressed-tensors", (group, "group_0", "targets"), ["re:.*mlp.*"], ["targets"]),
        ("compressed-tensors", (group, "group_0", "weights", "symmetric"), False, ["weights", "symmetric False"]),
        ("compressed-tensors", (group, "group_0", "weights", "strategy"), "group", ["weights", "'group'", "'channel'"]),
        ("compressed-tensors", (group, "group_0", "weights", "num_bits"), 4, ["weights", "num_bits 4"]),
        ("compressed-tensors", (group, "group_0", "weights", "type"), "float", ["weights", "type 'float'"]),
        ("compressed-tensors", (group, "group_0", "input_activations", "symmetric"), False, ["input_activations"]),
        ("compressed-tensors", (group, "group_0", "input_activations", "dynamic"), False, ["dynamic False"]),
        ("compressed-tensors", (group, "group_0", "input_activations"), None, ["not an object"]),
        ("quark", ("global_quant_config", "weight", "qscheme"), "per_group", ["weight", "per_group"]),
        ("quark", ("global_quant_config", "weight", "dtype"), "fp8_e4m3", ["weight", "fp8_e4m3"]),
        ("quark", ("global_quant_config", "input_tensors", "is_dynamic"), False, ["input_tensors", "is_dynamic"]),
        ("quark", ("global_quant_config", "input_tensors", "qscheme"), "per_tensor", ["input_tensors", "per_tensor"]),
        ("quark", ("layer_quant_config",), {"lm_head": {}}, ["layer_quant_config"]),
        ("quark", ("quant_method",), "gemma", ["quantised", "Gemma"]),
        ("quark", ("quant_method",), "awq", ["AWQ"]),
    ):
        place = f"{folder}/refused"
        int8_folders.write_w8a8(place, "llama", method, 1)
        with open(f"{place}/config.json") as file:
            config = json.load(file)
        at = config["quantization_config"]
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = copy.deepcopy(value)
        with open(f"{place}/config.json", "w") as file:
            json.dump(config, file)
        with refusal(f"{method} with {path} {value}", *words):
            open_source(place)


def refused_tensors(folder):
    q, gate = "model.layers.0.self_attn.q_proj", "model.layers.2.mlp.gate_proj"
    ones = np.ones((256, 1), np.float32)
    for case, change, words in (
        ("no scales", {q + ".weight_scale": None}, ["q_proj", "lacks the scales"]),
        ("floats", {q + ".weight": np.ones((256, 128), np.float32)}, ["q_proj", "all of them or none"]),
        ("zero points", {q + ".weight_zero_point": np.ones((256, 1), np.int8)}, ["q_proj", "asymmetric"]),
        ("groups", {q + ".weight_scale": np.ones((256, 2), np.float32)}, ["q_proj", "2 scales in a row"]),
        ("shape", {q + ".weight": np.ones((256, 64), np.int8)}, ["q_proj", "[256, 64]"]),
        ("few scales", {q + ".weight_scale": ones[:5]}, ["q_proj", "[5, 1]"]),
        ("one scale", {q + ".weight_scale": ones[0, 0]}, ["q_proj", "[]"]),
        ("a vector", {q + ".weight": np.ones(256, np.uint8)}, ["q_proj", "[256]"]),
        ("scales of nothing", {"model.layers.0.mlp.experts.weight_scale": ones}, ["experts", "not known"]),
    ):
        int8_folders.write_w8a8(f"{folder}/tensors", "llama", "compressed-tensors", 2, change)
        with refusal(case, *words):
            open_source(f"{folder}/tensors")
    int8_folders.write_w8a8(f"{folder}/nan", "llama", "compressed-tensors", 2, {q + ".weight_scale": ones * np.nan})
    with refusal("a scale that is no number", "q.weight", "scale"):
        importer.import_model(open_source(f"{folder}/nan"), f"{folder}/nan.safetensors", importer.Options(check=False))
    zero = np.zeros((), np.float32)
    for case, change, words in (
        (
            "an input that is not quantised",
            {q + ".input_activation_scale": zero},
            ["q_proj", "input_activation_scale 0"],
        ),
        ("an output likewise", {gate + ".output_activation_scale": None}, ["gate_proj", "output_activation_scale 0"]),
        ("two scales of one input", {q + ".input_activation_scale": zero + 1}, ["another input_activation_scale"]),
        (
            "scales by head",
            {"model.layers.1.self_attn.v_cache_scale": ones[:2] * [[1], [2]]},
            ["v_cache_scale", "[2, 1]"],
        ),
        ("integers as scales", {q + ".input_activation_scale": np.ones(4, np.int8)}, ["input_activation_scale is I8"]),
        ("caches of some layers", {"model.layers.1.self_attn.k_cache_scale": zero}, ["layer 1", "keys or values"]),
    ):
        int8_folders.write_gemma(f"{folder}/static", "gemma4", 3, True, change)
        with refusal(case, *words):
            open_source(f"{folder}/static")


with tempfile.TemporaryDirectory() as place:
    token_scales(place)
    static_scales(place)
    grouped_embedding(place)
    refused(place)
    refused_tensors(place)
print("folders of int8 weights are taken as they are")
