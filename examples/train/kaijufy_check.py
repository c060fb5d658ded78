"""Checks of Kaijufy on a CPU, on a small random model; exit status 77 where PyTorch is missing.

    python3 kaijufy_check.py [--engine]     --engine: the checkpoint in the engine, too (PYTHONPATH=capi/python, KAIJU_LIBRARY)"""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError:
    print("no PyTorch here")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARY, D, HEADS, GROUPS, HD, GATED, LAYERS, LENGTH = 320, 128, 4, 2, 64, 128, 5, 96


def write_source(folder, seed=1):
    """A Hugging Face folder of the Llama kind with random weights."""
    r = np.random.default_rng(seed)

    def matrix(*shape):
        return (r.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    t = {"model.embed_tokens.weight": matrix(VOCABULARY, D), "model.norm.weight": 1 + 0.1 * r.standard_normal(D).astype(np.float32)}
    for i in range(LAYERS):
        p = "model.layers.%d." % i
        for name, shape in (("self_attn.q_proj", (HEADS * HD, D)), ("self_attn.k_proj", (GROUPS * HD, D)), ("self_attn.v_proj", (GROUPS * HD, D)), ("self_attn.o_proj", (D, HEADS * HD)),
                            ("mlp.gate_proj", (GATED, D)), ("mlp.up_proj", (GATED, D)), ("mlp.down_proj", (D, GATED))):
            t[p + name + ".weight"] = matrix(*shape) * 1.5
        for name in ("input_layernorm", "post_attention_layernorm"):
            t[p + name + ".weight"] = 1 + 0.1 * r.standard_normal(D).astype(np.float32)
    header, at = {}, 0
    for name, x in t.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(x.astype(np.float32).tobytes() for x in t.values()))
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": D, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "head_dim": HD, "intermediate_size": GATED, "num_hidden_layers": LAYERS,
              "vocab_size": VOCABULARY, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True}
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))


def write_data(folder, seed=2):
    """Tokens that follow a rule, so that there is something to learn, and prompts."""
    from kaijufy_data import TOKEN, store
    r = np.random.default_rng(seed)
    for name, count in (("train", 40_000), ("val", 5_000)):
        x = r.integers(3, VOCABULARY, count)
        x[1::2] = (x[:-1:2] * 7) % (VOCABULARY - 3) + 3
        store(os.path.join(folder, name + ".npy"), [x])
    prompts = [r.integers(3, VOCABULARY, int(r.integers(4, 20))) for _ in range(16)]
    asked = [{"kind": kind, "ids": r.integers(3, VOCABULARY, 30).tolist(), "answers": ["a"]} for kind in ("needle 30", "turn1") for _ in range(3)]
    json.dump({"stop": [2], "text": [chr(97 + i % 26) for i in range(VOCABULARY)], "asked": asked}, open(os.path.join(folder, "eval.json"), "w"))
    np.savez(os.path.join(folder, "prompts.npz"), ids=np.concatenate(prompts).astype(TOKEN), ends=np.cumsum([len(p) for p in prompts]), stop=np.arange(3, VOCABULARY, 20))


def check(name, holds, *figures):
    print("%s: %s %s" % ("ok" if holds else "FAILED", name, " ".join("%.3g" % f for f in figures)), flush=True)
    if not holds:
        sys.exit(1)


def forms(source):
    """Every change of form leaves the function that it should leave."""
    import kaijufy
    import kaijufy_model as M
    import kaijufy_steps as steps
    args = type("Args", (), dict(source=source, pattern=None, d_ff=2 * GATED, window=LENGTH, length=LENGTH))
    run = kaijufy.Run(args, "cpu")
    tokens = torch.from_numpy(np.random.default_rng(3).integers(3, VOCABULARY, (2, LENGTH)))

    def rows(f, p, ffn, kv, int8=0.0):
        return f(p, run.cfg, tokens, run.cos, run.sin, M.Mix(torch.tensor(ffn), torch.tensor(kv), torch.tensor(int8), LENGTH), dtype=torch.float32)[0]

    def error(a, b):
        return float((a - b).norm() / b.norm())

    with torch.no_grad():
        theirs = M.teacher(run.teacher, run.cfg, tokens, run.cos, run.sin)[0]
        p = steps.begin(run.teacher, run.masters, run.cfg, tokens, run.cos, run.sin)
        check("the student begins as the teacher", error(rows(M.student, p, 0.0, 0.0), theirs) < 1e-5, error(rows(M.student, p, 0.0, 0.0), theirs))
        changed = error(rows(M.student, p, 1.0, 0.0), theirs)
        check("ReLU^2 begins near the gated units", 0.01 < changed < 0.6, changed)
        shaped = rows(M.student, p, 1.0, 1.0)
        q = steps.to_int8(p, run.cfg, tokens, run.cos, run.sin, torch.float32)
        straight = rows(M.int8, q, 1.0, 1.0)
        check("folded and behind the transform it is the same function", error(straight, M.transform(shaped, M.hadamard("cpu"))) < 1e-3, error(straight, M.transform(shaped, M.hadamard("cpu"))))
        whole = rows(M.int8, q, 1.0, 1.0, 1.0)
        check("int8 changes it a little", 1e-4 < error(whole, straight) < 0.2, error(whole, straight))
        mean = steps.begin(run.teacher, run.masters, run.cfg, tokens, run.cos, run.sin, "mean")
        owner, members = run.cfg.owner[0], [i for i in range(LAYERS) if run.cfg.slot[i] == 0]
        heads = (run.masters["k"][members] * run.masters["attn_gain"][members][:, None]).view(-1, HD, D).mean(0)
        check("the mean of the heads is the mean of the heads", error(mean["shared_k"][0] * run.masters["attn_gain"][owner], heads) < 1e-5)


