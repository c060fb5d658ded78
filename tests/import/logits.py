"""The float forward pass of examples/import: logits that transformers gave for small models of every family.

    python3 tests/import/logits.py SOURCE_FOLDER"""

import json
import os
import tempfile

import numpy as np

from promises import promise, refusal, root
import small_models
from float_model import FloatModel, rms_norm
from float_reference import read_tokens, write_reference
from sources import open_source

expected = json.loads((root / "tests/import/expected_logits.json").read_text())
promise(set(expected) == set(small_models.CASES), "every case has recorded logits")
for seed, case in enumerate(small_models.CASES):
    config = small_models.config_of(case)
    tensors = small_models.weights_of(config, seed)
    ids = np.random.RandomState(seed).randint(0, config["vocab_size"], 100)
    with tempfile.TemporaryDirectory() as folder:
        small_models.write_folder(folder, config, tensors, shards=1 + seed % 3)
        model = FloatModel(open_source(folder))
        hidden = model.hidden([ids, ids[:51]])
        logits = model.logits(hidden)
        recorded = np.array(expected[case]["logits of tokens 0, 50 and 99"])
        promise(
            np.abs(logits[[0, 50, 99]][:, ::40] - recorded).max() < 1e-4, f"{case}: logits are those of transformers"
        )
        promise(
            np.abs(logits[100:] - logits[:51]).max() < 1e-4, f"{case}: a text's logits do not depend on other texts"
        )
        sums = np.concatenate([np.exp(rows).sum(1) for rows in model.log_probs(hidden, memory=1 << 16)])
        promise(len(sums) == 151 and np.abs(sums - 1).max() < 1e-4, f"{case}: probabilities add up to 1")
        if small_models.CASES[case][1]:
            path = folder + "/small.gguf"
            with open(path, "wb") as file:
                file.write(small_models.gguf_of(config, tensors).bytes())
            other = FloatModel(open_source(path)).hidden([ids])
            promise(np.abs(other - hidden[:100]).max() < 1e-4, f"{case}: a GGUF file computes what the folder computes")


def reference_file():
    """The file that kaiju-compare reads, in the layout that float_reference.py describes."""
    config = small_models.config_of("qwen3")
    with tempfile.TemporaryDirectory() as folder:
        small_models.write_folder(f"{folder}/model", config, small_models.weights_of(config, 2))
        model = FloatModel(open_source(f"{folder}/model"))
        with open(f"{folder}/tokens", "w") as file:
            file.write("5 6 7\n\n300 1 1 1 2\n")
        texts = read_tokens(f"{folder}/tokens", 320)
        promise([list(text) for text in texts] == [[5, 6, 7], [300, 1, 1, 1, 2]], "texts are lines")
        hidden = model.hidden(texts)
        expected = np.concatenate(list(model.log_probs(hidden)))
        for float32 in (False, True):
            write_reference(model, texts, f"{folder}/reference", float32, hidden=True)
            raw = open(f"{folder}/reference", "rb").read()
            size = int.from_bytes(raw[:8], "little")
            header = json.loads(raw[8 : 8 + size])
            promise(header.pop("__metadata__")["format"] == "kaiju-reference", "the file says what it is")
            promise((8 + size) % 64 == 0, "the data begins at a multiple of 64 bytes")
            kinds = {"I32": np.int32, "F32": np.float32, "F16": np.float16}
            found = {}
            for name, about in header.items():
                first, last = about["data_offsets"]
                data = raw[8 + size + first : 8 + size + last]
                found[name] = np.frombuffer(data, kinds[about["dtype"]]).reshape(about["shape"])
            promise(list(found["tokens"]) == [5, 6, 7, 300, 1, 1, 1, 2] and list(found["lengths"]) == [3, 5], "tokens")
            far = np.abs(found["logprobs"].astype(np.float32) - expected).max()
            promise(found["logprobs"].shape == (8, 320) and far < (1e-5 if float32 else 8e-3), "log-probabilities")
            promise(
                sorted(name for name in found if name.startswith("hidden")) == [f"hidden.{i}" for i in range(4)],
                "layers",
            )
            gain = model.source.rows("final.norm_gain")
            last = rms_norm(found["hidden.3"], model.config.norm_eps, gain)
            promise(np.abs(last - hidden).max() < 1e-5, "the residual after the last layer, normed, gives the logits")
        with open(f"{folder}/tokens", "w") as file:
            file.write("5 320\n")
        with refusal("a token beyond the vocabulary", "line 1", "320"):
            read_tokens(f"{folder}/tokens", 320)
        promise(sorted(os.listdir(folder)) == ["model", "reference", "tokens"], "nothing else is left")


reference_file()
print("the float model keeps its promises")
