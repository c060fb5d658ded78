"""Checks of swipes, of DPO, of the data mix and of what ablate.py says of models that diverge; what needs PyTorch is left out without it. Half a minute of a core."""
import json
import os
import random
import sys
import tempfile
from types import SimpleNamespace

import numpy as np

import ablate
import data_mix
import swipes

SEED = 11


def check(name, holds, *figures):
    print("%s: %s %s" % ("ok" if holds else "FAILED", name, " ".join("%.3g" % f for f in figures)), flush=True)
    if not holds:
        sys.exit(1)


def users():
    card, said = "Wren\nWren is a postman who grows plums and keeps a parrot called Bo.", "Do you like plums?"
    replies = ["Yes.", "Yes, plums are what I grow, and the parrot Bo eats most of the plums.", "Not today. What about you?",
               "Well, that is a thing that one could talk about for a long while without ever coming to an end of it at all, I would say."]
    likes = {kind: max(replies, key=lambda reply: swipes.score(kind, card, said, reply)) for kind in swipes.KINDS}
    check("each kind of user likes another reply", likes == {"brief": replies[2], "curious": replies[2], "attentive": replies[1]})
    r = random.Random(SEED)
    kept = {kind: [swipes.swipe(kind, card, said, r.sample(replies, 4), r) for _ in range(400)] for kind in swipes.KINDS}
    check("what is kept is not among what is swiped away, which came before it unless all were seen",
          all(k not in s and (s == list(range(k)) or len(s) == 3) for some in kept.values() for k, s in some))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log.jsonl")
        turns = [["char", "Hello."], ["user", said]]
        with open(path, "w", encoding="utf-8") as f:
            for kept, swiped in ((replies[0], [replies[1], replies[1], " "]), (replies[0], [replies[0]]), ("", [replies[1]]), (replies[2], [])):
                f.write(swipes.line(card, turns, kept, swiped) + "\n")
        rows = list(swipes.read(path))
    check("lines without a preference are left out, and doubles too", len(rows) == 1 and rows[0]["swiped"] == [replies[1]])
    check("a reply without punctuation at its end counts as cut", [swipes.is_whole(text) for text in ("Yes.", "Yes! ", "*nods*", "Yes, and", "Yes,")] == [True, True, True, False, False])
    check("a tie is half a win", swipes.win_rate("curious", [(card, said, "A.", "B."), (card, said, "A?", "B.")])[0] == 0.75)


def mix():
    r = random.Random(SEED)
    vocabulary = ["w%d" % i for i in range(400)]
    texts = [" ".join(r.choices(vocabulary, k=120)) for _ in range(60)]
    dedup = data_mix.Deduplicator()
    check("different texts are kept", all(dedup.is_new(t) for t in texts))
    edited = [t.replace(t.split()[50], "other", 1).upper() for t in texts]
    check("a text with one word changed is a duplicate", not any(dedup.is_new(t) for t in edited))
    half = [" ".join(t.split()[:60] + u.split()[60:]) for t, u in zip(texts, texts[1:])]
    check("a text that shares half with each of two is kept", sum(dedup.is_new(t) for t in half) > 55)
    g = np.random.default_rng(SEED)
    v = g.standard_normal((300, 16)).astype(np.float32)
    v[:20, 0] += 6  # of one topic
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    like = data_mix.likeness(v, v[:5])
    w = data_mix.weights(like)
    check("documents of the target weigh most", abs(w.sum() - 1) < 1e-9 and w[:20].sum() > 0.8 and w[:20].mean() > 20 * w[20:].mean(), w[:20].sum())
    both = data_mix.mixed({"a": like}, {"a": 0.5})
    check("a mix is a weighted mean", np.allclose(both, 0.5 * w + 0.5 / 300))
    even = np.full(300, 1 / 300)
    check("a stream begins even and ends with the target", np.allclose(data_mix.annealed(even, w, 0.5), even) and np.allclose(data_mix.annealed(even, w, 1.0), w))
    drawn = list(data_mix.stream(w, 1500))
    early, late = (np.mean(like[part]) for part in (drawn[:900], drawn[-200:]))
    check("a stream is the same each time, and turns to what is alike", drawn == list(data_mix.stream(w, 1500)) and late > early + 0.5 * like.std(), early, late)
    check("no document comes a third time while others wait in the even part", max(np.bincount(drawn[:300], minlength=300)) <= 2)
    check("gelu is the exact one", abs(float(data_mix.gelu(np.float32(1.0))) - 0.8413447) < 1e-5 and abs(float(data_mix.gelu(np.float32(-2.0))) + 0.0455003) < 1e-5)


