"""Folders as compressed-tensors writes them, against transformers, which rounds inputs by token too.

    python3 tests/import/w8a8.py SOURCE_FOLDER

Skipped (exit status 77) without PyTorch, transformers and compressed-tensors. Their scale of a token is the largest
magnitude / 127.5 and kaiju's / 127, so the roundings are as large and not the same."""

import sys
import tempfile

try:
    import compressed_tensors  # noqa: F401
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from promises import promise
import importer
import int8_folders
from float_model import FloatModel
from int8_model import Int8Model
from sources import open_source

IDS = np.random.RandomState(1).randint(0, 320, 40)

with tempfile.TemporaryDirectory() as place:
    for seed, family in enumerate(("llama", "qwen3", "mistral")):
        folder, path = f"{place}/{family}", f"{place}/{family}.safetensors"
        int8_folders.write_w8a8(folder, family, "compressed-tensors", seed)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            expected = torch.log_softmax(model(torch.tensor(IDS[None])).logits[0], -1).numpy()
        source = open_source(folder)
        importer.import_model(source, path, importer.Options(check=False, chat=False))
        for kind, ours, most in (
            ("float inputs", FloatModel(source), 3e-3),
            ("the checkpoint", Int8Model(path, source.config), 6e-3),
        ):
            found = np.concatenate(list(ours.log_probs(ours.hidden([IDS]))))
            kl = float((np.exp(expected) * (expected - found)).sum(1).mean())
            print(f"{family:10} {kind:16} KL {kl:.1e}")
            promise(-1e-5 < kl < most, f"{family}: {kind} is near what transformers computes")
print("W8A8 folders are read as transformers reads them")
