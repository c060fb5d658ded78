"""Configs of 38 small models of version 2 of the arithmetic, which together have every choice, and tokens for each.

    python3 configs_2.py FOLDER        writes NN.json and NN.txt"""
import json
import os
import random
import sys

COUNT = 38
FIRST_WITH_INPUTS = 32  # from here on layers have inputs of their own


def layers_of(i, pick):
    """Two to four layers: sliding windows and global ones, some of which share a slot or have dimensions of their own."""
    layers, slots = [], 0
    has_own = i % 3 == 0
    own = {"head_dim": (512, 256, 128)[i // 3 % 3], "n_kv_heads": 1} if has_own else {}
    for at in range(2 + i % 3):
        is_global = i % 8 == 7 or (at % 2 == 1 and i % 8 != 6)
        kind = "global" if is_global else "sliding"
        owners = [layer for layer in layers if layer["kind"] == kind]
        if owners and at == 2:
            layer = {key: owners[0][key] for key in ("kind", "window", "kv_slot", "rope", "head_dim", "n_kv_heads") if key in owners[0]}
        else:
            layer = {"kind": kind, "kv_slot": slots, "rope": 1 if is_global and i % 8 != 7 else 0}
            slots += 1
            if not is_global:
                layer["window"] = pick((1, 40, 64, 100, 520))
            elif has_own:
                layer.update(own)
            if i % 4 == 1 and at == 1:
                layer["values_from_keys"] = True
        if has_own and at == 0:
            layer["d_ff"] = pick((192, 320))
        if i % 5 == 2:
            layer["factor"] = pick((0.3, 1.25, -1))
        layers.append(layer)
    return layers


def config(i):
    pick = random.Random(i).choice
    is_static = i % 6 == 5
    kv_heads = (1, 1, 2)[i % 3]
    structure = {
        "activations": "static_scales" if is_static else "token_scales",
        "hadamard": 0 if is_static else (64, 32, 16, 0)[i % 4],
        "ffn": ("gated_silu", "gated_gelu", "squared_relu")[i % 3],
        "residual": ("f32", "bf16")[i // 2 % 2],
        "output": ("embedding", "own")[i // 3 % 2],
        "biases": ("none", "qkv", "all")[i // 4 % 3],
        "norms_after": i % 7 in (1, 4),
        "norm_gains": i % 7 != 0,
        "head_norms": i // 2 % 3 == 1,
        "value_norms": i // 3 % 4 == 1,
        "static_kv": i % 4 == 2 or i == 11,
        "wide_logits": i % 5 in (1, 3),
        "logit_cap": (0, 0, 30.3)[i // 5 % 3],
        "score_scale": (0, 0, 0.13)[i // 2 % 3],
    }
    if i >= FIRST_WITH_INPUTS:
        structure |= {"ffn": ("gated_silu", "gated_gelu", "gated_gelu")[i % 3], "norms_after": True, "norm_gains": True}
        structure["layer_inputs"] = (64, 128, 256)[i // 2 % 3]
        if is_static:
            structure["f32_rows"] = True
    made = {
        "name": f"structure-{i:02}", "vocab_size": pick((16, 272, 512)), "d_model": pick((64, 128, 192, 320)), "n_heads": kv_heads * pick((1, 2, 3)),
        "n_kv_heads": kv_heads, "head_dim": (64, 128, 64, 256, 64)[i % 5], "d_ff": pick((64, 256, 384)), "context": 1024,
        "norm_eps": pick((1e-5, 1e-6, 0.01)), "layers": layers_of(i, pick), "structure": structure,
    }
    if i % 4 == 3:
        made["classifier"] = {"labels": [f"l{n}" for n in range(1 + i)]}
    return made


def tokens(i):
    """One sequence in four reaches past a chunk of 512 keys."""
    draw = random.Random(1000 + i).randrange
    return [draw(config(i)["vocab_size"]) for _ in range(530 + i if i % 4 == 0 else 50 + i)]


if __name__ == "__main__":
    for i in range(COUNT):
        path = os.path.join(sys.argv[1], f"{i:02}")
        with open(path + ".json", "w") as file:
            json.dump(config(i), file)
        with open(path + ".txt", "w") as file:
            file.write(" ".join(map(str, tokens(i))))
