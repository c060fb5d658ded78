"""What the tests of examples/import share: a broken promise ends the program."""

import contextlib
import pathlib
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
