"""Alignment of the int8 model on swipes: online DPO (Rafailov et al. 2023), every forward pass the contract's.

    python3 dpo.py prompts --model MODEL --count 4000 --out prompts.json                   cards and turns of the generator (needs sentencepiece)
    python3 dpo.py prompts --model MODEL --log swipes.jsonl --out prompts.json             or of a log, with its pairs
    python3 dpo.py train --model MODEL --prompts prompts.json --data DATA --out RUN        MODEL: a checkpoint of train.py

The first round is SFT on kept replies, the others are DPO. In a round the model answers prompts several times, simulated users swipe (swipes.py), and each
kept reply is set against those swiped away. Where prompts come from a log, the first two rounds are about its pairs instead. What is modified: of who has seen
all replies nobody knows whether the kept one was liked, so that the pairs of such a swipe count as one (a log does not tell it); the loss of a kept reply counts beside the margin, so that
both replies cannot become unlikely together; in every step the model is held to the one it began as on text of DATA, by the KL of its next tokens (held.py); and
KL and perplexity on held-out text are bounded: when one passes its bound, the weights go back a part of the way. No step needs a backward pass of its own: the gradient of DPO is that of
cross-entropy whose weight is beta * sigmoid(-margin) for kept replies and its negative for others."""
import argparse
import functools
import itertools
import json
import os
import random
import time

import numpy as np

import swipes

END, CARD, ROLE = 6, 3, {"user": 4, "char": 5}
LENGTH, REPLY = 512, 40  # tokens of a sequence and of a reply
AT_ONCE = 128  # sequences of a backward pass
BETA, KEPT = 0.1, 0.2  # DPO's beta; weight of kept replies' own loss
KINDS = swipes.KINDS


def prompts(args):
    """Rows {"card", "turns", "ids"}; logged rows also "kept" and "swiped", as ids. The pieces of the vocabulary go along, for replies become text again.
    A reply's last id is END if it ended by itself."""
    import sentencepiece

    import export
    import persona
    sp = sentencepiece.SentencePieceProcessor(model_proto=export.read(args.model)[1]["tokenizer"].tobytes())
    rows, n, log = [], 0, list(swipes.read(args.log)) if args.log else []

    def add(card, turns, **more):
        ids = [1, CARD] + sp.encode(card) + [END]
        for role, text in turns:
            ids += [ROLE[role]] + sp.encode(text) + [END]
        ids.append(ROLE["char"])
        if len(ids) + REPLY + 1 <= LENGTH:
            rows.append({"card": card, "turns": turns, "ids": ids, **more})

    def reply(text):
        return sp.encode(text) + [END] * swipes.is_whole(text)

    for row in log:
        add(row["card"], row["turns"], kept=reply(row["kept"]), swiped=[reply(s) for s in row["swiped"]])
    while not args.log and len(rows) < args.count:
        s = persona.sample(args.seed, 20_000_000 + n)
        r, n = random.Random(n), n + 1
        asked = [i for i, turn in enumerate(s["turns"]) if turn[0] == "user" and i < 12]
        if asked:
            add(s["name"] + "\n" + s["card"], [(role, text) for role, text, _ in s["turns"][:r.choice(asked) + 1]])
    json.dump({"pieces": [sp.id_to_piece(i) if not sp.is_control(i) else "" for i in range(sp.get_piece_size())], "rows": rows}, open(args.out, "w"))
    print(len(rows), "prompts" + (", %d more of the log are too long" % (len(log) - len(rows)) if args.log else ""))


