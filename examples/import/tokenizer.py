"""Converts the tokenizer of an open model into the form that a kaiju checkpoint stores (docs/checkpoint.md).

    python3 tokenizer.py tokenizer.json --out tokenizer.kaiju.json   # Hugging Face
    python3 tokenizer.py model.gguf --out tokenizer.kaiju.json       # GGUF, of which it reads the metadata alone

Reads byte-level BPE: Llama 3, Qwen 2 and 3, SmolLM2, GPT-2, Tekken and others of their kind. What it does not support
it refuses by name. The result goes into a checkpoint as its tensor `tokenizer`, byte for byte. Needs Python alone.
"""

import argparse
import json
import struct
import sys

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")
_TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
           r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# What GGUF's tokenizer.ggml.pre names: patterns, NFC, ignore_merges. The file itself does not have them.
_GGUF_KINDS = {
    "gpt-2": ([GPT2], False, False),
    "smollm": ([r"\p{N}", GPT2], False, False),
    "llama-bpe": ([_LLAMA3], False, True),
    "qwen2": ([_LLAMA3.replace("{1,3}", "")], True, False),
    "tekken": ([_TEKKEN], False, True),
}


class Unsupported(Exception):
    """What the tokenizer has and kaiju does not, and what can be done."""


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


def _name(part):
    return part["type"] if isinstance(part, dict) and "type" in part else repr(part)


def _normalization(part):
    if part is None:
        return "none"
    if _name(part) == "Sequence":
        kinds = {_normalization(step) for step in part["normalizers"]} or {"none"}
        return "nfc" if "nfc" in kinds else "none"
    if _name(part) == "NFC":
        return "nfc"
    raise Unsupported(f"normalizer {_name(part)}: kaiju has NFC or none")


def _split(part):
    """(patterns, whether the last step turns bytes into the byte alphabet)"""
    if part is None:
        raise Unsupported("no pre_tokenizer: kaiju reads byte-level BPE, which has ByteLevel")
    kind = _name(part)
    if kind == "Sequence":
        patterns, bytes_shown = [], False
        for step in part["pretokenizers"]:
            if bytes_shown:
                raise Unsupported(f"pre_tokenizer {_name(step)} after ByteLevel: kaiju splits text before it looks at bytes")
            more, bytes_shown = _split(step)
            patterns += more
        return patterns, bytes_shown
    if kind == "ByteLevel":
        if part.get("add_prefix_space"):
            raise Unsupported("ByteLevel with add_prefix_space: kaiju adds no space; set it to false, and begin texts "
                              "with a space where the model expects one")
        return [GPT2] if part.get("use_regex", True) else [], True
    if kind == "Digits":
        return [r"\p{N}" if part.get("individual_digits") else r"\p{N}+"], False
    if kind == "Split":
        pattern, behavior, invert = part["pattern"], part["behavior"], part.get("invert", False)
        if "Regex" not in pattern:
            raise Unsupported("Split by a string: kaiju splits by regular expressions; write it as Regex")
        if not (behavior == "Isolated" or behavior == "Removed" and invert):
            raise Unsupported(f"Split with behavior {behavior}{', inverted' * invert}: kaiju keeps matches and what is "
                              "between them as words of their own (Isolated)")
        # Removed and inverted drops what is between matches. Such patterns match everything, so nothing is.
        return [pattern["Regex"]], False
    raise Unsupported(f"pre_tokenizer {kind}: kaiju has Split, Digits and ByteLevel")


def _check_model(model):
    if model.get("type", "BPE") != "BPE":
        raise Unsupported(f"model {model['type']}: kaiju reads byte-level BPE, and SentencePiece models as they are")
    for field in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field):
            raise Unsupported(f"BPE with {field}")
    if model.get("byte_fallback"):
        raise Unsupported("BPE with byte_fallback, which is SentencePiece's: use the model's tokenizer.model, which "
                          "kaiju reads as it is")


