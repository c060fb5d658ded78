"""What the kernels of a layer add to a step, from what libkaiju-trace.so wrote: a table for each kind of step, matmuls beside their ceilings.

    python3 bench/cuda/layers.py steps.txt [--preset small] [--context 4096]

`adds`: by how much a kernel moves the end of everything so far (bench/cuda/trace.cpp), the mean over layers of a kind. `bound`: the time of its
reads at 4.40 TB/s, or of its products at 1,500 TOP/s, whichever is longer, as a share of `adds`. `goal`: up to 64 rows the same for memory alone;
above, the share of what cuBLASLt reaches at the nearest shape, the higher of the two measured numbers of rows around it. --context: keys of a
decode step, for attention's share of memory where all rows decode.
"""
import argparse
import re

PRESETS = {  # layers, d_model, heads, d_ff; head_dim 128, one KV head, windows of 1,024, every seventh layer global
    "small": (49, 5120, 40, 20480),
    "medium": (63, 7168, 56, 29696),
    "large": (70, 12288, 96, 51200),
}
HEAD, VOCAB, WINDOW = 128, 65536, 1024
BYTES_PER_US, OPERATIONS_PER_US = 4.40e6, 1.5e9

# TOP/s of cuBLASLt on an H200, best of its algorithms: rows, then 8192 x 8192 to int32, 13824 x 5120 to int8, 5120 x 13824 to int32, 13824 x 5120 to int32.
CEILINGS = {
    128: (705, 799, 651, 698),
    256: (1164, 1317, 961, 1049),
    512: (1397, 1516, 1146, 1171),
    1024: (1375, 1519, 1310, 1362),
    4096: (1513, 1513, 1416, 1536),
    16384: (1463, 1600, 1525, 1485),
}
MATMULS = ["linear", "up", "o", "down"]  # by cuda::MatmulKind
COLUMN = {"q, k, v": 0, "q alone": 0, "o": 0, "up": 1, "down": 2, "logits": 3}


def owns_slot(count):
    """Of each layer whether it has keys of its own: sliding ones share by threes within a run, global ones by pairs, the last three together."""
    owns, run, seen, groups = [], 0, 0, 0
    last_group = max(sum(i % 7 == 6 for i in range(count)) // 2, 1) - 1
    for i in range(count):
        if i % 7 == 6:
            run, group, seen = 0, min(seen // 2, last_group), seen + 1
            owns.append(group == groups)
            groups += owns[-1]
        else:
            owns.append(run % 3 == 0)
            run += 1
    return owns


def steps_of(path):
    """(what the heading says, [(us that it adds, kernel)]) of each kind of step."""
    heading, lines = None, []
    for line in open(path):
        if line.startswith("===="):
            heading, lines = line.strip("= \n"), []
        elif line.startswith("idle") and heading:
            yield heading, lines
            heading = None
        elif heading and (found := re.match(r"\s*-?[\d.]+\s+[\d.]+\s+-?[\d.]+\s+([\d.]+)  (.*)", line)):
            lines.append((float(found[1]), found[2]))


def name_kernels(kernels, layers):
    """[(name, us)], and the rows of a layer and of the logits; None where the step is not kernel by kernel."""
    owns, named, layer, rows, part = owns_slot(layers), [], 0, [], "once"
    for i, (us, kernel) in enumerate(kernels):
        matmul = re.search(r"kernel<\(MatmulKind\)(\d)", kernel)
        if kernel.startswith("norm_kernel"):
            name, part = ("norm", "layer") if layer < layers else ("once: last norm", "once")
            rows.append(int(re.search(r"\[(\d+) x", kernel)[1]))
        elif matmul:
            name = MATMULS[int(matmul[1])]
            if name == "linear":
                rope_follows = i + 1 < len(kernels) and kernels[i + 1][1].startswith("rope_quantise_kernel")
                name = "logits" if not rope_follows else "q, k, v" if owns[layer % layers] else "q alone"
            part = "layer"
            if name == "down":
                layer += 1
        elif kernel.startswith("rope_quantise_kernel"):
            name, part = "rope, quantise", "attention"
        elif kernel.startswith("sm90_decode_plan_kernel"):
            name = "once: plan of attention"
        elif part == "attention":
            name = "attention, global" if layer % 7 == 6 else "attention, window"
        elif draws := re.match(r"sample_kernel<(\d+)> \[(\d+) x", kernel):
            name = "once: draws"
            rows.append(int(draws[2]) // int(draws[1]))
        else:
            name = "once: the rest"
        named.append((name, us))
    return (named, rows[0], rows[-1]) if layer == layers and rows else None


def bounds_of(name, rows, model, context):
    """us of the bound and of the goal; 0 where there is none."""
    layers, width, heads, d_ff = model
    if name.startswith("attention"):
        return 2 * HEAD * (min(context, WINDOW) if name.endswith("window") else context) * rows / BYTES_PER_US, 0
    if name not in COLUMN:
        return 0, 0
    q = heads * HEAD
    out, k = {"q, k, v": (q + 2 * HEAD, width), "q alone": (q, width), "o": (width, q), "up": (d_ff, width), "down": (width, d_ff), "logits": (VOCAB, width)}[name]
    memory, operations = out * k / BYTES_PER_US, 2 * rows * out * k
    below, above = max((r for r in CEILINGS if r <= rows), default=128), min((r for r in CEILINGS if r >= rows), default=16384)
    goal = memory if rows <= 64 else 1e-6 * operations / max(CEILINGS[below][COLUMN[name]], CEILINGS[above][COLUMN[name]])
    return max(memory, operations / OPERATIONS_PER_US), goal


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file")
    arguments.add_argument("--preset", choices=PRESETS, default="small")
    arguments.add_argument("--layers", type=int, help="where the model was cut to fewer")
    arguments.add_argument("--context", type=int, default=0)
    options = arguments.parse_args()
    model = PRESETS[options.preset]
    layers = options.layers or model[0]
    for heading, kernels in steps_of(options.file):
        found = name_kernels(kernels, layers)
        if not found:
            continue
        named, rows, logit_rows = found
        print(f"\n{rows} rows; {heading}\n\n| | times | adds, us | bound | goal |\n| --- | --- | --- | --- | --- |")
        sums = {}
        for name, us in named + [("all matmuls", us) for name, us in named if name in COLUMN and name != "logits"]:
            sums.setdefault(name, []).append(us)
        context = options.context if rows == logit_rows else 0
        all_bounds = sum(bounds_of(name, rows, model, 0)[0] for name, _ in named if name in COLUMN and name != "logits")
        for name, adds in sums.items():
            all_of_layer = name == "all matmuls"
            bound, goal = (all_bounds / layers, 0) if all_of_layer else bounds_of(name, logit_rows if name == "logits" else rows, model, context)
            us = sum(adds) / (layers if all_of_layer else len(adds))
            print(f"| {name} | {layers if all_of_layer else len(adds)} | {us:.1f} |" + "".join(f" {100 * most / us:.0f}% |" if most else " |" for most in (bound, goal)))


main()
