"""Prints greedy replies of a checkpoint beside those of the float model that it was imported from.

    python3 greedy_replies.py SOURCE --model FILE [--say TEXT]... [--system TEXT]

Needs a build of kaiju, whose library computes the checkpoint. The float model is computed by numpy, all tokens anew for
each one that it says, and is kept in memory: this is for small models."""

import argparse
import os
import sys

import numpy as np

from float_model import FloatModel
from progress import Progress
from refused import Refused
from sources import open_source
from sources.source import Source

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "capi", "python"))
import kaiju  # noqa: E402

_SAID = (
    "Hello! Who are you?",
    "What is the capital of France?",
    "Write one sentence about a robot gardener.",
    "Why is the sky blue? Answer in one sentence.",
    "Give me three ideas for a rainy afternoon.",
    "I feel a bit sad today.",
    "Translate 'good morning' to Spanish.",
    "What is 7 + 5?",
    "Tell me a very short story about a lighthouse.",
    "Who wrote Romeo and Juliet?",
)


class _InMemory:
    """The source's tensors, each read once."""

    def __init__(self, source: Source):
        self._source, self.shapes, self._found = source, source.shapes, dict[str, np.ndarray]()

    def rows(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        if name not in self._found:
            self._found[name] = self._source.rows(name)
        return self._found[name][first : None if count is None else first + count]

    def gather(self, name: str, ids: np.ndarray) -> np.ndarray:
        return self.rows(name)[ids]


def float_reply(model: FloatModel, prompt: list[int], stop: int | None, most: int) -> list[int]:
    """Token ids, greedy."""
    reply: list[int] = []
    with Progress("float model", most, "tokens") as progress:
        while len(reply) < most:
            last = model.hidden([np.array(prompt + reply)])[-1:]
            token = int(model.logits(last)[0].argmax())
            if token == stop:
                break
            reply.append(token)
            progress.add(1)
    return reply


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a GGUF file or a Hugging Face folder")
    parser.add_argument("--model", required=True, help="the checkpoint")
    parser.add_argument("--say", action="append", metavar="TEXT", help="a first message; otherwise ten of our own")
    parser.add_argument("--system", default="You are a helpful assistant.", metavar="TEXT")
    parser.add_argument("--max-tokens", type=int, default=48, metavar="N")
    arguments = parser.parse_args()
    try:
        source = open_source(arguments.source)
        model = FloatModel(_InMemory(source), source.config)  # type: ignore[arg-type]
        checkpoint = kaiju.Model(arguments.model)
        # What ends a turn is what follows the reply's text in the chat format.
        ended = checkpoint.chat_format([("user", "?"), ("character", "!")], 0)
        opened = checkpoint.chat_format([("user", "?"), ("character", "!")], kaiju.Chat.OPEN)
        stop = ended[len(opened)] if len(ended) > len(opened) else None
        with checkpoint.engine() as engine:
            for text in arguments.say or _SAID:
                prompt = checkpoint.chat_format([("system", arguments.system), ("user", text)])
                with engine.session() as session:
                    int8 = session.generate(prompt, temperature=0, max_tokens=arguments.max_tokens)
                expected = checkpoint.detokenize(float_reply(model, list(prompt), stop, arguments.max_tokens))
                print(f"\n{text}\n  int8   {int8.strip()!r}\n  float  {expected.strip()!r}", flush=True)
    except (Refused, kaiju.Error) as problem:
        sys.exit(f"greedy_replies.py: {problem}")


if __name__ == "__main__":
    main()
