"""Another checkpoint while the server serves: no request is lost, chats that do not move have the replies of a server that
never changed, shares hold, every way back works, and what is wrong is refused.

    checkpoints.py KAIJU_SERVER MODEL [Class.test ...]"""

import concurrent.futures
import json
import math
import os
import pathlib
import random
import re
import signal
import struct
import sys
import tempfile
import threading
import time
import unittest

import running
from running import MODEL, Running, refused

try:
    from checkpoint_files import changed
except ImportError as missing:
    print(f"skipped: {missing}")
    raise SystemExit(77) from None

SETTINGS = {"temperature": 0.7, "seed": 5, "max_tokens": 12}
ASK = [{"role": "user", "content": "What do you like about the garden?"}]


def wait_for(holds):
    """Loading may take long on a machine that does much else."""
    running.wait_for(holds, 240)


def make_checkpoints(folder):
    """next: surer of its tokens than the model. worse: drunk. The others are refused."""
    digests = {name: changed(MODEL, folder / f"{name}.safetensors", factor, name=name)
               for name, factor in (("next", 1.1), ("worse", 0.2))}
    changed(MODEL, folder / "words.safetensors", tokenizer=lambda data: data.replace(b"the", b"thx", 1))
    said = json.loads(header_of(MODEL)["__metadata__"]["config"])
    labels = {"labels": ["sternness", *said["classifier"]["labels"][1:]]}
    changed(MODEL, folder / "labels.safetensors", classifier=labels)
    whole = pathlib.Path(MODEL).read_bytes()
    middle = bytearray(whole)
    middle[len(middle) // 2] ^= 1
    (folder / "flipped.safetensors").write_bytes(middle)
    (folder / "short.safetensors").write_bytes(whole[:-1000])
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "text.safetensors").write_text("a text")
    (folder / "folder.safetensors").mkdir()
    (folder / "gone.safetensors").symlink_to(folder / "nowhere")
    (folder / "notes.txt").write_text("no checkpoint")
    return digests


def header_of(path):
    with open(path, "rb") as file:
        return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))


