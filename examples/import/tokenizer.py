"""Converts the tokenizer of an open model into the form that a kaiju checkpoint stores (docs/checkpoint.md).

    python3 tokenizer.py tokenizer.json --out tokenizer.kaiju.json   # Hugging Face
    python3 tokenizer.py model.gguf --out tokenizer.kaiju.json       # GGUF, of which it reads the metadata alone

Reads byte-level BPE: Llama 3, Qwen 2 and 3, SmolLM 2 and 3, GPT-2, Tekken and others with one of their splits. What it
does not support it refuses by name. The result goes into a checkpoint as its tensor `tokenizer`, byte for byte. It also
prints which tokens the model's own tokenizer puts around a text: kaiju's adds none, so they belong into the config's
`chat`. Needs Python alone.
"""

import argparse
import json
import struct
import sys
import typing

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")
_TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
           r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# The patterns of each split that kaiju knows (src/text/split.cpp), applied one after the other.
SPLITS = {
    "gpt2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama3": (_LLAMA3,),
    "qwen2": (_LLAMA3.replace("{1,3}", ""),),
    "tekken": (_TEKKEN,),
}
# What GGUF's tokenizer.ggml.pre stands for, as the file has none of it: split, NFC, ignore_merges, and whether a begin
# token is added where the file does not say.
_GGUF_KINDS = {
    "gpt-2": ("gpt2", False, False, False),
    "smollm": ("smollm", False, False, False),
    "llama-bpe": ("llama3", False, True, True),
    "smaug-bpe": ("llama3", False, True, False),
    "qwen2": ("qwen2", True, False, False),
    "deepseek-r1-qwen": ("qwen2", True, False, False),
    "tekken": ("tekken", False, True, True),
}


class Unsupported(Exception):
    """What the tokenizer has and kaiju does not, and what can be done."""


class Converted(typing.NamedTuple):
    stored: dict           # the stored form
    begin: int | None      # the token that the model's own tokenizer puts before a text
    end: int | None        # and after it
    notes: tuple = ()      # what was changed on the way, in sentences

    def data(self):
        """The bytes to store."""
        return json.dumps(self.stored, ensure_ascii=False, separators=(",", ":")).encode()


def _alphabet():
    """Of each byte, the character that shows it: GPT-2's."""
    shown, other = {}, 0x100
    for byte in range(256):
        printable = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xFF and byte != 0xAD
        shown[byte] = chr(byte if printable else other)
        other += not printable
    return shown


_SHOWN = _alphabet()
_BYTES = {character: byte for byte, character in _SHOWN.items()}


def show(text):
    """The text's bytes in the byte alphabet."""
    return "".join(_SHOWN[byte] for byte in text.encode())


def name_of(part):
    return part["type"] if isinstance(part, dict) and "type" in part else repr(part)


def steps_of(part, of):
    """The steps of a part that may be a sequence of them."""
    if part is None:
        return []
    return [one for step in part[of] for one in steps_of(step, of)] if name_of(part) == "Sequence" else [part]


def _has_nfc(part):
    for step in steps_of(part, "normalizers"):
        if name_of(step) != "NFC":
            raise Unsupported(f"normalizer {name_of(step)}: kaiju has NFC or none")
    return bool(steps_of(part, "normalizers"))


def _pattern(step):
    """The regular expression of a Split or of Digits."""
    if name_of(step) == "Digits":
        return r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
    if name_of(step) != "Split":
        raise Unsupported(f"pre_tokenizer {name_of(step)}: kaiju has Split, Digits and ByteLevel")
    pattern, behavior, invert = step["pattern"], step["behavior"], step.get("invert", False)
    if "Regex" not in pattern:
        raise Unsupported("Split by a string: kaiju splits by regular expressions that it knows")
    # Removed and inverted drops what is between matches. The known patterns match everything, so nothing is.
    if not (behavior == "Isolated" or behavior == "Removed" and invert):
        raise Unsupported(f"Split with behavior {behavior}{', inverted' * invert}: kaiju keeps matches and what is "
                          "between them as words of their own (Isolated)")
    return pattern["Regex"]


def _split(part):
    """(the patterns, add_prefix_space)"""
    *steps, last = steps_of(part, "pretokenizers") or [None]
    if last is None or name_of(last) != "ByteLevel":
        raise Unsupported(f"pre_tokenizer {name_of(last)} as the last: kaiju reads byte-level BPE, where ByteLevel is")
    patterns = [_pattern(step) for step in steps]
    space = last["add_prefix_space"]
    if space and steps:
        raise Unsupported("ByteLevel with add_prefix_space after another pre_tokenizer, which puts a space before each "
                          "word: kaiju puts one before a text")
    return (*patterns, *[_GPT2] * last.get("use_regex", True)), space


def _known_split(patterns):
    for name, known in SPLITS.items():
        if known == patterns:
            return name
    raise Unsupported(f"the split {' then '.join(map(repr, patterns)) or 'into nothing but whole texts'}: kaiju knows "
                      f"{', '.join(SPLITS)}; --split takes one of them in its place")


