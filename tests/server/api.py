"""kaiju-server as its clients see it: OpenAI's API through the openai package, and what a wrong or rude client gets.

    api.py KAIJU_SERVER MODEL [Class.test ...]

Without the package openai (tests/server/requirements.txt) its tests are skipped, and the rest runs.
"""

import concurrent.futures
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import openai
except ImportError:
    openai = None

from running import MODEL, SERVER, OfServer, Running

CARD = "Pip\nPip is a robot who keeps a garden. Pip grows blue tomatoes. Pip is afraid of snails."
ASK = [{"role": "system", "content": CARD}, {"role": "user", "content": "What do you grow?"}]


@unittest.skipIf(openai is None, "the package openai is not installed")
class OpenAI(OfServer):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)
        self.model = self.client.models.list().data[0].id

    def create(self, messages=ASK, **options):
        return self.client.chat.completions.create(model=self.model, messages=messages, **{"seed": 1, **options})

    def test_a_chat_answers_in_character(self):
        answer = self.create(temperature=0)
        self.assertEqual(answer.choices[0].message.content, "I grow blue tomatoes.")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_a_stream_spells_the_same_reply(self):
        whole = self.create(temperature=1.0, max_tokens=30)
        chunks = list(self.create(temperature=1.0, max_tokens=30, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason],
                         [whole.choices[0].finish_reason])

    def test_parallel_replies_equal_those_alone(self):
        alone = [self.create(seed=i, temperature=1.0, max_tokens=20).choices[0].message.content for i in range(12)]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda i: self.create(seed=i, temperature=1.0, max_tokens=20).choices[0].message.content, range(12)))
        self.assertEqual(together, alone)

    def test_n_choices_are_those_of_one_seed(self):
        answer = self.create(n=3, temperature=1.0, max_tokens=20)
        texts = [choice.message.content for choice in answer.choices]
        self.assertEqual(len(texts), 3)
        self.assertEqual(texts[0], self.create(temperature=1.0, max_tokens=20).choices[0].message.content)
        self.assertGreater(len(set(texts)), 1)

    def test_samplers_of_other_servers_work(self):
        def said(**fields):
            return self.create(temperature=1.0, max_tokens=40, seed=11, extra_body=fields).choices[0].message.content

        plain = said()
        neutral = {"frequency_penalty": 0, "presence_penalty": 0, "typical_p": 1, "dry_multiplier": 0, "xtc_probability": 0, "top_n_sigma": 0, "no_repeat_ngram_size": 0,
                   "epsilon_cutoff": 0, "eta_cutoff": 0, "dynamic_temperature": False, "repetition_penalty_range": 0}
        self.assertEqual(said(**neutral), plain)
        for fields in ({"top_n_sigma": 0.001}, {"epsilon_cutoff": 1}, {"dynamic_temperature": True, "dynatemp_low": 0.001, "dynatemp_high": 0.001}):
            self.assertEqual(said(**fields), self.create(temperature=0, max_tokens=40).choices[0].message.content, fields)
        words = said(no_repeat_ngram_size=1).lower().split()
        self.assertEqual(len(words), len(set(words)))
        for fields in ({"frequency_penalty": 20}, {"presence_penalty": 20}, {"xtc_probability": 1, "xtc_threshold": 0.05}, {"dry_multiplier": 50, "dry_allowed_length": 1, "dry_sequence_breakers": []}):
            self.assertNotEqual(said(**fields), plain, fields)
            self.assertEqual(said(**fields), said(**fields))

    def test_log_probabilities_and_alternatives(self):
        answer = self.create(logprobs=True, top_logprobs=2, temperature=0, max_tokens=4)
        for one in answer.choices[0].logprobs.content:
            self.assertLessEqual(one.logprob, 0)
            self.assertEqual(one.top_logprobs[0].token, one.token)
            self.assertEqual(len(one.top_logprobs), 2)

    def test_a_stop_string_ends_a_reply_and_is_not_in_it(self):
        answer = self.create(temperature=0, stop=[" tomatoes"])
        self.assertEqual((answer.choices[0].message.content, answer.choices[0].finish_reason), ("I grow blue", "stop"))

    def test_a_last_assistant_message_is_continued(self):
        answer = self.create(ASK + [{"role": "assistant", "content": "I grow blue"}], temperature=0)
        self.assertEqual(answer.choices[0].message.content, " tomatoes.")

    def test_a_text_is_completed(self):
        answer = self.client.completions.create(model=self.model, prompt=["Once upon a time", "The garden"], max_tokens=5,
                                                seed=2, echo=True)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        self.assertTrue(answer.choices[1].text.startswith("The garden"))

    def structured(self, **options):
        """The text of a reply that follows something; skips the test where the server has no grammar engine."""
        try:
            answer = self.create(max_tokens=200, temperature=1.0, **options)
        except openai.BadRequestError as refused:
            if "without a grammar engine" in refused.message:
                self.skipTest("the server was built without xgrammar")
            raise
        return answer.choices[0]

    SCHEMA = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "colour": {"enum": ["red", "blue"]},
            "age": {"type": "integer", "minimum": 1, "maximum": 99},
        },
        "required": ["name", "colour", "age"],
        "additionalProperties": False,
    }

    def test_a_reply_follows_a_json_schema_in_its_order(self):
        form = {"type": "json_schema", "json_schema": {"name": "who", "schema": self.SCHEMA, "strict": True}}
        for seed in range(8):
            choice = self.structured(seed=seed, response_format=form)
            said = json.loads(choice.message.content)
            self.assertEqual((list(said), choice.finish_reason), (["name", "colour", "age"], "stop"))
            self.assertIn(said["colour"], ("red", "blue"))
            self.assertTrue(1 <= said["age"] <= 99 and len(said["name"]) <= 12, said)
        with self.create(seed=7, max_tokens=200, temperature=1.0, response_format=form, stream=True) as chunks:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        self.assertEqual(text, choice.message.content)

    def test_choices_of_a_structured_request_each_follow_it(self):
        form = {"type": "json_schema", "json_schema": {"name": "who", "schema": self.SCHEMA}}
        self.structured(response_format=form)
        answer = self.create(n=5, temperature=1.5, max_tokens=200, response_format=form)
        said = [choice.message.content for choice in answer.choices]
        for text in said:
            self.assertEqual(list(json.loads(text)), ["name", "colour", "age"])
        self.assertGreater(len(set(said)), 1)

    def test_a_reply_is_some_json_object(self):
        for seed in range(4):
            choice = self.structured(seed=seed, response_format={"type": "json_object"}, stop=None)
            if choice.finish_reason == "stop":
                self.assertIsInstance(json.loads(choice.message.content), dict)

    def test_a_reply_follows_an_expression_a_choice_or_a_grammar(self):
        def outputs(**what):
            return self.structured(extra_body={"structured_outputs": what}).message.content

        self.assertRegex(outputs(regex="[0-9]{4}-[0-9]{2}"), r"^[0-9]{4}-[0-9]{2}$")
        self.assertIn(outputs(choice=["yes", 'a "no"', "né"]), ["yes", 'a "no"', "né"])
        self.assertIn(outputs(grammar='root ::= "well" | "tired"'), ["well", "tired"])
        self.assertEqual(outputs(json=json.dumps({"const": 5})), "5")
        answer = self.client.completions.create(
            model=self.model, prompt="Once", max_tokens=9, extra_body={"structured_outputs": {"choice": [" upon", " more"]}}
        )
        self.assertIn(answer.choices[0].text, (" upon", " more"))

    def test_a_wrong_schema_is_refused_with_its_reason(self):
        self.structured(response_format={"type": "json_object"})
        wrong = [
            ({"response_format": {"type": "json_schema"}}, "needs the schema as"),
            ({"response_format": {"type": "yaml"}}, 'has the type "yaml"'),
            ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "number of feet"}}}}, "number of feet"),
            ({"structured_outputs": {"regex": "(a"}}, None),
            ({"structured_outputs": {"grammar": "root = a b"}}, None),
            ({"structured_outputs": {"choice": []}}, "list of texts"),
            ({"structured_outputs": {}}, "needs json"),
            ({"guided_json": {}}, "use structured_outputs"),
            ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "does not go with ignore_eos"),
            ({"response_format": {"type": "json_object"}, "min_tokens": 5}, "does not go with"),
        ]
        for body, words in wrong:
            with self.assertRaises(openai.BadRequestError) as refused:
                self.create(extra_body=body)
            self.assertIn(refused.exception.param, body)
            if words:
                self.assertIn(words, refused.exception.message)
        self.test_a_chat_answers_in_character()

    def test_of_a_schema_what_replies_do_not_follow_is_refused_by_name(self):
        self.structured(response_format={"type": "json_object"})
        text = {"type": "string"}
        for schema, says in (
                ({"allOf": [{**text, "minLength": 2}, {**text, "maxLength": 3}]}, "# has allOf with more than one"),
                ({"type": "object", "propertis": {"a": text}, "required": ["a"]}, "propertis, which replies do not follow: did you mean properties?"),
                ({"type": "object", "properties": {"a": text}, "required": ["b"]}, 'requires "b"'),
                ({"$ref": "http://x/y"}, "only references into this schema"), ({"enum": ["a", "b"], "const": "a"}, "has enum beside const"),
                ({"type": "string", "enum": ["a", 1]}, "has the value 1"), ({"type": "object", "properties": {"a": {"type": "number", "multipleOf": 2}}},
                                                                           "#/properties/a has multipleOf"),
                ({"minLength": 2}, 'add "type": "string"'), ({**text, "format": "colour"}, "known are date"),
                ({**text, "pattern": "a+", "maxLength": 3}, "only one is followed"), ({"not": text}, "has not, which"),
                ({"type": "array", "items": {"type": ["string", "null"], "if": {}}}, "#/items has if"), ({"type": "array", "uniqueItems": True}, "uniqueItems"),
                ({"$defs": {"a": {"type": "strin"}}, "$ref": "#/$defs/a"}, "#/$defs/a has the type"), ({"anyOf": [text], "maxLength": 3}, "maxLength beside anyOf")):
            with self.assertRaises(openai.BadRequestError) as refused:
                self.create(response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}})
            self.assertIn(says, refused.exception.message)
            self.assertEqual(refused.exception.param, "response_format")

    def test_schemas_that_clients_make_of_their_types_are_followed(self):
        schema = {
            "$defs": {"Pet": {"properties": {"name": {"title": "Name", "type": "string", "maxLength": 4}, "kind": {"const": "pony", "type": "string"}},
                              "required": ["name", "kind"], "title": "Pet", "type": "object", "additionalProperties": False}},
            "properties": {"pet": {"anyOf": [{"$ref": "#/$defs/Pet"}, {"type": "null"}], "default": None, "description": "If any."},
                           "tags": {"type": "array", "items": {"enum": ["a", "b"], "type": "string"}, "maxItems": 2, "uniqueItems": False},
                           "one": {"allOf": [{"$ref": "#/$defs/Pet"}]}, "age": {"type": ["integer", "null"], "minimum": 0, "maximum": 9}},
            "required": ["pet", "tags", "one", "age"], "title": "Answer", "type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema"}
        for seed in range(3):
            choice = self.structured(seed=seed, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}})
            said = json.loads(choice.message.content)
            self.assertEqual((list(said), said["one"]["kind"]), (["pet", "tags", "one", "age"], "pony"))

    def test_what_is_wrong_with_a_grammar_is_told_without_files_and_times(self):
        self.structured(response_format={"type": "json_object"})
        for what in ({"regex": "(a"}, {"grammar": "root = a b"}, {"json": {"type": "array", "minItems": 3, "maxItems": 1}}, {"regex": "a{3,1}"}):
            with self.assertRaises(openai.BadRequestError) as refused:
                self.create(extra_body={"structured_outputs": what})
            message = refused.exception.body["message"]
            self.assertNotRegex(message, r"\.cc|^\[|/")
            self.assertGreater(len(message), 10)

    def test_a_client_that_leaves_while_its_grammar_is_made_leaves_nothing(self):
        self.structured(response_format={"type": "json_object"})
        slow = {"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": f"^[a-z]{{{i},40}}x$"} for i in range(60)}}
        body = json.dumps({"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": slow}}}).encode()
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.05)
        self.test_a_chat_answers_in_character()
        for _ in range(400):
            if self.server.metric("vllm:num_requests_running") == 0:
                return
            time.sleep(0.05)
        self.fail("its request goes on")

    def test_a_closed_stream_cancels_its_request(self):
        before = self.server.metric("kaiju_disconnects_total")
        stream = self.create(stream=True, max_tokens=3000, temperature=1.0, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.wait_for(lambda: self.server.metric("kaiju_requests_unfinished") == 0)
        self.assertEqual(self.server.metric("kaiju_disconnects_total"), before + 1)

    def test_mistakes_are_the_clients_errors(self):
        for options, says in (({"temperature": 101}, "temperature must be from 0 to 100"), ({"n": 0}, "n must be"),
                              ({"max_tokens": 5000}, "max_tokens is 5000"), ({"logit_bias": {"x": 1}}, "logit_bias must be"),
                              ({"extra_body": {"mirostat_mode": 2}}, "mirostat_mode is not supported"), ({"frequency_penalty": 101}, "frequency_penalty must be from"),
                              ({"extra_body": {"dry_multiplier": 1, "dry_sequence_breakers": "x"}}, "dry_sequence_breakers must be"),
                              ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.create(**options)
            self.assertIn(says, str(caught.exception))


class Transcripts(OfServer):
    """Clients that send the whole chat each time: nothing that was computed or generated is computed twice."""

    def test_each_turn_computes_only_what_is_new(self):
        messages = list(ASK)
        for question in ("What are you afraid of?", "Why?", "Tell me more."):
            answer = self.server.chat(messages, temperature=1.0, seed=3, max_tokens=24)
            used = answer["usage"]
            messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
                         {"role": "user", "content": question}]
            status, rendered = self.server.post("/v1/chat/completions/render", messages=messages)
            again = self.server.chat(messages, temperature=0, max_tokens=1)["usage"]
            self.assertEqual(again["prompt_tokens"], len(rendered["token_ids"]))
            # all of the turn before but the last sampled token, whose KV no step has computed
            self.assertGreaterEqual(again["prompt_tokens_details"]["cached_tokens"], used["total_tokens"] - 1)

    def test_generated_tokens_are_kept_and_not_those_of_their_text(self):
        """Hot replies of small pieces, whose texts a tokenizer spells otherwise."""
        differ = 0
        for seed in range(20):
            messages = [{"role": "user", "content": "Hello!"}]
            answer = self.server.chat(messages, temperature=1.5, seed=seed, max_tokens=20, logprobs=True)
            text = answer["choices"][0]["message"]["content"]
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "What?"}]
            kept = self.server.post("/tokenize", messages=messages, return_token_strs=True)[1]["token_strs"]
            pieces = [one["token"] for one in answer["choices"][0]["logprobs"]["content"]]
            self.assertIn(pieces, [kept[i:i + len(pieces)] for i in range(len(kept))])
            status, spelled = self.server.post("/tokenize", prompt=text, add_special_tokens=False, return_token_strs=True)
            differ += spelled["token_strs"] != [piece for piece in pieces if piece]
        self.assertGreater(differ, 0)  # else the test would say nothing

    def test_an_edited_transcript_is_computed_from_the_edit(self):
        messages = ASK + [{"role": "assistant", "content": "Nothing at all."}, {"role": "user", "content": "Why?"}]
        self.assertEqual(self.server.chat(messages, max_tokens=4)["choices"][0]["finish_reason"] in ("stop", "length"), True)


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

    def test_a_reply_that_the_loop_guard_cut_has_no_broken_character_at_its_end(self):
        status, answer = self.server.post("/tokenize", prompt="\U0001f426", add_special_tokens=False)
        first = next(token for token in answer["tokens"] if self.server.post("/detokenize", tokens=[token])[1]["prompt"] == "\ufffd")
        answer = self.server.chat(ASK, temperature=0, max_tokens=200, loop_guard=True, logit_bias={str(first): 100})
        choice = answer["choices"][0]
        self.assertLess(answer["usage"]["completion_tokens"], 200)  # else nothing was cut
        self.assertFalse(choice["message"]["content"].endswith("\ufffd"), choice)

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
        self.assertIn(b"413", self.raw(b"POST /tokenize HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n"))

    def test_a_client_that_reads_nothing_holds_nobody(self):
        slow = socket.create_connection(("127.0.0.1", self.server.port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        body = json.dumps({"messages": ASK, "stream": True, "max_tokens": 2000, "ignore_eos": True}).encode()
        slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        self.assertEqual(self.server.chat(ASK, temperature=0)["choices"][0]["message"]["content"], "I grow blue tomatoes.")
        slow.close()
        self.wait_for(lambda: self.server.metric("kaiju_requests_unfinished") == 0)

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
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"keys": [{"key": "key-of-ann", "name": "ann"}]}, file)
            file.flush()
            server = Running("--keys", file.name)
            self.addCleanup(server.stop)
            self.assertEqual(self.status(server, "chat.example", authorization="Bearer key-of-ann"), 200)
            self.assertEqual(self.status(server, "chat.example", "http://evil.example", authorization="Bearer key-of-ann"), 403)

    def test_an_answer_carries_the_requests_id_and_trace_and_so_does_the_log(self):
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        status, headers, _ = self.server.ask("POST", "/tokenize", {"prompt": "a"}, {"x-request-id": "mine-1", "traceparent": trace})
        self.assertEqual((status, headers["X-Request-Id"], headers["traceparent"]), (200, "mine-1", trace))
        self.wait_for(lambda: ("mine-1", trace, 200) in [(line["id"], line.get("traceparent"), line["status"])
                                                         for line in self.server.log()])

    def test_min_tokens_keeps_a_reply_from_ending(self):
        answer = self.server.chat(ASK, temperature=0, min_tokens=20, max_tokens=30)
        self.assertGreaterEqual(answer["usage"]["completion_tokens"], 20)


