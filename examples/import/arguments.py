"""The command line of kaiju-import, which needs nothing but Python."""

import argparse
import os
import shlex
import sys

_DESCRIPTION = """Imports an open model as a kaiju checkpoint: int8 weights, the scales of int8 keys and values, the tokenizer.

    kaiju-import SOURCE --out FILE

SOURCE is a GGUF file or a Hugging Face folder (config.json, .safetensors files, tokenizer.json)."""

_EXAMPLES = """\
Examples:
  kaiju-import SmolLM2-135M-Instruct.Q4_1.gguf --out smollm2.safetensors
  kaiju-import Qwen3-0.6B --out qwen3.safetensors --set enable_thinking=false"""


def remedy() -> str:
    """How to get the packages that are missing. Debian's and Ubuntu's own pip refuses to install any."""
    file = shlex.quote(os.path.join(os.path.dirname(os.path.realpath(__file__)), "requirements.txt"))
    if sys.prefix != sys.base_prefix:  # a virtual environment, which has a pip of its own
        return f"{shlex.quote(sys.executable)} -m pip install -r {file}"
    return (
        f"python3 -m venv build/tools && build/tools/bin/pip install -r {file}, and start the importer with "
        "build/tools/bin/python"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kaiju-import",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SOURCE", help="a GGUF file or a Hugging Face folder")
    parser.add_argument("--out", metavar="FILE", required=True, help="the checkpoint to write")
    parser.add_argument("--name", help="the model's name in the checkpoint; otherwise what the source calls it")
    parser.add_argument(
        "--processes",
        type=int,
        default=min(os.cpu_count() or 1, 8),
        metavar="N",
        help="processes that quantise weights (default: one a processor, at most 8)",
    )
    parser.add_argument(
        "--kv",
        choices=("token", "constant"),
        default="token",
        help="scales of int8 keys and values: one for each token and KV head (default), or constant ones, "
        "which need less memory and lose more",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="a variable of the chat template, such as enable_thinking=false",
    )
    parser.add_argument(
        "--date",
        metavar="YYYY-MM-DD",
        help="the day that a chat template writes into its system message (default: 2025-01-01)",
    )
    parser.add_argument(
        "--balance",
        choices=("auto", "yes", "no"),
        default="auto",
        help="balance channels by what a sample text shows, so that int8 loses less (default: in Gemma's families)",
    )
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="a text like those that the model will see, to balance and calibrate with: its first 4,096 tokens "
        "(default: 320 tokens of a sample text)",
    )
    parser.add_argument("--no-chat", action="store_true", help="leave the chat template out")
    parser.add_argument("--no-check", action="store_true", help="do not compare the checkpoint with the float model")
    arguments = parser.parse_args()
    if not 1 <= arguments.processes <= 64:
        parser.error("--processes is 1 to 64")
    return arguments
