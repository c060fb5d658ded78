"""What kaiju-gate safety (examples/gate) compares a head with: a baseline on the head's own training texts, and XSTest as a set.

    python3 safety_eval.py baseline --safety safety.jsonl --out tfidf.json      TF-IDF and logistic regression; kaiju-gate safety MODEL --beside tfidf.json
    python3 safety_eval.py xstest --clones DIR --out xstest.jsonl               paul-rottger/exaggerated-safety; kaiju-gate safety MODEL --set xstest.jsonl
"""
import argparse
import csv
import json
import os
import sys

import safety

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "gate"))
from kaiju_gate.sets import read_sets


def xstest(args):
    """XSTest (CC BY 4.0): safe prompts that look unsafe, and unsafe ones beside them."""
    with open(args.out, "w", encoding="utf-8") as out:
        for n, row in enumerate(csv.DictReader(open(os.path.join(args.clones, "exaggerated-safety", "xstest_prompts.csv"), encoding="utf-8"))):
            unsafe = row["type"].startswith("contrast") if "label" not in row else row["label"] == "unsafe"
            out.write(json.dumps({"id": "xs-%03d" % (n + 1), "how": row["type"], "labels": ["unsafe"] if unsafe else [], "tier": "all",
                                  "card": "Robin\nRobin likes to talk about all sorts of things.", "turns": [["user", row["prompt"]]]}) + "\n")


def text_of(texts, whole):
    return " \n ".join(texts) if whole else texts[-1]


def marked_texts(rows, whole, passes=3):
    """(text, labels that hold, labels that are known) of every text the head was trained with."""
    for _, _, turns in safety.chats(1, 0, 1, None, None, rows, passes):
        for at, turn in enumerate(turns):
            if len(turn) > 3:
                yield text_of([text for _, text, *_ in turns[max(0, at - 6):at + 1]], whole), *turn[3]


def baseline(args):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    texts = list(marked_texts(safety.rows(args.safety), args.whole))
    found = read_sets(args.set)
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    x = words.fit_transform(text for text, _, _ in texts)
    asked = words.transform(text_of([text for role, text in item.messages if role != "card"][-7:], args.whole) for item in found)
    out = {item.id: {} for item in found}
    for i, label in enumerate(safety.LABELS):
        known = [n for n, (_, _, k) in enumerate(texts) if k >> i & 1]
        fit = LogisticRegression(max_iter=2000, C=10, class_weight="balanced").fit(x[known], [texts[n][1] >> i & 1 for n in known])
        for item, p in zip(found, fit.predict_proba(asked)[:, 1]):
            out[item.id][label] = float(p)
    json.dump(out, open(args.out, "w"))
    print("%d texts, %d features" % x.shape)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = a.add_subparsers(dest="command", required=True)
    b = commands.add_parser("baseline", help="scores of TF-IDF and logistic regression")
    b.add_argument("--safety", required=True, help="the public sets, from safety.py public")
    b.add_argument("--whole", action="store_true", help="of the last turns together, not of the last one alone")
    b.add_argument("--set", action="append", default=[], help="messages to score, as kaiju-gate's --set; default: the two frozen sets")
    x = commands.add_parser("xstest", help="XSTest as a set")
    x.add_argument("--clones", required=True, help="folder with a clone of exaggerated-safety")
    for command in (b, x):
        command.add_argument("--out", required=True)
    args = a.parse_args()
    {"baseline": baseline, "xstest": xstest}[args.command](args)


if __name__ == "__main__":
    main()
