"""The converter of examples/import: what it makes of stored tokenizers, and what it refuses. Needs Python alone.

    python3 tests/import/convert.py SOURCE_FOLDER
"""

import copy
import io
import json
import pathlib
import struct
import sys

root = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(root / "examples/import"))
import tokenizer  # noqa: E402

STORED = root / "tests/text/byte_bpe"


def promise(holds, name):
    if not holds:
        sys.exit(f"broken: {name}")


def refused(name, what, call, argument):
    try:
        call(argument)
    except tokenizer.Unsupported as problem:
        promise(what in str(problem), f"the refusal of {name} says {what!r}, not {problem}")
    else:
        sys.exit(f"broken: {name} is refused")


for family in ("gpt2", "smollm", "llama3", "qwen", "tekken"):
    made = tokenizer.convert(STORED / f"{family}.tokenizer.json")
    promise(made == (STORED / f"{family}.kaiju.json").read_bytes(), f"{family} becomes what is stored")

qwen = json.loads((STORED / "qwen.tokenizer.json").read_text())


def changed(change):
    source = copy.deepcopy(qwen)
    change(source)
    return source


def split(source):
    return source["pre_tokenizer"]["pretokenizers"][0]


for name, what, change in [
    ("another model", "WordPiece", lambda s: s["model"].update(type="WordPiece")),
    ("byte fallback", "tokenizer.model", lambda s: s["model"].update(byte_fallback=True)),
    ("dropout", "dropout", lambda s: s["model"].update(dropout=0.1)),
    ("a suffix of words", "end_of_word_suffix", lambda s: s["model"].update(end_of_word_suffix="</w>")),
    ("another normalizer", "NFKC", lambda s: s.update(normalizer={"type": "NFKC"})),
    ("no pre_tokenizer", "ByteLevel", lambda s: s.update(pre_tokenizer=None)),
    ("another pre_tokenizer", "Metaspace", lambda s: s.update(pre_tokenizer={"type": "Metaspace"})),
    ("a space before", "add_prefix_space", lambda s: s["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True)),
    ("another behavior", "MergedWithNext", lambda s: split(s).update(behavior="MergedWithNext")),
    ("a split by a string", "Regex", lambda s: split(s).update(pattern={"String": " "})),
    ("a token that takes white space", "lstrip", lambda s: s["added_tokens"][0].update(lstrip=True)),
    ("a token of whole words", "single_word", lambda s: s["added_tokens"][0].update(single_word=True)),
    ("a token outside the alphabet", "token 7", lambda s: s["model"]["vocab"].update({"\u4f60": 7})),
    ("a missing byte", "0x41", lambda s: s["model"]["vocab"].pop("A")),
    ("a merge without its token", "merge 1", lambda s: s["model"]["merges"].insert(1, ["A", "B"])),
]:
    refused(name, what, tokenizer.from_tokenizer_json, changed(change))

joined = changed(lambda s: s["model"].update(merges=[" ".join(merge) for merge in s["model"]["merges"]]))
promise(tokenizer.from_tokenizer_json(joined) == tokenizer.from_tokenizer_json(qwen), "merges may be strings")


def gguf(fields):
    """A GGUF file without tensors."""
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def value(item):
        if isinstance(item, str):
            return struct.pack("<I", 8) + text(item)
        if isinstance(item, int):
            return struct.pack("<Ii", 5, item)
        kind, each = (8, text) if isinstance(item[0], str) else (5, lambda number: struct.pack("<i", number))
        return struct.pack("<IIQ", 9, kind, len(item)) + b"".join(map(each, item))

    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + b"".join(text(k) + value(v) for k, v in fields.items())


# Qwen's tokenizer as GGUF has it: the same tokens and merges.
count = max([*qwen["model"]["vocab"].values(), *(entry["id"] for entry in qwen["added_tokens"])]) + 1
tokens, kinds = [""] * count, [1] * count
for shown, id in qwen["model"]["vocab"].items():
    tokens[id] = shown
for entry in qwen["added_tokens"]:
    tokens[entry["id"]], kinds[entry["id"]] = entry["content"], 3 if entry["special"] else 4
fields = {"general.architecture": "qwen2", "general.file_type": 3, "tokenizer.ggml.model": "gpt2",
          "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
          "tokenizer.ggml.merges": [" ".join(merge) for merge in qwen["model"]["merges"]]}


def from_bytes(data):
    return tokenizer.from_gguf(tokenizer.gguf_metadata(io.BytesIO(data)))


promise(from_bytes(gguf(fields)) == json.loads((STORED / "qwen.kaiju.json").read_text()), "GGUF gives the same tokenizer")
refused("another model of GGUF", "llama", from_bytes, gguf({**fields, "tokenizer.ggml.model": "llama"}))
refused("an unknown split of GGUF", "bloom", from_bytes, gguf({**fields, "tokenizer.ggml.pre": "bloom"}))
refused("a cut GGUF file", "ends in its metadata", from_bytes, gguf(fields)[:500])
refused("another version of GGUF", "version 1", from_bytes, b"GGUF" + struct.pack("<IQQ", 1, 0, 0))
print("the converter keeps its promises")
