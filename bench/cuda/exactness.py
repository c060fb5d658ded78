"""What exactness costs whole steps: times kaiju-bench step by the contract, with the hardware's exp2 in attention, and for prompts also with
scores computed once (both give other bits). The programs take turns on one GPU. Prints the medians of the turns, and by how much the contract's
are longer.

    cmake --build --preset cuda --target kaiju-bench kaiju-bench-exp2 kaiju-bench-one-pass
    python3 bench/cuda/exactness.py small.safetensors [--programs build/cuda/bin] [--turns 3] [options of kaiju-bench step]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

PROGRAMS = {"contract": "kaiju-bench", "hardware exp2": "kaiju-bench-exp2", "one pass": "kaiju-bench-one-pass"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--programs", default="build/cuda/bin")
    parser.add_argument("--turns", type=int, default=3)
    options, of_step = parser.parse_known_args()
    if options.turns < 1:
        parser.error("argument --turns: give a number from 1 on")
    missing = [program for program in PROGRAMS.values() if not os.access(f"{options.programs}/{program}", os.X_OK)]
    if missing:
        sys.exit(f"exactness.py: {options.programs} has no {', '.join(missing)}; build them (see --help) or name their folder with --programs")
    steps = {}  # operation and shape: milliseconds of every turn by program
    for _ in range(options.turns):
        for kind, program in PROGRAMS.items():
            run = subprocess.run([f"{options.programs}/{program}", "step", options.model, "--backend", "cuda", "--json", *of_step], stdout=subprocess.PIPE)
            if run.returncode != 0:
                sys.exit(run.returncode)  # it has said why
            for line in json.loads(run.stdout)["lines"]:
                steps.setdefault((line["operation"], line["shape"]), {}).setdefault(kind, []).append(line["microseconds"] / 1000)
    print("| | " + " | ".join(PROGRAMS) + " |\n| --- | --- | --- | --- |")
    for (operation, shape), turns in steps.items():
        times = {kind: statistics.median(of_turns) for kind, of_turns in turns.items()}
        exact = times["contract"]
        cells = [f"{exact:.2f} ms"]
        for kind in list(PROGRAMS)[1:]:
            one_pass_too = kind != "one pass" or operation != "decode"  # the kernels of decode find scores once anyway
            cells.append(f"{times[kind]:.2f} ms ({100 * (exact / times[kind] - 1):.1f}%)" if one_pass_too else "")
        print(f"| {operation}, {shape} | " + " | ".join(cells) + " |")


main()