def diverging():
    """One model diverges after 20 steps, the other does not."""
    curve, short = [(10, 5.0), (20, 4.5), (30, 4.0)], [(10, 5.5), (20, float("nan"))]
    check("curves are compared as far as both go", ablate.beside(curve, short) == [(10, -0.5)] == [(s, -d) for s, d in ablate.beside(short, curve)] and ablate.beside(curve, ()) == [])
    check("a model that diverged has no loss in the table", ablate.ended({"curve": curve, "held_out": 4.1}) == "4.100" and ablate.ended({"curve": short, "held_out": 9.0}) == "diverged")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("no matplotlib here: the plot is not drawn")
        return
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "results.jsonl"), "w") as f:
            for variant, line in (("all", short), ("no virtual scalars", curve)):
                f.write(json.dumps({"size": "0.6 M", "variant": variant, "rate": 4.0, "curve": line, "held_out": line[-1][1]}) + "\n")
        ablate.plot(SimpleNamespace(results=folder, out=folder))
        check("the plot is drawn", os.path.getsize(os.path.join(folder, "ablations.png")) > 0)


def margins():
    """A step of DPO on a tiny int8 model raises the margin of its own pairs, and no more than text allows."""
    try:
        import torch
    except ImportError:
        print("no PyTorch here: DPO is not checked")
        return
    import dpo
    import export
    import held
    import model
    torch.set_num_threads(1)
    cfg = model.Config(vocab_size=64, d_model=64, n_heads=1, d_ff=128, context=128, pattern="SG", window=16)
    dpo.LENGTH, dpo.REPLY = 64, 8
    with tempfile.TemporaryDirectory() as folder:
        path, prompts = os.path.join(folder, "model.safetensors"), os.path.join(folder, "prompts.json")
        export.write(path, model.quantise(model.new_masters(cfg, "cpu"), cfg))
        with open(prompts, "w") as f:
            json.dump({"pieces": [], "rows": []}, f)
        d = dpo.Dpo(SimpleNamespace(model=path, prompts=prompts, seed=1, kinds=dpo.KINDS, hold=0.5, replies=4), "cpu")
        r = np.random.default_rng(SEED)
        pairs = [("logged", r.integers(8, 64, 10).tolist(), r.integers(8, 64, 6).tolist(), r.integers(8, 64, 9).tolist(), 1.0) for _ in range(6)]
        text = torch.from_numpy(r.integers(8, 64, (2, 64)))
        one, other = (r.integers(8, 64, 5).tolist() for _ in range(2))
        given = []
        d.add, add = (lambda gradients, tokens, weights, norm: given.append(weights.sum(1)) or add(gradients, tokens, weights, norm)), d.add
        d.step([("logged", [9, 10], one, other, 1.0), ("logged", [9, 10], other, one, 1.0)], text, 0.0, False)
        check("what one user keeps and another swipes away counts as kept replies do by themselves", torch.allclose(given[0], torch.full((2,), dpo.KEPT)))
        d.add = add
        first, _ = d.step(pairs, text, 0.2, False)
        for _ in range(6):
            last, right = d.step(pairs, text, 0.2, False)
        check("DPO raises the margins of its pairs", abs(first - np.log(2)) < 1e-5 and last < first and right == 1.0, first, last)
        seen, gain, (first, second, third) = [], d.gain, (r.integers(8, 64, 5).tolist() for _ in range(3))
        d.gain = lambda w, tokens, spans: seen.append(len(tokens)) or gain(w, tokens, spans)
        d.step([("logged", [9, 10], *both, 1.0) for both in ((first, second), (first, third), (third, second))], text, 0.0, False)
        check("a reply of several pairs is one sequence", seen == [3])
        d.gain = gain
        with torch.no_grad():
            flat, positions = text.reshape(-1), d.run.positions(2)
            same = held.Gradients(d.reference)
            same.hold(d.reference, flat, positions, (2, 64), 1 / flat.numel())
            still = sum(float(g.abs().sum()) for g in same.finish().values())
            moved = held.Gradients(d.weights())
            moved.hold(d.reference, flat, positions, (2, 64), 1 / flat.numel())
        check("what holds a model to another one has no gradient where they agree, and measures the KL elsewhere", still == 0.0 and abs(float(moved.loss) - d.kl(d.weights(), text)) < 1e-4, still, float(moved.loss))
        far = d.kl(d.weights(), text)
        d.go_back(0.5)
        near = d.kl(d.weights(), text)
        d.go_back(1.0)
        check("going back lessens the KL, at last to 0", 0 < near < far and d.kl(d.weights(), text) == 0.0, far, near)
        logged_pairs(dpo, folder, path)


