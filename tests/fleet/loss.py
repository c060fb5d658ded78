"""A fleet of which parts are lost answers every request, with the tokens of one undisturbed server: a short run of
examples/fleet/loss.py, whose seed it prints.

    loss.py ROOT KAIJU_SERVER MODEL
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import unittest

ROOT, SERVER, MODEL = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
FLEET = ROOT / "examples" / "fleet"
sys.path.insert(0, str(FLEET))
import files  # noqa: E402
import load  # noqa: E402
from fleet import find_haproxy  # noqa: E402

SEED = int(os.environ.get("KAIJU_TEST_SEED", random.getrandbits(30)))
SHORT = {"kills": 2, "router-kills": 1, "drains": 1, "stops": 1, "cuts": 1, "store-kills": 3, "stop-seconds": 3, "stall-seconds": 4,
         "requests-before": 24, "requests-between": 12, "check-timeout": "300ms"}


def lost(*names):
    """What loss.py says of these trials, which keep their promises; without those that this machine cannot have."""
    command = [sys.executable, str(FLEET / "loss.py"), SERVER, "--model", MODEL, "--json", "--seed", str(SEED), "--only", *names]
    for name, value in SHORT.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Loss(unittest.TestCase):
    def promises(self, name):
        rows = lost(name)
        if name not in rows:
            self.skipTest("this machine gives no namespaces")
        self.assertEqual((rows[name]["wrong"], rows[name]["not_answered"]), (0, 0), rows)
        return rows[name]

    def test_a_killed_server(self):
        self.assertGreaterEqual(self.promises("kills")["requests"], 40)

    def test_a_killed_router(self):
        self.promises("router")

    def test_a_server_that_ends_in_peace(self):
        self.promises("drain")

    def test_a_stopped_server(self):
        self.promises("slow")

    def test_a_cut_network(self):
        self.promises("cut")

    def test_a_full_disk(self):
        self.assertGreater(self.promises("disk")["refused"], 0)

    def test_a_killed_server_with_the_store_open(self):
        self.promises("store")


class Check(unittest.TestCase):
    """What would be found, is found."""

    def test_one_wrong_token_is_found(self):
        from fleet import Server

        server = Server(SERVER, MODEL)
        self.addCleanup(server.end)
        one = load.Load(f"http://{server.address}", chat_count=1, at_once=1, seed=SEED)
        one.start()
        one.wait_for(3)
        one.stop()
        self.assertEqual(load.wrong(one.answers, server.port), [])
        one.answers[1].tokens[-1] ^= 1
        self.assertEqual(load.wrong(one.answers, server.port), [one.answers[1].number])


if __name__ == "__main__":
    print("seed", SEED, flush=True)
    try:
        find_haproxy()
    except files.Refused as refused:
        print(f"skipped: {refused}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
