"""What the importer says at the end."""

import collections

import families
import native
from compare import Comparison
from convert import Converted
from derived_chat import DerivedChat
from model_config import FLOATS, ModelConfig
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


def _folded(config: ModelConfig, from_gguf: bool, balanced: bool) -> list[str]:
    block = native.hadamard_block(config)
    found = [f"a Hadamard transform in blocks of {block} into every matrix"] if block > 1 else []
    if from_gguf and config.family in families.INTERLEAVED_IN_GGUF:
        found.append("the order of q and k, which GGUF stores in pairs")
    scalings = {layer.rope.scaling for layer in config.each if layer.rope} - {"none"}
    if scalings:
        found.append(f"the RoPE scaling ({', '.join(sorted(scalings))}) into the frequencies")
    if balanced:
        found.append(
            "factors that balance channels, by a text, and a rotation of values where nothing norms them"
        )
    added = native.padded_vocabulary(config) - config.vocab_size
    if added:
        found.append(f"{added} rows of zeros into the vocabulary, up to a multiple of 16")
    return found


def _layer_weights(errors: dict[str, float], layer: int) -> float:
    its = [error for name, error in errors.items() if name.startswith(f"layers.{layer}.")]
    return (sum(error**2 for error in its) / len(its)) ** 0.5


def _saturated(comparison: Comparison) -> str:
    found = []
    for what, shares in (("keys", comparison.k_clipped), ("values", comparison.v_clipped)):
        layer = max(range(len(shares)), key=lambda layer: shares[layer])
        if shares[layer] > 0:
            found.append(
                f"{100 * shares[layer]:.3f}% of the {what} of layer {layer} in a sample text, less in the others"
            )
    return "; ".join(found) or "nothing"


def report(
    source: Source,
    path: str,
    digest: str,
    size: int,
    tokenizer: StoredTokenizer | None,
    chat: DerivedChat,
    converted: Converted,
    comparison: Comparison | None,
    balanced: bool,
) -> str:
    config = source.config
    weights = sum(out * width for out, width in config.matrices().values())
    errors = converted.errors
    worst = max(errors, key=lambda name: errors[name])
    lines = [
        f"model       {shown(config.name)} ({config.family}): {weights / 1e6:,.1f} M weights, "
        f"{config.layers} layers of {config.d_model:,}",
        f"            {config.n_heads} heads of {config.head_dim} on {config.n_kv_heads} KV heads, vocabulary "
        f"{config.vocab_size:,}, context {config.context:,}",
        f"stored as   {_stored(source)}",
        *(f"folded      {what}" for what in _folded(config, type(source) is GgufSource, balanced)),
        f"rounding    weights to int8: {100 * errors[worst]:.2f}% of their RMS at most ({worst})",
    ]
    if config.stored != FLOATS:
        lines.append("rounding    none of the matrices that were int8 already: their bytes and scales are the source's")
    if converted.lowered:
        lines.append(f"            {converted.lowered:,} weights of -128 became -127")
    if comparison:
        lines.append(f"saturates   {_saturated(comparison)}")
        lines.append("layer       error of its weights, and of what it adds, against float32:")
        for layer, error in enumerate(comparison.layer_errors):
            lines.append(f"  {layer:5}     {100 * _layer_weights(errors, layer):5.2f}%  {100 * error:6.2f}%")
        lines.append(
            f"all layers  KL {comparison.kl:.1e} nats, the same likeliest token for "
            f"{100 * comparison.same_top:.0f}% of {comparison.tokens} tokens of a sample text"
        )
    if source.left_out:
        lines.append(f"left out    {len(source.left_out)} tensors that see pictures ({shown(source.left_out[0])} …)")
    if not tokenizer:
        lines.append("tokenizer   none: the model reads and writes token ids alone; the sample text was arbitrary ids")
    if chat.form:
        lines.append("chat        from the model's template: 1,000 random conversations, no difference")
    lines += [f"chat        {note}" for note in chat.notes]
    lines += [f"tokenizer   {note}" for note in (tokenizer.notes if tokenizer else ())]
    lines += [
        f"written     {shown(path, 200)}: {size:,} bytes, digest {digest}",
        f"run         {'kaiju-chat --model' if tokenizer else 'kaiju-score'} {shown(path, 200)}",
    ]
    return "\n".join(lines)
