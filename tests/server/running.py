"""What the tests of kaiju-server share: a server that runs, and what is asked of it."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import re
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

SERVER, MODEL = sys.argv[1:3]
CARD = "Pip\nPip is a robot who keeps a garden. Pip grows blue tomatoes. Pip is afraid of snails."
ASK = [{"role": "system", "content": CARD}, {"role": "user", "content": "What do you grow?"}]


def wait_for(holds, seconds=30):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def refused(*arguments, store="none", port=0, code=1):
    """What a server says that does not start, and ends with the exit code `code`."""
    done = subprocess.run([SERVER, "--model", MODEL, "--port", str(port), "--store", store, *arguments],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stderr


def completion_bytes(**body):
    """A request for a chat completion, as a client writes it to its connection."""
    text = json.dumps(body).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(text)) + text


def png_card(card):
    """A PNG of one pixel with a card of Tavern's in it: the whole card, or its data."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    card = card if "spec" in card else {"spec": "chara_card_v2", "spec_version": "2.0", "data": card}
    text = b"chara\0" + base64.b64encode(json.dumps(card).encode())
    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"tEXt", text) +
            chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b""))


class Running:
    """A server on a port of its own, and its access log. With `certificate` it is asked over TLS and has to show it.
    `keys`: those of its users, as its file of keys has them."""

    def __init__(self, *arguments, store=None, certificate=None, keys=None, port=0):
        self.tls = ssl.create_default_context(cafile=certificate) if certificate else None
        self.folder = tempfile.TemporaryDirectory()
        self.log_file = pathlib.Path(self.folder.name, "access.log")
        if keys:
            file = pathlib.Path(self.folder.name, "keys.json")
            file.write_text(json.dumps({"keys": keys}))
            arguments += ("--keys", str(file))
        self.process = subprocess.Popen([SERVER, "--model", MODEL, "--port", str(port), "--threads", "1",
                                         "--log", str(self.log_file), "--store", store or self.folder.name + "/store",
                                         *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"https?://127.0.0.1:(\d+)$", line.strip())
        if not found:
            raise RuntimeError(f"{line}{self.process.stderr.read()}")
        self.port = int(found[1])

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and body of one request."""
        if self.tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.tls)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, dict(response.getheaders()), text

    def post(self, path, **body):
        status, _, text = self.ask("POST", path, body)
        return status, json.loads(text)

    def get(self, path):
        status, _, text = self.ask("GET", path)
        assert status == 200, text
        return json.loads(text)

    def chat(self, messages, **body):
        status, answer = self.post("/v1/chat/completions", messages=messages, **body)
        assert status == 200, answer
        return answer

    def metric(self, name):
        text = self.ask("GET", "/metrics")[2]
        return float(re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M)[1])

    def log(self):
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    @contextlib.contextmanager
    def replying(self, ask, *arguments, **options):
        """While it answers what `ask` asks for: gives the future of the answer."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reply = pool.submit(ask, *arguments, **options)
            wait_for(lambda: self.metric("vllm:num_requests_running") > 0)
            yield reply

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.ended()

    def ended(self):
        """Its exit code, once it has ended."""
        code = self.process.wait(60)
        self.process.stdout.close()
        self.process.stderr.close()
        self.folder.cleanup()
        return code


class OfServer(unittest.TestCase):
    start = Running

    @classmethod
    def setUpClass(cls):
        cls.server = cls.start()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    wait_for = staticmethod(wait_for)
