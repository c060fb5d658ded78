"""Perplexity by domain, and the KL divergence of the candidate's distributions from the current model's.

kaiju-score computes the logits. Chats are written in each model's own chat format; several follow one another in a
sequence. KL is measured where both models read the same tokens."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import Iterator, Mapping, Sequence

import kaiju
import numpy as np

from .. import rates
from ..progress import Progress
from ..rates import Estimate
from ..report import Report, Table
from ..sets import FROZEN, Message, messages_of_turns, read_sets, rows
from ..wrong import Wrong
from . import programs
from .both import Settings
from .paired import exact
from .questions import Question
from .train_folder import TRAIN

_LENGTH = 1024  # tokens of a sequence
_BLOCK = 32  # neighbouring tokens, drawn together by the bootstrap: they depend on each other
_ROWS = 128  # of logits at a time
_SEED = 1
_PROSE = os.path.join(os.path.dirname(TRAIN), "import", "sample.txt")


@dataclasses.dataclass(frozen=True)
class Domain:
    name: str
    chats: tuple[tuple[Message, ...], ...]  # or
    text: str


def _file(name: str, path: str) -> Domain:
    """A text, or a set of conversations (.jsonl)."""
    if path.endswith(".jsonl"):
        chats = (messages_of_turns(row.get("card"), row.get("turns", []), where) for where, row in rows(path))
        return Domain(name, tuple(chats), "")
    try:
        with open(path, encoding="utf-8") as file:
            return Domain(name, (), file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise Wrong(f"{path} cannot be read as text: {error}") from None


def domains(given: Sequence[str], asked: Sequence[Question]) -> list[Domain]:
    """The domains of the command line, NAME=FILE each; otherwise four of the source tree."""
    if given:
        pairs = [text.partition("=") for text in given]
        if not all(name and equals and path for name, equals, path in pairs):
            raise Wrong(f"--domain is {', '.join(given)}; it must be NAME=FILE")
        return [_file(name, path) for name, _, path in pairs]
    intense = read_sets([FROZEN[1]])
    return [
        Domain("chats", tuple(question.messages for question in asked if question.kind == "turn8"), ""),
        Domain("intense", tuple(item.messages for item in intense), ""),
        _file("handwritten", os.path.join(TRAIN, "eval", "handwritten_blind.jsonl")),
        _file("prose", _PROSE),
    ]


def sequences(model: kaiju.Model, domain: Domain, count: int) -> list[list[int]]:
    """About `count` tokens of the domain, in sequences."""
    begin = model.chat_symbol("begin")
    pieces = [model.chat_format(list(chat), 0) for chat in domain.chats]
    if domain.text:
        pieces.append(([begin] if begin is not None else []) + model.tokenize(domain.text))
    tokens = [token for piece in pieces for token in piece][:count]
    length = min(_LENGTH, model.context)
    return [tokens[at : at + length] for at in range(0, len(tokens), length) if len(tokens) - at > 1]


def _logits(path: str, tokens: Sequence[int], settings: Settings, out: str) -> np.ndarray:
    ids = out + ".txt"
    with open(ids, "w", encoding="ascii") as file:
        file.write(" ".join(map(str, tokens)))
    threads = settings.threads or len(os.sched_getaffinity(0))
    options = ["--tokens", ids, "--logits", out, "--backend", settings.backend, "--threads", threads]
    programs.run("kaiju-score", path, *options)
    return np.load(out, mmap_mode="r")


def _log_probabilities(logits: np.ndarray) -> Iterator[np.ndarray]:
    """Natural logarithms [rows, vocabulary], some rows at a time; not of the last row, whose successor is unknown."""
    for at in range(0, len(logits) - 1, _ROWS):
        part = np.asarray(logits[at : min(at + _ROWS, len(logits) - 1)], np.float64)
        part -= part.max(axis=1, keepdims=True)
        yield part - np.log(np.exp(part).sum(axis=1, keepdims=True))


@dataclasses.dataclass
class Reading:
    """Of one domain: the losses of each token by model, and KL where both read the same tokens."""

    losses: dict[str, np.ndarray]
    kl: np.ndarray | None


def _losses(logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    after = np.asarray(tokens[1:])
    parts, at = [], 0
    for part in _log_probabilities(logits):
        parts.append(-part[np.arange(len(part)), after[at : at + len(part)]])
        at += len(part)
    return np.concatenate(parts)


def _divergence(current: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """KL(current || candidate) at each token, in nats."""
    pairs = zip(_log_probabilities(current), _log_probabilities(candidate))
    return np.concatenate([(np.exp(p) * (p - q)).sum(axis=1) for p, q in pairs])


def read(paths: Mapping[str, str], domain: Domain, count: int, settings: Settings) -> Reading:
    """paths: of the models, by "candidate" and "current"."""
    models = {name: kaiju.Model(path) for name, path in paths.items()}
    tokens = {name: sequences(model, domain, count) for name, model in models.items()}
    if not all(tokens.values()):
        raise Wrong(f"the domain {domain.name} has no text")
    same = tokens["candidate"] == tokens["current"]
    losses: dict[str, list[np.ndarray]] = {name: [] for name in paths}
    kl = []
    with tempfile.TemporaryDirectory() as folder, Progress(f"perplexity of {domain.name}", 1):
        for number in range(max(map(len, tokens.values()))):
            logits = {}
            for name, path in paths.items():
                if number < len(tokens[name]):
                    out = os.path.join(folder, name + ".npy")
                    logits[name] = _logits(path, tokens[name][number], settings, out)
                    losses[name].append(_losses(logits[name], tokens[name][number]))
            if same and logits["candidate"].shape == logits["current"].shape:
                kl.append(_divergence(logits["current"], logits["candidate"]))
    return Reading({name: np.concatenate(of) for name, of in losses.items()}, np.concatenate(kl) if kl else None)


def _blocks(values: np.ndarray) -> np.ndarray:
    """Means of neighbouring tokens, the rest in a block of its own."""
    return np.array([values[at : at + _BLOCK].mean() for at in range(0, len(values), _BLOCK)])


def _ratio(reading: Reading) -> Estimate:
    """The candidate's perplexity divided by the current one's, per token of the current model."""
    candidate, current = reading.losses["candidate"], reading.losses["current"]
    if reading.kl is None:
        return exact(float(np.exp((candidate.sum() - current.sum()) / len(current))))
    blocks = _blocks(candidate - current)
    low, high = rates.bootstrap(len(blocks), lambda drawn: float(np.exp(blocks[drawn].mean())), _SEED)
    return Estimate(float(np.exp((candidate - current).mean())), low, high)


def _mean(values: np.ndarray) -> Estimate:
    blocks = _blocks(values)
    low, high = rates.bootstrap(len(blocks), lambda drawn: float(blocks[drawn].mean()), _SEED)
    return Estimate(float(values.mean()), low, high)


def report(report: Report, readings: Mapping[str, Reading]) -> None:
    """Measures perplexity:DOMAIN, perplexity-up:DOMAIN (a ratio) and kl:DOMAIN."""
    rows = []
    for name, reading in readings.items():
        perplexity = {model: float(np.exp(losses.mean())) for model, losses in reading.losses.items()}
        ratio = _ratio(reading)
        report.measures[f"perplexity:{name}"] = exact(perplexity["candidate"])
        report.measures[f"perplexity-up:{name}"] = ratio
        kl = "-"
        if reading.kl is not None:
            found = report.measures[f"kl:{name}"] = _mean(reading.kl)
            kl = f"{found.value:.4f} ({found.low:.4f} to {found.high:.4f})"
        tokens = str(len(reading.losses["candidate"]))
        shown = f"{ratio.value:.4f} ({ratio.low:.4f} to {ratio.high:.4f})"
        rows.append([name, tokens, f"{perplexity['candidate']:.3f}", f"{perplexity['current']:.3f}", shown, kl])
    columns = ["domain", "tokens", "candidate", "current", "ratio", "KL, nats"]
    report.tables.append(Table("perplexity by domain, and KL(current || candidate)", columns, rows))
    if any(reading.kl is None for reading in readings.values()):
        report.notes.append("No KL where the two models read different tokens: their formats or tokenizers differ.")
