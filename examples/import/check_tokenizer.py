"""Compares kaiju's tokenizer with the package `tokenizers`, or with `sentencepiece`, on random texts.

    cmake --build build/dev --target kaiju-encode
    python3 check_tokenizer.py tokenizer.json --encode build/dev/bin/kaiju-encode --texts 100000
    python3 check_tokenizer.py model.gguf --encode build/dev/bin/kaiju-encode --texts 100000    # with SentencePiece's pieces

Converts the tokenizer, encodes each text with both, and prints the texts whose tokens differ. Texts are made of
words, numbers, white space, code points of all planes and, in every eighth text, the tokenizer's special tokens, which
both encode as ordinary text (kaiju finds them only where it is asked to: --special). Exits with 1 if anything differs.

Where the two know different versions of Unicode they differ by right: in the classes of new code points, and with NFC
in the order and the composition of new combining marks (`tokenizers` 0.23 has those of about 2017). So texts leave out
what Python's Unicode has not assigned, and marks that `tokenizers` and Python order or compose differently, unless
--every-code-point asks for them.

A tokenizer.json with byte fallback becomes a SentencePiece model, which takes the longest run of spaces that is a token,
where `tokenizers` merges: texts leave out runs beyond 31 spaces then. Of a GGUF file with SentencePiece's pieces, or a
tokenizer.model, the reference is the package `sentencepiece`.

Needs the package `tokenizers` (0.20 or newer).
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata

import byte_fallback
import stored_tokenizer
import tokenizer as converter
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

WORDS = ("the and Hello it's IT'S we'll don't naïve straße 12 345 6789 3.14 x=1; foo_bar() \"quoted\" https://a.b/c?d "
         "日本語 テスト 中文字符 한국어 русский текст हिन्दी العربية עברית ไทย é e\u0301 a\u0323\u0302 ﬁ Å \u212b ſ 'ſ K "
         "🙂 👩‍👩‍👧 🇩🇪 ½ ² Ⅷ ٣ ... --- !!! \u180e \ufeff \u200b HTTPServer camelCase ÀÉb ǅ ʰA A\u0301B //\n").split(" ")
SPACES = (" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "\u2028", "\x0b", "\x85", "", "")


def nfc_agrees(character):
    """Whether `tokenizers` and Python know the same of a character's place among combining marks."""
    around = character, f"a\u0345{character}x", f"a{character}\u0334x"
    return all(normalizers.NFC().normalize_str(text) == unicodedata.normalize("NFC", text) for text in around)


