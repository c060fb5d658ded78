"""Gemma's mobile checkpoints, against transformers' GemmaQuantizer: the integers at inputs and outputs of matrices.

    python3 tests/import/gemma_quantizer.py SOURCE_FOLDER

Skipped (exit status 77) without PyTorch and transformers. transformers computes attention with float keys, values and
queries; with that in place of version 2's integers, all integers have to be equal, but for those that a float's last
bit decides. Each matrix, and then each layer, gets transformers' input, so that such a bit does not spread."""

import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers
    from transformers.integrations.gemma_quant import QuantizedLinear
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from promises import promise
import int8_folders
import importer
from float_model import FloatModel
from int8_model import Int8Model, whole_steps
import native
from sources import open_source

CASES = ("gemma3 own scale", "gemma4", "gemma4 unified", "gemma4 shared", "gemma4 inputs", "gemma4 wide inputs")
IDS = np.random.RandomState(13).randint(0, 320, 40)


def in_layers(name):
    """A matrix's name without what comes before its layer."""
    return name[name.index("layers.") :] if "layers." in name else name.rsplit(".", 1)[-1]


def of_transformers(folder):
    """{matrix: (its inputs, integers of them, of its outputs)}, the inputs of layers, and the log-probabilities."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    found, before = {}, []

    def keep(name, layer):
        def hook(module, given, result):
            x, scale = given[0].detach().numpy()[0], layer.input_activation_scale.item()
            y, out_scale = result.detach().numpy()[0], layer.output_activation_scale.item()
            x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
            found[name] = x, np.clip(np.rint(x / np.float32(scale)), -128, 127), np.rint(y / np.float32(out_scale))

        return hook

    for layer in model.model.layers:
        layer.register_forward_pre_hook(lambda module, given: before.append(given[0].detach().numpy()[0]))
    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear) and module.input_activation_scale.item():
            module.register_forward_hook(keep(in_layers(name), module))
    with torch.no_grad():
        logits = model(torch.tensor(IDS[None]), output_hidden_states=True).logits[0]  # so that all tokens run
    return found, before, torch.log_softmax(logits, -1).numpy()


class Watched(Int8Model):
    """Keeps the integers of matrices."""

    def __init__(self, path, config):
        super().__init__(path, config)
        self.found = {}

    def linear(self, x, name):
        stem, y = native.matrix_name(name), super().linear(x, name)
        inputs = whole_steps(self._as_written(x, name), self._step(native.site_name(name)))
        self.found[name] = inputs, np.rint(y / self._step(stem + ".out_step"))
        return y


class FloatAttention(Watched):
    """Without what transformers does not round."""

    def attend(self, layer, q, k, v):
        return FloatModel.attend(self, layer, q, k, v)


def called(source, matrix):
    """Its name in transformers, from the layers on."""
    return in_layers(source._called[matrix + ".weight"].removesuffix(".weight"))


def compared(found, expected, source):
    """The share of integers that differ, and by how much at most."""
    different, total, most = 0, 0, 0
    for name, pair in found.items():
        for ours, theirs in zip(pair, expected[called(source, name)][1:]):
            different += int((ours != theirs).sum())
            total += ours.size
            most = max(most, int(np.abs(ours - theirs).max()))
    return different / total, most


def log_probs(model):
    return np.concatenate(list(model.log_probs(model.hidden([IDS]))))


def each_matrix(model, source, expected):
    """Likewise, each matrix computed from the given input."""
    model.found = {}
    for name in source.config.matrices():
        if native.is_static(name):
            model.linear(expected[called(source, name)][0], name)
    return model.found


def each_layer(model, before):
    """The model's integers, each layer computed from the given input."""
    model.found = {}
    model.read_inputs(IDS, model.embed(IDS))
    for layer, x in enumerate(before):
        model.layer(layer, x, [len(IDS)], lambda *_: None)
    return model.found


with tempfile.TemporaryDirectory() as place:
    for seed, case in enumerate(CASES):
        int8_folders.write_gemma(f"{place}/{case}", case, seed, True)
        source, path = open_source(f"{place}/{case}"), f"{place}/{case}.safetensors"
        importer.import_model(source, path, importer.Options(check=False, chat=False))
        expected, before, their_probs = of_transformers(f"{place}/{case}")
        promise(
            len(expected) == len([*filter(native.is_static, source.config.matrices())]), f"{case}: all matrices"
        )
        share, most = compared(each_matrix(Watched(path, source.config), source, expected), expected, source)
        print(f"{case:18} {'each matrix':14} {share:.1e} of the integers differ, by {most} at most")
        promise(share < 2e-5 and most <= 1, f"{case}: matrices give transformers' integers")
        for kind, allowed, most_kl in ((FloatAttention, 5e-3, 5e-2), (Watched, 0.5, 0.2)):
            model = kind(path, source.config)
            kl = float((np.exp(their_probs) * (their_probs - log_probs(model))).sum(1).mean())
            share, most = compared(each_layer(model, before), expected, source)
            print(f"{case:18} {kind.__name__:14} {share:.1e} of the integers differ, by {most} at most; KL {kl:.1e}")
            promise(share < allowed and kl < most_kl, f"{case}: layers give nearly transformers' integers")
print("the integers are those of GemmaQuantizer")
