"""What Kaijufy's report says of teacher and student: needles found, persona questions answered, and bytes of KV."""
import json
import time

import numpy as np
import torch

import kaijufy_model as M
import kaijufy_steps as steps
from persona_eval import is_right

REPLY = {"needle": 6}  # tokens at most; 32 for persona questions


def kv_bytes(cfg, teacher_kv):
    """Bytes of keys and values a token: the teacher's in 16 bits, the student's in int8; in sliding layers only the window's positions are kept."""
    before, slot, found = len(cfg.pattern) * 2 * teacher_kv * 2, 2 * (cfg.head_dim + 2), {}  # a row has its scale beside it, in bf16
    for length in (512, 1024, 2048, 4096, 8192):
        share = [min(1.0, (cfg.windows[owner] or length) / length) for owner in cfg.owner]
        found[length] = {"before": before, "after": round(slot * sum(share), 1), "times": round(before / (slot * sum(share)), 1)}
    return found


@torch.no_grad()
def greedy(rows_of, embed, prompts, count):
    """`count` likeliest tokens after each prompt, every one by a pass over all: rows_of(tokens [n, T]) gives normed rows."""
    lengths = torch.tensor([len(p) for p in prompts], device=embed.device)
    tokens = torch.zeros(len(prompts), -(-(int(lengths.max()) + count) // 64) * 64, dtype=torch.int64, device=embed.device)
    for row, p in zip(tokens, prompts):
        row[:len(p)] = torch.tensor(p)
    at = torch.arange(len(prompts), device=embed.device)
    for n in range(count):
        last = rows_of(tokens)[at, lengths + n - 1]
        tokens[at, lengths + n] = steps.logits(last, embed).argmax(-1)
    return [row[n:n + count].tolist() for row, n in zip(tokens, lengths.tolist())]


@torch.no_grad()
def asked(run, path, seconds, log, note):
    """Right answers by kind, of teacher and student: {kind: [teacher, student, asked]}; ends early when the time is over. note: gets what
    was found so far, after each batch."""
    saved, began, found = json.load(open(path)), time.time(), {}
    pieces, stops = [t.encode("latin1") for t in saved["text"]], set(saved["stop"])
    mix = run.mix(1.0, 1024)
    models = [(lambda t: M.teacher(run.teacher, run.cfg, t, run.cos, run.sin)[0], run.teacher["embed"]), (lambda t: run.forward(t, mix)[0], run.embedding(mix))]
    kinds = {}
    for item in saved["asked"]:
        kinds.setdefault(item["kind"], []).append(item)
    with M.eager():
        for kind, items in kinds.items():
            items.sort(key=lambda item: len(item["ids"]))
            for i in range(0, len(items), 64):
                if seconds is not None and time.time() - began > seconds:
                    return log("no time for the rest of the questions")
                some = items[i:i + 64]
                right = found.setdefault(kind, [0, 0, 0])
                for which, (rows_of, embed) in enumerate(models):
                    for item, ids in zip(some, greedy(rows_of, embed, [item["ids"] for item in some], REPLY.get(kind.split()[0], 32))):
                        ends = np.flatnonzero([t in stops for t in ids])
                        text = b"".join(pieces[t] for t in (ids[:ends[0]] if len(ends) else ids)).decode(errors="replace")
                        right[which] += is_right(text, item["answers"])
                right[2] += len(some)
                note(found)
            log("%-12s teacher %d, student %d of %d" % (kind, *found[kind]))
