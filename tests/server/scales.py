"""kaiju-server watches its keys and values, makes new scales of them, and changes to them while it serves.

    scales.py KAIJU_SERVER MODEL [Class.test ...]
"""

import concurrent.futures
import json
import pathlib
import signal
import sys
import tempfile
import unittest

from running import Running, refused

STORY = [{"role": "user", "content": "Tell me of the garden, the snail and the rain. " * 6}]


def body(seed, messages=STORY, max_tokens=60):
    return {"messages": messages, "max_tokens": max_tokens, "seed": seed, "temperature": 1.0, "ignore_eos": True, "logprobs": True}


class Scales(unittest.TestCase):
    def start(self, folder, *more):
        server = Running("--scales", folder, "--scales-window", "2", *more)
        self.addCleanup(server.stop)
        return server

    def call(self, server, method, path, value=None, status=200):
        got, _, text = server.ask(method, path, value)
        self.assertEqual(got, status, text)
        return json.loads(text)

    def reply(self, server, seed, **more):
        answer = self.call(server, "POST", "/v1/chat/completions", body(seed, **more))
        choice = answer["choices"][0]
        return [(one["token"], one["logprob"]) for one in choice["logprobs"]["content"]], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def watch(self, server, windows):
        """Talks until so many windows were watched and not far away."""
        for seed in range(1000):
            self.reply(server, seed)
            seen = self.call(server, "GET", "/scales")["calibration"]
            if seen["frozen"]:  # two usual windows may be far away
                self.call(server, "POST", "/scales", {"collection": "thaw"})
            if seen["windows"] - seen["far_windows"] >= windows:
                return
        self.fail("it does not watch")

    def save(self, server):
        self.call(server, "POST", "/scales", {"collection": "save"})
        return self.call(server, "GET", "/scales")["sets"][-1]

    def test_what_was_watched_becomes_scales_that_are_used_and_given_back_and_survive_kill(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(folder)
            own = self.reply(server, 5)[0]
            self.watch(server, 110)  # of 128 values a channel: fewer than 10,000 change no clip
            shown = self.call(server, "GET", "/scales")
            self.assertEqual((shown["scales"], shown["previous"], shown["sets"]), ("model", None, ["model"]))
            self.assertTrue(shown["calibration"]["known"])
            self.assertGreater(shown["calibration"]["tokens"]["newest"], 0)
            self.assertGreater(server.metric("kaiju_kv_counted_total"), 1000)
            self.assertEqual(server.metric("kaiju_calibration_frozen"), 0)
            name = self.save(server)
            with concurrent.futures.ThreadPoolExecutor(20) as pool:  # a change under load loses nothing
                talk = [pool.submit(self.reply, server, seed) for seed in range(20)]
                shown = self.call(server, "POST", "/scales", {"scales": name})
                talk += [pool.submit(self.reply, server, seed) for seed in range(20)]
                for one in talk:
                    one.result()
            self.assertEqual((shown["scales"], shown["previous"]), (name, "model"))
            other, cached = self.reply(server, 5)
            self.assertNotEqual(other, own)
            self.assertGreater(cached, 20)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            again = self.start(folder)
            self.assertEqual(self.call(again, "GET", "/scales")["scales"], name)
            self.assertEqual(self.reply(again, 5)[0], other)
            shown = self.call(again, "POST", "/scales", {"scales": "model"})
            self.assertEqual((shown["scales"], shown["previous"]), ("model", name))
            back, cached = self.reply(again, 5)
            self.assertEqual((back, cached), (own, 0))
            self.call(again, "POST", "/scales", {"collection": "reset"})
            self.assertFalse(self.call(again, "GET", "/scales")["calibration"]["known"])
            self.call(again, "POST", "/scales", {"collection": "thaw"})

    def test_another_language_freezes_the_collection(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(folder)
            self.watch(server, 40)
            self.assertEqual(server.metric("kaiju_calibration_frozen"), 0)
            odd = [{"role": "user", "content": "0123456789 @#%&*()_+ =-[];',./ QWXZ " * 12}]
            for seed in range(200):
                self.reply(server, seed, messages=odd, max_tokens=2)
                if server.metric("kaiju_calibration_frozen") == 1:
                    break
            self.assertEqual(server.metric("kaiju_calibration_frozen"), 1)
            self.call(server, "POST", "/scales", {"collection": "thaw"})
            self.assertEqual(server.metric("kaiju_calibration_frozen"), 0)
            server.process.send_signal(signal.SIGTERM)
            self.assertIn("the calibration of keys and values is frozen", server.process.communicate(timeout=60)[1])

    def test_what_cannot_be_done_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(folder)
            for value, status, says in (({"scales": "none"}, 404, "there are: model"),
                                        ({"scales": "../x"}, 404, "there are: model"),
                                        ({}, 400, "give scales"), ({"scales": "model", "collection": "save"}, 400, "give scales"),
                                        ({"collection": "melt"}, 400, "thaw"),
                                        ({"collection": "save"}, 404, "nothing was collected"),
                                        ({"scale": "model"}, 400, "scale")):
                self.assertIn(says, self.call(server, "POST", "/scales", value, status)["error"]["message"])
            own, = pathlib.Path(folder).iterdir()  # of this checkpoint
            (own / "bad.safetensors").write_bytes(b"no such file" * 100)
            self.assertIn("bad.safetensors", self.call(server, "POST", "/scales", {"scales": "bad"}, 500)["error"]["message"])
            (own / "current.json").write_text('{"current": "bad"}')
            self.assertIn("current.json names the scales in use", refused("--scales", folder))
        plain = Running()
        self.addCleanup(plain.stop)
        self.assertIn("--scales FOLDER", self.call(plain, "POST", "/scales", {"scales": "model"}, 404)["error"]["message"])
        self.assertIn("--scales", refused("--scales", "/none", code=2))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
