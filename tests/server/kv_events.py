"""What kaiju-server tells routers over ZeroMQ of its cache, read by a decoder of its own.

    kv_events.py KAIJU_SERVER MODEL [Class.test ...]

Without pyzmq and msgpack, or with a server that was built without ZeroMQ, everything is skipped.
"""

import contextlib
import json
import pathlib
import random
import socket
import sys
import tempfile
import unittest

try:
    import msgpack
    import zmq
except ImportError:
    print("skipped: this wants pyzmq and msgpack (tests/server/requirements.txt)")
    sys.exit(77)

from checkpoint_files import changed
from running import MODEL, SERVER, Running, refused, wait_for  # noqa: F401

BLOCK = 64
END = b"\xff" * 8
FORMS = ("map", "array")
# The fields of vLLM's structs in their order (vllm/distributed/kv_events.py).
FIELDS = {
    "BlockStored": ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"],
    "BlockRemoved": ["block_hashes", "medium"],
    "AllBlocksCleared": [],
}


def decoded(batch, form):
    """The events of a batch as (type, fields)."""
    seconds, events, rank = msgpack.unpackb(batch)
    assert isinstance(seconds, float) and rank == 0
    for event in events:
        if form == "map":
            kind = event.pop("type")
            assert list(event) == FIELDS[kind], event
            yield kind, event
        else:
            assert len(event) == 1 + len(FIELDS[event[0]]), event
            yield event[0], dict(zip(FIELDS[event[0]], event[1:]))


class Router:
    """A subscriber, and what it knows of the cache: tokens and parent of each block, by its hash."""

    def __init__(self, context, endpoint, form, heard=b""):
        self.form, self.known, self.messages, self.removed = form, {}, [], 0
        self.socket = context.socket(zmq.SUB)
        self.socket.connect(endpoint)
        self.socket.subscribe(heard)

    def hear(self, milliseconds=700):
        """All messages, until none comes for so long."""
        while self.socket.poll(milliseconds):
            topic, number, batch = self.socket.recv_multipart()
            self.messages.append((topic, int.from_bytes(number, "big"), batch))
            for kind, event in decoded(batch, self.form):
                self.take(kind, event)
        return self

    def take(self, kind, event):
        if kind == "AllBlocksCleared":
            self.known.clear()
        elif kind == "BlockRemoved":
            assert event["medium"] == "GPU"
            for name in event["block_hashes"]:
                assert self.known.pop(name, None) is not None, "a block was removed that was not stored"
                self.removed += 1
        else:
            parent, tokens = event["parent_block_hash"], event["token_ids"]
            assert event["block_size"] == BLOCK and event["medium"] == "GPU"
            assert event["lora_id"] is None and event["lora_name"] is None
            assert len(tokens) == BLOCK * len(event["block_hashes"])
            for i, name in enumerate(event["block_hashes"]):
                assert parent is None or parent in self.known, "a block came before its parent"
                assert 0 < name < 1 << 64
                self.known[name] = (parent, tuple(tokens[BLOCK * i:BLOCK * (i + 1)]))
                parent = name

    def paths(self):
        """All beginnings of prompts that are known."""
        found = set()
        for name in self.known:
            tokens = ()
            while name is not None:
                parent, own = self.known[name]
                tokens, name = own + tokens, parent
            found.add(tokens)
        return found


def free_endpoint():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return f"tcp://127.0.0.1:{held.getsockname()[1]}"


class Telling(Running):
    def __init__(self, *arguments, form="map", **more):
        self.form, self.events, self.replay = form, free_endpoint(), free_endpoint()
        self.context = zmq.Context()
        super().__init__("--kv-events", self.events, "--kv-replay", self.replay, "--kv-format", form, *arguments, **more)

    def router(self, **more):
        return Router(self.context, self.events, self.form, **more).hear()

    def missed(self, number):
        """What the server sends again from a number on."""
        dealer = self.context.socket(zmq.DEALER)
        dealer.connect(self.replay)
        dealer.send_multipart([b"", number.to_bytes(8, "big")])
        batches = []
        while True:
            assert dealer.poll(10000)
            empty, at, batch = dealer.recv_multipart()
            assert empty == b""
            if at == END:
                dealer.close(0)
                return batches
            batches.append((int.from_bytes(at, "big"), batch))

    def stop(self, *arguments):
        self.context.destroy(0)
        return super().stop(*arguments)


@contextlib.contextmanager
def telling(*arguments, **more):
    server = Telling(*arguments, **more)
    try:
        yield server
    finally:
        assert server.stop() == 0