def _is_tekken(added):
    """Whether these are the control tokens of Mistral's Tekken: a thousand, most of them without a name."""
    return {"[INST]", "[/INST]", "<SPECIAL_999>"} <= {entry["content"] for entry in added if entry["id"] < 1000}


def _check_model(model):
    if model.get("type", "BPE") != "BPE":
        raise Unsupported(f"model {model['type']}: kaiju reads byte-level BPE, and SentencePiece models as they are")
    for field in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field):
            raise Unsupported(f"BPE with {field}")
    if model.get("byte_fallback"):
        raise Unsupported("BPE with byte_fallback, which is SentencePiece's: kaiju-import makes a SentencePiece model of "
                          "it, or use the model's tokenizer.model, which kaiju reads as it is")
    in_utf8 = (byte for byte in _SHOWN if byte < 0xC0 or 0xC2 <= byte <= 0xF4)
    if model.get("unk_token") and any(_SHOWN[byte] not in model["vocab"] for byte in in_utf8):
        raise Unsupported(f"unk_token {model['unk_token']!r} for bytes that have no token: kaiju leaves them out")


def _added_tokens(entries, nfc, space):
    """id -> (role, flags, shown token)"""
    added, literal, flags_of_all = {}, [], set()
    for entry in entries:
        text, flags = entry["content"], [flag for flag in ("lstrip", "rstrip", "single_word") if entry.get(flag)]
        # Added tokens of white space alone, such as runs of spaces, are part of how every text is written.
        role = "control" if entry.get("special") else "visible" if text.strip() else "literal"
        literal += [text] if role == "literal" else []
        flags_of_all.update(flags)
        added[entry["id"]] = role, flags, show(text)
    beside = [*sorted(flags_of_all), *["add_prefix_space"] * space, *["NFC"] * (nfc and not "".join(literal).isascii())]
    if literal and beside:
        raise Unsupported(f"an added token of white space ({literal[0]!r}) beside {beside[0]}")
    return added


def _build(vocabulary, merges, added, split, nfc, ignore_merges, space=False):
    """`vocabulary`: shown token -> id, `added`: id -> (role, flags, shown token), `merges`: pairs of shown tokens."""
    ids = {text: id for text, id in vocabulary.items() if id not in added}
    highest = max([*vocabulary.values(), *added])
    tokens = [""] * (highest + 1)
    for text, id in ids.items():
        strange = [character for character in text if character not in _BYTES]
        if strange:
            raise Unsupported(f"token {id} ({text!r}) has the character {strange[0]!r}, which stands for no byte: this "
                              "is not byte-level BPE, or an added token that added_tokens does not list")
        tokens[id] = text
    for id, (_, _, text) in added.items():
        tokens[id] = text
    # SmolLM2 lacks tokens of a few control characters, and of 0xF1 and 0xF2: such bytes are left out of texts.
    for byte, character in _SHOWN.items():
        needed = byte == 0x0A or 0x20 <= byte <= 0x7E or 0x80 <= byte <= 0xBF or 0xC2 <= byte <= 0xF0
        if character not in ids and needed:
            raise Unsupported(f"no token for the byte 0x{byte:02X}")
    flat = []
    for number, (left, right) in enumerate(merges):
        for text in (left, right, left + right):
            if text not in ids:
                raise Unsupported(f"merge {number} ({left!r} {right!r}): {text!r} is no ordinary token")
        flat += [ids[left], ids[right]]
    roles = {role: sorted(id for id, (its, _, _) in added.items() if its == role)
             for role in ("control", "visible", "literal")}
    flags = {flag: sorted(id for id, (_, its, _) in added.items() if flag in its)
             for flag in ("lstrip", "rstrip", "single_word")}
    return {"type": "byte_bpe", "version": 1, "normalization": "nfc" if nfc else "none", "split": split,
            "add_prefix_space": space, "ignore_merges": ignore_merges, "tokens": tokens, "merges": flat, **roles,
            **flags}


def around(post_processor):
    """(begin, end): the ids of the tokens that a post_processor adds; None for neither."""
    both = [None, None]
    for step in steps_of(post_processor, "processors"):
        if name_of(step) == "ByteLevel":  # changes offsets alone
            continue
        if name_of(step) != "TemplateProcessing":
            raise Unsupported(f"post_processor {name_of(step)}: kaiju has TemplateProcessing and ByteLevel")
        parts = [next(iter(part.items())) for part in step["single"]]
        at = [kind for kind, _ in parts].index("Sequence")
        for place, found in enumerate((parts[:at], parts[at + 1:])):
            ids = [id for _, part in found for id in step["special_tokens"][part["id"]]["ids"]]
            if len(ids) + (both[place] is not None) > 1:
                raise Unsupported(f"post_processor with several tokens {('before', 'after')[place]} a text: kaiju's "
                                  "chat has one")
            both[place] = ids[0] if ids else both[place]
    return both


def _check_around(stored, begin, end):
    for id in (begin, end):
        if id is not None and id not in stored["control"]:
            raise Unsupported(f"token {id}, which is added around texts, is no special token: text could forge it")


