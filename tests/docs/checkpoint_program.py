"""The program of docs/checkpoint.md writes a checkpoint that kaiju-inspect finds sound.

    python3 tests/docs/checkpoint_program.py ROOT PROGRAMS        (skipped, 77, without numpy)"""
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy  # noqa: F401
except ImportError:
    print("skipped: numpy is missing")
    sys.exit(77)

root, programs = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
page = (root / "docs/checkpoint.md").read_text()
section = page[page.index("### Writing a checkpoint from Python"):]
program = re.search(r"^```python\n(.*?)^```", section, re.M | re.S).group(1)
assert program.count('"examples/import"') == 1
program = program.replace('"examples/import"', repr(str(root / "examples/import")))
with tempfile.TemporaryDirectory() as folder:
    digest = subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
    file = pathlib.Path(folder) / "tiny.safetensors"
    shown = subprocess.run([programs / "kaiju-inspect", file], capture_output=True, text=True)
    print(shown.stdout + shown.stderr)
    assert shown.returncode == 0 and digest in shown.stdout, digest
    chat = subprocess.run([programs / "kaiju-chat", "--model", file, "--say", "hello", "--max-tokens", "4"], capture_output=True, text=True)
    print(chat.stdout + chat.stderr)
    assert chat.returncode == 0
