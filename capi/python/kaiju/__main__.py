"""python -m kaiju: chat with a model, import one, see what is there."""

from __future__ import annotations

import argparse
import os
import sys
from typing import List, Optional

_EXAMPLES = """\
Examples:
  python -m kaiju chat                             talk to the bundled model
  python -m kaiju chat --character silas           as one of the bundled characters (--list shows them)
  echo 'Hello!' | python -m kaiju chat             one turn a line
  python -m kaiju import SOURCE --out FILE         import a GGUF file or a Hugging Face folder
  python -m kaiju chat --model FILE                talk to it
  python -m kaiju model FILE                       what a model is
  python -m kaiju options                          all options, as Python's keywords
"""
_IMPORT_NEEDS = ("numpy", "jinja2")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kaiju", description="Language models in int8, by kaiju.",
                                     epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="store_true", help="print the versions and the library's path")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    chat = commands.add_parser("chat", help="talk to a model, on a terminal or line by line from a pipe")
    chat.add_argument("--model", metavar="FILE", help="model file (default: the bundled one)")
    chat.add_argument("--character", metavar="FILE|NAME",
                      help="card file, or name of a bundled character (default for the bundled model: the first one)")
    chat.add_argument("--system", metavar="TEXT", help="instructions, for imported models")
    chat.add_argument("--list", action="store_true", help="list the bundled characters")
    chat.add_argument("--say", metavar="TEXT", action="append", help="say this and print the reply; repeatable")
    chat.add_argument("--seed", type=int, metavar="N", help="default: 0; random on a terminal")
    chat.add_argument("--max-tokens", type=int, default=256, metavar="N", help="longest reply (default: 256)")
    chat.add_argument("--temperature", type=float, default=0.7, metavar="X", help="0: greedy (default: 0.7)")
    chat.add_argument("--top-p", type=float, default=0.9, metavar="X", help="default: 0.9")
    chat.add_argument("--min-p", type=float, default=0.05, metavar="X", help="default: 0.05")
    chat.add_argument("--top-k", type=int, default=0, metavar="K", help="0: all (default: 0)")
    chat.add_argument("--repetition-penalty", type=float, default=1.05, metavar="X", help="default: 1.05")
    chat.add_argument("--threads", type=int, default=0, metavar="N", help="default: one for each physical core")
    chat.add_argument("--backend", default="auto", metavar="NAME", help="default: auto")

    commands.add_parser("import", add_help=False, help="import an open model: SOURCE --out FILE, or --help")
    model = commands.add_parser("model", help="print what a model is")
    model.add_argument("file", metavar="FILE", nargs="?", help="default: the bundled model")
    commands.add_parser("options", help="print all options")
    return parser


def _import(arguments: List[str]) -> int:
    """Runs the importer as its own program does."""
    import importlib.util
    import runpy

    from ._library import checkout_path, package_path

    if sys.version_info < (3, 10):
        sys.exit("python -m kaiju import: the importer needs Python 3.10 or newer; this is "
                 f"{sys.version_info[0]}.{sys.version_info[1]}")
    programs = [package_path("importer", "kaiju-import"), checkout_path("examples", "import", "kaiju-import")]
    program = next((path for path in programs if path and os.path.isfile(path)), None)
    if program is None:
        sys.exit("python -m kaiju import: this copy of the package has no importer: install the wheel")
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.realpath(program)))
    importlib.import_module("arguments").parse()  # --help and mistakes, before anything that may be missing
    missing = [name for name in _IMPORT_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        pip = f"pip install {' '.join(missing)}"
        if sys.prefix == sys.base_prefix:  # no virtual environment: Debian's and Ubuntu's own pip installs nothing
            pip = f"python3 -m venv build/tools && build/tools/bin/{pip}, and start it with build/tools/bin/python"
        verb = "is" if len(missing) == 1 else "are"
        sys.exit(f"python -m kaiju import: {' and '.join(missing)} {verb} missing: {pip}")
    runpy.run_path(program, run_name="__main__")
    return 0


def _model(file: Optional[str]) -> int:
    import kaiju

    with kaiju.Model(file) as model:
        facts = [("name", model.name), ("digest", model.digest), ("parameters", f"{model.parameters:,}"),
                 ("weight bytes", f"{model.weight_bytes:,}"), ("vocabulary", f"{model.vocabulary:,}"),
                 ("context", f"{model.context:,}"), ("chat format", "yes" if model.chats else "no"),
                 ("labels", ", ".join(model.labels) or "none"), ("file", os.fsdecode(model.path))]
    for name, value in facts:
        print(f"{name:<13} {value}")
    return 0


def _options() -> int:
    import kaiju

    for option in kaiju.option_list():
        kind = {"i": "int", "f": "float", "s": "str"}[option.type] + (", or a list" if option.repeatable else "")
        default = f"; default {option.standard:g}" if option.type != "s" and not option.repeatable else ""
        print(f"{option.name}\n    {option.help} ({kind}{default})")
    return 0


def main(arguments: Optional[List[str]] = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["import"]:
        return _import(given[1:])
    parser = _parser()
    read = parser.parse_args(given)
    try:
        if read.version:
            import kaiju

            print(f"kaiju {kaiju.version()}, {kaiju.build_info()}\n{kaiju.loaded_from}")
            return 0
        if read.command == "chat":
            from .chat import run

            return run(read)
        if read.command == "model":
            return _model(read.file)
        if read.command == "options":
            return _options()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # of the reader of what is printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:
        from .errors import Error

        if not isinstance(error, Error):
            raise
        print(f"python -m kaiju: {error}", file=sys.stderr)
        return 1
    parser.print_help()
    return 0 if not given else 2


if __name__ == "__main__":
    sys.exit(main())
