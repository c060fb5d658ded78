"""What the importer says at the end."""

import collections

import families
import native
from calibrate import Calibration
from compare import Comparison
from model_config import ModelConfig
from refused import shown
from sources import Source
from sources.gguf import GgufSource
from stored_tokenizer import StoredTokenizer


def _stored(source: Source) -> str:
    counts: collections.Counter[str] = collections.Counter()
    for name, (out, width) in source.config.matrices().items():
        counts[source.stored_as(name + ".weight")] += out * width
    total = sum(counts.values())
    return ", ".join(f"{100 * count / total:.0f}% {kind}" for kind, count in counts.most_common())


def _folded(config: ModelConfig, from_gguf: bool) -> list[str]:
    found = [f"a Hadamard transform in blocks of {native.hadamard_block(config)} into every matrix"]
    if from_gguf and config.family in families.INTERLEAVED_IN_GGUF:
        found.append("the order of q and k, which GGUF stores in pairs")
    if config.rope.scaling != "none":
        found.append(f"the RoPE scaling ({config.rope.scaling}) into the frequencies")
    added = native.padded_vocabulary(config) - config.vocab_size
    if added:
        found.append(f"{added} rows of zeros into the vocabulary, up to a multiple of 16")
    return found


def _layer_weights(errors: dict[str, float], layer: int) -> float:
    its = [error for name, error in errors.items() if name.startswith(f"layers.{layer}.")]
    return (sum(error**2 for error in its) / len(its)) ** 0.5


def report(source: Source, path: str, digest: str, size: int, tokenizer: StoredTokenizer | None, calibration: Calibration,
           errors: dict[str, float], comparison: Comparison | None, static_kv: bool) -> str:
    config, steps = source.config, calibration.steps
    weights = sum(out * width for out, width in config.matrices().values())
    worst = max(errors, key=lambda name: errors[name])
    keys, values = (max(range(config.layers), key=lambda layer: clipped[layer])
                    for clipped in ([s.k_clipped for s in steps], [s.v_clipped for s in steps]))
    lines = [
        f"model       {shown(config.name)} ({config.family}): {weights / 1e6:,.1f} M weights, {config.layers} layers of "
        f"{config.d_model:,}",
        f"            {config.n_heads} heads of {config.head_dim} on {config.n_kv_heads} KV heads, vocabulary "
        f"{config.vocab_size:,}, context {config.context:,}",
        f"stored as   {_stored(source)}",
        *(f"folded      {what}" for what in _folded(config, type(source) is GgufSource)),
        f"rounding    weights to int8: {100 * errors[worst]:.2f}% of their RMS at most ({worst})",
        f"saturates   keys {100 * steps[keys].k_clipped:.3f}% at most (layer {keys}), values "
        f"{100 * steps[values].v_clipped:.3f}% at most (layer {values}) of a sample text" if static_kv else
        "saturates   nothing: each token's keys and values have scales of their own",
    ]
    if comparison:
        lines.append("layer       error of its weights, and of what it adds, against float32:")
        for layer, error in enumerate(comparison.layer_errors):
            lines.append(f"  {layer:5}     {100 * _layer_weights(errors, layer):5.2f}%  {100 * error:6.2f}%")
        lines.append(f"all layers  KL {comparison.kl:.1e} nats, the same likeliest token for {100 * comparison.same_top:.0f}% of "
                     f"{comparison.tokens} tokens of a sample text")
    if source.left_out:
        lines.append(f"left out    {len(source.left_out)} tensors that see pictures ({shown(source.left_out[0])} …)")
    if not tokenizer:
        lines.append("tokenizer   none: the model reads and writes token ids alone; it was calibrated with arbitrary ids")
    lines += [f"tokenizer   {note}" for note in (tokenizer.notes if tokenizer else ())]
    lines += [f"written     {shown(path, 200)}: {size:,} bytes, digest {digest}",
              f"run         kaiju-chat {shown(path, 200)}" if tokenizer else f"run         kaiju-score {shown(path, 200)}"]
    return "\n".join(lines)
