"""Each family of examples/import against transformers with random weights: hidden states of every layer and logits.

    python3 tests/import/against_transformers.py SOURCE_FOLDER [--record] [CASE ...]

Without a CASE, all of small_models.py are compared. --record writes expected_logits.json, of which logits.py makes the
same comparison without transformers. Needs torch and transformers, and exits with 77, which CTest counts as skipped,
without them."""

import json
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError:
    sys.exit(77)
import numpy as np

from promises import promise, root
import small_models
from float_model import FloatModel
from sources import open_source


def cosine(a, b):
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


record = root / "tests/import/expected_logits.json"
before, recorded = json.loads(record.read_text()), {}
wanted = [word for word in sys.argv[2:] if word != "--record"] or list(small_models.CASES)
for seed, case in enumerate(small_models.CASES):
    if case not in wanted:
        recorded[case] = before.get(case)
        continue
    config = small_models.config_of(case)
    ids = np.random.RandomState(seed).randint(0, config["vocab_size"], 100)
    with tempfile.TemporaryDirectory() as folder:
        small_models.write_folder(folder, config, small_models.weights_of(config, seed))
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            theirs = model(torch.from_numpy(ids)[None], output_hidden_states=True)
        ours, seen = FloatModel(open_source(folder)), {}
        hidden = ours.hidden([ids[:30], ids], lambda layer, what, x: seen.update({layer: x}) if what == "x" else None)
        logits = ours.logits(hidden[30:])
    expected = theirs.logits[0].numpy()
    last = config["num_hidden_layers"]
    layers = [cosine(seen[layer][30:], theirs.hidden_states[layer + 1][0].numpy()) for layer in range(last - 1)]
    layers += [cosine(hidden[30:], theirs.hidden_states[last][0].numpy()), cosine(logits, expected)]
    print(f"{case:20} lowest cosine {min(layers):.8f}, logits at most {np.abs(logits - expected).max():.1e} apart")
    promise(min(layers) > 0.999999, f"{case} is what transformers {transformers.__version__} computes")
    recorded[case] = {
        "of": f"transformers {transformers.__version__}",
        "logits of tokens 0, 50 and 99": [[round(float(x), 5) for x in expected[row, ::40]] for row in (0, 50, 99)],
    }
if "--record" in sys.argv:
    record.write_text(json.dumps(recorded, indent=1) + "\n")