def micro_batches(source):
    """Micro-batches of unequal size give the gradient of the whole batch."""
    import kaijufy
    import kaijufy_steps as steps
    run = kaijufy.Run(type("Args", (), dict(source=source, pattern=None, d_ff=2 * GATED, window=LENGTH, length=LENGTH)), "cpu")
    tokens = torch.from_numpy(np.random.default_rng(4).integers(3, VOCABULARY, (3, LENGTH)))
    run.set_params(steps.begin(run.teacher, run.masters, run.cfg, tokens, run.cos, run.sin), False)

    class Seen:
        def step(self, grads, factor):
            self.flat = torch.cat([g.flatten() for g in grads.values()])
    run.optimiser = Seen()
    found = []
    for micro in (3, 2):
        loss = run.step(tokens.split(micro), 0.2, LENGTH, 3)
        found.append((loss, run.optimiser.flat))
    (loss, whole), (parts_loss, parts) = found
    far = float((parts - whole).norm() / whole.norm())
    check("micro-batches of 2 and 1 sequences are a batch of 3", far < 1e-2 and torch.allclose(loss, parts_loss, rtol=1e-4), far)


def streams(folder):
    """Token streams hold the ids of large vocabularies."""
    import kaijufy
    from kaijufy_data import separator, store
    path = os.path.join(folder, "large.npy")
    store(path, [[128_000, 5], [127_999, 70_000]])
    check("tokens beyond 65,536 come back", kaijufy.Text([path], 4, "cpu").batch(0, 1, 0).tolist() == [[128_000, 5, 127_999, 70_000]])

    class Vocabulary:
        vocabulary = 4

        def __init__(self, begin):
            self.begin = begin

        def chat_symbol(self, name):
            return self.begin if name == "begin" else None

        def token_bytes(self, token):
            return b"" if token > 1 else b"a"
    check("texts are told apart by the model's own token", separator(Vocabulary(128_000)) == 128_000 and separator(Vocabulary(None)) == 2)


def trained(folder, source):
    """A short run, cut and resumed, is the unbroken run; its loss falls; what it stores is int8."""
    def run(out, count, *more):
        subprocess.run([sys.executable, os.path.join(HERE, "kaijufy.py"), source, "--data", folder, "--out", os.path.join(folder, out), "--steps", str(count), "--length", str(LENGTH), "--batch", "4", "--micro", "2",
                        "--window", "48", "--talk-seconds", "0", "--save-minutes", "9", *more], check=True)
        return torch.load(os.path.join(folder, out, "model.pt"))["tensors"]
    whole = run("whole", 24)
    report = json.load(open(os.path.join(folder, "whole", "report.json")))
    run("cut", 24, "--stop-after", "13")
    resumed = run("cut", 24, "--resume")
    after = json.load(open(os.path.join(folder, "cut", "report.json")))
    check("the report of a resumed run has what was measured before it was cut", all(after[k] == report[k] for k in ("start", "float", "end", "steps")))
    check("a run that was cut and resumed is the unbroken one", all(torch.equal(whole[k], resumed[k]) for k in whole))
    check("bytes and scales", whole["q"].dtype == torch.int8 and whole["q.scale"].shape == whole["q"].shape[:-1] and int(whole["up"].abs().max()) == 127)
    check("the report has needles, persona and KV bytes", report["asked"]["needle 30"][2] == 3 and report["kv"]["1024"]["before"] == LAYERS * 2 * GROUPS * HD * 2, report["kv"]["1024"]["times"])


def main():
    sys.path.insert(0, HERE)
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "source")
        os.mkdir(source)
        write_source(source)
        write_data(folder)
        torch.manual_seed(1)
        torch.set_num_threads(1)
        forms(source)
        micro_batches(source)
        streams(folder)
        trained(folder, source)
        if "--engine" in sys.argv:
            import kaijufy_file
            kaijufy_file.against_engine(folder, source, check)


if __name__ == "__main__":
    main()
