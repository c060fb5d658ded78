"""kaiju-server with --tls-certificate and --tls-key: what it promises without, it keeps over TLS.

    tls.py KAIJU_SERVER MODEL [Class.test ...]

The certificates are made by the program openssl; without it the tests are skipped (exit code 77).
"""

import json
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

if not shutil.which("openssl"):
    print("skipped: no program openssl")
    sys.exit(77)

from running import OfServer, Running, completion_bytes, refused

ASK = [{"role": "user", "content": "What do you grow?"}]
FOLDER = tempfile.TemporaryDirectory()


def path(name):
    return str(pathlib.Path(FOLDER.name, name))


def make(name, *kind):
    """A certificate for 127.0.0.1, signed by itself, and its key: their files."""
    subprocess.run(["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=kaiju", "-addext",
                    "subjectAltName=IP:127.0.0.1", *kind, "-keyout", path(name + ".key"), "-out", path(name + ".pem")],
                   check=True, capture_output=True)
    return path(name + ".pem"), path(name + ".key")


CERTIFICATE, KEY = make("own", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def start(*arguments):
    return Running("--tls-certificate", CERTIFICATE, "--tls-key", KEY, *arguments, certificate=CERTIFICATE)


class OverTls(OfServer):
    start = staticmethod(start)

    def connect(self, **options):
        plain = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        self.addCleanup(plain.close)
        context = ssl.create_default_context(cafile=CERTIFICATE)
        for name, value in options.items():
            setattr(context, name, value)
        connection = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.addCleanup(connection.close)
        return connection

    def test_a_stream_spells_the_reply(self):
        whole = self.server.chat(ASK, seed=1, max_tokens=40)
        status, headers, text = self.server.ask("POST", "/v1/chat/completions", {"messages": ASK, "seed": 1, "max_tokens": 40, "stream": True})
        self.assertEqual(status, 200)
        lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        self.assertEqual(lines.pop(), "[DONE]")
        said = "".join(choice["delta"].get("content", "") for line in lines for choice in json.loads(line)["choices"])
        self.assertEqual(said, whole["choices"][0]["message"]["content"])

    def test_a_connection_is_kept_for_the_next_request_and_ends_with_a_goodbye(self):
        connection = self.connect()
        for last in (False, True):
            connection.sendall(b"GET /version HTTP/1.1\r\n" + (b"connection: close\r\n" if last else b"") + b"\r\n")
            answer = b""
            while b"}" not in answer:
                answer += connection.recv(4096)
            self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer)
        self.assertEqual(connection.recv(1), b"")  # ssl.SSLEOFError where the server says no goodbye

    def test_a_body_that_is_too_long_is_told_so_before_it_is_read(self):
        connection = self.connect()
        connection.sendall(b"POST /tokenize HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n" + b"x" * 100000)
        self.assertIn(b" 413 ", connection.recv(4096))

    def leave(self, how):
        connection = self.connect()
        before = self.server.metric("kaiju_disconnects_total")
        connection.sendall(completion_bytes(messages=ASK, stream=how != "unanswered", max_tokens=3000, ignore_eos=True))
        if how == "unanswered":
            self.wait_for(lambda: self.server.metric("kaiju_requests_unfinished") > 0)
        else:
            self.assertIn(b"200", connection.recv(4096))
        if how == "goodbye":
            connection.settimeout(5)
            try:
                connection.unwrap()
            except (OSError, ssl.SSLError):  # data of the stream comes before the server's goodbye
                pass
        connection.close()
        self.wait_for(lambda: self.server.metric("kaiju_requests_unfinished") == 0)
        self.wait_for(lambda: self.server.metric("kaiju_disconnects_total") == before + 1)

    def test_a_client_that_closes_a_stream_cancels_its_request(self):
        self.leave("closed")

    def test_a_client_that_says_goodbye_first_cancels_its_request(self):
        self.leave("goodbye")

    def test_a_client_that_leaves_before_any_answer_cancels_its_request(self):
        self.leave("unanswered")

    def test_only_tls_1_2_and_newer_is_spoken(self):
        self.assertEqual(self.connect(maximum_version=ssl.TLSVersion.TLSv1_2).version(), "TLSv1.2")
        self.assertEqual(self.connect(minimum_version=ssl.TLSVersion.TLSv1_3).version(), "TLSv1.3")
        done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{self.server.port}", "-tls1_1", "-cipher",
                               "ALL:@SECLEVEL=0"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("alert protocol version", done.stderr)

    def test_handshakes_that_break_off_leave_nothing(self):
        def connections():
            return self.server.metric("kaiju_connections") - 1  # the one that asks

        self.wait_for(lambda: connections() == 0)
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01" + b"\xff" * 2000, b"\x00" * 50):
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", self.server.port)) as one:
                    one.sendall(said)
        self.wait_for(lambda: connections() == 0, 5)
        silent = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(20)]
        self.wait_for(lambda: connections() == 20, 5)
        self.assertEqual(self.server.ask("GET", "/health")[0], 200)  # nobody waits for them
        self.wait_for(lambda: connections() == 0, 15)  # Limits::handshake_seconds
        for one in silent:
            self.assertEqual(one.recv(1), b"")
            one.close()


class Ending(unittest.TestCase):
    def test_sigterm_lets_replies_finish(self):
        server = start()
        with server.replying(server.chat, ASK, max_tokens=600, ignore_eos=True, seed=1) as reply:
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(reply.result()["usage"]["completion_tokens"], 600)
        self.assertEqual(server.ended(), 0)


class Wrong(unittest.TestCase):
    def test_one_option_without_the_other_is_refused(self):
        self.assertIn("--tls-key", refused("--tls-certificate", CERTIFICATE, code=2))
        self.assertIn("--tls-certificate", refused("--tls-key", KEY, code=2))

    def test_what_is_wrong_with_a_file_is_told_with_its_name(self):
        other = make("other", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")[1]
        rsa = make("rsa", "-newkey", "rsa:2048")[1]
        pathlib.Path(path("empty")).touch()
        pathlib.Path(path("words")).write_text("no certificate")
        subprocess.run(["openssl", "ec", "-in", KEY, "-out", path("locked"), "-aes256", "-passout", "pass:secret"],
                       check=True, capture_output=True)
        for certificate, key, file, says in ((path("none"), KEY, path("none"), "cannot be read"),
                                             (CERTIFICATE, path("none"), path("none"), "cannot be read"),
                                             (FOLDER.name, KEY, FOLDER.name, "cannot be read"),
                                             (path("empty"), KEY, path("empty"), "empty"),
                                             (path("words"), KEY, path("words"), "no certificate in PEM"),
                                             (CERTIFICATE, path("words"), path("words"), "no key in PEM"),
                                             (CERTIFICATE, path("locked"), path("locked"), "without a passphrase"),
                                             (CERTIFICATE, other, other, "is not the key of the certificate"),
                                             (CERTIFICATE, rsa, rsa, "is not the key of the certificate")):
            with self.subTest(certificate=certificate, key=key):
                told = refused("--tls-certificate", certificate, "--tls-key", key)
                self.assertIn(file, told)
                self.assertIn(says, told)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