class Keys(unittest.TestCase):
    def test_keys_limit_and_separate_their_users(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"keys": [{"key": "key-of-ann", "name": "ann"}, {"key": "key-of-bob", "name": "bob"},
                                {"key": "key-of-few", "name": "few", "requests_per_minute": 1}]}, file)
            file.flush()
            server = Running("--keys", file.name)
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
        with tempfile.NamedTemporaryFile("w") as file:
            file.write('{"keys": [{"key": "short"}]}')
            file.flush()
            done = subprocess.run([SERVER, "--model", MODEL, "--keys", file.name], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn("keys[0]: key must have at least 8 characters", done.stderr)
            for text, says in (('{"keys": [{"key": "aaaaaaaaaa", "name": "a", "requests_per_minut": 1}]}', 'there is no field "requests_per_minut" here: did '
                                'you mean requests_per_minute?'), ('{"keys":\n [,]}', "not JSON: line 2, column 3"), ('{"keys": [1e999]}', "a number is too large"),
                               ('{"keys": [{"key": "aaaaaaaaaa"}]}', "keys[0]: name is missing"), ('{"keys": [], "key": 1}', "must be")):
                file.seek(0)
                file.truncate()
                file.write(text)
                file.flush()
                done = subprocess.run([SERVER, "--model", MODEL, "--keys", file.name], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, says in done.stderr), (1, True), done.stderr)
            for weight in (0, -1, "much", 1e9):
                file.seek(0)
                file.truncate()
                json.dump({"keys": [{"key": "key-of-ann", "name": "ann", "weight": weight}]}, file)
                file.flush()
                done = subprocess.run([SERVER, "--model", MODEL, "--keys", file.name], capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 1)
                self.assertIn("keys[0]: weight must be", done.stderr)


