"""What wrong and rude clients of kaiju-server get: broken requests, fields that are refused, pages of other sites.

    refusals.py KAIJU_SERVER MODEL [Class.test ...]
"""

import json
import pathlib
import socket
import subprocess
import sys
import unittest

from running import ASK, MODEL, SERVER, OfServer, Running, completion_bytes


class Help(unittest.TestCase):
    def test_options_have_groups_and_defaults_that_are_no_paths_of_the_build(self):
        told = subprocess.run([SERVER, "--help"], capture_output=True, text=True, timeout=60)
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        for part in ("\nListening:\n", "\nCache:\n", "\nSafety:\n", "\nFleet:\n", "  --port N  ", "(0 to 65535; default: 8080)",
                     "default: the bundled kaiju-nano)", "--tls-key", "  --limit TIER:LABEL=LIMIT  ", "  --heads FOLDER  "):
            self.assertIn(part, told.stdout)
        for raw in (":in [", ":DIR", "Needs:", "=[", "REQUIRED", str(pathlib.Path(MODEL).resolve().parent.parent)):
            self.assertNotIn(raw, told.stdout)
        self.assertLessEqual(max(map(len, told.stdout.splitlines())), 110)


class Rude(OfServer):
    def test_what_is_no_request_is_refused(self):
        for body, says in (("{", "not JSON"), ('{"temperature": 1e999}', "number in the body is too large"), ("[]", "must be a JSON object"), ("[" * 100 + "]" * 100, "nested more than 64"),
                           ("{}", "messages must be a list"), ('{"messages": [{"role": "cat", "content": "x"}]}', "roles are"),
                           ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "takes text only")):
            status, _, text = self.server.ask("POST", "/v1/chat/completions", body)
            self.assertEqual((status, says in json.loads(text)["error"]["message"]), (400, True), text)
        self.assertEqual(self.server.ask("GET", "/nowhere")[0], 404)
        self.assertEqual(self.server.ask("GET", "/v1/chat/completions")[0], 405)
        self.assertEqual(self.server.ask("POST", "/v1/embeddings", {})[0], 404)

    def test_what_is_no_json_is_told_with_its_place(self):
        status, _, text = self.server.ask("POST", "/v1/chat/completions", '{"messages": [],\n "n": x}')
        self.assertEqual((status, "line 2, column 7" in json.loads(text)["error"]["message"]), (400, True), text)

    def test_a_user_message_without_content_is_refused(self):
        for message in ({"role": "user"}, {"role": "user", "content": None}):
            status, answer = self.server.post("/v1/chat/completions", messages=[message])
            self.assertEqual((status, answer["error"]["param"]), (400, "messages[0].content"))
        answer = self.server.chat([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": None},
                                   {"role": "user", "content": "Hello?"}], max_tokens=4)
        self.assertEqual(len(answer["choices"]), 1)

    def test_fields_that_nobody_knows_are_left_alone_and_a_priority_is_refused(self):
        self.assertEqual(self.server.post("/v1/chat/completions", messages=ASK, max_tokens=1, store=False, metadata={"a": "b"},
                                          char_name="Pip", priority=0)[0], 200)
        for priority in (5, "high"):
            status, answer = self.server.post("/v1/chat/completions", messages=ASK, priority=priority)
            self.assertEqual((status, answer["error"]["param"], "of a key" in answer["error"]["message"]), (400, "priority", True))

    def test_the_least_top_p_is_the_described_one(self):
        described = self.server.get("/openapi.json")["paths"]["/v1/completions"]["post"]["requestBody"]["content"]
        least = described["application/json"]["schema"]["properties"]["top_p"]["minimum"]
        self.assertEqual(self.server.post("/v1/completions", prompt="a", max_tokens=1, top_p=least)[0], 200)
        self.assertEqual(self.server.post("/v1/completions", prompt="a", max_tokens=1, top_p=least / 2)[0], 400)

    def test_a_prompt_is_rendered_only_where_it_would_be_answered(self):
        for wrong, says in (({"temperature": 101}, "temperature must be"), ({"stop": [""]}, "stop has an empty text"),
                            ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "takes one of"),
                            ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported")):
            for path in ("/v1/chat/completions", "/v1/chat/completions/render"):
                status, answer = self.server.post(path, messages=ASK, **wrong)
                self.assertEqual(status, 400)
                self.assertIn(says, answer["error"]["message"])

    def raw(self, data, most=65536):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as connection:
            connection.sendall(data)
            answer = b""
            while len(answer) < most and (got := connection.recv(4096)):
                answer += got
                if b"\r\n\r\n" in answer and b"HTTP/1.1 200" in answer:
                    break
            return answer

    def test_broken_heads_get_an_answer_or_the_door(self):
        self.assertIn(b"400", self.raw(b"hello there\r\n\r\n"))
        self.assertIn(b"431", self.raw(b"GET / HTTP/1.1\r\nx: " + b"y" * 20000 + b"\r\n\r\n"))
        refused = self.raw(b"POST /tokenize HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n")
        self.assertIn(b"413", refused)
        self.assertIn(b"--body-bytes", refused)

    def test_a_client_that_reads_nothing_holds_nobody(self):
        slow = socket.create_connection(("127.0.0.1", self.server.port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.sendall(completion_bytes(messages=ASK, stream=True, max_tokens=2000, ignore_eos=True))
        self.assertEqual(self.server.chat(ASK, temperature=0)["choices"][0]["message"]["content"], "I grow blue tomatoes.")
        slow.close()
        self.wait_for(lambda: self.server.metric("kaiju_requests_unfinished") == 0)


class Elsewhere(OfServer):
    """Pages of other sites, and names that are not this machine's."""

    def status(self, server, host, origin=None, path="/v1/models", **more):
        headers = {"host": host.format(server.port), "content-type": "text/plain", **more}
        return server.ask("GET", path, None, {**headers, "origin": origin.format(server.port)} if origin else headers)[0]

    def test_pages_of_other_sites_and_other_names_are_refused(self):
        ours = "127.0.0.1:{}"
        for host in (ours, "localhost:{}", "LOCALHOST", "[::1]:{}", "127.0.0.1"):
            self.assertEqual(self.status(self.server, host), 200)
        for host in ("evil.example", "evil.example:{}", "127.0.0.1.evil.example", "192.168.0.1:{}"):
            self.assertEqual(self.status(self.server, host), 403)
        for origin in ("http://127.0.0.1:{}", "HTTP://127.0.0.1:{}"):
            self.assertEqual(self.status(self.server, ours, origin), 200)
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "http://localhost:{}", "http://127.0.0.1:{}.evil.example"):
            self.assertEqual(self.status(self.server, ours, origin), 403)
        status, _, text = self.server.ask("POST", "/chats", '{"character": "wren"}', {"origin": "http://evil.example", "content-type": "text/plain"})
        error = json.loads(text)["error"]
        self.assertEqual((status, error["code"], "--allow-origin http://evil.example" in error["message"]), (403, "foreign_origin", True))
        status, _, text = self.server.ask("GET", "/", None, {"host": "evil.example"})
        error = json.loads(text)["error"]
        self.assertEqual((status, error["code"], "--allow-host evil.example" in error["message"]), (403, "foreign_host", True))

    def test_pages_and_names_that_were_allowed_may_ask(self):
        server = Running("--allow-origin", "https://chat.example", "--allow-origin", "http://a.example:81", "--allow-host", "chat.example")
        self.addCleanup(server.stop)
        for host, origin, status in (("chat.example", "https://chat.example", 200), ("127.0.0.1", "https://chat.example", 200),
                                     ("localhost", "http://a.example:81", 200), ("localhost", "http://a.example", 403),
                                     ("chat.example:80", None, 200), ("other.example", None, 403), ("chat.example", "https://other.example", 403)):
            self.assertEqual(self.status(server, host, origin), status, (host, origin))

    def test_with_keys_every_name_is_answered_to(self):
        server = Running(keys=[{"key": "key-of-ann", "name": "ann"}])
        self.addCleanup(server.stop)
        self.assertEqual(self.status(server, "chat.example", authorization="Bearer key-of-ann"), 200)
        self.assertEqual(self.status(server, "chat.example", "http://evil.example", authorization="Bearer key-of-ann"), 403)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
