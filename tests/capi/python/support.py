"""What the tests of the Python package share: the library and models under test, children of fork(), interrupts.

A test is run as  python3 TEST.py LIBKAIJU MODEL KAIJU_MAKE [Class.test ...]"""

import json
import linecache
import os
import signal
import subprocess
import sys
import tempfile
import unittest

LIBRARY, MODEL, MAKE = sys.argv[1:4]
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
PACKAGE = os.path.join(ROOT, "capi", "python")
os.environ["KAIJU_LIBRARY"] = LIBRARY
sys.path.insert(0, PACKAGE)
import kaiju  # noqa: E402

HEADER = os.path.join(ROOT, "capi", "kaiju.h")


def stuck(*_):
    raise AssertionError("it does not end")


signal.signal(signal.SIGALRM, stuck)


class Test(unittest.TestCase):
    """A test that hangs fails after five minutes: a busy machine may need one for what takes ten seconds."""

    def setUp(self):
        signal.setitimer(signal.ITIMER_REAL, 300, 300)

    def tearDown(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


def made_model(*arguments, **config):
    """A model of kaiju-make: of a preset, or one layer that computes thousands of tokens a second."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "made.safetensors")
        if not arguments:
            named = {"name": "tiny", "vocab_size": 256, "d_model": 64, "n_heads": 1, "n_kv_heads": 1, "head_dim": 64,
                     "d_ff": 64, "context": 256, "norm_eps": 1e-5,
                     "layers": [{"kind": "global", "kv_slot": 0, "rope": 0}], **config}
            file = os.path.join(folder, "config.json")
            with open(file, "w") as out:
                json.dump(named, out)
            arguments = ("--config", file)
        subprocess.run([MAKE, *arguments, "--out", path], check=True, stdout=subprocess.DEVNULL)
        return kaiju.Model(path)


def in_child(body):
    """Runs body in a child of fork(): how it ended, 0 when body returned nothing, or what it raised."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends it where it hangs in C, too
        signal.alarm(20)
        try:
            body()
        except BaseException as error:
            os.write(theirs, repr(error).encode())
            os._exit(1)
        os._exit(0)
    os.close(theirs)
    with open(ours) as raised:
        said = raised.read()
    status = os.waitpid(child, 0)[1]
    return said or (os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status))


def in_python(script, library=LIBRARY, folder=PACKAGE, arguments=()):
    """Runs a script in a Python of its own; how it ended, and what it printed."""
    environment = dict(os.environ, KAIJU_LIBRARY=library, PYTHONPATH=folder)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr


def interrupted(nth, call):
    """Raises KeyboardInterrupt before the nth line of the package that call executes; whether there are so many. Not
    at a with statement: Python traces it once more before it leaves it, where no signal can interrupt."""
    left = nth

    def trace(frame, event, _):
        nonlocal left
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name in ("__del__", "close"):  # would be swallowed
            return None
        if not linecache.getline(code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            left -= event in ("call", "line")
        if left == 0:
            left = -1
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