class Dpo:
    """Policy and reference of a run."""

    def __init__(self, args, device):
        import torch

        import export
        import model
        import train
        self.torch, self.model, self.train, self.device = torch, model, train, device
        w = export.weights(args.model, device)
        self.tokenizer_bytes = len(export.read(args.model)[1].get("tokenizer", b""))
        w.cfg.context = LENGTH
        self.run = train.Run.__new__(train.Run)
        self.run.cfg, self.run.device, self.run.is_twin, self.run.ropes = w.cfg, device, False, w.ropes
        self.run.params = {k: v.clone() for k, v in model.masters_of(w).items()}
        self.begun = {k: v.clone() for k, v in self.run.params.items()}
        import optim
        self.run.optimiser = optim.Steady(self.run.params)
        self.reference = self.weights(self.begun)
        saved = json.load(open(args.prompts))
        self.pieces, self.rows = saved["pieces"], saved["rows"]
        self.random, self.kinds, self.hold, self.replies = random.Random(args.seed), args.kinds, args.hold, args.replies

    def fit(self):
        """Leaves out prompts without room for a reply. Cuts a log's replies to their room; what is cut has no END. Returns how many of both."""
        count, cut = len(self.rows), 0
        self.rows = [row for row in self.rows if len(row["ids"]) + REPLY + 1 <= LENGTH]
        for row in self.rows:
            if "kept" in row:
                room = LENGTH - len(row["ids"])
                cut += sum(len(reply) > room for reply in (row["kept"], *row["swiped"]))
                row["kept"], row["swiped"] = row["kept"][:room], [reply[:room] for reply in row["swiped"]]
        return count - len(self.rows), cut

    def weights(self, params=None):
        return self.model.quantise(params or self.run.params, self.run.cfg, self.run.ropes)

    def text(self, ids):
        return "".join(self.pieces[i] for i in ids if i > 7).replace("\u2581", " ").strip()

    # ------------------------------------------------------------ replies
    def sample(self, w, rows, temperature=0.9, at_once=3072):
        """One reply to each row: ids, with END behind those that ended by themselves."""
        import attention
        import evaluate
        torch = self.torch
        self.run.w, out = w, [None] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]["ids"]))
        padded = -(-len(rows[order[-1]]["ids"]) // attention.BLOCK) * attention.BLOCK
        at_once = min(at_once, (2**31 - 1) // (padded * self.run.cfg.d_ff))  # the kernels count a batch's values in int32
        for i in range(0, len(order), at_once):
            some = order[i:i + at_once]
            batch = [rows[j]["ids"] for j in some]
            batch += [batch[0]] * max(0, 32 - len(batch))

            def choose(last):
                best, ids = (last / temperature).topk(40)
                return ids.gather(1, torch.multinomial(best.softmax(-1), 1))[:, 0]
            for j, reply in zip(some, evaluate.generate(self.run, batch, choose, REPLY)):
                out[j] = reply + [END] * (len(reply) < REPLY)
        return out

    def log_probability(self, w, tokens, spans):
        """Of each sequence's reply, tokens [n, LENGTH], spans [(first, last)] of its targets."""
        loss = self.torch.cat([self.run.losses(w, t.reshape(-1), self.targets(t).reshape(-1), False).view(len(t), -1) for t in tokens.split(64)])
        at = self.torch.arange(LENGTH, device=loss.device)[None]
        first, last = (self.torch.tensor(x, device=loss.device)[:, None] for x in zip(*spans))
        return -(loss * ((at >= first) & (at < last))).sum(1)

    def gain(self, w, tokens, spans):
        """By how much w's log-probability of each reply is above the reference's."""
        return self.log_probability(w, tokens, spans) - self.log_probability(self.reference, tokens, spans)

    def targets(self, tokens):
        return self.torch.nn.functional.pad(tokens[:, 1:], (0, 1))

    def sequences(self, pairs):
        """tokens [n, LENGTH] and spans of (prompt ids, reply ids)."""
        tokens, spans = np.zeros((len(pairs), LENGTH), np.int64), []
        for row, (prompt, reply) in zip(tokens, pairs):
            ids = prompt + reply
            row[:len(ids)] = ids
            spans.append((len(prompt) - 1, len(ids) - 1))
        return self.torch.from_numpy(tokens).to(self.device), spans

    # ------------------------------------------------------------ preferences
    def online(self, w, rows):
        """Preferences of a simulated user of each kind about this model's replies to the prompts of rows: a list for each prompt."""
        replies, found = self.sample(w, [row for row in rows for _ in range(self.replies)]), []
        for n, row in enumerate(rows):
            some, pairs = replies[n * self.replies:(n + 1) * self.replies], []
            texts = [self.text(r) for r in some]
            for kind in self.kinds:
                kept, swiped = swipes.swipe(kind, row["card"], row["turns"][-1][1], texts, self.random)
                weight = 1 / len(swiped) if len(swiped) == len(some) - 1 else 1.0
                pairs += [(kind, row["ids"], some[kept], some[i], weight) for i in swiped if texts[i] != texts[kept]]
            if pairs:
                found.append(pairs)
        return found

    def logged(self, rows):
        found = ([("logged", row["ids"], row["kept"], s, 1.0) for s in row["swiped"] if s != row["kept"]] for row in rows if "kept" in row)
        return [pairs for pairs in found if pairs]

    # ------------------------------------------------------------ steps
    def step(self, pairs, text, factor, sft):
        """One optimiser step; returns loss and share of margins above 0. A reply of several pairs, kept by one user and swiped away by another, is
        one sequence, with the sum of its weights."""
        torch = self.torch
        import backward
        import held
        w, place = self.weights(), {}
        gradients = held.Gradients(w, first_row=self.run.optimiser.step_count * 37 % backward.CLIP_ROWS)
        kept, other = (torch.tensor([place.setdefault((tuple(pair[1]), tuple(pair[which])), len(place)) for pair in pairs], device=self.device) for which in (2, 3))
        tokens, spans = self.sequences([(list(prompt), list(reply)) for prompt, reply in place])
        count = torch.tensor([pair[4] for pair in pairs], device=self.device)
        with torch.no_grad():
            gain = self.gain(w, tokens, spans)
            margin = BETA * (gain[kept] - gain[other])
            pull = torch.zeros_like(margin) if sft else BETA * torch.sigmoid(-margin)
            own = (1.0 if sft else KEPT) / torch.tensor([max(1, last - first) for first, last in spans], device=self.device)
            weight = torch.zeros(len(tokens), device=self.device).index_add(0, kept, count * (pull + own[kept])).index_add(0, other, -count * pull)
            at, (first, last) = torch.arange(LENGTH, device=self.device)[None], (torch.tensor(x, device=self.device)[:, None] for x in zip(*spans))
            weights = weight[:, None] * ((at >= first) & (at < last))
            for some in weight.nonzero()[:, 0].split(AT_ONCE):
                self.add(gradients, tokens[some], weights[some], 1 / float(count.sum()))
            gradients.hold(self.reference, text.reshape(-1), self.run.positions(len(text)), tuple(text.shape), self.hold / text.numel())
            grads = gradients.finish()
            self.run.optimiser.step(grads, factor)
        return float(-torch.nn.functional.logsigmoid(margin).mean()), float((margin > 0).float().mean())

    def add(self, gradients, tokens, weights, norm):
        positions, targets = self.run.positions(len(tokens)), self.targets(tokens)
        gradients.run(tokens.reshape(-1), positions, targets.reshape(-1), weights.reshape(-1), norm, tuple(tokens.shape), False)

    def kl(self, w, tokens):
        """Mean KL of the reference's next token against w's over text [n, LENGTH]."""
        torch, model = self.torch, self.model
        with torch.no_grad():
            rows = [model.forward(x, tokens.reshape(-1), self.run.positions(len(tokens)), model.Training(tuple(tokens.shape), False))[1] for x in (self.reference, w)]
            total = 0.0
            for a, b in zip(*(r.split(2048) for r in rows)):
                p, q = (model.logits(x, r).log_softmax(-1) for x, r in ((self.reference, a), (w, b)))
                total += float((p.exp() * (p - q)).sum())
        return total / tokens.numel()

    def go_back(self, share):
        with self.torch.no_grad():
            for k, p in self.run.params.items():
                p.lerp_(self.begun[k], share)

    # ------------------------------------------------------------ measures
    def measure(self, w, base):
        """For each kind on held-out prompts: share of replies that users like better than the reference's; and for each kind and the log: share of
        held-out pairs whose kept reply gained more probability than the swiped one."""
        report, mine = {}, self.sample(w, self.held)
        for kind in self.kinds:
            rows = [(row["card"], row["turns"][-1][1], self.text(a), self.text(b)) for row, a, b in zip(self.held, mine, base)]
            rate, error = swipes.win_rate(kind, rows)
            report[kind] = {"win_rate": round(rate, 4), "standard_error": round(error, 4)}
        for kind in (*self.kinds, "logged"):
            pairs = [p for p in self.held_pairs if p[0] == kind][:600]
            if pairs:
                with self.torch.no_grad():
                    kept, other = (self.gain(w, *self.sequences([(p[1], p[which]) for p in pairs])) for which in (2, 3))
                    right = (kept > other).float() + 0.5 * (kept == other).float()
                report.setdefault(kind, {}).update(held_out_pairs=round(float(right.mean()), 4), pairs=len(pairs))
        report["words"] = round(float(np.mean([len(swipes.words(self.text(r))) for r in mine])), 2)
        return report, mine

    def perplexity(self, w, tokens):
        with self.torch.no_grad():
            loss = self.torch.cat([self.run.losses(w, t.reshape(-1), self.targets(t).reshape(-1), False).view(len(t), -1)[:, :-1] for t in tokens.split(64)])
            return float(loss.mean().exp())


def train_on(args):
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        import attention
        print(attention.choose(), flush=True)
    global LENGTH
    LENGTH = args.length
    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(args.seed)
    d, began = Dpo(args, device), time.time()
    say = functools.partial(print, flush=True)
    say("%d prompts are too long and left out, %d logged replies are cut" % d.fit())
    d.random.shuffle(d.rows)
    held = min(args.held, len(d.rows) // 5)
    d.held, d.training = d.rows[:held], d.rows[held:]

    def text(name):
        x = np.fromfile(os.path.join(args.data, name + ".bin"), np.uint16).astype(np.int64)
        return torch.from_numpy(x[:len(x) // LENGTH * LENGTH].reshape(-1, LENGTH))
    built, own = json.load(open(os.path.join(args.data, "data.json")))["tokenizer_bytes"], d.tokenizer_bytes
    if own and built != own:
        raise SystemExit("%s was built with another tokenizer than the model's (%d bytes, %d)" % (args.data, built, own))
    anchor, val = text("train"), text("val")[:2 * args.held_text].to(device)
    val, bound = val[::2], val[1::2]  # what is reported, and by what the run is bounded
    base = d.sample(d.reference, d.held)
    d.held_pairs, logged = sum(d.logged(d.held) + d.online(d.reference, d.held), []), d.logged(d.training)
    d.random.shuffle(d.held_pairs)
    begun, most = d.perplexity(d.reference, bound), 1 + args.most_perplexity / 100
    report = {"before": d.measure(d.reference, base)[0], "perplexity_before": round(d.perplexity(d.reference, val), 4)}
    say("%d prompts, %d held out with %d pairs; before: %s, perplexity %.3f, %.0f s" % (len(d.training), len(d.held), len(d.held_pairs), report["before"], report["perplexity_before"], time.time() - began))
    log, rng, done, rate = [], np.random.default_rng(args.seed), 0, args.rate
    all_steps = args.sft_steps + args.steps * (args.rounds - 1)
    for number in range(args.rounds):
        w, start, steps = d.weights(), time.time(), args.steps if number else args.sft_steps
        of_log = bool(logged) and number < 2
        wanted = -(-steps * args.pairs // len(d.kinds))  # a prompt gives a pair of each kind of user, and mostly more
        groups = logged if of_log else d.online(w, d.random.sample(d.training, min(args.fresh, wanted, len(d.training))))
        if not groups:
            raise SystemExit("no pairs: users kept the first reply to every prompt, or all replies to it were the same; --fresh gives more prompts")
        d.random.shuffle(groups)
        count, answered, coming = sum(map(len, groups)), time.time(), itertools.cycle(groups)
        steps = min(steps, -(-count * args.passes // args.pairs))
        for n in range(steps):
            some = []
            while len(some) < args.pairs:  # all pairs of a prompt are in one step
                some += next(coming)
            batch = anchor[rng.integers(len(anchor), size=args.texts)].to(device)
            loss, right = d.step(some, batch, rate * max(0.1, 1 - done / all_steps), number == 0)
            done += 1
            if n % 20 == 19:
                say("step %d: loss %.4f, margins above 0: %.3f, %.0f s" % (done, loss, right, time.time() - began))
        w, back = d.weights(), 0
        far = kl, perplexity = d.kl(w, bound[:32]), d.perplexity(w, bound)
        while (kl > args.most_kl or perplexity > begun * most) and back < 30:
            d.go_back(0.1)
            w, back = d.weights(), back + 1
            kl, perplexity = d.kl(w, bound[:32]), d.perplexity(w, bound)
        log.append({"round": number, "kind": "sft" if number == 0 else "dpo", "logged": of_log, "pairs": count, "steps": steps, "rate": rate, "loss": round(loss, 4), "margins_above_0": round(right, 3), "kl": round(kl, 5), "back": back,
                    "kl_before": round(far[0], 5), "perplexity_rose_before": round(far[1] / begun, 4), "perplexity": round(d.perplexity(w, val), 4), "seconds": [round(answered - start, 1), round(time.time() - answered, 1)]})
        if number:
            rate *= 2 if not back and kl < args.most_kl / 4 else 0.5 if back > 6 else 1
        after, mine = d.measure(w, base)
        say("round %d: %s; %s, %.0f s" % (number, log[-1], after, time.time() - began))
        report.update(after=after, perplexity_after=log[-1]["perplexity"], rounds=log, seconds=round(time.time() - began, 1), device=device)
        json.dump(report, open(os.path.join(args.out, "report.json"), "w"), indent=1)
        if args.seconds and time.time() - began + (time.time() - start) > args.seconds and number:
            say("no time for another round")
            break
    for row, a, b in list(zip(d.held, base, mine))[:12]:
        say("%r: %r -> %r" % (row["turns"][-1][1][:60], d.text(a)[:110], d.text(b)[:110]))
    import export
    w.cfg.context = args.context
    proto = export.read(args.model)[1].get("tokenizer")
    if proto is not None:
        proto.tofile(os.path.join(args.out, "tokenizer.model"))
    export.write(os.path.join(args.out, "model.safetensors"), w, os.path.join(args.out, "tokenizer.model") if proto is not None else None)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = a.add_subparsers(dest="command", required=True)
    p = commands.add_parser("prompts", help="what the model is asked")
    p.add_argument("--log", help="lines of --swipe-log, of kaiju-chat or kaiju-server")
    p.add_argument("--count", type=int, default=4000)
    t = commands.add_parser("train", help="rounds of SFT and DPO")
    t.add_argument("--prompts", required=True)
    t.add_argument("--data", required=True, help="folder of data.py build, for the text beside")
    t.add_argument("--rounds", type=int, default=8, help="the first one is SFT; of a log's pairs the first two are made, so that 2 is the log alone")
    t.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of simulated users")
    t.add_argument("--sft-steps", type=int, default=12, help="of the first round")
    t.add_argument("--steps", type=int, default=40, help="of a round, at most: pairs come about --passes times")
    t.add_argument("--passes", type=int, default=1)
    t.add_argument("--fresh", type=int, default=1300, help="prompts that are answered anew each round")
    t.add_argument("--replies", type=int, default=8, help="to a prompt: a user swipes this many times, less one, at most")
    t.add_argument("--length", type=int, default=LENGTH, help="tokens of a sequence; longer prompts are left out")
    t.add_argument("--held", type=int, default=900, help="prompts held out, a fifth of all at most")
    t.add_argument("--held-text", type=int, default=256, help="sequences of held-out text")
    t.add_argument("--pairs", type=int, default=512, help="a step, at least: some nine come of a prompt")
    t.add_argument("--texts", type=int, default=32, help="sequences of text a step")
    t.add_argument("--rate", type=float, default=0.015, help="factor on the rates of optim.py; falls in a line, and follows how far a round went")
    t.add_argument("--hold", type=float, default=2.0, help="weight of the KL on text")
    t.add_argument("--most-kl", type=float, default=0.03, help="nats a token of held-out text")
    t.add_argument("--most-perplexity", type=float, default=1.8, help="percent that it may rise by")
    t.add_argument("--seconds", type=float, help="begin no round that would end later")
    t.add_argument("--context", type=int, default=4096, help="of the checkpoint that is written")
    for each in (p, t):
        each.add_argument("--model", required=True)
        each.add_argument("--out", required=True)
        each.add_argument("--seed", type=int, default=1)
    args = a.parse_args()
    if args.command == "train" and args.replies < 2:
        a.error("--replies: a user who swipes wants 2 or more")
    (prompts if args.command == "prompts" else train_on)(args)


if __name__ == "__main__":
    main()
