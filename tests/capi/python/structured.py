"""What kaiju.structured promises, on the bundled model. Skipped without the package llguidance.

    KAIJU_LIBRARY=build/dev/libkaiju.so PYTHONPATH=capi/python python3 tests/capi/python/structured.py"""

import concurrent.futures
import json
import re
import unittest

import kaiju

try:
    import llguidance  # noqa: F401
except ImportError:
    llguidance = None

ROBOT = {"type": "object", "required": ["name", "wheels"], "additionalProperties": False,
         "properties": {"name": {"type": "string", "maxLength": 10},
                        "wheels": {"type": "integer", "minimum": 0, "maximum": 12}}}


@unittest.skipUnless(llguidance, "llguidance is not installed")
class StructuredReplies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from kaiju.structured import Structured

        cls.model = kaiju.Model()
        cls.engine = cls.model.engine(max_running=8)
        cls.structured = Structured(cls.model)

    def test_the_vocabulary_has_the_bytes_of_every_text(self):
        from kaiju.structured import vocabulary

        texts = vocabulary(self.model)
        self.assertEqual(len(texts), self.model.vocabulary)
        for text in ("Hello! Who are you?", "ключ \u00e9 \U0001f600", "{\"a\": 1}"):
            joined = b"".join(texts[token] for token in self.model.tokenize(text))
            self.assertEqual(joined.decode().lstrip(" "), text)
        self.assertIsNone(texts[self.structured.stop_token])

    def test_replies_of_many_threads_follow_their_schema_and_seed(self):
        def one(seed):
            with self.engine.session() as session:
                return self.structured.json(session, "Describe a robot.", schema=ROBOT, seed=seed % 4, temperature=1.0,
                                            max_tokens=100)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            made = list(pool.map(one, range(16)))
        for robot in made:
            self.assertEqual(set(robot), {"name", "wheels"})
            self.assertIn(robot["wheels"], range(13))
            self.assertLessEqual(len(robot["name"]), 10)
        self.assertEqual(made[:4], made[4:8])

    def test_a_reply_matches_its_regex_and_a_stream_is_the_same_text(self):
        options = {"regex": "[A-Z][a-z]{2,8} is [0-9]{1,3} years old", "seed": 5, "temperature": 1.0, "max_tokens": 60}
        with self.engine.session() as session:
            reply = self.structured.reply(session, "How old are you?", **options)
        self.assertRegex(reply, re.compile("^" + options["regex"] + "$"))
        self.assertEqual(reply.reason, kaiju.Reason.STOP_TOKEN)
        with self.engine.session() as session:
            self.assertEqual("".join(self.structured.stream(session, "How old are you?", **options)), reply)

    def test_a_reply_that_is_cut_off_says_so(self):
        from kaiju.structured import Incomplete

        with self.engine.session() as session:
            with self.assertRaises(Incomplete) as raised:
                self.structured.json(session, "Describe a robot.", schema=ROBOT, max_tokens=3)
            self.assertEqual(raised.exception.reply.generated_tokens, 3)
            self.assertLess(json.loads(self.structured.reply(session, "And another?", schema=ROBOT))["wheels"], 13)

    def test_turns_of_a_conversation_follow_their_schema_and_are_kept(self):
        mood = {"schema": {"enum": ["well", "tired", "angry"]}}
        with self.engine.conversation(card=("Pip", "Pip is a robot.")) as talk:
            first = self.structured.reply(talk, "How are you?", **mood)
            self.assertIn(json.loads(first), mood["schema"]["enum"])
            self.assertEqual(talk.text(0).strip(), first)
            seen = {self.structured.json(talk, None, temperature=3.0, seed=seed, **mood) for seed in range(12)}
            self.assertLessEqual(seen, set(mood["schema"]["enum"]))
            self.assertGreater(len(seen), 1)
            self.assertEqual((talk.describe().turns, talk.describe().replies), (1, 13))
            self.assertRegex("".join(self.structured.stream(talk, "And who are you?", regex="I am [A-Z][a-z]{1,9}")),
                             "^I am [A-Z][a-z]{1,9}$")
            self.assertEqual(talk.describe().turns, 2)
            self.assertTrue(talk.say("Bye!", max_tokens=5))

    def test_what_is_neither_a_session_nor_a_conversation_is_refused(self):
        structured, refused = self.structured, kaiju.WrongType
        with self.engine.session() as session:
            for wrong, messages in ((self.engine, "Hello!"), (None, "Hello!"), ("Hello!", session), (session, None)):
                for call in (structured.reply, structured.stream, structured.json):
                    with self.assertRaisesRegex(refused, "Conversation"):
                        call(wrong, messages, schema={})

    def test_a_stream_that_is_let_go_ends_its_request(self):
        with self.engine.session() as session:
            stream = self.structured.stream(session, "Describe a robot.", schema=ROBOT)
            next(stream)
            stream.close()
            self.assertEqual(self.engine.pending(), 0)

    def test_text_never_becomes_a_control_symbol(self):
        stop = self.structured.stop_token
        matcher = self.structured.matcher(regex="<.{0,20}>")
        mask = matcher.mask()
        for token in range(self.model.vocabulary):
            allowed = mask[token // 8] >> (token % 8) & 1
            if self.model.detokenize_bytes([token]) == b"" and token != stop:
                self.assertFalse(allowed, token)

    def test_wrong_grammars_and_guides_are_refused(self):
        for wrong in ({"regex": "("}, {"schema": "{"}, {"schema": {"type": "nothing"}}, {"lark": "?"}, {},
                      {"regex": "a", "schema": {}}):
            with self.assertRaises(kaiju.InvalidArgument):
                self.structured.matcher(**wrong)
        with self.engine.session() as session:
            request = session.submit(self.model.tokenize("a"), max_tokens=2, guided=1)
            for mask in (b"", b"\xff", b"\xff" * 8, bytes(self.model.vocabulary // 8)):
                with self.assertRaises(kaiju.InvalidArgument):
                    self.engine.guide(request, mask)
            self.engine.guide(request, None, {5: 9000.0})
            request.cancel()
            self.assertEqual(request.wait().reason, kaiju.Reason.CANCELLED)


class Hooks(unittest.TestCase):
    def test_a_logits_hook_sees_the_session_and_forces_a_token(self):
        model = kaiju.Model()
        wanted, seen = model.tokenize("a")[-1], []

        def hook(logits, tokens):
            seen.append(len(tokens))
            for token in range(len(logits)):
                logits[token] = 0.0 if token == wanted else -1e9

        with model.engine() as engine, engine.session() as session:
            prompt = model.tokenize("Hello")
            reply = session.generate(prompt, logits_hook=hook, max_tokens=4)
            self.assertEqual(reply.tokens, [wanted] * 4)
            self.assertEqual(seen, [len(prompt) + i for i in range(4)])
            with self.assertRaises(kaiju.WrongType):
                session.generate(prompt, logits_hook=5)


if __name__ == "__main__":
    unittest.main()
