"""The float forward pass of examples/import: logits that transformers gave for small models of every family.

python3 tests/import/logits.py SOURCE_FOLDER"""

import json
import tempfile

import numpy as np

from promises import promise, root
import small_models
from float_model import FloatModel
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
print("the float model keeps its promises")
