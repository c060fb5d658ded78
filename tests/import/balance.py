"""Factors that are folded into a model leave what it computes, and int8 loses less of it.

python3 tests/import/balance.py SOURCE_FOLDER"""

import tempfile

import numpy as np

from promises import promise, refusal
import small_models
import balance
import importer
from float_model import FloatModel
from int8_model import Int8Model
from sources import open_source
from stored_tokenizer import StoredTokenizer

FAMILIES = ("llama biased, tied", "mistral", "qwen2", "arcee", "gemma3", "gemma4", "gemma4 unified", "gemma4 shared", "gemma4 inputs")
IDS = np.random.RandomState(7).randint(0, 320, 60)


def log_probs(model):
    return np.concatenate(list(model.log_probs(model.hidden([IDS]))))


def same_model(folder):
    for seed, case in enumerate(FAMILIES):
        config = small_models.config_of(case)
        small_models.write_folder(f"{folder}/{case}", config, small_models.weights_of(config, seed))
        source = open_source(f"{folder}/{case}")
        layers = []
        folded = balance.balanced(source, [IDS[:30], IDS[30:]], lambda: layers.append(1))
        promise(len(layers) == source.config.layers, f"{case}: each layer is told")
        expected, found = log_probs(FloatModel(source)), log_probs(FloatModel(folded))
        promise(np.abs(expected - found).max() < 2e-3, f"{case}: off by {np.abs(expected - found).max():.1e}")
        for name in ("layers.0.ffn.down.weight", "layers.0.attn.q.weight", "layers.0.ffn.norm_gain"):
            promise(not np.array_equal(source.rows(name), folded.rows(name)), f"{case}: {name} has a factor")
        turned = not np.array_equal(source.rows("layers.0.attn.o.weight"), folded.rows("layers.0.attn.o.weight"))
        promise(turned == (not source.config.value_norms), f"{case}: values are rotated where nothing norms them")
        whole = folded.rows("layers.0.attn.v.weight")
        for first, count in ((0, 5), (3, 60), (60, len(whole) - 61), (len(whole) - 1, 1)):
            part = folded.rows("layers.0.attn.v.weight", first, count)
            promise(np.array_equal(part, whole[first : first + count]), f"{case}: rows {first} and {count} of them")


def outliers(folder):
    """A model with a few channels that are 100 times as large as the others."""
    config = small_models.config_of("gemma3")
    tensors = small_models.weights_of(config, 3)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        tensors[p + "input_layernorm.weight"][[5, 70, 200]] += 100
        for which in "qkv":
            tensors[f"{p}self_attn.{which}_proj.weight"][:, [5, 70, 200]] /= 100
        tensors[p + "mlp.up_proj.weight"][[1, 2, 130]] *= 100
        tensors[p + "mlp.down_proj.weight"][:, [1, 2, 130]] /= 100
    small_models.write_folder(f"{folder}/outliers", config, tensors)
    source = open_source(f"{folder}/outliers")
    expected, lost = log_probs(FloatModel(source)), {}
    for wanted in (False, True, None):
        path = f"{folder}/{wanted}.safetensors"
        said = importer.import_model(source, path, importer.Options(check=False, chat=False, balance=wanted))
        promise(("balance" in said) == (wanted is not False), "the report says what was folded")
        found = log_probs(Int8Model(path, source.config))
        lost[wanted] = float((np.exp(expected) * (expected - found)).sum(1).mean())
    promise(lost[True] < 0.25 * lost[False], f"KL {lost[True]:.1e} with balance, {lost[False]:.1e} without")
    promise(lost[None] == lost[True], "Gemma's families are balanced unless somebody says no")


def beginnings():
    """A text is looked at as the model sees one."""
    texts = [np.array([7, 8]), np.array([9])]
    found = importer.begun(texts, StoredTokenizer(b"", begin=2))
    promise([list(text) for text in found] == [[2, 7, 8], [2, 9]], "each begins with the token that the model expects")
    promise(importer.begun(texts, StoredTokenizer(b"")) is texts and importer.begun(texts, None) is texts, "or does not")


def own_text(folder):
    """A text that somebody brings decides the factors, and so the bytes."""
    source, found = open_source(f"{folder}/qwen2"), {}
    for name, text in (("a", "the heather on the other path " * 200), ("b", "A3;B4;C5;" * 400), ("short", "other")):
        with open(f"{folder}/{name}.txt", "w") as file:
            file.write(text)
    for name in ("a", "b"):
        options = importer.Options(check=False, chat=False, balance=True, text=f"{folder}/{name}.txt")
        importer.import_model(source, f"{folder}/{name}.safetensors", options)
        with open(f"{folder}/{name}.safetensors", "rb") as file:
            found[name] = file.read()
    promise(found["a"] != found["b"], "another text gives other factors")
    for name, words in (("short", ["short.txt", "160"]), ("missing", ["missing.txt", "cannot be read"])):
        with refusal(f"a text that is {name}", *words):
            options = importer.Options(check=False, chat=False, text=f"{folder}/{name}.txt")
            importer.import_model(source, f"{folder}/x.safetensors", options)


with tempfile.TemporaryDirectory() as place:
    same_model(place)
    outliers(place)
    beginnings()
    own_text(place)
print("ok")
