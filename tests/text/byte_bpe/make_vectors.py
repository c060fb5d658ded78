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

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "examples/import"))
import check_tokenizer  # noqa: E402
import tokenizer as converter  # noqa: E402

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)


def by_pattern(split):
    return [pre_tokenizers.Split(Regex(*converter.SPLITS[split]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


FAMILIES = {  # pre-tokenizers, normalizer, ignore_merges
    "gpt2": ([BYTES], None, False),
    "gpt2_space": ([pre_tokenizers.ByteLevel(add_prefix_space=True)], None, False),
    "smollm": ([pre_tokenizers.Digits(individual_digits=True), BYTES], None, False),
    "llama3": (by_pattern("llama3"), None, True),
    "qwen": (by_pattern("qwen2"), normalizers.NFC(), False),
    "tekken": (by_pattern("tekken"), None, True),
}
SPECIAL = ["<|end|>", "<|im_start|>", "<|im_end|>"]
FLAGS = [AddedToken("<|user|>", lstrip=True, rstrip=True, special=True),
         AddedToken("<mask>", lstrip=True, special=True), AddedToken("<word>", single_word=True, special=True)]


def make(name, steps, normalizer, ignore_merges):
    tokenizer = Tokenizer(BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=512, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=SPECIAL, show_progress=False)
    tokenizer.train([str(ROOT / "README.md")], trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    if name in ("gpt2", "smollm"):  # the converter refuses both together
        tokenizer.add_tokens([AddedToken(" " * 6, normalized=False)])
    else:
        tokenizer.add_special_tokens(FLAGS)
    if name == "llama3":
        tokenizer.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=True),
             processors.TemplateProcessing("<|im_start|> $A", "<|im_start|> $A $B", [("<|im_start|>", 1)])])
    source = HERE / f"{name}.tokenizer.json"
    tokenizer.save(str(source), pretty=False)
    (HERE / f"{name}.kaiju.json").write_bytes(converter.convert(source).data())

    draw = random.Random(name)
    blocks = check_tokenizer.code_points(False, True)
    vectors = []
    for number in range(60):
        text = check_tokenizer.random_text(draw, blocks, [*SPECIAL, *(token.content for token in FLAGS)])
        if number % 3 == 0:
            text = text.replace(" ", "<|im_end|><think>", 1) if number % 2 else f"<|im_start|>{text} <mask> <think>"
        elif number % 3 == 1:
            text = text.replace(" ", " <|user|>\n", 1) + "<word>"
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