def from_tokenizer_json(source, split=None):
    """Converts the parsed tokenizer.json. `split` replaces what its pre_tokenizer says."""
    model, notes = source["model"], []
    _check_model(model)
    for step in steps_of(source.get("decoder"), "decoders"):
        if name_of(step) != "ByteLevel":
            raise Unsupported(f"decoder {name_of(step)}: kaiju has ByteLevel")
    nfc = _has_nfc(source.get("normalizer"))
    patterns, space = _split(source.get("pre_tokenizer"))
    entries = source.get("added_tokens") or []
    if split is None:
        split = _known_split(patterns)
        if split != "tekken" and _is_tekken(entries):
            notes.append(f"The split is tekken, not the file's {split}: Mistral's models are trained with tekken, and "
                         f"many files of them have {split} by mistake. --split {split} keeps it.")
            split = "tekken"
    added = _added_tokens(entries, nfc, space)
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    stored = _build(model["vocab"], merges, added, split, nfc, bool(model.get("ignore_merges")), space)
    begin, end = around(source.get("post_processor"))
    _check_around(stored, begin, end)
    return Converted(stored, begin, end, tuple(notes))


def gguf_metadata(file):
    """The metadata of a GGUF file, opened for reading bytes: a dict."""
    numbers = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(code):
        size = struct.calcsize("<" + code)
        data = file.read(size)
        if len(data) != size:
            raise Unsupported("the GGUF file ends in its metadata")
        return struct.unpack("<" + code, data)[0]

    def value(kind):
        if kind in numbers:
            return take(numbers[kind])
        if kind == 8:
            return take(f"{take('Q')}s").decode(errors="surrogateescape")
        if kind == 9:
            item, count = take("I"), take("Q")
            return [value(item) for _ in range(count)]
        raise Unsupported(f"GGUF metadata of type {kind}")

    if file.read(4) != b"GGUF":
        raise Unsupported("this is no GGUF file")
    version = take("I")
    if version not in (2, 3):
        raise Unsupported(f"GGUF version {version}: 2 and 3 are read")
    _, count = take("Q"), take("Q")
    metadata = {}
    for _ in range(count):
        key = value(8)
        metadata[key] = value(take("I"))
    return metadata


def from_gguf(metadata):
    """Converts a GGUF file's metadata."""
    get = lambda name: metadata.get(f"tokenizer.ggml.{name}")
    if get("model") != "gpt2":
        raise Unsupported(f"tokenizer.ggml.model {get('model')!r}: kaiju reads \"gpt2\", which is byte-level BPE")
    if get("pre") not in _GGUF_KINDS:
        raise Unsupported(f"tokenizer.ggml.pre {get('pre')!r}: known are {', '.join(_GGUF_KINDS)}; convert the model's "
                          "tokenizer.json")
    if get("add_space_prefix"):
        raise Unsupported("tokenizer.ggml.add_space_prefix: convert the model's tokenizer.json")
    split, nfc, ignore_merges, adds_begin = _GGUF_KINDS[get("pre")]
    added, vocabulary = {}, {}
    for id, (text, kind) in enumerate(zip(get("tokens"), get("token_type"))):
        if kind == 1:  # normal
            vocabulary[text] = id
        elif kind in (3, 4):  # control, user-defined
            role = "control" if kind == 3 else "visible" if text.strip() else "literal"
            added[id] = role, [], show(text)
        elif kind != 5:  # unused
            raise Unsupported(f"token {id} ({text!r}) of GGUF type {kind}")
    stored = _build(vocabulary, [merge.split(" ") for merge in get("merges")], added, split, nfc, ignore_merges)
    adds_begin = adds_begin if get("add_bos_token") is None else get("add_bos_token")
    begin = get("bos_token_id") if adds_begin else None
    end = get("eos_token_id") if get("add_eos_token") else None
    _check_around(stored, begin, end)
    return Converted(stored, begin, end)


def convert(path, split=None):
    """Converts a tokenizer.json or a GGUF file. `split` as in from_tokenizer_json."""
    with open(path, "rb") as file:
        is_gguf = file.read(4) == b"GGUF"
        file.seek(0)
        if not is_gguf:
            return from_tokenizer_json(json.load(file), split)
        if split:
            raise Unsupported("--split for a GGUF file: convert the model's tokenizer.json")
        return from_gguf(gguf_metadata(file))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a tokenizer.json or a GGUF file")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--split", choices=SPLITS, help="split texts so, and not by the patterns in the tokenizer.json")
    arguments = parser.parse_args()
    try:
        converted = convert(arguments.source, arguments.split)
    except Unsupported as problem:
        sys.exit(f"tokenizer.py: {arguments.source}: {problem}")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        sys.exit(f"tokenizer.py: {arguments.source} is no tokenizer.json: {type(problem).__name__}: {problem}")
    with open(arguments.out, "wb") as file:
        file.write(converted.data())
    for note in converted.notes:
        print(note)
    for name, id in (("begin", converted.begin), ("end", converted.end)):
        if id is not None:
            print(f'"{name}": {id}')


if __name__ == "__main__":
    main()