class Swaps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.kept.name)
        cls.digests = make_checkpoints(cls.folder)
        cls.digests["model"] = json.loads(json.dumps(header_of(MODEL)["__metadata__"]["digest"]))

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def setUp(self):
        (self.folder / "current.json").unlink(missing_ok=True)

    def start(self, *arguments, **options):
        server = Running("--checkpoints", str(self.folder), *arguments, **options)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    # -- what operators do
    def begin(self, server, name, expect=201, **fields):
        status, answer = server.post("/checkpoints", checkpoint=name, **fields)
        self.assertEqual(status, expect, answer)
        return answer

    def patch(self, server, name, expect=200, **fields):
        status, _, text = server.ask("PATCH", f"/checkpoints/{name}", fields)
        self.assertEqual(status, expect, text)
        return json.loads(text)

    def roll_back(self, server, name, expect=200):
        status, _, text = server.ask("DELETE", f"/checkpoints/{name}")
        self.assertEqual(status, expect, text)
        return json.loads(text)

    def states(self, server):
        return {one["checkpoint"]: one["state"] for one in server.get("/checkpoints")["served"]}

    def ready(self, server, name, share=None):
        wait_for(lambda: self.states(server).get(name) == "candidate")
        if share is not None:
            self.patch(server, name, share=share)

    def settled(self, server, name):
        wait_for(lambda: self.states(server) == {name: "current"})

    # -- what users do
    def who(self, server, user, messages=ASK):
        """The checkpoint that replies to a user."""
        print_of = server.chat(messages, max_tokens=1, user=user)["system_fingerprint"]
        return next(name for name, digest in self.digests.items() if digest.startswith(print_of))

    def chats(self, server, count):
        return [server.post("/chats", character="wren")[1]["id"] for _ in range(count)]

    def say(self, server, chat, text):
        status, done = server.post(f"/chats/{chat}/say", text=text, **SETTINGS)
        self.assertEqual(status, 200, done)
        return done["reply"]

    def side(self, server, chat, text="And then?"):
        """The checkpoint that writes a chat's next reply."""
        def said():
            return [line["checkpoint"] for line in server.log() if line["path"] == f"/chats/{chat}/say"]

        before = len(said())
        self.say(server, chat, text)
        wait_for(lambda: len(said()) > before)
        return said()[-1]

    def test_a_swap_under_load_loses_no_request(self):
        server = self.start()
        stop, answers, lock = threading.Event(), [], threading.Lock()

        def user(number):
            chat = self.chats(server, 1)[0]
            turn = 0
            while not stop.is_set():
                turn += 1
                if number % 2:
                    status, answer = server.post(f"/chats/{chat}/say", text=f"And then, number {turn}?", max_tokens=8)
                    whole = status == 200 and answer["reason"] in ("stop", "length", "loop")
                else:
                    status, answer = server.post("/v1/chat/completions", messages=ASK, max_tokens=8, user=f"{number}.{turn}")
                    whole = status == 200 and answer["choices"][0]["finish_reason"] in ("stop", "length")
                with lock:
                    answers.append((status, whole, answer))

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            users = [pool.submit(user, i) for i in range(8)]
            try:
                for name in "next", "model":
                    self.begin(server, name)
                    self.ready(server, name)
                    for share in 1, 10, 50, 100:
                        self.patch(server, name, share=share)
                        time.sleep(0.3)
                    self.patch(server, name, promote=True)
                    self.settled(server, name)
                self.begin(server, "worse", share=50)
                self.ready(server, "worse")
                time.sleep(0.5)
                self.roll_back(server, "worse")
                self.settled(server, "model")
            finally:
                stop.set()
            for one in users:
                one.result()
        lost = [answer for answer in answers if not answer[1]]
        self.assertEqual(lost, [])
        self.assertGreater(len(answers), 50)
        log = [line for line in server.log() if "checkpoint" in line]
        self.assertEqual({line["checkpoint"] for line in log}, {"model", "next", "worse"})
        self.assertEqual({line["status"] for line in server.log()}, {200, 201})

    def test_chats_that_do_not_move_have_the_replies_of_a_server_that_never_changed(self):
        server, never = self.start(), Running()
        self.addCleanup(never.stop)
        chats, twins = self.chats(server, 6), self.chats(never, 6)

        def same_turns(text):
            for chat, twin in zip(chats, twins):
                self.assertEqual(self.say(server, chat, text), self.say(never, twin, text))

        same_turns("Hello! Who are you?")
        self.begin(server, "worse", share=100)
        same_turns("What do you like?")
        self.ready(server, "worse")
        same_turns("Tell me about the sea.")
        fresh = self.chats(server, 1)[0]
        self.assertEqual(self.who(server, "new"), "worse")
        bad = self.say(server, fresh, "Hello! Who are you?")
        self.assertNotEqual(bad, self.say(never, self.chats(never, 1)[0], "Hello! Who are you?"))
        same_turns("Is it cold?")
        self.roll_back(server, "worse")
        same_turns("And now?")
        self.settled(server, "model")
        same_turns("Good night!")
        self.assertEqual(self.side(server, fresh, "Are you well again?"), "model")

    def test_a_chat_that_began_with_the_candidate_stays_there_until_it_is_rolled_back(self):
        server = self.start()
        self.begin(server, "next", share=100)
        self.ready(server, "next")
        chat = self.chats(server, 1)[0]
        self.say(server, chat, "Hello!")
        messages = [*ASK, {"role": "assistant", "content": server.chat(ASK, max_tokens=4)["choices"][0]["message"]["content"]},
                    {"role": "user", "content": "And the trees?"}]
        self.patch(server, "next", share=0)
        self.assertEqual(self.who(server, "somebody", [{"role": "user", "content": "Other words."}]), "model")
        self.assertEqual(self.side(server, chat), "next")
        self.assertEqual(self.who(server, "somebody", messages), "next")
        self.roll_back(server, "next")
        self.assertEqual(self.side(server, chat), "model")
        self.assertEqual(self.who(server, "somebody", messages), "model")

    def test_with_move_chats_follow_their_share(self):
        server = self.start()
        chats = self.chats(server, 12)
        for chat in chats:
            self.say(server, chat, "Hello!")
        self.begin(server, "next", move=True)
        self.ready(server, "next")

        def sides():
            return [self.side(server, chat) for chat in chats]

        self.assertEqual(set(sides()), {"model"})
        self.patch(server, "next", share=50)
        half = sides()
        self.assertEqual(sides(), half)
        self.patch(server, "next", share=100)
        self.assertEqual(set(sides()), {"next"})
        self.patch(server, "next", share=0)
        self.assertEqual(set(sides()), {"model"})
        self.patch(server, "next", share=50)
        self.assertEqual(sides(), half)

    def test_shares_hold_and_a_user_keeps_a_side(self):
        server = self.start(store="none")
        seed = random.randrange(1 << 32)
        print("seed", seed)
        self.begin(server, "next")
        self.ready(server, "next")
        users = [f"{seed}/{i}" for i in range(300)]
        before = set()
        for share in 0, 1, 10, 50, 100:
            self.patch(server, "next", share=share)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                now = {user for user, name in zip(users, pool.map(lambda user: self.who(server, user), users)) if name == "next"}
            part = share / 100
            self.assertLessEqual(abs(len(now) - part * len(users)), 6 * math.sqrt(len(users) * part * (1 - part)), share)
            self.assertLessEqual(before, now)
            before = now

    def test_characters_are_warm_before_the_first_share(self):
        server = self.start()
        server.post(f"/chats/{self.chats(server, 1)[0]}/say", text="Hello!", max_tokens=4)
        for warm, hits in (32, True), (0, False):
            self.begin(server, "next", share=100, warm=warm)
            self.ready(server, "next")
            done = server.post(f"/chats/{self.chats(server, 1)[0]}/say", text="Hello!", max_tokens=4)[1]
            head = server.get("/characters/wren")["tokens"]
            self.assertEqual(done["cached_tokens"] >= head, hits, done)
            self.roll_back(server, "next")
            self.settled(server, "model")

    def test_what_is_current_survives_a_kill(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        store = kept.name + "/store"
        server = self.start(store=store)
        self.begin(server, "worse", share=100)
        self.ready(server, "worse")

        def killed(server):
            server.process.send_signal(signal.SIGKILL)
            server.ended()
            return self.start(store=store)

        server = killed(server)
        self.assertEqual(server.get("/health")["checkpoint"], "model")  # a candidate is none of the past
        self.begin(server, "next", promote=True)
        self.settled(server, "next")
        self.assertEqual(server.get("/checkpoints")["previous"], "model")
        self.assertEqual(json.loads((self.folder / "current.json").read_text()), {"current": "next"})
        chat = self.chats(server, 1)[0]
        self.say(server, chat, "Hello!")
        server = killed(server)
        self.assertEqual(server.get("/health"), {"status": "ok", "checkpoint": "next", "digest": self.digests["next"],
                                                 "replicas": 1})
        self.assertEqual(server.get("/v1/models")["data"][0]["digest"], self.digests["next"])
        self.say(server, chat, "What do you like?")
        self.begin(server, "model", share=100, promote=True)  # the way back after a promotion
        self.settled(server, "model")
        server = killed(server)
        self.assertEqual(server.get("/health")["checkpoint"], "model")
        (self.folder / "current.json").write_text('{"current": "lost"}')
        self.assertIn("delete", refused("--checkpoints", str(self.folder)))
        for text in "", "{}", "[1]", '{"checkpoint": 1}', '{"checkpoint": "../next"}':
            (self.folder / "current.json").write_text(text)
            self.assertIn("names no file", refused("--checkpoints", str(self.folder)))

    def test_chats_go_on_after_a_promotion_and_a_restart(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        server = self.start(store=kept.name + "/store")
        chat = self.chats(server, 1)[0]
        self.say(server, chat, "Hello!")
        self.begin(server, "next", promote=True)
        self.settled(server, "next")
        self.say(server, chat, "What do you like?")
        self.assertEqual(server.stop(), 0)
        server = self.start(store=kept.name + "/store")
        self.say(server, chat, "Good night!")
        wait_for(lambda: any(line.get("restored") for line in server.log()))
        self.assertEqual(len(server.get(f"/chats/{chat}")["turns"]), 4)

    def test_a_dry_run_says_the_memory_and_changes_nothing(self):
        server = self.start("--cache-mib", "64")
        said = self.begin(server, "next", 200, dry_run=True)
        self.assertGreater(said["memory"]["weights"], os.path.getsize(MODEL) * 0.9)
        self.assertGreaterEqual(said["memory"]["kv"], 64 << 20)
        self.assertEqual(self.states(server), {"model": "current"})
        self.assertEqual(said["memory"], server.get("/checkpoints")["served"][0]["memory"])
        small = self.start("--candidate-mib", "20")
        for dry in True, False:
            answer = self.begin(small, "next", 409, dry_run=dry)
            self.assertEqual(answer["error"]["code"], "does_not_fit")
            self.assertRegex(answer["error"]["message"], r"would take \d+ MiB \(weights \d+ MiB.*the limit is 20 MiB")

    def test_what_is_wrong_is_refused_and_changes_nothing(self):
        server = self.start("--limit", "adult:violence=0.9")
        for name, word in (("words", "tokenizer"), ("labels", "labels"), ("flipped", "digest"), ("short", ""), ("empty", ""),
                           ("text", ""), ("folder", ""), ("gone", "")):
            answer = self.begin(server, name, 400)
            self.assertEqual(answer["error"]["code"], "bad_checkpoint", answer)
            self.assertIn(word, answer["error"]["message"])
        for name in "nothing", "../next", "next.safetensors", "notes", "/etc/passwd", "next\0", "\u00e9" * 5000:
            self.begin(server, name, 404)
        self.begin(server, "model", 409)
        for fields in ({}, {"checkpoint": 1}, {"checkpoint": ""}, {"checkpoint": None}):
            self.assertEqual(server.post("/checkpoints", **fields)[0], 400)
        for wrong in ({"share": -1}, {"share": 101}, {"share": "half"}, {"warm": -1}, {"warm": 1e9}, {"move": 1}, {"promote": "yes"},
                      {"dry_run": 0}, {"other": 1}):
            self.begin(server, "next", 400, **wrong)
        self.patch(server, "next", 404, share=1)
        self.roll_back(server, "next", 404)
        self.assertEqual(self.states(server), {"model": "current"})
        self.begin(server, "next")
        self.ready(server, "next")
        self.begin(server, "worse", 409)
        self.patch(server, "worse", 404, share=1)
        self.roll_back(server, "model", 404)
        for fields in ({}, {"share": 1, "promote": True}, {"promote": False}, {"share": 100.01}, {"share": None}, {"other": 1}):
            self.patch(server, "next", 400, **fields)
        self.assertEqual(server.ask("PATCH", "/checkpoints/next", "no JSON")[0], 400)
        self.assertEqual(self.states(server), {"model": "current", "next": "candidate"})
        (self.folder / "current.json.new").mkdir()
        self.patch(server, "next", 500, promote=True)
        (self.folder / "current.json.new").rmdir()
        self.assertEqual(self.states(server), {"model": "current", "next": "candidate"})
        self.patch(server, "next", promote=True)
        self.settled(server, "next")

    def test_trusted_keys_alone_change_checkpoints(self):
        keys = [{"key": "key-of-ann", "name": "ann"}, {"key": "key-of-admin", "name": "admin", "trusted": True}]
        server = self.start(keys=keys)
        for key, expect in (None, 401), ("key-of-ann", 403), ("key-of-admin", 200):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            for method, path, body in (("GET", "/checkpoints", None), ("POST", "/checkpoints", {"checkpoint": "next"}),
                                       ("PATCH", "/checkpoints/next", {"share": 0}), ("DELETE", "/checkpoints/next", None)):
                status = server.ask(method, path, body, headers)[0]
                self.assertIn(status, (expect, 201) if expect == 200 else (401, 403) if key is None else (expect,), (method, key))

    def test_limits_hold_with_a_candidate(self):
        server = self.start("--limit", "adult:violence=0", "--tier", "adult")
        self.assertEqual(server.chat(ASK, max_tokens=8)["choices"][0]["finish_reason"], "content_filter")
        self.begin(server, "next", share=100)
        self.ready(server, "next")
        self.assertEqual(self.who(server, "new"), "next")
        self.assertEqual(server.chat(ASK, max_tokens=8)["choices"][0]["finish_reason"], "content_filter")
        server.post("/tiers", tier="adult", label="violence", limit=1)
        self.assertEqual(server.chat(ASK, max_tokens=8, ignore_eos=True)["choices"][0]["finish_reason"], "length")

    def test_the_metrics_tell_a_worse_checkpoint(self):
        server = self.start(store="none")
        self.begin(server, "worse")
        self.ready(server, "worse", 50)
        for i in range(24):
            server.chat(ASK, max_tokens=12, user=str(i), temperature=1)
        text = server.ask("GET", "/metrics")[2]

        def value(name, checkpoint):
            return float(re.search(rf'^{name}{{.*checkpoint="{checkpoint}"[^}}]*}} (\S+)$', text, re.M)[1])

        def surprise(checkpoint):
            return value("kaiju_checkpoint_surprise_nats_total", checkpoint) / value("kaiju_checkpoint_reply_tokens_total", checkpoint)

        self.assertGreater(surprise("worse"), 2 * surprise("model"))
        self.assertEqual(value("kaiju_checkpoint_share", "worse"), 0.5)
        counts = [value("kaiju_checkpoint_time_to_first_token_seconds_count", name) for name in ("model", "worse")]
        self.assertEqual(sum(counts), 24)
        self.assertEqual(server.metric("vllm:time_to_first_token_seconds_count"), 24)
        before = server.metric("kaiju_tokens_decoded_total")
        self.roll_back(server, "worse")
        self.settled(server, "model")
        self.assertGreaterEqual(server.metric("kaiju_tokens_decoded_total"), before)

    def test_without_a_folder_there_is_the_model_alone(self):
        server = Running()
        self.addCleanup(server.stop)
        self.assertEqual(server.get("/checkpoints")["checkpoints"], ["model"])
        self.begin(server, "next", 404)
        self.assertIn("does not exist", refused("--checkpoints", str(self.folder / "nowhere"), code=2))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
