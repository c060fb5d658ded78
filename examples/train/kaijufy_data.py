"""Token streams for kaijufy.py, in the open model's own vocabulary and chat format.

    python3 kaijufy_data.py --text text.tar.xz --model smollm2.safetensors --out DIR

MODEL is the imported checkpoint, whose tokenizer and chat format the library reads (set PYTHONPATH to capi/python). DIR gets train.npy and
val.npy (uint32, one document after the other; loss counts everywhere, for a teacher has an opinion everywhere), and prompts.npz: what the
teacher is asked, so that it makes dialogues of its own."""
import argparse
import json
import os
import random
import re
import sys

import numpy as np

import data_text
import distill
import persona
from data import tokens_number

MOST = 2000  # tokens of a document: longer ones are cut
TOKEN = np.uint32  # a vocabulary may have more than 65,536


def store(path, documents):
    np.save(path, np.concatenate(documents).astype(TOKEN))


def separator(model):
    """The token before a text: the one that begins a sequence. Vocabularies that have none of that kind have <|endoftext|> as their first control symbol."""
    begin = model.chat_symbol("begin")
    return next(i for i in range(model.vocabulary) if not model.token_bytes(i)) if begin is None else begin


def encode(model, doc, between):
    """Ids of a document of data_text.py."""
    if doc[0] == "text":
        return [between] + model.tokenize(doc[1])
    messages = [("card", doc[1])] if doc[1] else []
    messages += [("user" if role == "user" else "character", text) for role, text, *_ in doc[2]]
    return model.chat_format(messages, 0)


def questions(rows, count, seed):
    """Messages that begin a dialogue: requests and first turns of the corpora, and questions to the generator's characters."""
    r = random.Random(seed).random
    asked = [row["turns"][0][1] for source in ("roleplay_single_turn", "self_dialogue", "small_talk", "topical_chat") for row in rows[source]]
    for n in range(count):
        x = r()
        if x < 0.4:
            s = persona.sample(seed, 9_000_000 + n, None, None)
            turns = [(role, text) for role, text, _ in s["turns"][:1 + 2 * int(r() * 3)]]
            while turns and turns[-1][0] != "user":
                turns.pop()
            if turns:
                yield [("card", s["name"] + "\n" + s["card"])] + [(("user", "character")[role != "user"], text) for role, text in turns]
        elif x < 0.8:
            yield [("user", data_text.normal(asked[int(r() * len(asked))]))]
        else:
            yield [("system", distill.EXPLAIN if r() < 0.6 else distill.TALE), ("user", data_text.normal(asked[int(r() * len(asked))]))]


def repeat(r, prose):
    """A text in which a part comes back after other prose: a passage word for word, or lines with numbers in another order. What a model has to learn
    there is to look back."""
    def piece(least, most):
        text = prose[int(r.random() * len(prose))]
        size = least + int(r.random() * (most - least))
        at = int(r.random() * max(1, len(text) - size))
        return text[at:at + size].strip()

    first = second = piece(200, 800)
    if r.random() < 0.5:
        words = sorted({word for word in re.findall("[A-Za-z]{4,}", first)})
        lines = ["%s: %d" % (word, r.randrange(10 ** r.randint(2, 6))) for word in r.sample(words, min(24, len(words)))]
        first, second = ("\n".join(r.sample(lines, len(lines))) for _ in range(2))
    return first + "\n\n" + piece(100, 1800) + "\n\n" + second


def build(args):
    import kaiju
    model = kaiju.Model(args.model)
    between = separator(model)
    data_text.PASSES = dict.fromkeys(data_text.PASSES, 1)
    rows = data_text.read(args.text)
    talks, bank = data_text.filler_talks(rows), data_text.word_bank(rows)
    os.makedirs(args.out, exist_ok=True)
    for name, validation in (("val", True), ("train", False)):
        docs, counts, prose = [], {}, []

        def take(source, doc):
            try:
                ids = encode(model, doc, between)[:MOST]
            except kaiju.Error:  # a text that no chat holds
                return
            docs.append(ids)
            counts[source] = counts.get(source, 0) + len(ids)

        for source, doc in data_text.documents(rows, validation):
            take(source, doc)
            if doc[0] == "text":
                prose.append(doc[1])
        wanted, n = tokens_number(args.persona_tokens) // (20 if validation else 1), 0
        while counts.get("persona", 0) < wanted:
            s = persona.sample(args.seed + validation, n, bank, talks)
            take("persona", ("chat", s["name"] + "\n" + s["card"], s["turns"]))
            n += 1
        r = random.Random(args.seed + 2)
        while not validation and counts.get("repeats", 0) < tokens_number(args.repeat_tokens):
            take("repeats", ("text", repeat(r, prose)))
        random.Random(args.seed).shuffle(docs)
        store(os.path.join(args.out, name + ".npy"), docs)
        print(name, sum(counts.values()), "tokens:", json.dumps(counts), flush=True)
    prompts = []
    for messages in questions(rows, args.prompts, args.seed):
        text = messages[-1][1]
        if 3 <= len(text) <= 600 and not re.search(r"https?:", text):
            try:
                prompts.append(np.array(model.chat_format(messages), TOKEN))
            except kaiju.Error:
                continue
    prompts = [p for p in prompts if len(p) <= 320]
    np.savez_compressed(os.path.join(args.out, "prompts.npz"), ids=np.concatenate(prompts), ends=np.cumsum([len(p) for p in prompts]), stop=np.array(model.stop_tokens))
    print(len(prompts), "prompts")
    json.dump(evaluation(model, args.questions), open(os.path.join(args.out, "eval.json"), "w"))


def evaluation(model, count):
    """What kaijufy_eval.py asks teacher and student: needles, and `count` frozen persona questions of each kind that fits."""
    import persona_eval
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import"))
    from needle import haystack
    needles, r = [], random.Random(5)
    for length in (256, 512, 1000):
        for depth in (0.1, 0.5, 0.9):
            for _ in range(5):
                answer = str(r.randrange(10000, 100000))
                needles.append({"kind": "needle %d" % length, "ids": haystack(model, length, depth, answer), "answers": [answer]})
    items = []
    for item in persona_eval.make({"turn1": count, "turn4": count, "turn8": count}):
        messages = [("card", item["card"])] + [("user" if role == "user" else "character", text) for role, text in item["turns"]]
        items.append({"kind": item["kind"], "ids": model.chat_format(messages), "answers": item["answers"]})
    return {"stop": list(model.stop_tokens), "text": [model.token_bytes(i).decode("latin1") for i in range(model.vocabulary)], "asked": needles + [i for i in items if len(i["ids"]) <= 900]}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--text", required=True, help="text.tar.xz with the corpora")
    a.add_argument("--model", required=True)
    a.add_argument("--persona-tokens", default="3M")
    a.add_argument("--repeat-tokens", default="2M", help="texts in which a part comes back")
    a.add_argument("--prompts", type=int, default=8000)
    a.add_argument("--questions", type=int, default=100, help="persona questions of each kind for the report")
    a.add_argument("--seed", type=int, default=7)
    a.add_argument("--out", required=True)
    build(a.parse_args())


if __name__ == "__main__":
    main()
