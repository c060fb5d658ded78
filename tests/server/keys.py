"""Keys of kaiju-server: their users are separate and limited, and share what there is by weight.

    keys.py KAIJU_SERVER MODEL [Class.test ...]
"""

import concurrent.futures
import json
import pathlib
import sys
import tempfile
import unittest

from running import ASK, Running, refused, wait_for


class Keys(unittest.TestCase):
    def test_keys_limit_and_separate_their_users(self):
        server = Running(keys=[{"key": "key-of-ann", "name": "ann"}, {"key": "key-of-bob", "name": "bob"},
                               {"key": "key-of-few", "name": "few", "requests_per_minute": 1}])
        self.addCleanup(server.stop)
        body = {"messages": ASK, "max_tokens": 4}

        def ask(key):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            status, headers, text = server.ask("POST", "/v1/chat/completions", body, headers)
            return status, headers, json.loads(text)

        self.assertEqual(ask(None)[0], 401)
        self.assertEqual(ask("wrong")[0], 401)
        cached = [ask(key)[2]["usage"]["prompt_tokens_details"]["cached_tokens"] for key in ("key-of-ann", "key-of-ann", "key-of-bob")]
        self.assertGreater(cached[1], 20)  # her own
        self.assertEqual((cached[0], cached[2]), (0, 0))  # nobody else's
        body["cache_salt"] = "ann"  # what a client says about sharing is not believed
        self.assertGreater(ask("key-of-ann")[2]["usage"]["prompt_tokens_details"]["cached_tokens"], 20)
        self.assertEqual(ask("key-of-few")[0], 200)
        status, headers, answer = ask("key-of-few")
        self.assertEqual((status, answer["error"]["code"]), (429, "rate_limit_exceeded"))
        self.assertGreater(int(headers["Retry-After"]), 0)
        self.assertEqual(server.ask("GET", "/health")[0], 200)

    def test_a_wrong_file_of_keys_is_told(self):
        file = tempfile.NamedTemporaryFile("w", suffix=".json")
        self.addCleanup(file.close)
        wrong = [
            ('{"keys": [{"key": "short"}]}', "keys[0]: key must have at least 8 characters"),
            ('{"keys": [{"key": "aaaaaaaaaa", "name": "a", "requests_per_minut": 1}]}',
             'there is no field "requests_per_minut" here: did you mean requests_per_minute?'),
            ('{"keys":\n [,]}', "not JSON: line 2, column 3"),
            ('{"keys": [1e999]}', "a number is too large"),
            ('{"keys": [{"key": "aaaaaaaaaa"}]}', "keys[0]: name is missing"),
            ('{"keys": [], "key": 1}', "must be"),
        ]
        wrong += [('{"keys": [{"key": "key-of-ann", "name": "ann", "weight": %s}]}' % weight, "keys[0]: weight must be")
                  for weight in ("0", "-1", '"much"', "1000000000.0")]
        wrong.append(('{"keys": [{"key": "key-of-ann", "name": "ann", "cache_floor_mib": 1000000}]}', "lower the floors"))
        for text, says in wrong:
            pathlib.Path(file.name).write_text(text)
            self.assertIn(says, refused("--keys", file.name))


class Memory(unittest.TestCase):
    """Another key's flood of prompts fills the memory three times over."""

    def found_after_a_flood(self, **limits):
        server = Running("--cache-mib", "4", "--max-running", "1",
                         keys=[{"key": "key-of-ann", "name": "ann", **limits}, {"key": "key-of-bob", "name": "bob"}])
        self.addCleanup(server.stop)

        def cached(key, story):
            body = {"messages": [{"role": "user", "content": story}], "max_tokens": 2}
            status, _, text = server.ask("POST", "/v1/chat/completions", body, {"authorization": f"Bearer key-of-{key}"})
            self.assertEqual(status, 200, text)
            usage = json.loads(text)["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]

        story = "The garden has tomatoes and a snail. " * 40
        self.assertLess(cached("ann", story), 0.1)
        for i in range(24):
            cached("bob", f"Day {i}. " + story)
        return cached("ann", story)

    def test_a_floor_keeps_what_a_flood_of_another_key_would_evict(self):
        self.assertLess(self.found_after_a_flood(), 0.1)
        self.assertGreater(self.found_after_a_flood(cache_floor_mib=1), 0.8)


class Fair(unittest.TestCase):
    """One request is computed at a time, and all wait in the engine's queue."""

    def start(self, **weights):
        keys = [{"key": f"key-of-{name}", "name": name, "weight": weight} for name, weight in weights.items()]
        server = Running("--max-running", "1", keys=keys)
        self.addCleanup(server.stop)
        return server

    def ask(self, server, key, tokens=20):
        body = {"messages": ASK, "max_tokens": tokens, "ignore_eos": True}
        status, _, text = server.ask("POST", "/v1/chat/completions", body, {"authorization": f"Bearer key-of-{key}"})
        self.assertEqual(status, 200, text)

    def order(self, server):
        """Whose requests were answered, one after the other."""
        return [line["key"] for line in server.log() if line["path"] == "/v1/chat/completions"]

    def wait_for_requests(self, server, count):
        wait_for(lambda: server.metric("kaiju_requests_unfinished") >= count)

    def test_a_keys_only_request_does_not_wait_for_another_keys_hundred(self):
        server = self.start(many=1, one=1)
        with concurrent.futures.ThreadPoolExecutor(100) as pool:
            flood = [pool.submit(self.ask, server, "many") for _ in range(100)]
            self.wait_for_requests(server, 70)
            before = len(self.order(server))
            self.ask(server, "one")
            for one in flood:
                one.result()
        order = self.order(server)
        self.assertEqual(order.count("many"), 100)
        self.assertLess(order.index("one"), before + 5)

    def test_weights_divide_what_there_is(self):
        server = self.start(light=1, heavy=3, first=1)
        with concurrent.futures.ThreadPoolExecutor(81) as pool:
            flood = [pool.submit(self.ask, server, "first", 300)]  # while it runs the others line up
            self.wait_for_requests(server, 1)
            flood += [pool.submit(self.ask, server, key) for _ in range(30) for key in ("light", "heavy")]
            for one in flood:
                one.result()
        among = self.order(server)[1:33]
        self.assertIn(among.count("heavy"), range(21, 28), among)  # 24


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
