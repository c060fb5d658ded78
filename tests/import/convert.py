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


for family in ("gpt2", "gpt2_space", "smollm", "llama3", "qwen", "tekken"):
    made = tokenizer.convert(STORED / f"{family}.tokenizer.json")
    promise(made.data() == (STORED / f"{family}.kaiju.json").read_bytes(), f"{family} becomes what is stored")
    promise(not made.notes and made.end is None, f"{family} needs no note and adds no token after a text")
    promise((made.begin is None) == (family != "llama3"), "llama3 alone adds a token before a text")
    if made.begin is not None:
        promise(made.stored["tokens"][made.begin] == "<|im_start|>", "the begin token is the post_processor's")

qwen = json.loads((STORED / "qwen.tokenizer.json").read_text())


def changed(change):
    source = copy.deepcopy(qwen)
    change(source)
    return source


def split(source):
    return source["pre_tokenizer"]["pretokenizers"][0]


def without_flags(source):
    """Takes the flags from the added tokens; returns one of them."""
    for entry in source["added_tokens"]:
        entry.update(lstrip=False, rstrip=False, single_word=False)
    return source["added_tokens"][0]


def template(*parts):
    """A post_processor: "A" is the text, a number the id of a token."""
    single = [{"Sequence" if part == "A" else "SpecialToken": {"id": str(part), "type_id": 0}} for part in parts]
    special = {str(part): {"id": str(part), "ids": [part], "tokens": ["x"]} for part in parts if part != "A"}
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": special}


for name, what, change in [
    ("another model", "WordPiece", lambda s: s["model"].update(type="WordPiece")),
    ("byte fallback", "tokenizer.model", lambda s: s["model"].update(byte_fallback=True)),
    ("dropout", "dropout", lambda s: s["model"].update(dropout=0.1)),
    ("a suffix of words", "end_of_word_suffix", lambda s: s["model"].update(end_of_word_suffix="</w>")),
    ("another normalizer", "NFKC", lambda s: s.update(normalizer={"type": "NFKC"})),
    ("a normalizer beside NFC", "Strip",
     lambda s: s.update(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]})),
    ("no pre_tokenizer", "ByteLevel", lambda s: s.update(pre_tokenizer=None)),
    ("another pre_tokenizer", "Metaspace", lambda s: s.update(pre_tokenizer={"type": "Metaspace"})),
    ("another pre_tokenizer before ByteLevel", "Whitespace", lambda s: split(s).update(type="Whitespace")),
    ("a step after ByteLevel", "Digits", lambda s: s["pre_tokenizer"]["pretokenizers"].append({"type": "Digits"})),
    ("a space before each word", "add_prefix_space",
     lambda s: s["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True)),
    ("an unknown split", "'a+'", lambda s: split(s).update(pattern={"Regex": "a+"})),
    ("an unknown split", "gpt2, smollm, llama3, qwen2, tekken", lambda s: split(s).update(pattern={"Regex": "a+"})),
    ("digits before a known split", "then",
     lambda s: s["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Digits"})),
    ("no split at all", "whole texts", lambda s: s["pre_tokenizer"]["pretokenizers"].pop(0)),
    ("another behavior", "MergedWithNext", lambda s: split(s).update(behavior="MergedWithNext")),
    ("a split by a string", "by a string", lambda s: split(s).update(pattern={"String": " "})),
    ("a token of spaces beside lstrip", "lstrip",
     lambda s: s["added_tokens"][0].update(content="  ", special=False)),
    ("a token of wide spaces beside NFC", "NFC", lambda s: without_flags(s).update(content="\u3000", special=False)),
    ("another decoder", "Metaspace", lambda s: s.update(decoder={"type": "Metaspace"})),
    ("another post_processor", "BertProcessing", lambda s: s.update(post_processor={"type": "BertProcessing"})),
    ("two begin tokens", "before", lambda s: s.update(post_processor=template(0, 0, "A"))),
    ("two end tokens", "after", lambda s: s.update(post_processor=template("A", 0, 0))),
    ("a begin token that text could forge", "token 65", lambda s: s.update(post_processor=template(65, "A"))),
    ("unknown tokens for bytes", "unk_token",
     lambda s: (s["model"].update(unk_token="!"), s["model"]["vocab"].pop("Ā"))),
    ("a token outside the alphabet", "token 7", lambda s: s["model"]["vocab"].update({"\u4f60": 7})),
    ("a missing byte", "0x41", lambda s: s["model"]["vocab"].pop("A")),
    ("a merge without its token", "merge 1", lambda s: s["model"]["merges"].insert(1, ["A", "B"])),
]:
    refused(name, what, tokenizer.from_tokenizer_json, changed(change))