class Fair(unittest.TestCase):
    """One request is computed at a time, and all wait in the engine's queue."""

    def start(self, **weights):
        file = tempfile.NamedTemporaryFile("w", suffix=".json")
        self.addCleanup(file.close)
        json.dump({"keys": [{"key": f"key-of-{name}", "name": name, "weight": weight} for name, weight in weights.items()]}, file)
        file.flush()
        server = Running("--keys", file.name, "--max-running", "1")
        self.addCleanup(server.stop)
        return server

    def ask(self, server, key, tokens=20):
        body = {"messages": ASK, "max_tokens": tokens, "ignore_eos": True}
        status, _, text = server.ask("POST", "/v1/chat/completions", body, {"authorization": f"Bearer key-of-{key}"})
        self.assertEqual(status, 200, text)

    def order(self, server):
        """Whose requests were answered, one after the other."""
        return [line["key"] for line in server.log() if line["path"] == "/v1/chat/completions"]

    def wait_for(self, server, count):
        until = time.monotonic() + 30
        while server.metric("kaiju_requests_unfinished") < count:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def test_a_keys_only_request_does_not_wait_for_another_keys_hundred(self):
        server = self.start(many=1, one=1)
        with concurrent.futures.ThreadPoolExecutor(100) as pool:
            flood = [pool.submit(self.ask, server, "many") for _ in range(100)]
            self.wait_for(server, 70)
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
            self.wait_for(server, 1)
            flood += [pool.submit(self.ask, server, key) for _ in range(30) for key in ("light", "heavy")]
            for one in flood:
                one.result()
        among = self.order(server)[1:33]
        self.assertIn(among.count("heavy"), range(21, 28), among)  # 24