def _added(entry, nfc):
    """The role of an added token."""
    text = entry["content"]
    for field in ("single_word", "lstrip", "rstrip"):
        if entry.get(field):
            raise Unsupported(f"added token {text!r} with {field}: set it to false where no prompt depends on it")
    if entry.get("special"):
        return "control"
    if text.strip():
        return "visible"
    if nfc and not text.isascii():
        raise Unsupported(f"added token {text!r} of white space beside NFC")
    return "literal"  # runs of spaces: part of how every text is written


def _build(vocabulary, merges, roles, patterns, nfc, ignore_merges):
    """`vocabulary`: shown token -> id, `roles`: id -> (role, shown token), `merges`: pairs of shown tokens."""
    ids = {text: id for text, id in vocabulary.items() if id not in roles}
    highest = max([*vocabulary.values(), *roles])
    tokens = [""] * (highest + 1)
    for text, id in ids.items():
        strange = [character for character in text if character not in _BYTES]
        if strange:
            raise Unsupported(f"token {id} ({text!r}) has the character {strange[0]!r}, which stands for no byte: this "
                              "is not byte-level BPE, or an added token that added_tokens does not list")
        tokens[id] = text
    for id, (_, text) in roles.items():
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
    named = {role: sorted(id for id, (its, _) in roles.items() if its == role)
             for role in ("control", "visible", "literal")}
    return {"type": "byte_bpe", "version": 1, "normalization": "nfc" if nfc else "none", "split": patterns,
            "ignore_merges": ignore_merges, "tokens": tokens, "merges": flat, **named}


def from_tokenizer_json(source):
    """The stored form, of the parsed tokenizer.json."""
    model = source["model"]
    _check_model(model)
    nfc = _normalization(source.get("normalizer")) == "nfc"
    patterns, bytes_shown = _split(source.get("pre_tokenizer"))
    if not bytes_shown:
        raise Unsupported("a pre_tokenizer without ByteLevel: kaiju reads byte-level BPE")
    roles = {entry["id"]: (_added(entry, nfc), show(entry["content"])) for entry in source.get("added_tokens") or []}
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    return _build(model["vocab"], merges, roles, patterns, nfc, bool(model.get("ignore_merges")))


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
    """The stored form, of a GGUF file's metadata."""
    get = lambda name: metadata.get(f"tokenizer.ggml.{name}")
    if get("model") != "gpt2":
        raise Unsupported(f"tokenizer.ggml.model {get('model')!r}: kaiju reads \"gpt2\", which is byte-level BPE")
    if get("pre") not in _GGUF_KINDS:
        raise Unsupported(f"tokenizer.ggml.pre {get('pre')!r}: known are {', '.join(_GGUF_KINDS)}; convert the model's "
                          "tokenizer.json")
    patterns, nfc, ignore_merges = _GGUF_KINDS[get("pre")]
    roles, vocabulary = {}, {}
    for id, (text, kind) in enumerate(zip(get("tokens"), get("token_type"))):
        if kind == 1:  # normal
            vocabulary[text] = id
        elif kind in (3, 4):  # control, user-defined
            role = "control" if kind == 3 else "visible" if text.strip() else "literal"
            roles[id] = role, show(text)
        elif kind != 5:  # unused
            raise Unsupported(f"token {id} ({text!r}) of GGUF type {kind}")
    merges = [merge.split(" ") for merge in get("merges")]
    return _build(vocabulary, merges, roles, patterns, nfc, ignore_merges)


def convert(path):
    """The bytes to store, of a tokenizer.json or a GGUF file."""
    with open(path, "rb") as file:
        if file.read(4) == b"GGUF":
            file.seek(0)
            stored = from_gguf(gguf_metadata(file))
        else:
            file.seek(0)
            stored = from_tokenizer_json(json.load(file))
    return json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="tokenizer.json or a GGUF file")
    parser.add_argument("--out", required=True, help="file to write")
    arguments = parser.parse_args()
    try:
        stored = convert(arguments.source)
    except Unsupported as problem:
        sys.exit(f"tokenizer.py: {arguments.source}: {problem}")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        sys.exit(f"tokenizer.py: {arguments.source} is no tokenizer.json: {type(problem).__name__}: {problem}")
    with open(arguments.out, "wb") as file:
        file.write(stored)


if __name__ == "__main__":
    main()
