"""Checkpoints (docs/checkpoint.md) from Weights, and back.

    python3 export.py RUN/state.pt --tokenizer tokenizer.model --out model.safetensors
    python3 export.py --check model.safetensors"""
import argparse
import json
import os
import struct
import sys

import numpy as np
import torch

import model

CHAT = {"begin": 1, "end": 2, "card": 3, "user": 4, "character": 5, "close": 6, "text": 7}
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import"))
from checkpoint_file import TYPES, write_checkpoint
from digest import digest_of as digest


def config_json(cfg, name="kaiju-nano"):
    layers = [{"kind": "global" if w is None else "sliding", **({} if w is None else {"window": w}), "kv_slot": s, "rope": r} for w, s, r in zip(cfg.windows, cfg.slot, cfg.rope)]
    head = {"classifier": {"labels": list(cfg.labels)}} if cfg.labels else {}
    keys = ("vocab_size", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "context", "norm_eps")
    return json.dumps({"name": name, **{k: getattr(cfg, k) for k in keys}, "layers": layers, "chat": CHAT, **head})


def tensors(w, tokenizer=None):
    """{name: (type, array)}."""
    out = {}

    def put(name, kind, value, shape=None):
        array = np.ascontiguousarray(value.cpu().numpy() if torch.is_tensor(value) else value, dtype=TYPES[kind])
        out[name] = (kind, array if shape is None else array.reshape(shape))

    def matrix(name, m, i):
        put(name + ".weight", "I8", m.weight[i])
        put(name + ".scale", "F32", m.scale[i])
        put(name + ".scalar", "F32", m.scalar[i], (1,))
        put(name + ".row_sum", "I32", m.weight[i].sum(-1, dtype=torch.int32))

    cfg, c, m = w.cfg, w.clips, w.matrices
    put("embed.weight", "I8", w.embed.weight)
    put("embed.scale", "F32", w.embed.scale)
    put("embed.row_sum", "I32", w.embed.weight.sum(-1, dtype=torch.int32))
    put("embed.in_scalar", "F32", w.embed.in_scalar, (1,))
    put("embed.out_scalar", "F32", w.embed.out_scalar, (1,))
    for i, f in enumerate(cfg.frequencies):
        put("rope.%d" % i, "U64", f)
    for s in range(len(cfg.owner)):
        for which in "kv":
            matrix("kv.%d.%s" % (s, which), m[which], s)
            put("kv.%d.%s_clip" % (s, which), "F32", c[which + "_clip"][s])
    for i in range(len(cfg.pattern)):
        for name, source in (("attn.in_clip", "attn_in"), ("attn.q_clip", "q_clip"), ("attn.out_clip", "out_clip"), ("ffn.in_clip", "ffn_in"), ("ffn.mid_clip", "mid")):
            put("layers.%d.%s" % (i, name), "F32", c[source][i], (1,))
        for name, source in (("attn.q", "q"), ("attn.o", "o"), ("ffn.up", "up"), ("ffn.down", "down")):
            matrix("layers.%d.%s" % (i, name), m[source], i)
    put("final.in_clip", "F32", c["final_in"], (1,))
    if w.classifier:
        head = w.classifier
        put("classifier.weight", "I8", head.weight)
        put("classifier.scale", "F32", head.scale)
        put("classifier.scalar", "F32", head.scalar, (1,))
        put("classifier.row_sum", "I32", head.weight.sum(-1, dtype=torch.int32))
        put("classifier.bias", "F32", w.bias)
    if tokenizer:
        put("tokenizer", "U8", np.frombuffer(open(tokenizer, "rb").read(), np.uint8))
    return out


def write(path, w, tokenizer=None, name="kaiju-nano"):
    return write_checkpoint(path, "1", config_json(w.cfg, name), tensors(w, tokenizer))


