"""The checkpoint of a Kaijufied model: what kaijufy.py stored, with the source's tokenizer and chat format (arithmetic version 2).

    python3 kaijufy_file.py RUN/model.pt --source SOURCE --out kaiju.safetensors [--name NAME]"""
import argparse
import dataclasses
import json
import os
import sys

import numpy as np
import torch

import model

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import"))
import importer
import native
from checkpoint_file import write_checkpoint
from model_config import RELU_SQUARED
from rope import turns_per_token
from sources import open_source


def shape_of(c, saved):
    """The source's config in Kaiju's shape, and which slot each layer has."""
    shape = model.Config(pattern=saved["pattern"], window=saved["window"], share=3, share_global=2)
    each = tuple(dataclasses.replace(layer, n_kv_heads=1, window=window, kv_of=None if shape.owner[slot] == i else shape.owner[slot])
                 for i, (layer, window, slot) in enumerate(zip(c.each, shape.windows, shape.slot)))
    return dataclasses.replace(c, n_kv_heads=1, d_ff=saved["d_ff"], activation=RELU_SQUARED, each=each), shape


def tensors(t, c, shape):
    """{name: (type, array)} of a checkpoint, but for the tokenizer."""
    out = {}

    def put(name, kind, value):
        out[name] = kind, np.ascontiguousarray(value.numpy() if torch.is_tensor(value) else value)

    def matrix(name, key, i=None):
        weight, scale = (t[k] if i is None else t[k][i] for k in (key, key + ".scale"))
        put(name + ".weight", "I8", weight)
        put(name + ".scale", "F32", scale)
        put(name + ".row_sum", "I32", weight.sum(-1, dtype=torch.int32))
        if key != "embed":
            put(name + ".scalar", "F32", np.ones(1, np.float32))

    matrix("embed", "embed")
    for name in ("embed.in_scalar", "embed.out_scalar"):
        put(name, "F32", np.ones(1, np.float32))
    for slot in range(len(shape.owner)):
        for which in "kv":
            matrix("kv.%d.%s" % (slot, which), "shared_" + which, slot)
            put("kv.%d.%s_step" % (slot, which), "F32", t[which + "_step"][slot])
    for i in range(c.layers):
        for name, key in (("attn.q", "q"), ("attn.o", "o"), ("ffn.up", "up"), ("ffn.down", "down")):
            matrix("layers.%d.%s" % (i, name), key, i)
        put("layers.%d.attn.gain" % i, "F32", t["attn_gain"][i])
        put("layers.%d.ffn.gain" % i, "F32", t["ffn_gain"][i])
    put("final.gain", "F32", t["final_gain"])
    for table, (rope, head_dim) in enumerate(native.rope_tables(c)):
        put("rope.%d" % table, "U64", np.array(turns_per_token(rope, head_dim), np.uint64))
    return out


def write(saved, source, path, name=None):
    c, shape = shape_of(source.config, saved)
    tokenizer = source.tokenizer()
    chat = importer.derive_chat(source, [], None)
    config = json.loads(native.config_text(c, name or c.name + ", Kaijufied", True, importer._chat_fields(tokenizer, chat)))
    for layer, slot in zip(config["layers"], shape.slot):
        layer["kv_slot"] = slot
    found = tensors(saved["tensors"], c, shape)
    if tokenizer:
        found["tokenizer"] = "U8", np.frombuffer(tokenizer.data, np.uint8)
    return write_checkpoint(path, native.ARITHMETIC, json.dumps(config, ensure_ascii=False), found)


def against_engine(folder, source, check):
    """The engine's logits of a checkpoint and those of the trainer's int8 pass, on the model that kaijufy_check.py trained."""
    import kaiju

    import kaijufy
    import kaijufy_model as M
    import kaijufy_steps as steps
    saved, path = torch.load(os.path.join(folder, "whole", "model.pt")), os.path.join(folder, "kaiju.safetensors")
    write(saved, open_source(source), path)
    state = torch.load(os.path.join(folder, "whole", "state.pt"))
    run = kaijufy.Run(argparse.Namespace(source=source, pattern=saved["pattern"], d_ff=saved["d_ff"], window=saved["window"], length=128), "cpu")
    run.set_params(state["params"], True)
    ids = np.load(os.path.join(folder, "val.npy"))[:96].astype(np.int64)
    with torch.no_grad():
        mix = run.mix(1.0, 96)
        rows = run.forward(torch.from_numpy(ids)[None], mix)[0][0]
        mine = steps.logits(rows, run.embedding(mix)).log_softmax(-1).numpy()
    engine = engine_logits(path, ids)[:, :mine.shape[1]]
    theirs = torch.from_numpy(engine).log_softmax(-1).numpy()
    kl = float((np.exp(theirs) * (theirs - mine)).sum(-1).mean())
    check("the engine computes what the trainer computed", kl < 2e-3 and (mine.argmax(-1) == theirs.argmax(-1)).mean() > 0.9, kl, (mine.argmax(-1) == theirs.argmax(-1)).mean())


def engine_logits(path, ids):
    """float32 [tokens, vocab], by kaiju-score beside the library that KAIJU_LIBRARY names."""
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        tokens, out = (os.path.join(folder, n) for n in ("tokens.txt", "logits.npy"))
        with open(tokens, "w") as f:
            f.write(" ".join(map(str, ids)) + "\n")
        score = os.environ.get("KAIJU_SCORE") or os.path.join(os.path.dirname(os.environ["KAIJU_LIBRARY"]), "bin", "kaiju-score")
        subprocess.run([score, path, "--tokens", tokens, "--logits", out], check=True, stdout=subprocess.DEVNULL)
        return np.load(out).reshape(len(ids), -1)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("--source", required=True)
    a.add_argument("--out", required=True)
    a.add_argument("--name")
    args = a.parse_args()
    print(write(torch.load(args.model), open_source(args.source), args.out, args.name))


if __name__ == "__main__":
    main()
