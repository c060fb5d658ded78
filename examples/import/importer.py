"""Imports an open model as a kaiju checkpoint: int8 weights, the scales of int8 keys and values, the tokenizer."""

import argparse
import dataclasses
import os
import signal
import sys
from typing import Any, NoReturn

import numpy as np

import native
from arguments import parse
from balance import balanced
from checkpoint_file import CheckpointFile
from compare import Comparison, compare
from convert import convert_matrices
from derived_chat import DerivedChat, derive_chat
from float_model import FloatModel
from model_config import FLOATS, ModelConfig
from progress import Progress
from refused import Refused, shown
from report import report
from rope import turns_per_token
from sample_text import own_texts, sample_texts
from sources import Source, open_source
from steps import Steps, constant_steps, steps_of_weights
from stored_tokenizer import StoredTokenizer


def _check_output(path: str, source: Source) -> None:
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise Refused(f"{shown(path)} cannot be written: the folder {shown(folder)} is not there")
    if os.path.isdir(path):
        raise Refused(
            f"{shown(path)} is a folder; name a file, such as {shown(os.path.join(path, 'model.safetensors'))}"
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise Refused(f"{shown(path)} is no regular file")
    inside = os.listdir(source.path) if os.path.isdir(source.path) else []
    for name in [source.path, *(os.path.join(source.path, name) for name in inside)]:
        if os.path.exists(path) and os.path.exists(name) and os.path.samefile(path, name):
            raise Refused(f"{shown(path)} is part of the source; give --out another name")


def _put_rest(source: Source, out: CheckpointFile, steps: list[Steps], tokenizer: StoredTokenizer | None) -> None:
    """Everything but matrices."""
    config = source.config
    for name in config.tensors():
        if native.is_vector(name):
            out.put(native.vector_name(name), native.check_vector(name, source.rows(name)))
    for name, size in native.absent_biases(config).items():
        out.put(name, np.zeros(size, np.float32))
    for layer, of_layer in enumerate(steps):
        out.put(f"kv.{layer}.k_step", of_layer.k_step)
        out.put(f"kv.{layer}.v_step", of_layer.v_step)
    for name, step in source.static_steps().items():
        out.put(name, np.full(1, step, np.float32))
    for name, value in native.scalars(config).items():
        out.put(name, np.full(1, value, np.float32))
    for table, (rope, head_dim) in enumerate(native.rope_tables(config)):
        turns = turns_per_token(rope, head_dim) if rope else [0] * (head_dim // 2)
        out.put(f"rope.{table}", np.array(turns, np.uint64))
    if tokenizer:
        out.put("tokenizer", np.frombuffer(tokenizer.data, np.uint8))


def _chat_fields(tokenizer: StoredTokenizer | None, chat: DerivedChat) -> dict[str, Any]:
    """The fields of the config that say how texts and conversations are written."""
    fields: dict[str, Any] = {}
    if tokenizer and tokenizer.begin is not None:
        fields["chat"] = {"begin": tokenizer.begin}
    return fields | ({"chat_format": chat.form} if tokenizer and chat.form else {})


@dataclasses.dataclass(frozen=True)
class Options:
    name: str | None = None  # None: what the source calls itself
    processes: int = 1
    check: bool = True
    static_kv: bool = False
    chat: bool = True
    settings: tuple[str, ...] = ()  # variables of the chat template, NAME=JSON
    date: str | None = None  # the day that it may write
    text: str | None = None  # a file, whose text is used to balance and calibrate; None: the sample's
    balance: bool | None = None  # whether channels are balanced; None: in the families that gain by it


def _trained_steps(config: ModelConfig, layer: int, k_step: float, v_step: float) -> Steps:
    shape = config.each[layer].n_kv_heads, config.each[layer].head_dim
    return Steps(np.full(shape, k_step, np.float32), np.full(shape, v_step, np.float32))


def begun(texts: list[np.ndarray], tokenizer: StoredTokenizer | None) -> list[np.ndarray]:
    """With the token that the model expects before a text."""
    if tokenizer is None or tokenizer.begin is None:
        return texts
    return [np.concatenate([[tokenizer.begin], text]) for text in texts]


def import_model(source: Source, path: str, options: Options) -> str:
    """Writes the checkpoint, and returns the report."""
    config = source.config
    native.check(config, shown(source.path))
    _check_output(path, source)
    tokenizer = source.tokenizer()
    chat = derive_chat(source, list(options.settings), options.date) if options.chat else DerivedChat(None, [])
    texts, check_text = sample_texts(tokenizer.data if tokenizer else None, config.vocab_size)
    if options.text is not None:
        texts = own_texts(options.text, tokenizer.data if tokenizer else None, config.vocab_size)
    texts, check_text = begun(texts, tokenizer), begun([check_text], tokenizer)[0]
    block, steps, folded = native.hadamard_block(config), list[Steps](), source
    if options.balance and config.stored != FLOATS:
        raise Refused(f"{shown(source.path)} has int8 weights, which cannot be balanced any more; leave out --balance")
    if config.stored == FLOATS and (config.norms_after if options.balance is None else options.balance):
        with Progress("balancing", config.layers, "layers") as progress:
            folded = balanced(source, texts, lambda: progress.add(1))
    static_kv = options.static_kv or bool(source.kv_steps())
    if source.kv_steps():
        steps = [_trained_steps(config, layer, *its) for layer, its in enumerate(source.kv_steps())]
    elif options.static_kv:
        with Progress("calibrating", config.layers, "layers") as progress:
            steps = constant_steps(FloatModel(folded), block, texts, lambda: progress.add(1))
    text = native.config_text(config, options.name or config.name, static_kv, _chat_fields(tokenizer, chat))
    weights = sum(out * width for out, width in config.matrices().values())
    comparison: Comparison | None = None
    out = CheckpointFile(path, native.ARITHMETIC, text, native.tensors(config, len(tokenizer.data) if tokenizer else 0))
    try:
        out.open()
        with Progress("quantising", weights, "weights") as progress:
            converted = convert_matrices(folded, out, options.processes, progress.add)
        for layer in [] if static_kv else config.own_kv:
            row_power = {which: converted.row_power.get(f"layers.{layer}.attn.{which}") for which in "qkv"}
            steps.append(steps_of_weights(row_power, folded, layer))
        _put_rest(folded, out, steps, tokenizer)
        digest = out.finish()
    finally:
        out.discard()
    if options.check:
        with Progress("checking", config.layers, "layers") as progress:
            comparison = compare(FloatModel(source), path, check_text, lambda: progress.add(1))
    return report(source, path, digest, out.size, tokenizer, chat, converted, comparison, folded is not source)


def _stop(number: int, _: Any) -> NoReturn:
    raise SystemExit(128 + number)


def main(arguments: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, _stop)
    try:
        source = open_source(arguments.source)
        print(
            import_model(
                source,
                arguments.out,
                Options(
                    arguments.name,
                    arguments.processes,
                    not arguments.no_check,
                    arguments.kv == "constant",
                    not arguments.no_chat,
                    tuple(arguments.set),
                    arguments.date,
                    arguments.text,
                    {"auto": None, "yes": True, "no": False}[arguments.balance],
                ),
            )
        )
    except Refused as problem:
        sys.exit(f"kaiju-import: {problem}")
    except MemoryError:
        sys.exit("kaiju-import: out of memory; nothing was written")
    except KeyboardInterrupt:
        sys.exit("kaiju-import: interrupted; nothing was written")


if __name__ == "__main__":
    main(parse())
