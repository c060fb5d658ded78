"""A needle in a haystack: whether a checkpoint, and the float model that it was imported from, find a number in a long
text.

    python3 needle.py SOURCE --model FILE [--length TOKENS]... [--depth SHARE]...

Prints for each length and depth the digits that either says, greedy, with the probability that the float model gives to
the right ones. Needs a build of kaiju, whose library computes the checkpoint. The float model is computed by numpy."""

import argparse
import os
import sys

import numpy as np

from float_model import FloatModel
from refused import Refused
from sources import open_source

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "capi", "python"))
import kaiju  # noqa: E402

_HAY = (
    "The ferry left the harbour before sunrise. ",
    "Nobody on the deck said much, and the gulls followed for an hour. ",
    "Later the wind turned, and somebody brought tea in a dented can. ",
    "A child counted the islands until there were none left to count. ",
    "The captain wrote a few words into the log and closed it again. ",
)
_NEEDLE = "The pass key is {}. Remember it. "
_QUESTION = "The pass key is"
_ANSWERS = ("57201", "90364", "18845")


def haystack(model: "kaiju.Model", length: int, depth: float, answer: str) -> list[int]:
    """Token ids, about `length`, that end with the question; the needle comes after the share `depth` of the hay."""
    begin, sentences = model.chat_symbol("begin"), [list(model.tokenize(text)) for text in _HAY]
    needle, question = list(model.tokenize(_NEEDLE.format(answer))), list(model.tokenize(_QUESTION))
    around = ([] if begin is None else [begin], needle, question)
    hay, at = [], 0
    while sum(map(len, around)) + sum(map(len, hay)) + len(sentences[at % len(sentences)]) <= length:
        hay.append(sentences[at % len(sentences)])
        at += 1
    before = round(depth * len(hay))
    return around[0] + sum(hay[:before], []) + needle + sum(hay[before:], []) + question


def float_digits(model: FloatModel, prompt: list[int], answer: list[int]) -> tuple[list[int], float]:
    """The likeliest token at each place of the answer, given the right ones before it, and the probability of all."""
    hidden = model.hidden([np.array(prompt + answer[:-1])])[-len(answer) :]
    rows = np.concatenate(list(model.log_probs(hidden)))
    return [int(row.argmax()) for row in rows], float(np.exp(rows[np.arange(len(answer)), answer].sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a GGUF file or a Hugging Face folder")
    parser.add_argument("--model", required=True, help="the checkpoint")
    parser.add_argument("--length", type=int, action="append", metavar="TOKENS", help="default: 256, 512 and 1024")
    parser.add_argument("--depth", type=float, action="append", metavar="SHARE", help="0 to 1; default: 0.1, 0.5, 0.9")
    arguments = parser.parse_args()
    found = {"int8": 0, "float": 0}
    try:
        source, checkpoint, tried = open_source(arguments.source), kaiju.Model(arguments.model), 0
        model = FloatModel(source)
        with checkpoint.engine() as engine:
            for length in arguments.length or (256, 512, 1024):
                for depth in arguments.depth or (0.1, 0.5, 0.9):
                    right = _ANSWERS[tried % len(_ANSWERS)]
                    prompt, answer = haystack(checkpoint, length, depth, right), list(checkpoint.tokenize(" " + right))
                    with engine.session() as session:
                        int8 = session.generate(prompt, temperature=0, max_tokens=len(answer)).strip()
                    likeliest, probability = float_digits(model, prompt, answer)
                    tried += 1
                    found["int8"] += int8 == right
                    found["float"] += likeliest == answer
                    print(
                        f"{len(prompt):6} tokens, needle at {depth:.0%}: int8 {int8!r}, float "
                        f"{checkpoint.detokenize(likeliest).strip()!r} (probability of {right}: {probability:.2f})",
                        flush=True,
                    )
    except (Refused, kaiju.Error) as problem:
        sys.exit(f"needle.py: {problem}")
    print(f"found: int8 {found['int8']}, float {found['float']} of {tried}")


if __name__ == "__main__":
    main()
