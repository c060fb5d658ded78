"""Gemma's mobile checkpoints, against transformers' GemmaQuantizer: the integers at inputs and outputs of matrices.

    python3 tests/import/gemma_quantizer.py SOURCE_FOLDER

Skipped (exit status 77) without PyTorch and transformers. transformers computes attention with float keys, values and
queries, and no site in bf16; with these two taken out of version 2's arithmetic, all integers have to be equal, but for
those that a float's last bit decides."""

import sys
import tempfile

import numpy as np

try:
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

CASES = ("gemma3 own scale", "gemma4", "gemma4 unified")
IDS = np.random.RandomState(13).randint(0, 320, 40)


def of_transformers(folder):
    """{matrix: (integers of inputs, of outputs)} and the log-probabilities."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    found = {}

    def keep(name, layer):
        def hook(module, given, result):
            x, scale = given[0].detach().numpy()[0], layer.input_activation_scale.item()
            y, out_scale = result.detach().numpy()[0], layer.output_activation_scale.item()
            found[name] = np.clip(np.rint(x / np.float32(scale)), -128, 127), np.rint(y / np.float32(out_scale))

        return hook

    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear) and module.input_activation_scale.item():
            module.register_forward_hook(keep(name[name.index("layers.") :], module))
    with torch.no_grad():
        logits = model(torch.tensor(IDS[None])).logits[0]
    return found, torch.log_softmax(logits, -1).numpy()


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


class Floats(Watched):
    """Without what transformers does not round."""

    @staticmethod
    def _as_written(x, name):
        return x

    def attend(self, layer, q, k, v):
        return FloatModel.attend(self, layer, q, k, v)


def compared(found, expected, source):
    """The share of integers that differ, and by how much at most."""
    different, total, most = 0, 0, 0
    for name, pair in found.items():
        called = source._called[name + ".weight"].removesuffix(".weight")
        for ours, theirs in zip(pair, expected[called[called.index("layers.") :]]):
            different += int((ours != theirs).sum())
            total += ours.size
            most = max(most, int(np.abs(ours - theirs).max()))
    return different / total, most


def log_probs(model):
    return np.concatenate(list(model.log_probs(model.hidden([IDS]))))


with tempfile.TemporaryDirectory() as place:
    for seed, case in enumerate(CASES):
        int8_folders.write_gemma(f"{place}/{case}", case, seed, True)
        source, path = open_source(f"{place}/{case}"), f"{place}/{case}.safetensors"
        importer.import_model(source, path, importer.Options(check=False, chat=False))
        expected, their_probs = of_transformers(f"{place}/{case}")
        promise(len(expected) == len([name for name in source.config.matrices() if "." in name]), f"{case}: all matrices")
        for kind, allowed, most_kl in ((Floats, 1e-4, 1e-5), (Watched, 1.0, 1.0)):
            model = kind(path, source.config)
            probs = log_probs(model)
            share, most = compared(model.found, expected, source)
            kl = float((np.exp(their_probs) * (their_probs - probs)).sum(1).mean())
            print(f"{case:18} {kind.__name__:8} {share:.2e} of the integers differ, by {most} at most; KL {kl:.1e}")
            promise(share <= allowed and kl < most_kl, f"{case}: integers and logits are transformers'")
print("the integers are those of GemmaQuantizer")