def newer_parts():
    """The characters of which Python composes others and `tokenizers` does not."""
    apart = (unicodedata.normalize("NFD", chr(code)) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    return {part for parts in apart if len(parts) > 1
            and normalizers.NFC().normalize_str(parts) != unicodedata.normalize("NFC", parts) for part in parts[1:]}


def code_points(every, nfc):
    """Those that random texts draw from, by blocks of 256, so that each block comes as often as another."""
    blocks, newer = {}, newer_parts() if nfc and not every else set()
    for code in range(0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        if category == "Cs" or not every and (category in ("Cn", "Co") or nfc and character in newer):
            continue
        if every or not nfc or nfc_agrees(character):
            blocks.setdefault(code >> 8, []).append(character)
    return list(blocks.values())


def random_text(draw, blocks, special):
    parts = []
    for _ in range(draw.randint(1, 12)):
        kind = draw.random()
        if kind < 0.35:
            parts.append(draw.choice(WORDS))
        elif kind < 0.6:
            parts.append(draw.choice(SPACES))
        elif kind < 0.75:
            parts.append("".join(map(chr, draw.choices(range(128), k=draw.randint(1, 6)))))
        elif kind < 0.95:
            parts.append("".join(draw.choices(draw.choice(blocks), k=draw.randint(1, 4))))
        else:
            parts.append(draw.choice("aA1 .\n日\u0301") * draw.randint(1, 200))
    if special and draw.random() < 0.125:
        parts.insert(draw.randrange(len(parts) + 1), draw.choice(special))
    return "".join(parts)


class Kaiju:
    """kaiju-encode as a process."""

    def __init__(self, program, stored, special):
        self._process = subprocess.Popen([program, stored, *["--special"] * special], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE)

    def encode(self, texts):
        def send():
            for text in texts:
                data = text.encode()
                self._process.stdin.write(b"%d\n%b" % (len(data), data))
            self._process.stdin.flush()

        sender = threading.Thread(target=send)
        sender.start()
        answers = [self._process.stdout.readline().decode().rstrip("\n") for _ in texts]
        sender.join()
        return answers

    def close(self):
        self._process.stdin.close()
        if self._process.wait() != 0:
            sys.exit("kaiju-encode failed")


class ByteLevel:
    """The package tokenizers, of a tokenizer.json with byte-level BPE or with byte fallback."""

    longest_spaces = None

    def __init__(self, path, find_special):
        self._tokenizer = Tokenizer.from_file(path)
        self._tokenizer.encode_special_tokens = not find_special
        with open(path) as file:
            source = json.load(file)
        added = source.get("added_tokens") or []
        self.nfc = self._tokenizer.normalizer is not None
        if byte_fallback.is_such(source):
            self.stored, self.nfc, self.longest_spaces = byte_fallback.convert(source)[0], False, 31
            self.special = [entry["content"] for entry in added]
            return
        # `tokenizers` finds added tokens that are not special in every text, kaiju only where it is asked to.
        self.special = [entry["content"] for entry in added if entry["special"] or find_special]
        converted = converter.convert(path)
        self.stored = converted.data()
        if converted.notes:  # the split is not the file's
            patterns = converter.SPLITS[converted.stored["split"]]
            self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
                + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    def encode(self, texts):
        return [one.ids for one in self._tokenizer.encode_batch(texts, add_special_tokens=False)]


class Pieces:
    """The package sentencepiece, of a tokenizer.model or of the pieces in a GGUF file."""

    longest_spaces, nfc = None, False

    def __init__(self, path):
        import sentencepiece
        with open(path, "rb") as file:
            self.stored = file.read()
        if self.stored[:4] == b"GGUF":
            with open(path, "rb") as file:
                self.stored = stored_tokenizer.from_gguf(converter.gguf_metadata(file), 1 << 20, path).data
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.stored)
        count = self._processor.get_piece_size()
        self.special = [self._processor.id_to_piece(id) for id in range(count) if self._processor.is_control(id)][:200]

    def encode(self, texts):
        return self._processor.encode(texts)


def has_longer_spaces(text, most):
    """Whether a run of spaces, or of what they become, is longer; or U+2581 stands in the text as a run."""
    return most is not None and (" " * (most + 1) in text.replace("\u2581", " ") or "\u2581" * 2 in text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="tokenizer.json, tokenizer.model or a GGUF file with SentencePiece's pieces")
    parser.add_argument("--encode", required=True, help="the program kaiju-encode")
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--special", action="store_true", help="find special tokens in the texts")
    parser.add_argument("--every-code-point", action="store_true", help="new and unassigned ones too")
    arguments = parser.parse_args()

    as_json = arguments.source.endswith(".json")
    reference = ByteLevel(arguments.source, arguments.special) if as_json else Pieces(arguments.source)
    with tempfile.TemporaryDirectory() as folder:
        stored = os.path.join(folder, "tokenizer.kaiju.json")
        with open(stored, "wb") as file:
            file.write(reference.stored)
        kaiju = Kaiju(arguments.encode, stored, arguments.special)
        draw = random.Random(arguments.seed)
        blocks = code_points(arguments.every_code_point, reference.nfc)
        done = differing = size = 0
        began = time.monotonic()
        while done < arguments.texts:
            texts = [random_text(draw, blocks, reference.special) for _ in range(min(2000, arguments.texts - done))]
            done += len(texts)
            texts = [text for text in texts if not has_longer_spaces(text, reference.longest_spaces)]
            wanted = [" ".join(map(str, ids)) for ids in reference.encode(texts)]
            for text, expected, found in zip(texts, wanted, kaiju.encode(texts)):
                if expected != found:
                    differing += 1
                    if differing <= 10:
                        print(f"{text!r}\n  reference  {expected}\n  kaiju      {found}")
            size += sum(len(text.encode()) for text in texts)
        kaiju.close()
    print(f"{arguments.source}: {done} texts, {size} bytes, {differing} differ; seed {arguments.seed}, "
          f"{time.monotonic() - began:.0f} s")
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
