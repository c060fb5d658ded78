"""Layout: no line is wider than 120 columns, and clang-format has nothing to change. No function of the library or of
a program is longer than 80 lines, unless a sentence of the comment above it begins "Long because".

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
LONGEST = 80  # lines of a function, from its opening brace to its closing one
LIBRARY_AND_PROGRAMS = ("include", "src", "cuda", "capi", "examples/tools", "examples/chat", "bench")

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


def code_of(text):
    """The text with blanks for comments, preprocessor lines and literals: every place stays where it is."""
    hidden = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#(?:\\\n|[^\n])*|R"(\w*)\(.*?\)\1"'
                        r"|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'", re.S | re.M)
    return hidden.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def plain(head):
    """A declaration without template parameters and without the words whose parentheses hold no parameters."""
    words = "alignas|decltype|explicit|noexcept|requires|__attribute__|__launch_bounds__"
    head = re.sub(r"\btemplate\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>", "", head)
    return re.sub(rf"\b(?:{words})\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "", head).rstrip()


def comment_above(lines, number):
    """Of the comment that ends above lines[number], the text."""
    first = number
    while first > 0 and lines[first - 1].lstrip().startswith("//"):
        first -= 1
    return " ".join(line.strip().lstrip("/ ") for line in lines[first:number])


def functions(text):
    """(name, first line, lines of the body, comment above) of every function that has a body. A lambda or a class
    inside a body counts to its function. ValueError names the line of a brace without its counterpart."""
    code, lines = code_of(text), text.splitlines()
    closing, opened = {}, []
    for brace in re.finditer("[{}]", code):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closing[opened.pop()] = brace.end()
        else:
            raise ValueError(f"{code.count(chr(10), 0, brace.start()) + 1}: this brace closes nothing")
    if opened:
        raise ValueError(f"{code.count(chr(10), 0, opened[-1]) + 1}: nothing closes this brace")

    scope = re.compile(r"\b(?:namespace|extern)\b[\w\s:]*$|\b(?:class|struct|union|enum)\b[^()=]*$")
    found = []
    begin = at = 0  # of the declaration; how far it has been read
    while mark := re.compile("[{};]").search(code, at):
        at = mark.end()
        begin += re.match(r"(?:\s|(?:public|protected|private):)*", code[begin:mark.start()]).end()
        head = plain(code[begin:mark.start()])
        if mark[0] == "{" and not scope.search(head):
            at = closing[mark.start()]
            if head.endswith("=") or not re.search(r"\)|\]$", head) or re.match(r"\s*[,{]", code[at:]):
                continue  # the value of a variable or of a member
            name = re.search(r"(operator\b[^\w(]*(?:\(\))?|[\w:~]+)\s*(?:<[^()]*>)?\s*\(|(\w+)\s*=", head)
            first = code.count("\n", 0, begin)
            found.append((name[1] or name[2] if name else "a function", first + 1,
                          code.count("\n", mark.start(), at) + 1, comment_above(lines, first)))
        elif mark[0] == ";" and head.count("(") > head.count(")"):
            continue
        begin = at
    return found


sources = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in ENDINGS)
wide = 0
for path in sources:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if len(line) > WIDTH:
            wide += 1
            print(f"{path.relative_to(root)}:{number}: {len(line)} columns; at most {WIDTH}")

function_count = long = 0
for path in sources:
    if not any(path.is_relative_to(root / folder) for folder in LIBRARY_AND_PROGRAMS):
        continue
    try:
        found = functions(path.read_text())
    except ValueError as error:
        sys.exit(f"{path.relative_to(root)}:{error}; each branch of an #if must close the braces that it opens")
    function_count += len(found)
    for name, number, lines, comment in found:
        if lines > LONGEST and not re.search(r"(?:^|[.:;!?] )Long because \w", comment):
            long += 1
            print(f"{path.relative_to(root)}:{number}: {name} has {lines} lines; at most {LONGEST}: split it, or say "
                  'why not in a sentence above it that begins "Long because"')

program = clang_format()
changed = 0
if program:
    how = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror"]
    answer = subprocess.run([program, *how, *map(str, sources)], capture_output=True, text=True)
    places = [line for line in answer.stderr.splitlines() if "[-Wclang-format-violations]" in line]
    changed = len(places) + (answer.returncode != 0 and not places)
    print("\n".join(places[:20]) or answer.stderr[:2000])

print(f"{len(sources)} files, {wide} lines too wide, {long} of {function_count} functions too long, "
      + (f"{changed} places that clang-format {wanted} would change" if program
         else f"clang-format {wanted} is not installed: pip install -r tests/style/requirements.txt"))
few = len(sources) < 100 or function_count < 1000
sys.exit(1 if wide or long or changed or few else 0 if program else 77)
