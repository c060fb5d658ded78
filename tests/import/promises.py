"""What the tests of examples/import share: a broken promise ends the program."""

import contextlib
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True  # nothing is left in the source tree
root = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(root / "examples/import"))

kept = 0


def promise(holds, name):
    global kept
    if not holds:
        sys.exit(f"broken: {name}")
    kept += 1


@contextlib.contextmanager
def refusal(name, *words):
    """The block is refused with a message that has these words."""
    from refused import Refused

    try:
        yield
    except Refused as problem:
        missing = [word for word in words if word not in str(problem)]
        promise(not missing, f"the refusal of {name} says {missing}; it says: {problem}")
    else:
        sys.exit(f"broken: {name} is refused")


def engine_log_probs(programs, path, case, ids, width):
    """[tokens, width] log-probabilities that kaiju-score computes with the checkpoint at `path`."""
    import numpy as np  # not all tests need it

    tokens, logits = f"{path}.tokens", f"{path}.npy"
    with open(tokens, "w") as file:
        file.write(" ".join(map(str, ids)))
    scored = subprocess.run(
        [programs / "kaiju-score", path, "--tokens", tokens, "--logits", logits], capture_output=True, text=True
    )
    promise(scored.returncode == 0, f"{case}: kaiju-score computes it: {scored.stderr}")
    found = np.load(logits).reshape(len(ids), -1)[:, :width].astype(np.float64)
    return found - np.log(np.exp(found - found.max(1, keepdims=True)).sum(1, keepdims=True)) - found.max(1, keepdims=True)
