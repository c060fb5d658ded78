"""KV that moves between servers: chats go on elsewhere with the same words and nothing computed twice, characters are warm
before they are asked for, and what is wrong or damaged is refused.

    moves.py KAIJU_SERVER MODEL [Class.test ...]"""

import concurrent.futures
import http.client
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import tempfile
import threading
import time
import unittest

import running
from running import Running, refused, wait_for

CARD = {"name": "Pip", "description": "Pip is a robot who keeps a garden. " + " ".join(
    f"Pip grows {what} and likes {other}." for what in ("blue tomatoes", "beans", "roses", "plums")
    for other in ("rain", "old maps", "honey"))}
# Long enough that each is worth a copy from another server.
SAID = [f"{asked} I came from the {place} this morning, where it rained on the old stone houses and on the grey horses, "
        f"and a man sold apple bread and honey to all who walked by. He had a hat and a small dog, and sang of the {place}."
        for asked, place in (("What do you grow?", "harbour"), ("What are you afraid of?", "hills"),
                             ("Where do you live?", "market"), ("Tell me a story.", "river"))]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def moved(server, what):
    """What became of the KV of characters, or of histories, by outcome."""
    text = server.ask("GET", "/metrics")[2]
    return {outcome: int(count) for outcome, count in
            re.findall(rf'^kaiju_moves_total{{[^}}]*what="{what}",outcome="(\w+)"}} (\d+)$', text, re.M)}


class Fleet(unittest.TestCase):
    """Servers with one store and one key. Each knows the addresses of all others, running or not."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.key = pathlib.Path(self.folder.name, "peer.key")
        self.key.write_bytes(os.urandom(32))
        self.ports = [free_port() for _ in range(3)]
        self.running = []

    def tearDown(self):
        for server in self.running:
            if server.process.poll() is None:
                server.stop(signal.SIGKILL)
        self.folder.cleanup()

    def start(self, which, *arguments, peers=(0, 1, 2), key=None):
        others = [f"http://127.0.0.1:{self.ports[peer]}" for peer in peers if peer != which]
        server = Running("--peer-key", str(key or self.key), "--kv", "none", "--temperature", "0.8",
                         *(part for peer in others for part in ("--peer", peer)), *arguments,
                         store=self.folder.name + "/store", port=self.ports[which])
        self.running.append(server)
        return server

    def post(self, server, path, status=200, **body):
        got, _, text = server.ask("POST", path, body)
        self.assertEqual(got, status, text)
        return json.loads(text)

    def new_chat(self, server):
        if not hasattr(self, "pip"):
            self.pip = self.post(server, "/characters", 201, **CARD)["id"]
            wait_for(lambda: moved(server, "character"))  # its description is in the cache
        return self.post(server, "/chats", 201, character=self.pip)["id"]

    def say(self, server, chat, text, **more):
        reply = self.post(server, f"/chats/{chat}/say", text=text, seed=7, max_tokens=24, **more)
        return reply["reply"], reply["cached_tokens"], reply["prompt_tokens"]

    def undisturbed(self, turns=SAID, chats=1):
        """What one server says in each chat, and what it finds."""
        server = self.start(0, peers=())
        said = []
        for number in range(chats):
            chat = self.new_chat(server)
            said.append([self.say(server, chat, f"{number}. {text}") for text in turns])
        self.assertEqual(server.stop(), 0)
        return said


class Chats(Fleet):
    def test_a_chat_that_comes_to_another_server_goes_on_as_if_it_had_never_moved(self):
        [expected] = self.undisturbed()
        servers = first, second = self.start(1), self.start(2)
        chat = self.new_chat(first)
        said = [self.say(servers[i % 2], chat, f"0. {text}") for i, text in enumerate(SAID)]
        self.assertEqual(said[1:], expected[1:])
        self.assertGreaterEqual(moved(second, "history")["fetched"], 1)
        self.assertGreaterEqual(moved(first, "history")["fetched"], 1)

    def test_a_server_that_leaves_hands_its_chats_over(self):
        expected = self.undisturbed(chats=6)
        first, second, third = self.start(0), self.start(1), self.start(2)
        chats = [self.new_chat(first) for _ in range(6)]
        for number, chat in enumerate(chats):
            for text in SAID[:3]:
                self.say(first, chat, f"{number}. {text}")
        self.assertEqual(first.stop(), 0)
        # Whichever server a router chooses.
        said = [self.say((second, third)[number % 2], chat, f"{number}. {SAID[3]}") for number, chat in enumerate(chats)]
        self.assertEqual(said, [turns[3] for turns in expected])

    def test_a_chat_over_openais_api_moves_with_the_tokens_of_its_replies(self):
        def talk(servers):
            messages, found = [{"role": "system", "content": "Pip\n" + CARD["description"]}], []
            for server, text in zip(servers, SAID):
                messages.append({"role": "user", "content": text})
                answer = server.chat(messages, prompt_cache_key="pip", seed=3, temperature=1, max_tokens=24)
                reply = answer["choices"][0]["message"]["content"]
                found.append((reply, answer["usage"]["prompt_tokens_details"]["cached_tokens"]))
                messages.append({"role": "assistant", "content": reply})
            return found

        alone = self.start(0, peers=())
        expected = talk([alone] * 4)
        alone.stop()
        first, second, third = self.start(0), self.start(1), self.start(2)
        self.assertEqual(talk([first, second, third, first]), expected)
        messages = [{"role": "system", "content": "Pip\n" + CARD["description"]}]
        for (reply, _), text in zip(expected[:3], SAID):
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]
        # The newest history is at the first server, the others have earlier ones, and one of them does not answer.
        third.stop(signal.SIGKILL)
        first.stop()
        answer = second.chat([*messages, {"role": "user", "content": SAID[3]}], prompt_cache_key="pip", seed=3,
                             temperature=1, max_tokens=24)
        self.assertEqual(answer["choices"][0]["message"]["content"], expected[3][0])
        self.assertGreaterEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], expected[3][1])

    def test_without_peers_that_answer_a_chat_is_computed_again(self):
        [expected] = self.undisturbed()
        first = self.start(0)
        chat = self.new_chat(first)
        for text in SAID[:3]:
            self.say(first, chat, f"0. {text}")
        first.stop(signal.SIGKILL)
        reply, cached, _ = self.say(self.start(1), chat, f"0. {SAID[3]}")
        self.assertEqual((reply, cached), (expected[3][0], 0))


class Liar(http.server.BaseHTTPRequestHandler):
    """Passes what a server gives on to another one, changed."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        connection = http.client.HTTPConnection("127.0.0.1", self.server.of, timeout=30)
        connection.request("POST", self.path, body, dict(self.headers))
        answer = connection.getresponse()
        given = bytearray(answer.read())
        if given:
            self.server.given += 1
            given = self.server.change(given)
        self.send_response(answer.status)
        self.send_header("content-length", str(len(given)))
        self.end_headers()
        self.wfile.write(bytes(given))

    def log_message(self, *_):
        pass


