"""Layout: no line is wider than 120 columns, and clang-format has nothing to change.

    layout.py ROOT [--fix]        --fix: let clang-format change what it would

Exits with 77, which CTest counts as skipped, where the version that requirements.txt names is not installed:
    python3 -m venv build/tools && build/tools/bin/pip install -r tests/style/requirements.txt
"""
import pathlib
import re
import shutil
import subprocess
import sys

WIDTH = 120
FOLDERS = ("include", "src", "cuda", "capi", "examples", "tests", "bench")
ENDINGS = (".hpp", ".cpp", ".h", ".c", ".cu", ".cuh")

root = pathlib.Path(sys.argv[1]).resolve()
wanted = re.search(r"clang-format==(\S+)", (root / "tests/style/requirements.txt").read_text())[1]


def clang_format():
    """The pinned version: of build/tools, or of the path. None where neither is it."""
    for program in (str(root / "build/tools/bin/clang-format"), shutil.which("clang-format")):
        if not program or not pathlib.Path(program).exists():
            continue
        answer = subprocess.run([program, "--version"], capture_output=True, text=True)
        if f"version {wanted}" in answer.stdout:
            return program
    return None


sources = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in ENDINGS)
wide = 0
for path in sources:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if len(line) > WIDTH:
            wide += 1
            print(f"{path.relative_to(root)}:{number}: {len(line)} columns; at most {WIDTH}")

program = clang_format()
changed = 0
if program:
    how = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror"]
    answer = subprocess.run([program, *how, *map(str, sources)], capture_output=True, text=True)
    places = [line for line in answer.stderr.splitlines() if "[-Wclang-format-violations]" in line]
    changed = len(places) + (answer.returncode != 0 and not places)
    print("\n".join(places[:20]) or answer.stderr[:2000])

print(f"{len(sources)} files, {wide} lines too wide, " + (f"{changed} places that clang-format {wanted} would change"
      if program else f"clang-format {wanted} is not installed: pip install -r tests/style/requirements.txt"))
sys.exit(1 if wide or changed or len(sources) < 100 else 0 if program else 77)
