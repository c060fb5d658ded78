"""Trains a classifier head alone, for a model whose other weights stay as they are: logistic regression on the rows that the model gives
the head, by the marks of data.py. The result is a file for --head of kaiju-server and kaiju-head (docs/checkpoint.md, "Heads").

    python3 head.py MODEL.safetensors --data DATA --out head.safetensors            on a GPU or, slowly, on a CPU

Each strength of --decay is tried; the one with the least loss on val.bin is kept."""
import argparse
import json
import time

import torch
import torch.nn.functional as F

import evaluate
import export
import model
import safety
import train
from checkpoint_file import write_checkpoint


@torch.no_grad()
def rows_of(run, data, most, name):
    """Normed int8 rows [K, d_model] that carry marks, with the right answers and the weights [K, labels]; at most `most`."""
    parts, have, began = [], 0, time.time()
    for first in range(0, data.count, 4):
        which = data.order(first, min(4, data.count - first))
        tokens, _, _, _, found = data.rows(which)
        if found is None:
            continue
        rows = evaluate.hidden(run, tokens.view(len(which), -1))[0][found.rows]
        parts.append((rows, found.right, found.weight))
        have += len(rows)
        print("\r%s: %d rows, %d s" % (name, have, time.time() - began), end="", flush=True)
        if have >= most:
            break
    print()
    if not parts:
        raise SystemExit("%s: no row has a mark: build the data with --parts safety" % name)
    return [torch.cat(part)[:most] for part in zip(*parts)]


def loss_of(head, bias, rows, right, weight, factor):
    """Mean weighted loss, of pieces that fit into memory."""
    total = torch.zeros((), device=rows.device)
    for a, y, w in zip(*(part.split(1 << 16) for part in (rows, right, weight))):
        total = total + (F.binary_cross_entropy_with_logits(a.float() @ head.T * factor + bias, y, reduction="none") * w).sum()
    return total / weight.sum()


def fit(rows, right, weight, factor, decay):
    """The head [labels, d_model] and bias of the least loss + decay * mean square."""
    head = torch.zeros(right.shape[1], rows.shape[1], device=rows.device, requires_grad=True)
    bias = torch.zeros(right.shape[1], device=rows.device, requires_grad=True)
    solver = torch.optim.LBFGS([head, bias], max_iter=150, history_size=20, line_search_fn="strong_wolfe")

    def close():
        solver.zero_grad()
        loss = loss_of(head, bias, rows, right, weight, factor) + decay * head.square().mean()
        loss.backward()
        return loss
    solver.step(close)
    return head.detach(), bias.detach()


def write(path, digest, head, bias):
    """A head file of the model with this digest."""
    matrix = model.Matrix.quantise(head, torch.ones((), device=head.device))
    tensors = {"classifier.weight": ("I8", matrix.weight), "classifier.scale": ("F32", matrix.scale), "classifier.scalar": ("F32", matrix.scalar.reshape(1)),
               "classifier.row_sum": ("I32", matrix.weight.sum(-1, dtype=torch.int32)), "classifier.bias": ("F32", bias)}
    config = json.dumps({"head_of": digest, "d_model": head.shape[1], "labels": list(safety.LABELS)})
    return write_checkpoint(path, "1", config, {name: (kind, value.cpu().numpy()) for name, (kind, value) in tensors.items()})


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("--data", nargs="+", required=True, help="folders of data.py build --parts safety")
    a.add_argument("--out", default="head.safetensors")
    a.add_argument("--rows", type=int, default=400_000, help="rows to learn from (default %(default)s)")
    a.add_argument("--decay", type=float, nargs="+", default=[1e-4, 1e-3, 1e-2, 1e-1, 1.0], help="strengths to try (default %(default)s)")
    args = a.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    run = evaluate.open_model(args.model, device)
    factor = float(run.w.clips["final_in"]) / 127  # a normed row's value is this times its int8
    learned, held = (rows_of(run, train.Data(args.data, name, run.cfg.context, device, [0] * 8), count, name)
                     for name, count in (("train", args.rows), ("val", args.rows // 8)))
    best = None
    for decay in args.decay:
        head, bias = fit(*learned, factor, decay)
        loss = float(loss_of(head, bias, *held, factor))
        print("decay %g: loss %.4f on what it learned from, %.4f on val" % (decay, float(loss_of(head, bias, *learned, factor)), loss))
        if best is None or loss < best[0]:
            best = loss, head, bias
    digest = export.read(args.model)[0]["digest"]
    print("%s: head of %s, %s" % (args.out, digest, write(args.out, digest, best[1], best[2])))


if __name__ == "__main__":
    main()
