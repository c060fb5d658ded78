"""A SentencePiece model that is made again of what a GGUF file lists of it splits texts as the original does.

    python3 tests/import/pieces.py SOURCE_FOLDER KAIJU_ENCODE [TOKENIZER_MODEL]

Without TOKENIZER_MODEL it is the bundled model's, taken for byte pair encoding, which it is not."""

import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from promises import promise, refusal, root
from sentencepiece_file import fields
import stored_tokenizer
from int8_model import CheckpointTensors

TEXTS = ["", " ", "a", "Hello, world!", "  two  spaces\tand\n\nlines", "ärger über 東京 🦆", "\u2581", "<s>", "</s>x", "\x00"]


def metadata_of(model):
    """As GGUF lists the pieces."""
    pieces = [dict(fields(value)) for number, value in fields(model) if number == 1]
    normalizer = next((dict(fields(value)) for number, value in fields(model) if number == 3), {})
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece[1].decode() for piece in pieces],
        "tokenizer.ggml.scores": [struct.unpack("<f", piece.get(2, bytes(4)))[0] for piece in pieces],
        "tokenizer.ggml.token_type": [piece.get(3, 1) for piece in pieces],
        "tokenizer.ggml.add_space_prefix": bool(normalizer.get(3, 1)),
        "tokenizer.ggml.bos_token_id": 1,
    }


def encoded(folder, model, texts):
    path = pathlib.Path(folder, "tokenizer")
    path.write_bytes(model)
    data = b"".join(b"%d\n" % len(text) + text for text in (text.encode() for text in texts))
    done = subprocess.run([sys.argv[2], path], input=data, capture_output=True)
    promise(done.returncode == 0, f"kaiju reads the tokenizer: {done.stderr.decode()}")
    return done.stdout.splitlines()


if len(sys.argv) > 3:
    original = pathlib.Path(sys.argv[3]).read_bytes()
else:
    bundled = CheckpointTensors(str(root / "examples/chat/model/kaiju-nano.safetensors"))
    original = bundled.rows("tokenizer").tobytes() + b"\x12\x02\x18\x02"  # trainer_spec.model_type = BPE
metadata = metadata_of(original)
count = len(metadata["tokenizer.ggml.tokens"])
found = stored_tokenizer.from_gguf(metadata, count, "model.gguf")
promise(found.begin == 1, "the token before a text")
draw = random.Random(1)
words = [text for text, kind in zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]) if kind == 1]
alphabet = [chr(draw.randrange(1, 0xD800)) for _ in range(200)] + list("etaoin shrdlu .,\n")
texts = TEXTS + ["".join(draw.choice(words) for _ in range(draw.randrange(40))).replace("\u2581", " ") for _ in range(2000)]
texts += ["".join(draw.choice(alphabet) for _ in range(draw.randrange(60))) for _ in range(2000)]
with tempfile.TemporaryDirectory() as folder:
    wanted, split = encoded(folder, original, texts), encoded(folder, found.data, texts)
different = [text for text, a, b in zip(texts, wanted, split) if a != b]
promise(len(wanted) == len(split) == len(texts), "every text has its tokens")
promise(not different, f"{len(different)} texts are split in another way, the first is {different[:1]}")


def refused(name, value, *words):
    with refusal(name, *words):
        stored_tokenizer.from_gguf(metadata | {f"tokenizer.ggml.{name}": value}, count, "model.gguf")


refused("scores", None, "tokenizer.ggml.scores")
refused("scores", metadata["tokenizer.ggml.scores"][1:], "tokenizer.ggml.scores")
refused("scores", [float("nan")] * count, "token 0", "score")
refused("token_type", [7] * count, "token 0", "type 7")
refused("tokens", [""] * count, "token 0", "no text")
refused("bos_token_id", count, "bos_token_id", str(count))
with refusal("a vocabulary that is too large", "embedding has 5 rows"):
    stored_tokenizer.from_gguf(metadata, 5, "model.gguf")
print(f"{len(texts)} texts, no difference")
