"""Compares a model as Q8_0 keeps it with the float model: what int8 by blocks of 32 costs, to judge a checkpoint by.

    python3 q8_0_model.py SOURCE --reference FILE

FILE is what float_reference.py wrote for SOURCE. Weights, inputs of matmuls, queries, keys and values are rounded to
int8 in blocks of 32, each with a float16 scale; everything else is float32."""

import argparse
import sys

import numpy as np

from float_model import FloatModel
from float_reference import ReferenceReader, batches
from progress import Progress
from refused import Refused
from sources import open_source
from sources.source import Source

_BLOCK = 32


def rounded(x: np.ndarray) -> np.ndarray:
    blocks = x.reshape(*x.shape[:-1], -1, _BLOCK)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    return (np.rint(blocks * inverse) * scale.astype(np.float16).astype(np.float32)).reshape(x.shape)


class _RoundedMatrices:
    def __init__(self, source: Source):
        self._source, self.shapes = source, source.shapes

    def rows(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        rows = self._source.rows(name, first, count)
        return rounded(rows) if rows.ndim == 2 else rows

    def gather(self, name: str, ids: np.ndarray) -> np.ndarray:
        return rounded(self._source.gather(name, ids))


class Q8Model(FloatModel):
    def __init__(self, source: Source):
        super().__init__(_RoundedMatrices(source), source.config)  # type: ignore[arg-type]

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return super().linear(rounded(x), name)

    def attend(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        return super().attend(layer, rounded(q), rounded(k), rounded(v))

    def logits(self, x: np.ndarray) -> np.ndarray:
        return super().logits(rounded(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a GGUF file or a Hugging Face folder")
    parser.add_argument("--reference", required=True, help="file of float_reference.py")
    arguments = parser.parse_args()
    kl, loss, float_loss, same, at, followed = 0.0, 0.0, 0.0, 0, 0, 0
    try:
        reference = ReferenceReader(arguments.reference)
        model, texts = Q8Model(open_source(arguments.source)), reference.texts()
        with Progress("computing", sum(map(len, texts)), "tokens") as progress:
            for batch in batches(texts):
                ids = np.concatenate(batch)
                followers, last = np.roll(ids, -1), np.cumsum([len(text) for text in batch]) - 1
                counts = np.ones(len(ids), bool)
                counts[last] = False  # nothing follows there
                begin = at
                for found in model.log_probs(model.hidden(batch)):
                    wanted, rows = reference.logprobs(at, len(found)), slice(at - begin, at - begin + len(found))
                    kl += float((np.exp(wanted) * (wanted - found)).sum(dtype=np.float64))
                    same += int((found.argmax(1) == wanted.argmax(1)).sum())
                    places = np.flatnonzero(counts[rows])
                    loss -= float(found[places, followers[rows][places]].sum(dtype=np.float64))
                    float_loss -= float(wanted[places, followers[rows][places]].sum(dtype=np.float64))
                    followed += len(places)
                    at += len(found)
                    progress.add(len(found))
    except Refused as problem:
        sys.exit(f"q8_0_model.py: {problem}")
    print(f"tokens             {at}")
    print(f"KL                 {kl / at:.3e} nats")
    print(f"same top           {same / at:.2%}")
    print(f"perplexity ratio   {np.exp((loss - float_loss) / followed):.4f}")


if __name__ == "__main__":
    main()
