"""Replies that one kaiju-server began and another one continues: the same tokens and the same text.

    continuing.py KAIJU_SERVER MODEL [Class.test ...]
"""

import http.client
import json
import os
import pathlib
import random
import sys
import unittest

from running import ASK, OfServer, Running

FLEET = pathlib.Path(__file__).resolve().parents[2] / "examples" / "fleet"
sys.path.insert(0, str(FLEET))
import continuing  # noqa: E402

SEED = int(os.environ.get("KAIJU_TEST_SEED", random.getrandbits(32)))
SAID = ["What do you grow?", "Tell me about the snails.", "Where do you live?", "What are you afraid of?"]
CHAINS = [
    {},
    {"temperature": 0},
    {"top_p": 0.9, "top_k": 40},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 1.2, "repetition_penalty_range": 24, "min_p": 0.05},
    {"frequency_penalty": 0.7, "presence_penalty": 0.4},
    {"dry_multiplier": 0.8, "dry_allowed_length": 2, "typical_p": 0.9},
    {"no_repeat_ngram_size": 3, "xtc_probability": 0.5, "xtc_threshold": 0.1},
    {"dynamic_temperature": True, "dynatemp_low": 0.3, "dynatemp_high": 1.4},
]
ENDS = [
    {},
    {"stop": [" the ", "snails"]},
    {"stop": ["."]},
    {"min_tokens": 20},
    {"ignore_eos": True, "loop_guard": True},
    {"ignore_eos": True},
]


def request(dice):
    """A request with samplers, ends and lengths of all kinds."""
    body = {"messages": [ASK[0], {"role": "user", "content": dice.choice(SAID)}], "seed": dice.getrandbits(40),
            "max_tokens": dice.choice((24, 60)), "temperature": dice.choice((0.7, 1.2)), "return_token_ids": True}
    return {**body, **dice.choice(CHAINS), **dice.choice(ENDS)}


def whole(answer):
    choice = answer["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return text, choice["token_ids"], choice["finish_reason"]


def events(text):
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", text[-300:]
    return [json.loads(line) for line in lines[:-1]]


class TokenIds(OfServer):
    def test_streams_and_answers_tell_the_tokens_of_prompt_and_reply(self):
        body = {"messages": ASK, "seed": 3, "max_tokens": 20, "return_token_ids": True}
        text, tokens, reason = whole(answer := self.server.chat(**body))
        prompt = answer["prompt_token_ids"]
        self.assertEqual(prompt, self.server.post("/v1/chat/completions/render", messages=ASK)[1]["token_ids"])
        self.assertEqual((len(prompt), len(tokens)), (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]))
        streamed = events(self.server.ask("POST", "/v1/chat/completions", {**body, "stream": True})[2])
        self.assertEqual(streamed[0]["prompt_token_ids"], prompt)
        choices = [event["choices"][0] for event in streamed]
        self.assertEqual("".join(choice["delta"].get("content", "") for choice in choices), text)
        self.assertEqual([token for choice in choices for token in choice.get("token_ids", [])], tokens)
        self.assertEqual(choices[-1]["finish_reason"], reason)

    def test_completions_tell_them_too(self):
        body = {"prompt": ["Pip is", "A robot"], "seed": 3, "max_tokens": 12, "return_token_ids": True}
        status, answer = self.server.post("/v1/completions", **body)
        self.assertEqual(status, 200, answer)
        streamed = events(self.server.ask("POST", "/v1/completions", {**body, "stream": True})[2])
        for index, choice in enumerate(answer["choices"]):
            mine = [event["choices"][0] for event in streamed if event["choices"][0]["index"] == index]
            self.assertEqual([one["prompt_token_ids"] for one in mine if "prompt_token_ids" in one], [choice["prompt_token_ids"]])
            self.assertEqual([token for one in mine for token in one.get("token_ids", [])], choice["token_ids"])
            again = self.server.post("/v1/completions", **{**body, "prompt": choice["prompt_token_ids"]})[1]["choices"][0]
            self.assertEqual(again["token_ids"], choice["token_ids"])

    def test_without_the_option_nothing_is_told(self):
        self.assertNotIn("token_ids", self.server.ask("POST", "/v1/chat/completions", {"messages": ASK, "max_tokens": 2})[2])