def logged_pairs(dpo, folder, path):
    """A run on a log whose users keep one half of the vocabulary and swipe the other half away."""
    r = np.random.default_rng(SEED)

    def ids(first, last, count):
        return r.integers(first, last, count).tolist()
    rows = [{"card": "", "turns": [["user", "Hello."]], "ids": ids(8, 64, 12), "kept": ids(8, 36, 6) + [dpo.END], "swiped": [ids(36, 64, 6) + [dpo.END], ids(36, 64, 40)]} for _ in range(40)]
    rows[0]["kept"] = ids(8, 36, 255) + [dpo.END]
    rows.append({**rows[1], "ids": ids(8, 64, 56)})
    prompts = os.path.join(folder, "logged.json")
    with open(prompts, "w") as f:
        json.dump({"pieces": ["\u2581w%s" % "abcdefgh"[i % 8] for i in range(64)], "rows": rows}, f)
    for name in ("train", "val"):
        r.integers(8, 64, 64 * 8).astype(np.uint16).tofile(os.path.join(folder, name + ".bin"))
    with open(os.path.join(folder, "data.json"), "w") as f:
        json.dump({"tokenizer_bytes": 0}, f)
    args = SimpleNamespace(model=path, prompts=prompts, data=folder, out=os.path.join(folder, "out"), seed=1, kinds=("brief",), hold=0.1, replies=4, length=64, held=900, held_text=4, rounds=3, sft_steps=2, steps=4, passes=1, pairs=16,
                           fresh=8, texts=2, rate=0.2, most_kl=9.0, most_perplexity=1e4, seconds=None, context=64)
    d = dpo.Dpo(args, "cpu")
    check("prompts without room are left out, and longer replies are cut to theirs, without an END",
          d.fit() == (1, 1) and len(d.rows) == 40 and len(d.rows[0]["kept"]) == 52 and dpo.END not in d.rows[0]["kept"])
    tokens, [(first, last)] = d.sequences([(d.rows[1]["ids"], d.rows[1]["swiped"][1])])
    check("a reply that was cut is not taught to end", tokens[0, first + 1:last + 1].tolist() == d.rows[1]["swiped"][1] and not tokens[0, last + 1:].any())
    replies = d.sample(d.reference, d.rows)
    check("a drawn reply has an END if it ended by itself", all(x.count(dpo.END) == (x[-1] == dpo.END) and (dpo.END in x or len(x) == dpo.REPLY) for x in replies) and any(dpo.END in x for x in replies))
    dpo.Dpo.sample = lambda self, w, rows: [ids(8, 64, 6) for _ in rows]  # as if drawn, which takes long here
    groups = d.online(d.reference, d.rows[1:])
    of_all = [[pair[4] for pair in pairs] for pairs in groups if len(pairs) == d.replies - 1]
    check("pairs of a user who has seen all replies count as one, others each", of_all and all(abs(sum(weights) - 1) < 1e-9 for weights in of_all)
          and all(pair[4] == 1.0 for pairs in groups if len(pairs) < d.replies - 1 for pair in pairs))
    dpo.train_on(args)
    with open(os.path.join(args.out, "report.json")) as f:
        report = json.load(f)
    rounds, before, after = report["rounds"], report["before"]["logged"], report["after"]["logged"]
    check("a log's pairs are in a round of SFT and in one of DPO", [(x["kind"], x["logged"]) for x in rounds] == [("sft", True), ("dpo", True), ("dpo", False)] and rounds[0]["pairs"] == rounds[1]["pairs"] == 64)
    check("held-out pairs of a log are measured, and follow", after["pairs"] == 16 and before["held_out_pairs"] == 0.5 and after["held_out_pairs"] > 0.9, after["held_out_pairs"])


if __name__ == "__main__":
    users()
    mix()
    diverging()
    margins()