def read(path):
    """Header and {name: array}, checked by the rules of the page that concern bytes."""
    raw = open(path, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    meta, at, found = header.pop("__metadata__"), 8 + size, {}
    assert at % 64 == 0 and meta["format"] == "kaiju" and meta["arithmetic"] == "1"
    digests, lines = json.loads(meta["digests"]), {}
    for n, t in header.items():
        begin, end = t["data_offsets"]
        assert 8 + size + begin == at, n + ": tensors must follow one another"
        data, at = raw[at:8 + size + end], 8 + size + end
        assert digest(data) == digests[n], n + ": digest"
        found[n] = np.frombuffer(data, TYPES[t["dtype"]]).reshape(t["shape"])
        lines[n] = "%s %s %s %s\n" % (n, t["dtype"], ",".join(map(str, t["shape"])), digests[n])
        if n.endswith(".weight"):
            assert found[n].min() >= -127 and (found[n].sum(1, dtype=np.int32) == np.frombuffer(raw, np.int32, len(found[n]), 8 + size + header[n[:-6] + "row_sum"]["data_offsets"][0])).all(), n
        if t["dtype"] == "F32" and n != "classifier.bias":
            assert np.isfinite(found[n]).all() and (found[n] >= 1e-18).all() and (found[n] <= 1e18).all(), n
    assert at == len(raw)
    text = "1\n" + meta["config"] + "\n" + "".join(lines[n] for n in sorted(lines, key=str.encode))
    assert digest(text.encode()) == meta["digest"], "root digest"
    return meta, found


def weights(path, device="cpu"):
    """Weights of a checkpoint that write() made."""
    meta, t = read(path)
    c = json.loads(meta["config"])
    own = len({x["kv_slot"] for x in c["layers"] if x["kind"] == "global"})
    cfg = model.Config(pattern="".join(x["kind"][0].upper() for x in c["layers"]), share_global=1 if own > 1 else len(c["layers"]), window=next(x["window"] for x in c["layers"] if "window" in x),
                       labels=tuple(c.get("classifier", {}).get("labels", ())), **{k: c[k] for k in ("vocab_size", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "context", "norm_eps")})
    assert cfg.slot == [x["kv_slot"] for x in c["layers"]] and cfg.rope == [x["rope"] for x in c["layers"]], "not a model of this trainer"
    cfg.frequencies = [t["rope.%d" % i] for i in range(len(cfg.frequencies))]

    def stack(pattern, count):
        x = np.stack([t[pattern % i] for i in range(count)])
        return torch.from_numpy(x).to(device)
    layers, slots = len(cfg.pattern), len(cfg.owner)
    places = {"q": ("layers.%d.attn.q", layers), "o": ("layers.%d.attn.o", layers), "up": ("layers.%d.ffn.up", layers), "down": ("layers.%d.ffn.down", layers),
              "k": ("kv.%d.k", slots), "v": ("kv.%d.v", slots)}
    matrices = {name: model.Matrix(stack(at + ".weight", n), stack(at + ".scale", n), stack(at + ".scalar", n)[:, 0]) for name, (at, n) in places.items()}
    single = {n: torch.from_numpy(t[n].copy()).to(device) for n in ("embed.weight", "embed.scale", "embed.in_scalar", "embed.out_scalar", "final.in_clip")}
    embed = model.Matrix(single["embed.weight"], single["embed.scale"], single["embed.in_scalar"][0])
    embed.in_scalar, embed.out_scalar = single["embed.in_scalar"], single["embed.out_scalar"]
    clips = {"attn_in": "attn.in_clip", "q_clip": "attn.q_clip", "out_clip": "attn.out_clip", "ffn_in": "ffn.in_clip", "mid": "ffn.mid_clip"}
    clips = {k: stack("layers.%d." + v, layers)[:, 0] for k, v in clips.items()}
    clips.update(k_clip=stack("kv.%d.k_clip", slots), v_clip=stack("kv.%d.v_clip", slots), final_in=single["final.in_clip"])
    head = bias = None
    if cfg.labels:
        parts = [torch.from_numpy(t["classifier." + n].copy()).to(device) for n in ("weight", "scale", "scalar", "bias")]
        head, bias = model.Matrix(parts[0], parts[1], parts[2][0]), parts[3]
    return model.Weights(cfg, matrices, embed, clips, None, head, bias)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("state", nargs="?")
    a.add_argument("--tokenizer")
    a.add_argument("--out", default="model.safetensors")
    a.add_argument("--check", metavar="FILE")
    args = a.parse_args()
    if args.check:
        print(read(args.check)[0]["digest"])
    elif args.state:
        import train
        run, _ = train.load(args.state, "cpu")
        print(write(args.out, run.weights(), args.tokenizer))
    else:
        a.error("say RUN/state.pt, or --check FILE")


if __name__ == "__main__":
    main()
