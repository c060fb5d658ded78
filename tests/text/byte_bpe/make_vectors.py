"""Makes the tokenizers and vectors of this folder with the package `tokenizers` (0.23.3 made the stored ones):

    python3 tests/text/byte_bpe/make_vectors.py

NAME.tokenizer.json is a small tokenizer that `tokenizers` trained on the README, with the pre-tokenizer, normalizer and
ignore_merges of a family of models. NAME.vectors.json has texts with the tokens that `tokenizers` gives: as ordinary
text, and with special tokens. NAME.kaiju.json is what examples/import/tokenizer.py makes of the tokenizer.
"""

import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "examples/import"))
import check_tokenizer  # noqa: E402
import tokenizer as converter  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def by_pattern(pattern):
    return [pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


def digits_apart():
    return [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]


FAMILIES = {  # pre-tokenizers, normalizer, ignore_merges
    "gpt2": ([pre_tokenizers.ByteLevel(add_prefix_space=False)], None, False),
    "smollm": (digits_apart(), None, False),
    "llama3": (by_pattern(LLAMA3), None, True),
    "qwen": (by_pattern(LLAMA3.replace("{1,3}", "")), normalizers.NFC(), False),
    "tekken": (by_pattern(TEKKEN), None, True),
}


def make(name, steps, normalizer, ignore_merges):
    tokenizer = Tokenizer(BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=512, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|end|>", "<|im_start|>", "<|im_end|>"], show_progress=False)
    tokenizer.train([str(ROOT / "README.md")], trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken(" " * 6, normalized=False)])
    source = HERE / f"{name}.tokenizer.json"
    tokenizer.save(str(source), pretty=False)
    (HERE / f"{name}.kaiju.json").write_bytes(converter.convert(source))

    draw = random.Random(name)
    blocks = check_tokenizer.code_points(False, True)
    vectors = []
    for number in range(60):
        text = check_tokenizer.random_text(draw, blocks, ["<|end|>", "<|im_start|>"])
        if number % 3 == 0:
            text = text.replace(" ", "<|im_end|><think>", 1) if number % 2 else f"<|im_start|>{text}<think>"
        both = []
        for ordinary in (True, False):
            tokenizer.encode_special_tokens = ordinary
            # `tokenizers` finds <think> in every text, kaiju only where special tokens are asked for.
            hidden = text.replace("<think>", "<thin>") if ordinary else text
            both.append({"text": hidden, "special": not ordinary,
                         "tokens": tokenizer.encode(hidden, add_special_tokens=False).ids})
        vectors += both[:1] if both[0]["tokens"] == both[1]["tokens"] else both
    lines = ",\n".join(json.dumps(vector, separators=(",", ":")) for vector in vectors)
    (HERE / f"{name}.vectors.json").write_text('{"vectors":[\n' + lines + "\n]}\n")


for family, (steps, normalizer, ignore_merges) in FAMILIES.items():
    make(family, steps, normalizer, ignore_merges)
