"""kaiju-server as it is operated: how it ends by a signal, its log, and what keeps it from starting.

    operation.py KAIJU_SERVER MODEL [Class.test ...]
"""

import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from running import ASK, OfServer, Running, completion_bytes, refused, wait_for

LONG = {"ignore_eos": True, "max_tokens": 3500, "loop_guard": False, "seed": 1}


class Ending(unittest.TestCase):
    def asked(self, server, ask, how, *arguments):
        """What `ask` answers, during which the server gets a signal."""
        with server.replying(ask, *arguments) as reply:
            time.sleep(0.3)
            server.process.send_signal(how)
            return reply.result(60)

    def test_sigterm_lets_replies_finish_and_takes_nothing_new(self):
        server = Running()
        with server.replying(server.chat, ASK, max_tokens=600, ignore_eos=True, seed=1) as reply:
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            for method, path, body in (("GET", "/health", None), ("POST", "/v1/chat/completions", {"messages": ASK}), ("GET", "/chats", None)):
                status, _, text = server.ask(method, path, body)
                self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "draining"))
            self.assertEqual(reply.result()["usage"]["completion_tokens"], 600)
        self.assertEqual(server.ended(), 0)

    def test_a_reply_that_outlives_the_drain_time_is_cut_kept_and_answered(self):
        with tempfile.TemporaryDirectory() as folder:
            for stream in (False, True):
                server = Running("--drain-seconds", "1", store=folder + "/store")
                answer = self.asked(server, server.ask, signal.SIGTERM, "POST", "/v1/chat/completions",
                                    {"messages": ASK, "stream": stream, **LONG})[2]
                if stream:
                    self.assertTrue(answer.endswith("data: [DONE]\n\n"), answer[-200:])
                    self.assertIn('"finish_reason":"abort"', answer)
                else:
                    choice = json.loads(answer)["choices"][0]
                    self.assertEqual((choice["finish_reason"], len(choice["message"]["content"]) > 20), ("abort", True))
                self.assertEqual(server.process.wait(30), 0)
                self.assertEqual([line["finish_reason"] for line in server.log() if line["path"] == "/v1/chat/completions"], ["abort"])
                server.ended()
            server = Running("--drain-seconds", "0", store=folder + "/store")
            chat = server.post("/chats", character="wren")[1]["id"]
            answer = self.asked(server, server.ask, signal.SIGHUP, "POST", f"/chats/{chat}/say", {"text": "Go on.", **LONG})[2]
            self.assertEqual(json.loads(answer)["reason"], "cancelled")
            self.assertEqual(server.ended(), 0)
            server = Running(store=folder + "/store")
            turn = server.get(f"/chats/{chat}")["turns"][-1]
            self.assertEqual((turn["user"], turn["replies"], turn["reason"]), ("Go on.", [json.loads(answer)["reply"]], "cancelled"))
            server.stop()

    def test_a_second_signal_waits_for_no_reply(self):
        server = Running()
        with server.replying(server.chat, ASK, max_tokens=3000, ignore_eos=True, seed=1) as reply:
            for _ in range(2):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            self.assertIsNotNone(reply.exception(30))
        self.assertEqual(server.ended(), 0)


class Log(OfServer):
    def test_an_answer_carries_the_requests_id_and_trace_and_so_does_the_log(self):
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        status, headers, _ = self.server.ask("POST", "/tokenize", {"prompt": "a"}, {"x-request-id": "mine-1", "traceparent": trace})
        self.assertEqual((status, headers["X-Request-Id"], headers["traceparent"]), (200, "mine-1", trace))
        self.wait_for(lambda: ("mine-1", trace, 200) in [(line["id"], line.get("traceparent"), line["status"])
                                                         for line in self.server.log()])

    def test_sigusr1_opens_the_log_anew(self):
        server = Running()
        self.addCleanup(server.stop)
        server.get("/version")
        moved = server.log_file.with_suffix(".1")
        server.log_file.rename(moved)
        server.process.send_signal(signal.SIGUSR1)
        wait_for(server.log_file.exists)
        server.get("/health")
        wait_for(server.log)  # the line comes after the answer
        self.assertEqual([line["path"] for line in server.log()], ["/health"])
        self.assertIn("/version", moved.read_text())

    def test_the_log_tells_a_finished_reply_from_one_whose_client_left(self):
        server = Running()
        self.addCleanup(server.stop)
        server.chat(ASK, temperature=0)
        server.chat(ASK, max_tokens=1, n=2)
        for stream in (False, True):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(completion_bytes(messages=ASK, stream=stream, **LONG))
                wait_for(lambda: server.metric("kaiju_requests_unfinished") > 0)
            wait_for(lambda: server.metric("kaiju_requests_unfinished") == 0)
        ended = []
        while len(ended) < 4:
            ended = [(line["finish_reason"], line.get("client_left", False)) for line in server.log() if line["method"] == "POST"]
        self.assertEqual(ended, [("stop", False), (["length", "length"], False), ("abort", True), ("abort", True)])


class Starting(unittest.TestCase):
    def test_a_port_in_use_is_told(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.assertIn(f"127.0.0.1, port {port}: Address already in use", refused(port=port))

    def test_what_keeps_a_server_from_starting_is_told(self):
        self.assertIn("--address must be an IP address", refused("--address", "nowhere"))
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "pip.txt").write_text("Pip is a robot.")
            self.assertIn("pip.txt: ", refused("--characters", folder, store=folder + "/store"))
            missing = folder + "/no/store"
            self.assertIn("no/store: the store cannot be opened", refused(store=missing))
            self.assertFalse(pathlib.Path(missing).parent.exists())
            self.assertIn("no/kv: the folder for KV cannot be made", refused("--kv", folder + "/no/kv", store=folder + "/other"))

    def test_the_script_that_starts_it_names_the_models_that_it_knows(self):
        script = pathlib.Path(__file__).parents[2] / "examples/server/run.sh"
        for arguments in (["--model", "nosuch"], ["--port", "1", "--model=nosuch"]):
            done = subprocess.run(["sh", script, *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, "there is no model nosuch" in done.stderr, "smollm2" in done.stderr), (1, True, True), done.stderr)

    def test_servers_may_share_a_store_and_not_a_folder_of_kv(self):
        with tempfile.TemporaryDirectory() as folder:
            store = folder + "/store"
            first = Running(store=store)
            self.addCleanup(first.stop)
            self.assertIn("another server keeps its KV there", refused(store=store))
            second = Running("--kv", "none", store=store)
            self.addCleanup(second.stop)
            chat = first.post("/chats", character="wren")[1]["id"]
            self.assertEqual(second.post(f"/chats/{chat}/say", text="Hello!", max_tokens=4)[0], 200)
            self.assertEqual(first.post(f"/chats/{chat}/say", text="Hello!", max_tokens=4)[1]["turn"], 2)

    def test_without_a_store_the_page_says_so(self):
        server = Running(store="none")
        self.addCleanup(server.stop)
        for path in ("/", "/chats", "/characters"):
            status, _, text = server.ask("GET", path)
            self.assertEqual((status, "--store none" in text), (404, True))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