class Elsewhere(unittest.TestCase):
    """Of two servers, the first one has generated the whole reply."""

    @classmethod
    def setUpClass(cls):
        cls.first, cls.second = Running(store="none"), Running(store="none")

    @classmethod
    def tearDownClass(cls):
        cls.first.stop()
        cls.second.stop()

    def continued(self, body, answer, count, **more):
        tokens = answer["choices"][0]["token_ids"][:count]
        return self.second.post("/v1/chat/completions", **body, prompt_token_ids=answer["prompt_token_ids"],
                                reply_token_ids=tokens, **more)

    def test_a_reply_goes_on_from_any_of_its_tokens_as_if_it_had_never_broken_off(self):
        dice = random.Random(SEED)
        for number in range(int(os.environ.get("KAIJU_TEST_REPLIES", 12))):
            body = request(dice)
            answer = self.first.chat(**body)
            text, tokens, reason = whole(answer)
            for count in {1, len(tokens), dice.randint(1, len(tokens))}:
                with self.subTest(seed=SEED, number=number, body=body, count=count):
                    status, other = self.continued(body, answer, count)
                    self.assertEqual(status, 200, other)
                    self.assertEqual(whole(other), (text, tokens, reason))
                    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
                        self.assertEqual(other["usage"][name], answer["usage"][name])

    def test_a_structured_reply_goes_on_within_its_grammar(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer"}}, "required": ["name", "age"]}
        body = {"messages": ASK, "seed": SEED, "max_tokens": 60, "return_token_ids": True,
                "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
        status, answer = self.first.post("/v1/chat/completions", **body)
        if status == 400 and "xgrammar" in answer["error"]["message"]:
            self.skipTest("a server without xgrammar")
        for count in (1, 5, len(answer["choices"][0]["token_ids"])):
            self.assertEqual(whole(self.continued(body, answer, count)[1]), whole(answer))

    def test_a_text_goes_on_too(self):
        body = {"prompt": "Pip is a robot", "seed": SEED, "max_tokens": 30, "repetition_penalty": 1.1, "return_token_ids": True}
        answer = self.first.post("/v1/completions", **body)[1]
        tokens = answer["choices"][0]["token_ids"]
        status, other = self.second.post("/v1/completions", **body, reply_token_ids=tokens[:7])
        self.assertEqual((status, whole(other)), (200, whole(answer)))

    def test_the_next_turn_finds_the_continued_reply(self):
        body = {"messages": ASK, "seed": 5, "max_tokens": 90, "ignore_eos": True, "return_token_ids": True}
        answer = self.first.chat(**body)
        other = self.continued(body, answer, 30)[1]
        turns = [*ASK, {"role": "assistant", "content": whole(other)[0]}, {"role": "user", "content": "Go on."}]
        usage = self.second.chat(turns, max_tokens=2)["usage"]
        known = answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
        self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], known // 64 * 64)

    def test_what_is_no_beginning_of_the_reply_is_refused(self):
        body = {"messages": ASK, "seed": 5, "max_tokens": 20, "ignore_eos": True, "return_token_ids": True}
        answer = self.first.chat(**body)
        prompt, tokens = answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
        ask = {**body, "prompt_token_ids": prompt, "reply_token_ids": tokens[:9]}
        wrong = [
            (409, "other_reply", {"reply_token_ids": [*tokens[:8], tokens[8] ^ 1]}),
            (409, "other_reply", {"seed": 6}),
            (400, None, {"seed": None}),
            (400, None, {"max_tokens": 8}),
            (400, None, {"prompt_token_ids": self.first.post("/v1/chat/completions/render", messages=ASK[:1] + [
                {"role": "user", "content": "Something else."}])[1]["token_ids"]}),
            (400, "not_continuable", {"n": 2}),
            (400, "not_continuable", {"logprobs": True}),
            (400, "not_continuable", {"mirostat_mode": 2}),
            (400, "not_continuable", {"banned_strings": ["zebra"]}),
            (400, "not_continuable", {"label_limits": {"violence": 0.9}}),
            (400, "not_continuable", {"num_beams": 2}),
        ]
        for status, code, change in wrong:
            with self.subTest(change=change):
                got, error = self.second.post("/v1/chat/completions", **{**ask, **change})
                self.assertEqual((got, error["error"]["code"]), (status, code), error)


class Killed(unittest.TestCase):
    def killed(self, body, after):
        """The reply of a stream whose server is killed after so many tokens, and the stream."""
        servers = [Running(store="none") for _ in range(2)]
        stream = continuing.Stream([f"http://127.0.0.1:{server.port}" for server in servers], body, attempts=20)
        try:
            for _ in stream:
                if len(stream.tokens) >= after and servers[0].process.poll() is None:
                    servers[0].process.kill()
                    servers[0].process.wait()
        finally:
            for server in servers:
                server.process.kill()
                server.stop()
        return stream

    def test_without_help_a_broken_stream_is_an_error(self):
        server = Running(store="none")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps({"messages": ASK, "stream": True, "max_tokens": 2000, "ignore_eos": True}))
        answer = connection.getresponse()
        answer.readline()
        server.process.kill()
        with self.assertRaises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()
        connection.close()
        server.ended()

    def test_a_stream_goes_on_at_another_server_with_the_same_tokens(self):
        dice = random.Random(SEED)
        alone = Running(store="none")
        self.addCleanup(alone.stop)
        for more in ({}, {"repetition_penalty": 1.2, "stop": ["zzz", " and the"]}, {"mirostat_mode": 2}):
            body = {"messages": ASK, "seed": dice.getrandbits(40), "max_tokens": 400, "ignore_eos": True, **more}
            with self.subTest(seed=SEED, body=body):
                text, tokens, reason = whole(alone.chat(**body, return_token_ids=True))
                stream = self.killed(body, dice.randint(1, max(1, len(tokens) // 3)))
                self.assertEqual((stream.text, stream.tokens, stream.finish_reason), (text, tokens, reason))


if __name__ == "__main__":
    print("seed", SEED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