joined = changed(lambda s: s["model"].update(merges=[" ".join(merge) for merge in s["model"]["merges"]]))
promise(tokenizer.from_tokenizer_json(joined) == tokenizer.from_tokenizer_json(qwen), "merges may be strings")

inverted = changed(lambda s: split(s).update(behavior="Removed", invert=True))
promise(tokenizer.from_tokenizer_json(inverted) == tokenizer.from_tokenizer_json(qwen), "a removed rest may be written")

both = tokenizer.from_tokenizer_json(changed(lambda s: s.update(post_processor=template(0, "A", 2))))
promise((both.begin, both.end) == (0, 2), "the tokens before and after a text are found")

flags = {entry["content"]: entry["id"] for entry in qwen["added_tokens"]}
stored = tokenizer.from_tokenizer_json(qwen).stored
promise(stored["lstrip"] == sorted([flags["<|user|>"], flags["<mask>"]]) and stored["rstrip"] == [flags["<|user|>"]]
        and stored["single_word"] == [flags["<word>"]], "lstrip, rstrip and single_word are kept")

unknown = changed(lambda s: split(s).update(pattern={"Regex": "a+"}))
promise(tokenizer.from_tokenizer_json(unknown, "qwen2").stored == stored, "a split that was asked for replaces the file's")


def like_mistral(source):
    """The special tokens of Tekken, and Llama 3's expression."""
    source["added_tokens"] += [{"id": 900 + number, "content": text, "special": True}
                               for number, text in enumerate(("[INST]", "[/INST]", "<SPECIAL_999>"))]
    split(source).update(pattern={"Regex": tokenizer.SPLITS["llama3"][0]})


mistral = tokenizer.from_tokenizer_json(changed(like_mistral))
promise(mistral.stored["split"] == "tekken" and "llama3" in mistral.notes[0], "Mistral's mistake is repaired and noted")
kept = tokenizer.from_tokenizer_json(changed(like_mistral), "llama3")
promise(kept.stored["split"] == "llama3" and not kept.notes, "Mistral's mistake is kept if asked for")


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


# GGUF has no flags of added tokens.
plain = tokenizer.from_tokenizer_json(changed(without_flags))
promise(from_bytes(gguf(fields)) == plain, "GGUF gives the same tokenizer")
for pre, name, begin in (("gpt-2", "gpt2", None), ("smollm", "smollm", None), ("llama-bpe", "llama3", 1),
                         ("smaug-bpe", "llama3", None), ("deepseek-r1-qwen", "qwen2", None), ("tekken", "tekken", 1)):
    made = from_bytes(gguf({**fields, "tokenizer.ggml.pre": pre, "tokenizer.ggml.bos_token_id": 1}))
    promise(made.stored["split"] == name and made.begin == begin and made.end is None, f"GGUF's {pre} is {name}")
asked = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.add_bos_token": 1, "tokenizer.ggml.eos_token_id": 2,
         "tokenizer.ggml.add_eos_token": 1}
made = from_bytes(gguf({**fields, **asked}))
promise((made.begin, made.end) == (1, 2), "GGUF's tokens before and after a text are found")
refused("a space before a text in GGUF", "add_space_prefix", from_bytes,
        gguf({**fields, "tokenizer.ggml.add_space_prefix": 1}))
refused("a begin token of GGUF that text could forge", "token 65", from_bytes,
        gguf({**fields, **asked, "tokenizer.ggml.bos_token_id": 65}))
refused("another model of GGUF", "llama", from_bytes, gguf({**fields, "tokenizer.ggml.model": "llama"}))
refused("an unknown split of GGUF", "bloom", from_bytes, gguf({**fields, "tokenizer.ggml.pre": "bloom"}))
refused("a cut GGUF file", "ends in its metadata", from_bytes, gguf(fields)[:500])
refused("another version of GGUF", "version 1", from_bytes, b"GGUF" + struct.pack("<IQQ", 1, 0, 0))
print("the converter keeps its promises")
