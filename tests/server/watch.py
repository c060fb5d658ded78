"""What the server finds out about its own machine: flipped bits of the weights, and canaries that reply otherwise.

    python3 watch.py KAIJU_SERVER MODEL"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

from running import Running, refused, wait_for

SERVER, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CANARY = os.path.join(os.path.dirname(SERVER), "kaiju-canary")


def canary(*arguments):
    done = subprocess.run([CANARY, MODEL, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def value(server, name):
    _, _, text = server.ask("GET", "/metrics")
    return float(re.search(rf"^{name}\S* (\S+)$", text, re.M).group(1))


def flip_a_weight(process):
    """One bit in the middle of the largest place where the process has mapped the model; its address and the byte before."""
    maps = pathlib.Path(f"/proc/{process}/maps").read_text().splitlines()
    places = [line.split()[0].split("-") for line in maps if line.endswith(MODEL)]
    first, end = max(((int(a, 16), int(b, 16)) for a, b in places), key=lambda place: place[1] - place[0])
    at = (first + end) // 2
    with open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:
        memory.seek(at)
        byte = memory.read(1)[0]
        memory.seek(at)
        memory.write(bytes([byte ^ 0x10]))
    return at, byte


class Watch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "canaries.json")

    def start(self, *arguments):
        server = Running(*arguments)
        self.addCleanup(server.stop)
        return server

    def test_all_weights_are_looked_at_while_it_serves(self):
        server = self.start("--scrub-mib", "4096")
        wait_for(lambda: value(server, "kaiju_scrub_passes_total") >= 3)
        server.chat([{"role": "user", "content": "Hello!"}], max_tokens=4)
        self.assertGreaterEqual(value(server, "kaiju_scrubbed_bytes_total"), 3 * os.path.getsize(MODEL) * 0.99)
        self.assertLess(abs(value(server, "kaiju_scrub_last_pass_seconds") - time.time()), 60)
        self.assertEqual(value(server, "kaiju_machine_damaged"), 0)
        self.assertEqual(server.get("/health")["status"], "ok")

    def test_a_flipped_bit_is_found_and_told(self):
        server = self.start("--scrub-mib", "4096")
        wait_for(lambda: value(server, "kaiju_scrub_passes_total") >= 1)
        try:
            flip_a_weight(server.process.pid)
        except OSError as error:
            self.skipTest(f"this process may not write to another's memory: {error}")
        wait_for(lambda: server.ask("GET", "/health")[0] == 503)
        self.assertIn("damaged", json.loads(server.ask("GET", "/health")[2])["error"]["message"])
        self.assertEqual(value(server, "kaiju_machine_damaged"), 1)
        server.process.terminate()
        self.assertIn("the weights in memory are damaged", server.process.stderr.read())

    def test_canaries_are_replied_to_and_one_that_differs_is_told(self):
        status, said = canary("--out", str(self.file))
        self.assertEqual((status, len(said.splitlines())), (0, 6), said)
        self.assertEqual(canary("--check", str(self.file), "--threads", "1")[0], 0)
        server = self.start("--canaries", str(self.file), "--canary-seconds", "1")
        wait_for(lambda: value(server, "kaiju_canaries_total") >= 2)
        self.assertEqual(value(server, "kaiju_canaries_wrong_total"), 0)
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        server.stop()
        made = json.loads(self.file.read_text())
        made["canaries"][0]["digest"] = "0" * 16
        self.file.write_text(json.dumps(made))
        status, said = canary("--check", str(self.file))
        self.assertEqual(status, 1)
        self.assertIn("DIFFERS", said)
        server = self.start("--canaries", str(self.file), "--canary-seconds", "1")
        wait_for(lambda: server.ask("GET", "/health")[0] == 503)
        self.assertEqual(value(server, "kaiju_canaries_wrong_total"), 1)

    def test_canaries_of_another_model_are_refused(self):
        self.file.write_text(json.dumps({"model": "0" * 32, "canaries": [{"number": 0, "prompt_tokens": 3, "reply_tokens": 2, "digest": "0" * 16}]}))
        self.assertIn("another model", refused("--canaries", str(self.file)))
        self.file.write_text("{}")
        self.assertIn("kaiju-canary MODEL --out FILE", refused("--canaries", str(self.file)))
        self.assertEqual(canary("--check", str(self.file))[0], 1)

    def test_surprise_is_counted_by_character(self):
        server = self.start()
        server.chat([{"role": "user", "content": "Hello!"}], max_tokens=8)
        _, _, text = server.ask("GET", "/metrics")
        nats = float(re.search(r'^kaiju_reply_surprise_nats_total\{.*character="-"\} (\S+)$', text, re.M).group(1))
        self.assertGreater(nats, 0)
        character = server.get("/characters")["characters"][0]["id"]
        _, chat = server.post("/chats", character=character)
        status, _ = server.post(f"/chats/{chat['id']}/say", text="Hello!")
        self.assertEqual(status, 200)
        _, _, text = server.ask("GET", "/metrics")
        tokens = re.search(rf'^kaiju_reply_tokens_total\{{.*character="{character}"\}} (\S+)$', text, re.M)
        self.assertGreater(float(tokens.group(1)), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
