"""Replicas: replies are those of one engine, a chat finds its KV where it was, all replicas work, and what is changed
while the server serves is changed on all of them.

    replicas.py KAIJU_SERVER MODEL [Class.test ...]"""

import concurrent.futures
import pathlib
import shutil
import sys
import tempfile
import unittest

from running import MODEL, Running, refused, wait_for

try:
    from checkpoint_files import changed
except ImportError as missing:
    print(f"skipped: {missing}")
    raise SystemExit(77) from None

REPLICAS = 3
CHATS = 12
ON_GPUS = shutil.which("nvidia-smi") is not None  # the server's choice where there are some
SETTINGS = {"temperature": 0.7, "seed": 5, "max_tokens": 8}
TEXTS = "What do you like?", "And then?", "Why?"


def card(number):
    """Long enough for blocks of KV that others can share."""
    return f"Pip {number}\n" + f"Pip number {number} is a robot who keeps a garden. " * 6


def ask_all(server):
    """The replies of all chats, which go on beside each other, and the cached tokens of their last turns."""

    def chat(number):
        messages = [{"role": "system", "content": card(number % 5)}]
        for text in TEXTS:
            messages.append({"role": "user", "content": f"{text} I am {number}."})
            answer = server.chat(messages, prompt_cache_key=f"pip{number % 5}", **SETTINGS)
            messages.append(answer["choices"][0]["message"])
        return messages, answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    with concurrent.futures.ThreadPoolExecutor(CHATS) as pool:
        return list(pool.map(chat, range(CHATS)))


def of_replicas(server, metric):
    return [server.metric(f'{metric}{{model_name="kaiju-nano",replica="{i}"}}') for i in range(REPLICAS)]


class Replicas(unittest.TestCase):
    def start(self, *arguments, **options):
        server = Running("--replicas", str(REPLICAS), *arguments, **options)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def test_replies_are_those_of_one_engine_and_chats_find_their_kv(self):
        server, one = self.start(), Running()
        self.addCleanup(one.stop)
        self.assertEqual(server.get("/health")["replicas"], REPLICAS)
        found, expected = ask_all(server), ask_all(one)
        self.assertEqual([messages for messages, _ in found], [messages for messages, _ in expected])
        if ON_GPUS:  # which may have begun the token after the last one, or not
            for (_, cached), (_, alone) in zip(found, expected):
                self.assertAlmostEqual(cached, alone, delta=1)
        else:
            self.assertEqual([cached for _, cached in found], [cached for _, cached in expected])
        requests = of_replicas(server, "kaiju_replica_requests_total")
        self.assertEqual(sum(requests), CHATS * len(TEXTS))
        self.assertGreater(min(requests), 0, requests)
        self.assertEqual(of_replicas(server, "kaiju_replica_works"), [1] * REPLICAS)
        wait_for(lambda: of_replicas(server, "kaiju_replica_requests_unfinished") == [0] * REPLICAS)

    def test_stored_chats_are_kept_on_all_of_them_over_a_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(store=folder + "/store")
            characters = [one["id"] for one in server.get("/characters")["characters"]]
            chats = [server.post("/chats", character=character)[1]["id"] for character in characters for _ in range(2)]

            def say(chat):
                status, answer = server.post(f"/chats/{chat}/say", text="What do you like about the garden?", **SETTINGS)
                self.assertEqual(status, 200, answer)
                return answer

            with concurrent.futures.ThreadPoolExecutor(len(chats)) as pool:
                self.assertEqual(len(list(pool.map(say, chats))), len(chats))
            self.assertGreater(sum(count > 0 for count in of_replicas(server, "kaiju_replica_requests_total")), 1)
            self.assertEqual(server.stop(), 0)
            server = self.start(store=folder + "/store")
            for chat in chats:
                say(chat)
            # A line of the log follows its answer.
            wait_for(lambda: [line["restored"] for line in server.log() if "restored" in line] == [True] * len(chats))

    def test_limits_and_shares_hold_on_all_of_them(self):
        server = self.start("--limit", "strict:distress=0", "--tier", "strict")
        with concurrent.futures.ThreadPoolExecutor(CHATS) as pool:
            answers = list(pool.map(lambda i: server.chat([{"role": "user", "content": f"Hello, I am {i}."}], **SETTINGS),
                                    range(CHATS)))
        self.assertEqual({answer["choices"][0]["finish_reason"] for answer in answers}, {"content_filter"})
        self.assertGreater(min(of_replicas(server, "kaiju_replica_requests_total")), 0)

    def test_a_checkpoint_is_changed_on_all_of_them_while_they_serve(self):
        with tempfile.TemporaryDirectory() as folder:
            digest = changed(MODEL, pathlib.Path(folder, "next.safetensors"), 1.1, name="next")
            server = self.start("--checkpoints", folder)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                talk = pool.submit(ask_all, server)
                status, answer = server.post("/checkpoints", checkpoint="next", promote=True)
                self.assertEqual(status, 201, answer)
                wait_for(lambda: server.get("/health")["checkpoint"] == "next", 60)
                self.assertEqual(len(talk.result()), CHATS)
            wait_for(lambda: len(server.get("/checkpoints")["served"]) == 1)
            self.assertEqual(server.get("/health"), {"status": "ok", "checkpoint": "next", "digest": digest,
                                                     "replicas": REPLICAS})
            ask_all(server)
            self.assertGreater(min(of_replicas(server, "kaiju_replica_requests_total")), 0)

    def test_what_cannot_be_is_refused(self):
        self.assertIn("--replicas 2: 3 devices cannot be divided", refused("--replicas", "2", "--devices", "0,0,0"))
        self.assertIn("start a server for each engine", refused("--replicas", "2", "--kv-events", "tcp://127.0.0.1:*"))
        self.assertIn("--replicas", refused("--replicas", "0", code=2))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