class Ending(unittest.TestCase):
    def test_sigterm_lets_replies_finish_and_takes_nothing_new(self):
        server = Running()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reply = pool.submit(server.chat, ASK, max_tokens=600, ignore_eos=True, seed=1)
            while server.metric("kaiju_requests_unfinished") == 0:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            for method, path, body in (("GET", "/health", None), ("POST", "/v1/chat/completions", {"messages": ASK}), ("GET", "/chats", None)):
                status, _, text = server.ask(method, path, body)
                self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "draining"))
            self.assertEqual(reply.result()["usage"]["completion_tokens"], 600)
        self.assertEqual(server.process.wait(30), 0)
        server.process.stdout.close()
        server.process.stderr.close()

    def asked(self, server, ask, how, *arguments):
        """What `ask` answers, during which the server gets a signal."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reply = pool.submit(ask, *arguments)
            while server.metric("vllm:num_requests_running") == 0:
                time.sleep(0.01)
            time.sleep(0.3)
            server.process.send_signal(how)
            return reply.result(60)

    LONG = {"ignore_eos": True, "max_tokens": 3500, "loop_guard": False, "seed": 1}

    def test_a_reply_that_outlives_the_drain_time_is_cut_kept_and_answered(self):
        with tempfile.TemporaryDirectory() as folder:
            for stream in (False, True):
                server = Running("--drain-seconds", "1", store=folder + "/store")
                answer = self.asked(server, server.ask, signal.SIGTERM, "POST", "/v1/chat/completions",
                                    {"messages": ASK, "stream": stream, **self.LONG})[2]
                if stream:
                    self.assertTrue(answer.endswith("data: [DONE]\n\n"), answer[-200:])
                    self.assertIn('"finish_reason":"abort"', answer)
                else:
                    choice = json.loads(answer)["choices"][0]
                    self.assertEqual((choice["finish_reason"], len(choice["message"]["content"]) > 20), ("abort", True))
                self.assertEqual(server.process.wait(30), 0)
                self.assertEqual([line["finish_reason"] for line in server.log() if line["path"] == "/v1/chat/completions"], ["abort"])
                server.stop()
            server = Running("--drain-seconds", "0", store=folder + "/store")
            chat = server.post("/chats", character="wren")[1]["id"]
            answer = self.asked(server, server.ask, signal.SIGHUP, "POST", f"/chats/{chat}/say", {"text": "Go on.", **self.LONG})[2]
            self.assertEqual(json.loads(answer)["reason"], "cancelled")
            self.assertEqual(server.process.wait(30), 0)
            server.stop()
            server = Running(store=folder + "/store")
            turn = server.get(f"/chats/{chat}")["turns"][-1]
            self.assertEqual((turn["user"], turn["replies"], turn["reason"]), ("Go on.", [json.loads(answer)["reply"]], "cancelled"))
            server.stop()

    def test_sigusr1_opens_the_log_anew(self):
        server = Running()
        self.addCleanup(server.stop)
        server.get("/version")
        moved = server.log_file.with_suffix(".1")
        server.log_file.rename(moved)
        server.process.send_signal(signal.SIGUSR1)
        while not server.log_file.exists():
            time.sleep(0.01)
        server.get("/health")
        while not server.log():  # the line comes after the answer
            time.sleep(0.01)
        self.assertEqual([line["path"] for line in server.log()], ["/health"])
        self.assertIn("/version", moved.read_text())

    def test_the_log_tells_a_finished_reply_from_one_whose_client_left(self):
        server = Running()
        self.addCleanup(server.stop)
        server.chat(ASK, temperature=0)
        server.chat(ASK, max_tokens=1, n=2)
        for stream in (False, True):
            body = json.dumps({"messages": ASK, "stream": stream, **self.LONG}).encode()
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                while server.metric("kaiju_requests_unfinished") == 0:
                    time.sleep(0.01)
            while server.metric("kaiju_requests_unfinished") > 0:
                time.sleep(0.01)
        ended = []
        while len(ended) < 4:
            ended = [(line["finish_reason"], line.get("client_left", False)) for line in server.log() if line["method"] == "POST"]
        self.assertEqual(ended, [("stop", False), (["length", "length"], False), ("abort", True), ("abort", True)])

    def test_a_second_signal_waits_for_no_reply(self):
        server = Running()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reply = pool.submit(server.chat, ASK, max_tokens=3000, ignore_eos=True, seed=1)
            while server.metric("kaiju_requests_unfinished") == 0:
                time.sleep(0.01)
            for _ in range(2):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            self.assertIsNotNone(reply.exception(30))
            self.assertEqual(server.process.wait(30), 0)
        self.assertEqual(server.stop(0), 0)

    def test_a_port_in_use_is_told(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            done = subprocess.run([SERVER, "--model", MODEL, "--port", str(taken.getsockname()[1])], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"127.0.0.1, port {taken.getsockname()[1]}: Address already in use", done.stderr)

    def refused(self, *arguments, store=None):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([SERVER, "--model", MODEL, "--port", "0", "--store", store or folder + "/store", *arguments],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            return done.stderr

    def test_what_keeps_a_server_from_starting_is_told(self):
        self.assertIn("--address must be an IP address", self.refused("--address", "nowhere"))
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "pip.txt").write_text("Pip is a robot.")
            self.assertIn("pip.txt: ", self.refused("--characters", folder))
            missing = folder + "/no/store"
            self.assertIn("no/store: the store cannot be opened", self.refused(store=missing))
            self.assertFalse(pathlib.Path(missing).parent.exists())
            self.assertIn("no/kv: the folder for KV cannot be made", self.refused("--kv", folder + "/no/kv"))

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
            self.assertIn("another server keeps its KV there", self.refused(store=store))
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
