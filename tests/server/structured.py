"""Structured replies of kaiju-server: they follow a JSON schema, an expression, a choice or a grammar, and a wrong one is
refused with its reason.

    structured.py KAIJU_SERVER MODEL [Class.test ...]

Without the package openai (tests/server/requirements.txt) all of it is skipped.
"""

import json
import socket
import sys
import time
import unittest

from openai_client import OfOpenAI, openai
from running import ASK, completion_bytes


class Structured(OfOpenAI):
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
        self.assert_answers()

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
        form = {"type": "json_schema", "json_schema": {"name": "s", "schema": slow}}
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.sendall(completion_bytes(messages=ASK, response_format=form))
            time.sleep(0.05)
        self.assert_answers()
        self.wait_for(lambda: self.server.metric("vllm:num_requests_running") == 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
