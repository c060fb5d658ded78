"""docs/c_interface.md says what capi/kaiju.h says, and has the library's table of options.

    c_interface.py LIBRARY [--update]
"""

import ctypes
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "c_interface.md"
SCOPES = {1: "Models", 2: "Engines", 3: "Requests", 4: "Sessions"}
TYPES = {"i": "int", "f": "float", "s": "string"}


class OptionInfo(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("help", ctypes.c_char_p),
                ("type", ctypes.c_int32), ("repeatable", ctypes.c_int32), ("minimum", ctypes.c_double),
                ("maximum", ctypes.c_double), ("standard", ctypes.c_double)]


def number(value):
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else "2⁶³" if value > 0 and value > 9e18 else f"{value:g}"


def options(library):
    """A table for each scope, from kaiju_option_describe."""
    out, scope = [], None
    for option in range(100, 1000):
        info = OptionInfo(ctypes.sizeof(OptionInfo))
        if library.kaiju_option_describe(option, ctypes.byref(info)) != 0:
            continue
        if SCOPES[option // 100] != scope:
            scope = SCOPES[option // 100]
            out += ["", f"### {scope}", "", "| option | number | type | default | from, to | what it is |", "| --- | --- | --- | --- | --- | --- |"]
        kind = TYPES[chr(info.type)] + (", repeatable" if info.repeatable else "")
        text = chr(info.type) == "s"
        standard = "" if text or info.repeatable else number(info.standard)
        limits = "" if text else f"{number(info.minimum)}, {number(info.maximum)}"
        name, help_text = info.name.decode(), info.help.decode().replace("|", "\\|")
        out.append(f"| `{name}` | {option} | {kind} | {standard} | {limits} | {help_text} |")
    return out


def prose(comment):
    """A comment as paragraphs."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment[2:-2].strip().split("\n")]
    text = re.sub(r"(?<=\S)  +(?=\S)", " ", "\n".join(lines)).strip()
    return re.sub(r"(?<![\w`*])\*(\w+)", r"`*\1`", text)


def declarations(header):
    """Sections of the header: comments as text, declarations as code."""
    body = header[header.index('extern "C" {'):header.rindex("#ifdef __cplusplus")]
    body = re.sub(r"^#.*$", "", body, flags=re.M)
    pattern = re.compile(r"/\*.*?\*/(?=\s*\n)|typedef struct \w+ \{.*?\n\} \w+;.*?$|enum \{.*?\};|(?:KAIJU_API|typedef).*?;(?: */\*.*?\*/)?",
                         re.S | re.M)
    out, code = ["", "## Types"], []

    def flush():
        if code:
            out.extend(["", "```c", *code, "```"])
            code.clear()

    for found in pattern.finditer(body):
        text = found.group(0).strip()
        section = re.fullmatch(r"/\* -- (.*?) -- \*/", text)
        if section:
            flush()
            title, _, rest = section.group(1).partition(": ")
            out.extend(["", "## " + title[0].upper() + title[1:]])
            if rest:
                out.extend(["", rest[0].upper() + rest[1:] + "."])
        elif text.startswith("/*"):
            flush()
            out.extend(["", prose(text)])
        else:
            code.append(text)
    flush()
    return out


def page(library):
    header = (ROOT / "capi" / "kaiju.h").read_text()
    rules = prose(header[header.index("/*"):header.index("*/") + 2])
    rules = rules.split("\n", 2)[2]
    rules = re.sub(r"^([A-Z][^\n.]*)\n(?=  -)", r"### \1\n\n", rules, flags=re.M)
    rules = re.sub(r"^  - ", "- ", rules, flags=re.M)
    rules = re.sub(r"^    (?=\S)", "  ", rules, flags=re.M)
    head = ["# The C interface", "",
            "This page has what [kaiju.h](../capi/kaiju.h) says, and the library's table of options.",
            "`python3 tests/docs/c_interface.py LIBRARY --update` writes it, and a test compares it. The [embedding guide](embedding.md)",
            "explains how the calls work together.", "", "## Rules", "", rules, "", "## Table of options", "",
            "A call refuses options that it does not read. `kaiju_option_describe` tells a program what is in these tables."]
    return "\n".join(head + options(library) + declarations(header)).rstrip() + "\n"


def main():
    library = ctypes.CDLL(sys.argv[1])
    wanted = page(library)
    if "--update" in sys.argv:
        PAGE.write_text(wanted)
    if PAGE.read_text() != wanted:
        print("docs/c_interface.md is not what capi/kaiju.h says: run tests/docs/c_interface.py LIBRARY --update")
        return 1
    print(f"docs/c_interface.md: {len(wanted.splitlines())} lines as in kaiju.h")
    return 0


sys.exit(main())