def card(name):
    return f"{name}\n" + f"{name} is a robot who keeps a garden of blue tomatoes and is afraid of snails. " * 12


def messages(name, said="What do you grow?"):
    return [{"role": "system", "content": card(name)}, {"role": "user", "content": said}]


def ask(server, name, said="What do you grow?", headers=None, **body):
    body = {"messages": messages(name, said), "prompt_cache_key": name, "max_tokens": 4, "temperature": 0, **body}
    status, _, text = server.ask("POST", "/v1/chat/completions", body, headers)
    assert status == 200, text
    return json.loads(text)


def rendered(server, name, said="What do you grow?"):
    status, answer = server.post("/v1/chat/completions/render", messages=messages(name, said))
    assert status == 200, answer
    return answer["token_ids"]


class Events(unittest.TestCase):
    def test_a_router_knows_which_beginnings_of_prompts_are_cached(self):
        for form in FORMS:
            with self.subTest(form), telling("--kv-private", form=form) as server:
                router = server.router()
                ask(server, "Pip")
                ask(server, "Ann")
                router.hear()
                for name in ("Pip", "Ann"):
                    tokens = rendered(server, name)
                    for end in range(BLOCK, len(tokens) + 1, BLOCK):
                        self.assertIn(tuple(tokens[:end]), router.paths())
                numbers = [number for _, number, _ in router.messages]
                self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
                topic = f"kv@127.0.0.1:{server.port}@kaiju-nano".encode() if form == "array" else b""
                self.assertEqual({one for one, _, _ in router.messages}, {topic})

    def test_the_first_message_says_that_all_is_forgotten(self):
        with telling("--kv-topic", "kv@here@model") as server:
            router = server.router(heard=b"kv@")
            topic, _, batch = router.messages[0]
            self.assertEqual(topic, b"kv@here@model")
            self.assertEqual(list(decoded(batch, "map")), [("AllBlocksCleared", {})])
            first, batch = server.missed(0)[0]
            self.assertEqual((first, list(decoded(batch, "map"))), (0, [("AllBlocksCleared", {})]))

    def test_what_a_router_has_missed_is_sent_again(self):
        with telling() as server:
            router = server.router()
            for name in ("Pip", "Ann", "Bob"):
                ask(server, name)
                router.hear()
            live = [(number, batch) for _, number, batch in router.messages]
            self.assertGreaterEqual(len(live), 4)
            for heard in range(len(live) + 1):
                self.assertEqual(server.missed(live[0][0] + heard), live[heard:])
            wait_for(lambda: server.metric("kaiju_kv_event_replays_total") == len(live) + 1)  # counted once it is sent

    def test_a_router_that_comes_late_or_again_is_told_everything(self):
        with telling() as server:
            first = server.router()
            for name in ("Pip", "Ann", "Bob"):
                ask(server, name)
            first.hear()
            self.assertGreater(len(first.known), 3)
            late = server.router()
            self.assertEqual(late.known, first.known)
            self.assertEqual(first.hear().known, late.known)  # it was told again, too
            late.socket.close(0)
            again = server.router()
            self.assertEqual(again.known, first.known)
            again.socket.close(0)

    def test_a_strange_question_is_not_answered(self):
        with telling() as server:
            server.router()
            dealer = server.context.socket(zmq.DEALER)
            dealer.connect(server.replay)
            for frames in ([b""], [b"", b"short"], [b"x", b"12345678"], [b"", b"12345678", b"more"], [b"a"] * 20):
                dealer.send_multipart(frames)
            self.assertFalse(dealer.poll(500))
            self.assertGreaterEqual(len(server.missed(0)), 1)

    def test_blocks_that_are_evicted_are_told_and_what_is_left_is_the_cache(self):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        chance = random.Random(seed)
        with telling("--kv-private", "--cache-mib", "1") as server:
            router = server.router()
            for asked in range(400):
                name = chance.choice(["Pip", "Ann", "Bob", "Eve", "Max", "Ida", "Leo", "Zoe"])
                ask(server, name, said=f"I have {chance.randrange(1000)} snails. " * chance.choice([1, 20, 80, 110]), max_tokens=1)
                if asked % 10 == 9 and router.hear(50).removed > 20:
                    break
            router.hear()
            self.assertGreater(router.removed, 20)
            told = dict(router.known)
            self.assertEqual(server.router().known, told)  # the cache's own list
            self.assertEqual(router.hear().known, told)

    def test_a_change_of_the_checkpoint_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            changed(MODEL, pathlib.Path(folder, "next.safetensors"), 1.1, name="next")
            with telling("--checkpoints", folder) as server:
                router = server.router()
                ask(server, "Pip")
                before = set(router.hear().known)
                self.assertTrue(before)
                status, _, text = server.ask("POST", "/checkpoints", {"checkpoint": "next", "share": 100, "promote": True})
                self.assertEqual(status, 201, text)
                wait_for(lambda: [one["checkpoint"] for one in json.loads(server.ask("GET", "/checkpoints")[2])["served"]] == ["next"])
                self.assertFalse(before & set(router.hear().known))
                ask(server, "Pip")
                known = dict(router.hear().known)
                self.assertTrue(known)
                self.assertFalse(before & set(known))
                self.assertEqual(server.router().known, known)