class Refusals(Fleet):
    def test_damaged_cut_and_foreign_kv_is_refused_and_computed(self):
        [expected] = self.undisturbed(SAID[:2])

        def flipped(given):
            given[len(given) * 2 // 3] ^= 1
            return given

        def other_head(given):
            return given.replace(b'"cached":', b'"cached": ', 1)

        first = self.start(0, peers=())
        for change in (flipped, other_head, lambda given: given[: len(given) // 2], lambda given: bytearray(b"kv\nno")):
            proxy = http.server.ThreadingHTTPServer(("127.0.0.1", self.ports[1]), Liar)
            proxy.of, proxy.change, proxy.given = self.ports[0], change, 0
            threading.Thread(target=proxy.serve_forever).start()
            chat = self.new_chat(first)
            self.say(first, chat, f"0. {SAID[0]}")
            second = self.start(2, peers=(1,))
            reply, cached, _ = self.say(second, chat, f"0. {SAID[1]}")
            self.assertEqual((reply, cached), (expected[1][0], 0))
            self.assertGreater(proxy.given, 0)
            self.assertEqual(moved(second, "history"), {"refused": 1})
            second.stop()
            proxy.shutdown()
            proxy.server_close()

    def test_a_server_with_another_key_gets_nothing(self):
        first = self.start(0)
        chat = self.new_chat(first)
        self.say(first, chat, SAID[0])
        for path, method in (("/peers/kv", "POST"), ("/peers/warm", "POST"), ("/peers/characters?most=3", "GET")):
            self.assertEqual(first.ask(method, path, {} if method == "POST" else None)[0], 403)
        other = pathlib.Path(self.folder.name, "other.key")
        other.write_bytes(os.urandom(32))
        second = self.start(1, key=other)
        self.assertEqual(self.say(second, chat, SAID[1])[1], 0)
        self.assertEqual(first.metric("kaiju_moved_out_bytes_total"), 0)

    def test_a_wrong_command_line_says_what_to_do(self):
        short = pathlib.Path(self.folder.name, "short.key")
        short.write_bytes(b"short")
        self.assertIn("head -c 32", refused("--peer-key", str(short)))
        self.assertIn("such as http://10.0.0.8:8080", refused("--peer-key", str(self.key), "--peer", "10.0.0.8"))
        self.assertIn("--peer-key", refused("--peer", "http://10.0.0.8:8080", code=2))


class Characters(Fleet):
    def test_a_server_that_joins_has_the_peers_characters_before_it_is_healthy(self):
        first = self.start(0)
        self.say(first, self.new_chat(first), SAID[0])
        computed = first.metric("kaiju_tokens_prefilled_total")
        second = self.start(1, "--warm", "100")
        wait_for(lambda: second.ask("GET", "/health")[0] == 200)
        self.assertEqual(second.metric("kaiju_warming_characters"), 0)
        self.assertEqual(second.metric("kaiju_tokens_prefilled_total"), 0)  # it was brought, not computed
        card = json.loads(second.ask("GET", f"/characters/{self.pip}")[2])["tokens"]
        self.assertGreaterEqual(self.say(second, self.new_chat(second), SAID[0])[1], card - 1)
        self.assertEqual(first.metric("kaiju_tokens_prefilled_total"), computed)

    def test_the_first_server_of_a_fleet_computes_the_stores_characters(self):
        first = self.start(0)
        self.new_chat(first)
        first.stop()
        second = self.start(1, "--warm", "100")
        wait_for(lambda: second.ask("GET", "/health")[0] == 200)
        card = json.loads(second.ask("GET", f"/characters/{self.pip}")[2])["tokens"]
        self.assertGreaterEqual(second.metric("kaiju_tokens_prefilled_total"), card)
        self.assertGreaterEqual(self.say(second, self.new_chat(second), SAID[0])[1], card - 1)

    def test_a_server_that_warms_says_how_far_it_is(self):
        first = self.start(0)
        for i in range(12):
            self.post(first, "/characters", 201, **{**CARD, "name": f"Pip {i}"})
        first.stop()
        second = self.start(1, "--warm", "100")
        status, _, text = second.ask("GET", "/health")
        if status == 503:
            self.assertRegex(text, "warms its cache: (asking peers|[0-9]+ of 1[0-9] characters)")
        wait_for(lambda: second.ask("GET", "/health")[0] == 200)

    def test_a_character_that_is_suddenly_everybodys_is_warm_elsewhere_before_it_is_asked_for(self):
        first, second = self.start(0, "--hot-share", "0.5"), self.start(1)
        self.new_chat(first)
        before = second.metric("kaiju_tokens_prefilled_total")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: self.say(first, self.new_chat(first), "Hi!"), range(40)))
        self.assertGreaterEqual(first.metric("kaiju_hot_characters"), 1)
        wait_for(lambda: 'what="character",outcome="' in second.ask("GET", "/metrics")[2])
        computed = second.metric("kaiju_tokens_prefilled_total")
        self.assertGreaterEqual(before + 400, computed)
        card = json.loads(second.ask("GET", f"/characters/{self.pip}")[2])["tokens"]
        self.assertGreaterEqual(self.say(second, self.new_chat(second), "Hi!")[1], card - 1)

    def test_many_edits_compute_the_newest_version_alone_and_old_chats_stay(self):
        first = self.start(0, peers=())
        chat = self.new_chat(first)
        self.say(first, chat, SAID[0])
        before = first.metric("kaiju_tokens_prefilled_total")
        long = {"max_tokens": 400, "ignore_eos": True, "loop_guard": False}
        with first.replying(self.post, first, f"/chats/{chat}/say", text=SAID[3], **long) as reply:
            for i in range(20):
                edited = {**CARD, "description": f"Edit {i}. " + CARD["description"]}
                status, _, text = first.ask("PUT", f"/characters/{self.pip}", edited)
                self.assertEqual(status, 201, text)
            reply.result()
        card = json.loads(first.ask("GET", f"/characters/{self.pip}")[2])["tokens"]
        new = self.new_chat(first)
        computed = []
        while len(computed) < 10 or computed[-1] > computed[-10]:  # for half a second nothing more is computed
            computed.append(first.metric("kaiju_tokens_prefilled_total"))
            time.sleep(0.05)
        self.assertGreaterEqual(self.say(first, new, SAID[0])[1], card - 1)
        cached = self.say(first, chat, SAID[1])[1]
        self.assertGreater(cached, card + 400)  # the old chat's version is pinned
        self.assertLess(first.metric("kaiju_tokens_prefilled_total") - before, 12 * card)


if __name__ == "__main__":
    unittest.main(argv=[__file__, *running.sys.argv[3:]])
