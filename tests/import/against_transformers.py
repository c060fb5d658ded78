"""Each family of examples/import against transformers with random weights: hidden states of every layer and logits.

    python3 tests/import/against_transformers.py SOURCE_FOLDER

Needs torch and transformers, and exits with 77, which CTest counts as skipped, without them."""

import json
import pathlib
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError:
    sys.exit(77)
import numpy as np

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "examples/import"))
from float_model import FloatModel  # noqa: E402
from sources import open_source  # noqa: E402

SMALL = {"vocab_size": 96, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64}
CASES = [
    ("Llama", transformers.LlamaConfig, {}),
    ("Llama 3.1, RoPE scaled", transformers.LlamaConfig, {"rope_parameters": LLAMA3, "rms_norm_eps": 1e-5}),
    ("Llama with biases, tied", transformers.LlamaConfig, {"attention_bias": True, "mlp_bias": True,
                                                            "tie_word_embeddings": True}),
    ("Llama, linear scaling", transformers.LlamaConfig, {"rope_parameters": {"rope_type": "linear", "factor": 3.0,
                                                                             "rope_theta": 10000.0}}),
    ("SmolLM3", transformers.SmolLM3Config, {}),
    ("SmolLM3 with windows", transformers.SmolLM3Config, {"use_sliding_window": True, "sliding_window": 24,
                                                          "no_rope_layers": [1, 0, 0, 1]}),
    ("Mistral Nemo", transformers.MistralConfig, {"head_dim": 64, "sliding_window": None,
                                                  "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    ("Mistral 7B, windows", transformers.MistralConfig, {"sliding_window": 20}),
    ("Qwen2.5", transformers.Qwen2Config, {}),
    ("Qwen2.5, yarn", transformers.Qwen2Config, {"rope_parameters": YARN}),
    ("Qwen2.5, windows in upper layers", transformers.Qwen2Config, {"use_sliding_window": True, "sliding_window": 16,
                                                                    "max_window_layers": 2}),
    ("Qwen3", transformers.Qwen3Config, {"head_dim": 64, "tie_word_embeddings": True}),
    ("Arcee AFM", transformers.ArceeConfig, {"rope_parameters": {**YARN, "factor": 20.0, "mscale": 1.0,
                                                                 "beta_fast": 16.0, "truncate": False}}),
]


def cosine(a, b):
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


worst, failed = 1.0, 0
for number, (name, config_class, changes) in enumerate(CASES):
    torch.manual_seed(number)
    model = transformers.AutoModelForCausalLM.from_config(config_class(**SMALL | changes)).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.copy_(1 + 0.3 * torch.randn_like(parameter) if "norm" in parameter_name else
                            0.1 * torch.randn_like(parameter))
    ids = np.random.default_rng(number).integers(0, 96, 100)
    with torch.no_grad():
        theirs = model(torch.from_numpy(ids)[None], output_hidden_states=True)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        ours = FloatModel(open_source(folder))
        seen = {}
        hidden = ours.hidden([ids[:30], ids], lambda layer, what, values: seen.update({layer: values}) if what == "x" else None)
        logits = ours.logits(hidden[30:])
    layers = [cosine(seen[layer][30:], theirs.hidden_states[layer + 1][0].numpy()) for layer in range(3)]  # the last: normed
    layers.append(cosine(hidden[30:], theirs.hidden_states[4][0].numpy()))
    layers.append(cosine(logits, theirs.logits[0].numpy()))
    far = float(np.abs(logits - theirs.logits[0].numpy()).max())
    failed += min(layers) < 0.99999
    print(f"{name:36} lowest cosine {min(layers):.8f}, logits at most {far:.1e} apart")
print(f"{len(CASES)} models, {failed} of them differ from transformers {transformers.__version__}")
sys.exit(failed > 0)