class Private(unittest.TestCase):
    def tokens_told(self, server, router):
        router.hear()
        return {path for path in router.paths()}

    def test_chats_are_not_told_and_characters_are(self):
        with telling() as server:
            router = server.router()
            ask(server, "Pip", prompt_cache_key="")  # a prompt of no character
            self.assertEqual(self.tokens_told(server, router), set())
            said = "My secret is that I am afraid of the dark, and of every snail that there is in the garden. " * 6
            ask(server, "Pip", said=said)
            tokens, other = rendered(server, "Pip", said), rendered(server, "Pip", "x")
            shared = next(i for i, (a, b) in enumerate(zip(tokens, other)) if a != b)
            self.assertGreater(len(tokens), shared + 2 * BLOCK)
            told = self.tokens_told(server, router)
            self.assertTrue(told)
            self.assertEqual(max(map(len, told)), shared // BLOCK * BLOCK)
            for path in told:
                self.assertEqual(path, tuple(tokens[:len(path)]))

    def test_only_a_trusted_key_names_characters(self):
        keys = [{"key": "key-of-ann", "name": "ann"}, {"key": "key-of-site", "name": "site", "trusted": True}]
        with telling(keys=keys) as server:
            router = server.router()
            ask(server, "Pip", headers={"authorization": "Bearer key-of-ann"})
            self.assertEqual(self.tokens_told(server, router), set())
            ask(server, "Pip", headers={"authorization": "Bearer key-of-site"}, cache_salt="user 1")
            self.assertTrue(self.tokens_told(server, router))
            usage = ask(server, "Pip", headers={"authorization": "Bearer key-of-site"}, cache_salt="user 2")["usage"]
            # Users with salts of their own share the character, and nothing behind it.
            self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], BLOCK)

    def test_private_events_are_refused_where_there_are_keys(self):
        with contextlib.ExitStack() as stack:
            keys = stack.enter_context(open(stack.enter_context(temporary()) + "/keys.json", "w"))
            json.dump({"keys": [{"key": "key-of-ann", "name": "ann"}]}, keys)
            keys.flush()
            self.assertIn("--kv-private", refused("--kv-events", free_endpoint(), "--kv-private", "--keys", keys.name))

    def test_an_endpoint_that_cannot_be_bound_is_named(self):
        self.assertIn("--kv-events: cannot bind tcp://nowhere", refused("--kv-events", "tcp://nowhere:x"))


@contextlib.contextmanager
def temporary():
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        yield folder


class Rendered(unittest.TestCase):
    def test_the_tokens_that_routers_are_given_are_those_that_are_computed(self):
        with telling() as server:
            for said in ("What do you grow?", "Say it again.", "É 😀 \n two  spaces"):
                chat = ask(server, "Pip", said, prompt_cache_key="", max_tokens=12)
                tokens = rendered(server, "Pip", said)
                self.assertEqual(chat["usage"]["prompt_tokens"], len(tokens))
                status, text = server.post("/v1/completions", prompt=tokens, max_tokens=12, temperature=0)
                self.assertEqual(status, 200, text)
                self.assertEqual(text["choices"][0]["text"], chat["choices"][0]["message"]["content"])
                status, counted = server.post("/tokenize", messages=messages("Pip", said))
                self.assertEqual((status, counted["count"], counted["tokens"]), (200, len(tokens), tokens))
            status, counted = server.post("/tokenize", prompt="What do you grow?")
            status, text = server.post("/detokenize", tokens=counted["tokens"])
            self.assertIn("What do you grow?", text["prompt"])


if __name__ == "__main__":
    if "without ZeroMQ" in (said := refused("--kv-events", "tcp://nowhere:x")):
        print("skipped:", said)
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
