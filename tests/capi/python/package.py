"""The Python package against the bundled model: the first call is sensible, wrong ones are refused and explained;
conversations, suspended requests, deadlines, log-probabilities, scores, saved sessions; handles that are closed in any
order, copied or forked; exceptions and Ctrl-C wherever they come.

    package.py LIBKAIJU MODEL KAIJU_MAKE [Class.test ...]"""

import copy
import gc
import math
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from support import LIBRARY, MODEL, PACKAGE, Test, in_child, in_python, interrupted, kaiju, made_model, main

model = kaiju.Model(MODEL)
CARD = ("Wren", "Wren is a travelling hedge witch.")
HOT = {"temperature": 1.0, "seed": 7, "max_tokens": 8}
BEGIN = model.chat_symbol("begin")


def said(text):
    return model.chat_format(text)


STORY = model.chat_format([("card", "\n".join(CARD)), ("user", "Tell me a story.")])


class OfEngine(Test):
    def setUp(self):
        super().setUp()
        self.engine = model.engine(threads=1, max_running=1)

    def tearDown(self):
        super().tearDown()
        self.assertEqual(self.engine.pending(), 0)


class FirstCall(OfEngine):
    """What a stranger writes first."""

    def test_a_reply_to_a_bare_text_is_sensible(self):
        reply = self.engine.session().reply("Hello!")
        self.assertRegex(reply, r"^[A-Z][\w ,.!?']+$")
        self.assertEqual(reply.reason, kaiju.Reason.STOP_TOKEN)

    def test_a_session_begins_itself_and_closes_its_replies(self):
        with self.engine.session() as session:
            first = session.reply("Hello!")
            self.assertEqual(session.tokens(),
                             model.chat_format("Hello!", kaiju.Chat.BEGIN | kaiju.Chat.REPLY) + first.tokens)
            before = session.tokens()
            cut = session.reply("Tell me a story.", max_tokens=2)
            self.assertEqual(session.tokens(), before + said("Tell me a story.") + cut.tokens)
            before = session.tokens()
            session.reply("Go on.", max_tokens=2)
            closed = model.chat_format("Go on.", kaiju.Chat.CLOSE | kaiju.Chat.REPLY)
            self.assertEqual(session.tokens()[: len(before) + len(closed)], before + closed)
            for again in (session.fork(), self.engine.restore(session.save())):
                self.assertEqual(again.prompt("And?"), session.prompt("And?"))
            session.truncate(0)
            self.assertEqual(session.prompt("Hello!")[0], BEGIN)

    def test_a_session_begins_with_its_card_and_greeting(self):
        messages = [("card", "\n".join(CARD)), ("character", "Welcome!"), ("user", "hi")]
        for card in (CARD, "\n".join(CARD), kaiju.Card(*CARD)):
            with self.engine.session(card=card, greeting="Welcome!") as session:
                self.assertEqual(session.prompt("hi"), model.chat_format(messages))
        with self.engine.session(card=CARD) as session:
            session.reply("hi", max_tokens=1)
            self.assertEqual(session.tokens()[: len(STORY) // 2], STORY[: len(STORY) // 2])
        bundled = kaiju.Card.bundled("wren")
        self.assertEqual((bundled.name, bundled.greeting[:3]), ("Wren", "Oh!"))
        self.assertTrue(all(ask.endswith("?") for ask in bundled.asks) and bundled.asks)
        self.assertRaisesRegex(kaiju.NotFound, "did you mean 'wren'", kaiju.Card.bundled, "wrenn")
        self.assertTrue(self.engine.session(card=bundled).reply("Hello! Who are you?"))

    def test_messages_come_as_pairs_dicts_or_objects(self):
        with self.engine.session() as session:
            wanted = session.prompt([("user", "hi"), ("character", "Hello."), ("user", "Who are you?")])
            for messages in ([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."},
                              {"role": "user", "content": "Who are you?"}],
                             [kaiju.Message("user", "hi"), ("assistant", "Hello."), ("user", "Who are you?")]):
                self.assertEqual(session.prompt(messages), wanted)
            self.assertEqual(wanted[0], BEGIN)

    def test_tokens_go_in_explicitly_and_untouched(self):
        with self.engine.session() as session:
            reply = session.generate([20, 21], max_tokens=2, stop_token=-1)
            self.assertEqual(session.tokens(), [20, 21] + reply.tokens)
            with self.assertRaisesRegex(kaiju.WrongType, "session.reply"):
                session.generate("Hello!")
            with self.assertRaisesRegex(kaiju.WrongType, "generate"):
                session.reply([20, 21])

    def test_a_model_without_a_chat_format_continues_text(self):
        plain = made_model()
        self.assertFalse(plain.chats)
        with plain.engine(threads=1, cache_bytes=1 << 24) as engine, engine.session() as session:
            with self.assertRaises(kaiju.Unsupported):  # and has no tokenizer
                session.reply("Hello!")
            self.assertEqual(session.generate([1, 2], max_tokens=2, stop_token=-1).generated_tokens, 2)
            with self.assertRaises(kaiju.Unsupported):
                engine.session(card=CARD)

    def test_text_streams_as_it_is_made(self):
        with self.engine.session(card=CARD) as session:
            whole = session.reply("Tell me a story.", max_tokens=12)
        with self.engine.session(card=CARD) as session:
            parts = list(session.stream("Tell me a story.", max_tokens=12))
            self.assertGreater(len(parts), 3)
            self.assertEqual("".join(parts), whole)
        pieces = []
        with self.engine.session(card=CARD) as session:
            self.assertEqual(session.reply("Tell me a story.", pieces.append, max_tokens=12), whole)
            self.assertEqual("".join(pieces), whole)
            with self.assertRaisesRegex(kaiju.Cancelled, "on_text stopped the reply"):
                session.reply("More!", lambda text: True)
            for _ in session.stream("More!", max_tokens=1000, stop_token=-1):
                break
            self.assertTrue(session.reply("Enough."))

    def test_max_tokens_that_nobody_gave_fits_the_context(self):
        with self.engine.session() as session:
            session.generate([BEGIN] + [20] * (model.context - 20), max_tokens=0)
            reply = session.reply("Hello!", stop_token=-1)
            self.assertEqual(len(session), model.context)
            self.assertEqual(reply.reason, kaiju.Reason.LENGTH)
            with self.assertRaises(kaiju.InvalidArgument):
                session.reply("Hello!")


class OptionNames(OfEngine):
    def refused(self, says, call, kind=kaiju.InvalidArgument):
        with self.assertRaisesRegex(kind, says) as caught:
            call()
        self.assertEqual((caught.exception.status, caught.exception.name),
                         (kaiju.Status.INVALID_ARGUMENT, "invalid argument"))

    def test_a_mistyped_option_is_refused_with_a_suggestion(self):
        session = self.engine.session()
        for call in (lambda: session.reply("hi", temprature=1), lambda: session.stream("hi", temprature=1),
                     lambda: session.submit([20], temprature=1), lambda: kaiju.Options(temprature=1),
                     lambda: self.engine.conversation().say("hi", temprature=1)):
            self.refused("did you mean 'temperature'", call)
        self.refused("did you mean 'threads'", lambda: model.engine(thread=1))
        self.refused("did you mean 'threads', which goes to", lambda: session.reply("hi", thread=1))
        self.refused("this call reads .*max_tokens", lambda: session.reply("hi", zzz=1))

    def test_an_option_of_another_scope_is_refused_with_its_place(self):
        session = self.engine.session()
        self.refused("scope 'engine'", lambda: session.reply("hi", threads=2))
        self.refused("scope 'generate'", lambda: model.engine(temperature=1))
        self.refused("scope 'generate'", lambda: model.engine(logit_bias={1: 1}))
        self.refused("scope 'engine'", lambda: session.reply("hi", clock=lambda: 1))
        self.refused("scope 'session'", lambda: kaiju.Model(MODEL, salt="a"))
        self.refused("session.key", lambda: session.reply("hi", key="a key of two dozen bytes"))
        self.refused("engine.threads", lambda: session.reply("hi", options=kaiju.Options(threads=1)))

    def test_a_value_of_another_type_or_range_is_refused_by_name(self):
        session = self.engine.session()
        for option, value in (("temperature", "hot"), ("max_tokens", 1.5), ("max_tokens", "8"), ("max_tokens", 2**63),
                              ("stop", 5), ("seed", 2**64), ("temperature", None), ("stop", ["a", 5]),
                              ("top_k", [1]), ("logit_bias", 3), ("logit_bias", {"a": 1}), ("timeout", "soon")):
            with self.subTest(option=option, value=value):
                self.refused(option, lambda: session.submit([20], **{option: value}), kaiju.WrongType)
                self.assertRaises(TypeError, lambda: session.submit([20], **{option: value}))
        for option, value in (("temperature", -1), ("top_p", 2.0), ("temperature", math.nan), ("max_tokens", -2)):
            with self.subTest(option=option, value=value):
                self.refused(option, lambda: session.submit([20], **{option: value}))
        self.assertEqual(session.generate([20], max_tokens=0, seed=2**64 - 1).done.kind, kaiju.Kind.DONE)

    def test_a_bag_serves_several_calls_and_keywords_go_before_it(self):
        bag = kaiju.Options(**HOT)
        sessions = [self.engine.session() for _ in range(4)]
        replies = [session.reply("Hello!", options=bag) for session in sessions[:2]]
        self.assertEqual(replies[0].tokens, replies[1].tokens)
        self.assertEqual(sessions[2].reply("Hello!", options=bag, max_tokens=1).generated_tokens, 1)
        other = bag.copy()
        other.clear("max_tokens")
        other.set("generate.max_tokens", 3)
        self.assertEqual((bag.get("max_tokens"), other.get("max_tokens")), (8, 3))
        self.assertEqual(sessions[3].reply("Hello!", options=other).tokens, replies[0].tokens[:3])
        other.clear()
        self.assertEqual(other.get("seed"), None)

    def test_a_bag_may_be_a_dict(self):
        replies = [self.engine.session().reply("Hello!", **options)
                   for options in (HOT, {"options": HOT}, {"options": {**HOT, "seed": 1}, "seed": 7})]
        self.assertEqual({tuple(reply.tokens) for reply in replies}, {tuple(replies[0].tokens)})
        self.refused("did you mean", lambda: self.engine.session().reply("Hello!", options={"sed": 1}))
        self.refused("must be an Options or a dict", lambda: self.engine.session().reply("Hello!", options=5),
                     kaiju.WrongType)

    def test_logit_biases_choose_tokens(self):
        with self.engine.session() as session:
            reply = session.generate(STORY, max_tokens=3, stop_token=-1, logit_bias={77: 10000.0})
            self.assertEqual(reply.tokens, [77] * 3)
            with self.assertRaises(kaiju.InvalidArgument):
                session.generate([20], logit_bias={77: 1e6})

    def test_stops_come_alone_or_in_a_list(self):
        def replied(**options):
            with self.engine.session() as session:
                return session.generate(STORY, max_tokens=12, **options)

        whole = replied(stop_token=-1)
        tokens, words = whole.tokens, whole.split()
        self.assertEqual(len(tokens), 12)
        self.assertEqual(replied(stop_token=tokens[5]).tokens, tokens[: tokens.index(tokens[5]) + 1])
        self.assertEqual(replied(stop_token=[tokens[7], tokens[3]]).tokens,
                         tokens[: min(tokens.index(tokens[7]), tokens.index(tokens[3])) + 1])
        for stop in ([words[4], words[2]], (words[4], words[2])):
            first = min(whole.index(words[4]), whole.index(words[2]))
            self.assertEqual(replied(stop=stop, stop_token=-1), whole[:first])
        self.assertEqual(replied(stop=words[3], stop_token=[-1]), whole[: whole.index(words[3])])
        self.assertEqual(replied(stop=[], stop_token=-1), whole)

    def test_samplers_are_an_ordered_list_or_a_dict(self):
        def replied(**options):
            return self.engine.session().generate(STORY, max_tokens=8, seed=3, **options).tokens

        hot = replied(temperature=1.0, top_k=5)
        for samplers in ([("temperature", 1.0), ("top_k", 5)], {"temperature": 1.0, "top_k": 5},
                         [(kaiju.Sampler.TEMPERATURE, 1), (kaiju.Sampler.TOP_K, 5)]):
            self.assertEqual(replied(samplers=samplers), hot)
        self.assertNotEqual(hot, replied())
        self.assertEqual(kaiju.sampler_describe(kaiju.Sampler.TOP_K).name, "top_k.k")
        self.refused("did you mean 'top_k'", lambda: replied(samplers=[("topk", 5)]))
        self.refused("there are", lambda: replied(samplers=[("zzz", 5)]))
        for wrong in (["top_k"], [("top_k", "5")], [()]):
            self.refused("sampler", lambda: replied(samplers=wrong), kaiju.WrongType)
        self.refused("", lambda: replied(samplers=[("top_k", 5)], temperature=1.0))
        with kaiju.Options(samplers=[("temperature", 1.0)], seed=3) as bag:
            bag.clear("samplers")
            self.assertEqual(self.engine.session().generate(STORY, max_tokens=8, options=bag).tokens, replied())

    def test_an_engines_clock_is_its_hosts(self):
        time = [1000]
        with model.engine(threads=1, clock=lambda: time[0]) as engine:
            gc.collect()
            self.assertEqual(engine.now(), 1000)
            time[0] = 5000
            self.assertEqual(engine.now(), 5000)


class Errors(OfEngine):
    def test_every_status_has_a_class_and_a_name(self):
        from kaiju.errors import error_of

        for status in kaiju.Status:
            if status != kaiju.Status.OK:
                error = error_of(status, "text")
                self.assertEqual((error.status, str(error)), (status, "text"))
                self.assertEqual(error.name, kaiju.status_name(status))
                self.assertIsInstance(error, kaiju.Error)

    def test_errors_of_calls_are_of_their_status(self):
        session = self.engine.session()
        for kind, also, call in ((kaiju.InputOutput, OSError, lambda: kaiju.Model("/nowhere")),
                                 (kaiju.InvalidArgument, ValueError, lambda: session.generate([])),
                                 (kaiju.NotFound, LookupError, lambda: model.label(0)),
                                 (kaiju.NotFound, LookupError, lambda: kaiju.option_find("no.such")),
                                 (kaiju.Unsupported, kaiju.Error, lambda: self.engine.session(system="Be brief.")),
                                 (kaiju.BadModel, ValueError, lambda: kaiju.Model(__file__))):
            for each in (kind, also, kaiju.Error):
                self.assertRaises(each, call)
            try:
                call()
            except kaiju.Error as error:
                self.assertEqual(error.status, kind.status)
                self.assertTrue(str(error))

    def test_tokens_outside_the_vocabulary_are_refused_however_large(self):
        session, talk = self.engine.session(), self.engine.conversation(card=CARD)
        talk.append([], [20])
        calls = (session.submit, session.generate, model.detokenize, lambda ids: self.engine.conversation(head=ids),
                 talk.say, lambda ids: talk.append(ids, []), lambda ids: talk.append([], ids),
                 lambda ids: talk.edit(0, ids))
        for token in (-1, model.vocabulary, 2**32 + 5, 2**40 + 5, 2**64 + 5, 5 - 2**32):
            for call in calls:
                with self.subTest(token=token), self.assertRaisesRegex(kaiju.InvalidArgument, f"token 1 is {token};"):
                    call([1, token])

    def test_numbers_that_c_would_cut_off_are_refused(self):
        talk = self.engine.conversation(card=CARD)
        talk.say("hello!", **HOT)
        for call in (self.engine.cancel, self.engine.suspend, self.engine.resume, talk.choose, talk.fork, talk.turn,
                     self.engine.session().truncate):
            for wrong in (2**64 + 1, -1):
                self.assertRaisesRegex(kaiju.InvalidArgument, "it must be from 0 to", call, wrong)
            self.assertRaises(TypeError, call, "1")
        with self.assertRaisesRegex(kaiju.InvalidArgument, "flags is 4294967297"):
            model.chat_format("hello!", 2**32 + 1)

    def test_what_is_no_text_is_refused_alike_everywhere(self):
        session = self.engine.session()
        for call in (model.tokenize, lambda text: model.chat_format([("user", text)]), session.reply,
                     lambda text: session.reply("hi", salt=text)):
            self.assertRaisesRegex(kaiju.InvalidArgument, "which UTF-8 cannot write", call, "\ud800")
            for wrong in (None, b"bytes", 1):
                self.assertRaises(TypeError, call, wrong)
        for wrong in ([("user",)], [("nobody", "hi")], [{"role": "user"}], [5], {"role": "user", "text": "hi"}):
            self.assertRaises(kaiju.InvalidArgument, session.reply, wrong)
        self.assertRaisesRegex(kaiju.InvalidArgument, "cannot be written", kaiju.Model, "\ud800")
        self.assertRaisesRegex(kaiju.InvalidArgument, "a description", lambda: self.engine.session(card="Wren"))

    def test_a_handle_of_another_kind_is_refused(self):
        session, talk = self.engine.session(), self.engine.conversation()
        for wrong in (self.engine, session, talk, None, 1, MODEL):
            self.assertRaisesRegex(kaiju.WrongType, "it must be a Model", kaiju.Engine, wrong)
        for wrong in (model, session, talk, None, 1):
            self.assertRaisesRegex(kaiju.WrongType, "it must be an Engine", kaiju.Session, wrong)
            self.assertRaisesRegex(kaiju.WrongType, "it must be an Engine", kaiju.Conversation, wrong)

    def test_a_nul_is_refused_in_a_path_and_kept_in_a_text(self):
        session = self.engine.session()
        for call in (lambda: kaiju.Model(MODEL + "\0.old"), lambda: kaiju.Model(os.fsencode(MODEL) + b"\0"),
                     lambda: session.save_file("a\0b"), lambda: self.engine.restore_file("a\0b")):
            self.assertRaisesRegex(kaiju.InvalidArgument, "has a NUL in it", call)
        for name in ("tier_file", "products_file", "backend"):
            with self.assertRaisesRegex(kaiju.InvalidArgument, f"engine.{name} is zero at byte 2"):
                model.engine(**{name: "a\0b"})
        self.assertNotEqual(model.tokenize("a\0b"), model.tokenize("a"))
        self.assertNotEqual(said("a\0b"), said("a"))
        session.generate(STORY, max_tokens=1, salt="a\0b", character="c\0d", shared_tokens=5)
        for salt, shared in (("a\0b", len(STORY) - 1), ("a\0c", 5), ("a", 5)):
            reply = self.engine.session().generate(STORY, max_tokens=1, salt=salt, character="c\0d", shared_tokens=5)
            self.assertEqual(reply.cached_tokens, shared)

    def test_a_path_may_be_any_bytes_and_so_may_an_errors(self):
        with tempfile.TemporaryDirectory() as folder, self.engine.session() as session:
            session.generate(STORY, max_tokens=1)
            name = os.path.join(os.fsencode(folder), b"caf\xe9")
            for path in (name, os.fsdecode(name), pathlib.Path(os.fsdecode(name))):
                self.assertRaisesRegex(kaiju.Error, r"caf\\xe9: cannot open", kaiju.Model, path)
                self.assertRaisesRegex(kaiju.Error, r"caf\\xe9: cannot open", self.engine.restore_file, path)
                session.save_file(path)
                self.engine.restore_file(path).close()
                os.unlink(path)
                model.engine(threads=1, host_bytes=1 << 24, file_bytes=1 << 24, tier_file=path).close()
            for path in (5, None):
                self.assertRaisesRegex(TypeError, "tier_file", lambda: model.engine(tier_file=path))

    def test_a_library_that_is_none_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:  # where no build is found
            shutil.copytree(os.path.join(PACKAGE, "kaiju"), os.path.join(folder, "kaiju"))
            text = os.path.join(folder, "text")
            with open(text, "w") as file:
                file.write("not a library")
            for library, says in ((text, "cannot load the kaiju library"),
                                  ("libc.so.6", "libc.so.6 is not the kaiju library"),
                                  ("/nowhere.so", "cannot load the kaiju library")):
                code, _, error = in_python("import kaiju", library, folder)
                self.assertEqual(code, 1)
                self.assertRegex(error.splitlines()[-1], f"^kaiju.errors.LibraryMissing: {says}.*KAIJU_LIBRARY")
            lib = os.path.join(folder, "kaiju", "lib")
            os.mkdir(lib)
            shutil.copy(LIBRARY, os.path.join(lib, "libkaiju.so"))
            code, out, error = in_python("import kaiju; print(kaiju.loaded_from)", "", folder)  # as if unset
            self.assertEqual((code, out.strip()), (0, os.path.join(lib, "libkaiju.so")), error)


class Facts(OfEngine):
    def test_a_model_tells_what_it_is(self):
        self.assertEqual((model.name, model.vocabulary, model.context, model.labels), ("kaiju-nano", 8192, 4096, []))
        self.assertRegex(model.digest, "^[0-9a-f]{32}$")
        self.assertGreater(model.parameters, 3e7)
        self.assertGreater(model.weight_bytes, 3e7)
        self.assertIn(model.chat_symbol("close"), model.stop_tokens)
        self.assertTrue(model.chats)
        self.assertEqual(model.detokenize(model.tokenize("Hello, world!")), "Hello, world!")
        self.assertRaisesRegex(kaiju.InvalidArgument, "there are begin, card", model.chat_symbol, "nobody")

    def test_a_load_tells_its_progress_and_can_be_stopped(self):
        told = []
        kaiju.Model(MODEL, progress=told.append).close()
        self.assertEqual((told, told[-1]), (sorted(told), 1.0))
        self.assertRaises(kaiju.Cancelled, lambda: kaiju.Model(MODEL, progress=lambda done: True))
        with self.assertRaises(ZeroDivisionError):
            kaiju.Model(MODEL, progress=lambda done: 1 / 0)

    def test_a_runtime_lists_devices(self):
        with kaiju.Runtime() as runtime:
            self.assertEqual(len(runtime.devices()), runtime.device_count())
            self.assertIn("reference", runtime.devices()[0].backends)
            self.assertRaises(kaiju.Error, runtime.device_info, 1000)
            kaiju.Model(MODEL, runtime=runtime, verify=0).close()

    def test_an_engine_describes_itself(self):
        info = self.engine.describe()
        self.assertEqual((info.threads, info.max_running, info.context), (1, 1, model.context))
        with kaiju.Runtime() as runtime:
            self.assertIn(info.backend, runtime.devices()[info.device].backends)
            self.assertEqual(runtime.devices()[0].kind, kaiju.Device.CPU)
        self.assertGreater(info.cache_bytes, 0)

    def test_a_reply_says_what_stopped_it(self):
        whole = self.engine.session().generate(STORY, max_tokens=12, stop_token=-1)
        words = whole.split()
        reply = self.engine.session().generate(STORY, max_tokens=12, stop_token=-1, stop=["no such", words[3]])
        self.assertEqual((reply.reason, reply.done.stop), (kaiju.Reason.STOP_STRING, 1))
        reply = self.engine.session().generate(STORY, max_tokens=12, stop_token=whole.tokens[4])
        self.assertEqual((reply.reason, reply.done.stop), (kaiju.Reason.STOP_TOKEN, whole.tokens[4]))
        self.assertEqual((whole.reason, whole.done.stop), (kaiju.Reason.LENGTH, -1))
        circle = self.engine.session().generate(STORY, max_tokens=60, stop_token=-1, loop_guard=1,
                                                logit_bias={whole.tokens[0]: 10000.0})
        self.assertEqual(circle.reason, kaiju.Reason.LOOP)

    def test_metrics_count(self):
        before = self.engine.metrics()
        self.engine.session().reply("Hello!", max_tokens=3, stop_token=-1)
        after = self.engine.metrics()
        self.assertEqual((after.requests_done, after.prompt_tokens), (1, len(said("Hello!")) + 1))
        self.assertEqual(before.requests_done, 0)  # a snapshot
        self.assertIn("requests_done=1", repr(after))

    def test_turns_are_dropped_by_the_librarys_rule(self):
        self.assertEqual(kaiju.chat_turns_to_drop([10, 10], 5, 5, 100), 0)
        self.assertGreater(kaiju.chat_turns_to_drop([50, 50, 50], 5, 5, 100), 0)

    def test_a_message_may_have_its_speakers_name(self):
        self.assertEqual(model.chat_format([("user", "hello!", "Ann")]), said("Ann: hello!"))
        opened = model.chat_format([("user", "hello!"), ("character", "", "Wren")], kaiju.Chat.OPEN)
        self.assertEqual(opened, said("hello!") + model.tokenize("Wren:"))
        with self.engine.session() as session:
            self.assertEqual(session.prompt([("user", "hello!"), ("character", "", "Wren")])[1:], opened)
        for wrong in (("user", "hello!", "A\nB"), ("system", "Be brief.")):
            self.assertRaisesRegex(kaiju.Error, "message 0", model.chat_format, [wrong])

    def test_log_probabilities_come_with_every_token(self):
        reply = self.engine.session().generate(STORY, max_tokens=4, logprobs=3)
        self.assertEqual([len(each) for each in reply.alternatives], [3] * reply.generated_tokens)
        for token, logprob, alternatives in zip(reply.tokens, reply.logprobs, reply.alternatives):
            self.assertEqual((token, logprob), alternatives[0])  # greedy: the token is its best alternative
            values = [value for _, value in alternatives]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLess(sum(map(math.exp, values)), 1)
        plain = self.engine.session().generate(STORY, max_tokens=4)
        self.assertEqual((plain.logprobs, plain.alternatives), (reply.logprobs, [[]] * 4))

    def test_scores_come_with_every_token(self):
        judging = made_model("--preset", "nano", "--layers", "1", "--labels", "2")
        self.assertEqual(judging.labels, ["label 0", "label 1"])
        with judging.engine(threads=1, max_running=1) as engine:
            reply = engine.session().generate([20, 21, 22], max_tokens=3, stop_token=-1, scores=1)
            self.assertEqual([len(scores) for scores in reply.scores], [2, 2, 2])
            self.assertNotEqual(reply.scores[0], reply.scores[1])
            self.assertEqual(engine.session().generate([23], max_tokens=3).scores, [])
        self.assertRaises(kaiju.Unsupported, lambda: self.engine.session().generate([20], scores=1))

    def test_events_keep_what_they_show(self):
        session = self.engine.session()
        session.submit(STORY, max_tokens=3, stop_token=-1, user_data="mine", logprobs=2)
        events = []
        while self.engine.pending():
            self.engine.step()
            events += self.engine.poll()
        copies = [(event.text, list(event.tokens), list(event.logprobs)) for event in events]
        for _ in range(3):
            self.engine.session().reply("Hello!", max_tokens=5)
        self.assertEqual([(event.text, event.tokens, event.logprobs) for event in events], copies)
        self.assertEqual([len(event.tokens) for event in events], [3, 3, 3, 0])
        self.assertEqual({event.user_data for event in events}, {"mine"})
        self.assertTrue(events[-1].last)


class Requests(OfEngine):
    def test_a_suspended_request_goes_on_with_the_same_words(self):
        alone = self.engine.session().generate(STORY, max_tokens=20)
        session = self.engine.session()
        request = session.submit(STORY, max_tokens=20)
        events = []
        for step in range(200):
            self.engine.step()
            new = self.engine.poll()
            events += new
            if step == 2:
                request.suspend()
            if step == 10:
                self.assertEqual(new, [])
                request.resume()
        self.assertEqual([event.kind for event in events if event.kind != kaiju.Kind.TOKEN],
                         [kaiju.Kind.SUSPENDED, kaiju.Kind.RESUMED, kaiju.Kind.DONE])
        self.assertEqual("".join(event.text for event in events), alone)
        self.assertTrue(request.done)

    def test_who_suspends_and_waits_is_told(self):
        request = self.engine.session().submit(STORY, max_tokens=3)
        request.suspend()
        with self.assertRaisesRegex(kaiju.Busy, "is suspended by this thread"):
            request.wait()
        request.resume()
        self.assertEqual(request.wait().generated_tokens, 3)
        request = self.engine.session().submit(STORY, max_tokens=3)
        threading.Thread(target=request.suspend).start()
        threading.Timer(0.3, request.resume).start()
        self.assertEqual([event.kind for event in request.events() if event.last], [kaiju.Kind.DONE])

    def test_a_deadline_a_timeout_and_a_cancel_end_a_request(self):
        sessions = [self.engine.session() for _ in range(4)]
        late = sessions[0].submit([20], max_tokens=500, deadline=self.engine.now() + 1)
        self.assertEqual(late.wait().reason, kaiju.Reason.DEADLINE)
        self.assertEqual(sessions[1].reply("Hello!", max_tokens=4000, stop_token=-1, timeout=0.1).reason,
                         kaiju.Reason.DEADLINE)
        cancelled = sessions[2].submit([20], max_tokens=500)
        self.engine.cancel(cancelled)
        self.assertEqual(cancelled.wait().reason, kaiju.Reason.CANCELLED)
        stream, parts = sessions[3].stream("Hello!", max_tokens=500, stop_token=-1), []
        for part in stream:
            parts.append(part)
            stream.cancel()
        self.assertEqual((stream.reply().reason, stream.reply()), (kaiju.Reason.CANCELLED, "".join(parts)))

    def test_higher_priority_is_served_first(self):
        sessions = [self.engine.session() for _ in range(3)]
        requests = [session.submit(STORY, max_tokens=3, priority=i) for i, session in enumerate(sessions)]
        done = []
        while len(done) < 3:
            self.engine.step()
            done += [event.request for event in self.engine.poll() if event.last]
        self.assertEqual(done, [request.id for request in requests[::-1]])

    def test_a_request_outlives_the_name_of_its_session(self):
        request = self.engine.session().submit(STORY, max_tokens=3, stop_token=-1)
        gc.collect()
        self.assertEqual(request.wait().reason, kaiju.Reason.LENGTH)

    def test_wait_ends_with_work_with_wake_and_in_time(self):
        self.assertFalse(self.engine.wait(0))
        self.assertFalse(self.engine.wait(0.01))
        threading.Timer(0.1, self.engine.wake).start()
        self.assertFalse(self.engine.wait())
        request = self.engine.session().submit(STORY, max_tokens=1)
        self.assertTrue(self.engine.wait(10))
        request.wait()


class Kept(OfEngine):
    def test_a_restored_session_goes_on_where_the_saved_one_was(self):
        key = "a key of two dozen bytes"
        with tempfile.TemporaryDirectory() as folder, self.engine.session(card=CARD) as session:
            path = os.path.join(folder, "saved")
            session.reply("Tell me a story.", **HOT)
            session.save_file(path, key=key)
            data = session.save(key=key)
            reply = session.reply("And then?", **HOT)
            with model.engine(threads=1) as other:
                for restore in (lambda **options: other.restore_file(path, **options),
                                lambda **options: other.restore(data, **options)):
                    with restore(key=key) as again:
                        went_on = again.reply("And then?", **HOT)
                    self.assertEqual(went_on.tokens, reply.tokens)
                    self.assertGreater(went_on.cached_tokens, 0)
                    self.assertRaises(kaiju.Error, restore, key=key[::-1])
                    self.assertRaises(kaiju.InvalidArgument, restore)
                self.assertRaises(kaiju.BadModel, other.restore, data[:-5], key=key)
            session.save_file(path, kv=0)
            self.assertLess(len(session.save(kv=0)), len(data) // 10)
            self.engine.restore_file(path).close()

    def test_a_session_is_saved_while_other_threads_ask_for_replies(self):
        with model.engine(threads=1) as engine, engine.session() as session:
            session.reply("Hello!", max_tokens=2)
            stop = threading.Event()

            def replies():
                while not stop.is_set():
                    engine.session().reply("Hello!", max_tokens=4)

            threads = [threading.Thread(target=replies) for _ in range(2)]
            for thread in threads:
                thread.start()
            try:
                for _ in range(5):
                    self.assertEqual(engine.restore(session.save()).tokens(), session.tokens())
            finally:
                stop.set()
                for thread in threads:
                    thread.join()

    def test_a_fork_goes_on_by_itself(self):
        with self.engine.session() as session:
            session.reply("Hello!", **HOT)
            with session.fork() as child, session.fork(3) as short:
                self.assertEqual((child.tokens(), short.tokens()), (session.tokens(), session.tokens()[:3]))
                child.reply("Bye.", **HOT)
                self.assertGreater(len(child), len(session))
            self.assertRaises(kaiju.InvalidArgument, session.fork, len(session) + 1)


    def test_a_restored_conversation_goes_on_where_the_saved_one_was(self):
        key = "a key of two dozen bytes"
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "saved")
            talk = self.engine.conversation(card=CARD)
            talk.say("hello!", **HOT)
            talk.swipe(**HOT)
            talk.save_file(path, key=key)
            data = talk.save(key=key)
            reply = talk.say("And you?", **HOT)
            with model.engine(threads=1) as other:
                for again in (other.restore_conversation(data, key=key),
                              other.restore_conversation_file(path, key=key)):
                    info = again.describe()
                    self.assertEqual((info.turns, info.replies, info.reply), (1, 2, 1))
                    self.assertEqual(again.say("And you?", **HOT).tokens, reply.tokens)
                self.assertRaises(kaiju.Error, other.restore_conversation, data)
                self.assertRaisesRegex(kaiju.WrongType, "_file", other.restore_conversation, path)
                self.assertRaisesRegex(kaiju.WrongType, "_file", other.restore, path)

    def test_a_prefix_is_computed_before_the_first_request_and_pinned(self):
        with model.engine(threads=1, max_running=2) as engine, engine.prefix(card=CARD, character="wren/1") as prefix:
            self.assertEqual(prefix.pin(), len(prefix.tokens))
            reply = engine.conversation(card=CARD).say("hello!", character="wren/1", max_tokens=2)
            self.assertEqual(reply.cached_tokens, len(prefix.tokens))
            self.assertEqual(engine.poll(), [])
        self.assertRaises(kaiju.Closed, prefix.pin)
        self.assertRaises(kaiju.InvalidArgument, lambda: self.engine.prefix(card=CARD))  # nobody could share it
        self.assertRaises(kaiju.InvalidArgument, lambda: self.engine.prefix(character="wren/1"))
        self.engine.prefix(model.chat_format("hi"), salt="a").wait()


class Conversations(OfEngine):
    def test_a_conversation_keeps_its_turns(self):
        talk = self.engine.conversation(card=CARD)
        head = model.chat_format([("card", "\n".join(CARD))], 0)
        self.assertEqual(talk.tokens(), head)
        reply = talk.say("hello!", **HOT)
        self.assertEqual(talk.text(0), reply)
        self.assertEqual(talk.turn(0, kaiju.Part.INPUT), said("hello!"))
        info = talk.describe()
        self.assertEqual((info.turns, info.turns_dropped, info.replies, info.reply), (1, 0, 1, 0))
        self.assertEqual(info.tokens, len(talk.tokens()))

    def test_a_conversation_begins_itself(self):
        self.assertEqual(self.engine.conversation().tokens(), [BEGIN])
        self.assertEqual(self.engine.conversation(head=[9, 8]).tokens(), [9, 8])
        greeted = self.engine.conversation(card=CARD, greeting="Welcome!")
        self.assertEqual(greeted.text(0), "Welcome!")
        self.assertEqual(greeted.tokens() + said("hi"), model.chat_format(
            [("card", "\n".join(CARD)), ("character", "Welcome!"), ("user", "hi")]))
        self.assertTrue(greeted.say("Hello! Who are you?"))

    def test_swipes_differ_and_can_be_chosen(self):
        talk = self.engine.conversation(card=CARD)
        talk.say("hello!", **HOT)
        first = talk.turn(0)
        swipe = talk.swipe(**HOT)
        self.assertEqual(swipe.cached_tokens, swipe.prompt_tokens - 1)
        self.assertNotEqual(talk.turn(0), first)
        self.assertEqual(talk.describe().reply, 1)
        talk.choose(0)
        self.assertEqual(talk.turn(0), first)
        self.assertEqual("".join(talk.stream_swipe(**HOT)), talk.text(0))
        self.assertRaisesRegex(kaiju.Error, "there is no reply 3", talk.choose, 3)

    def test_edit_undo_and_fork(self):
        talk = self.engine.conversation(card=CARD)
        head = talk.tokens()
        talk.append([], "Welcome!")
        talk.say("hello!", **HOT)
        talk.say("who are you?", **HOT)
        with talk.fork(2) as child:
            self.assertEqual((child.describe().turns, child.turn(1)), (2, talk.turn(1)))
            child.say("another way", **HOT)
        self.assertEqual(talk.fork().tokens(), talk.tokens())
        talk.edit(1, "good day!")
        self.assertEqual((talk.describe().turns, talk.describe().replies), (2, 0))
        self.assertEqual(talk.swipe(**HOT), talk.text(1))
        talk.edit(1, [20, 21], kaiju.Part.REPLY)
        self.assertEqual(talk.turn(1), [20, 21])
        talk.edit(1, "Well!", kaiju.Part.REPLY)
        self.assertEqual(talk.text(1), "Well!")
        talk.undo()
        talk.undo()
        self.assertEqual(talk.tokens(), head)

    def test_a_conversation_in_a_loop_of_ones_own(self):
        talk = self.engine.conversation(card=CARD)
        request = talk.submit("hello!", user_data=5, **HOT)
        self.assertRaises(kaiju.Busy, talk.undo)
        text = ""
        while not request.done:
            self.engine.step()
            text += "".join(event.text for event in self.engine.poll())
        self.assertEqual(talk.text(0), text.lstrip())
        talk.submit_swipe(**HOT).wait()
        self.assertEqual(talk.describe().replies, 2)


class Exceptions(OfEngine):
    def test_what_on_text_raises_ends_the_request_and_is_raised(self):
        with model.engine(threads=1, max_running=3) as engine:
            alone = engine.session().generate(STORY, max_tokens=10)
            talk = engine.conversation(card=CARD)
            for raised in (ValueError("a handler's"), KeyboardInterrupt(), SystemExit(), GeneratorExit(), MemoryError(),
                           kaiju.Internal("on_text's own")):
                def fail(_):
                    raise raised

                session, other = engine.session(), engine.session()
                request = other.submit(STORY, max_tokens=10)
                for call in (lambda: session.generate(STORY, fail, max_tokens=200),
                             lambda: talk.say("hello!", fail, max_tokens=200)):
                    with self.subTest(raised=raised), self.assertRaises(type(raised)) as caught:
                        call()
                    self.assertIs(caught.exception, raised)
                self.assertEqual("".join(event.text for event in request.events()), alone)
                self.assertEqual((engine.pending(), engine.poll(), engine._requests), (0, [], {}))
                session.generate([20], max_tokens=1)

    def test_ctrl_c_ends_a_reply_and_its_request(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with self.engine.session() as session:
            with self.assertRaises(KeyboardInterrupt):
                session.reply("Hello!", lambda _: os.kill(os.getpid(), signal.SIGINT), max_tokens=500)
            self.assertEqual((self.engine.pending(), self.engine.poll()), (0, []))
            self.assertEqual(session.reply("And then?", max_tokens=2).generated_tokens, 2)

    def test_an_interrupt_at_any_line_leaves_the_engine_whole_and_other_requests_theirs(self):
        tiny = made_model()
        with tiny.engine(threads=1, max_running=2, cache_bytes=1 << 24) as engine:
            ask = dict(max_tokens=1, stop_token=-1)
            alone = engine.session().generate([20, 21], **ask).tokens
            nth, more = 0, True
            while more:
                nth += 1
                with engine.session() as session, engine.session() as another:
                    other = another.submit([20, 21], **ask)
                    more = interrupted(nth, lambda: session.generate([20, 21], list().append, **ask))
                    with self.subTest(line=nth):
                        self.assertEqual([event.tokens for event in other.events() if event.tokens], [alone])
                        self.assertEqual(session.generate([20], **ask).generated_tokens, 1)
                        self.assertEqual((engine.pending(), engine._requests, engine.poll(), engine._leader,
                                          engine._waiting, engine._impatient), (0, {}, [], None, {}, 0))
            self.assertGreater(nth, 100)

    def test_an_interrupt_at_any_line_of_poll_loses_no_event(self):
        with self.engine.session() as session:
            for nth in range(1, 200):
                session.submit([20, 21], max_tokens=2, stop_token=-1)
                for _ in range(3):
                    self.engine.step()
                events = []
                more = interrupted(nth, lambda: events.extend(self.engine.poll()))
                if not more:
                    break
                with self.subTest(line=nth):
                    events += self.engine.poll()
                    self.assertEqual([event.kind for event in events],
                                     [kaiju.Kind.TOKEN, kaiju.Kind.TOKEN, kaiju.Kind.DONE])
        self.assertGreater(nth, 20)

    def test_a_signal_handler_that_asks_for_a_reply_in_the_middle_is_refused_and_does_not_hang(self):
        alone = self.engine.session().generate(STORY, **HOT)
        refused, left, real = [], [3], self.engine._poll_one

        def handler(*_):
            try:
                self.engine.session().generate(STORY, max_tokens=1)
            except kaiju.Busy as error:
                refused.append(str(error))

        def poll(event):
            left[0] -= 1
            if left[0] == 0:
                signal.raise_signal(signal.SIGUSR1)
            return real(event)

        before = signal.signal(signal.SIGUSR1, handler)
        self.engine._poll_one = poll
        try:
            reply = self.engine.session().generate(STORY, **HOT)
        finally:
            del self.engine._poll_one
            signal.signal(signal.SIGUSR1, before)
        self.assertEqual(reply.tokens, alone.tokens)
        self.assertIn("called by a signal handler", refused[0])

    def test_on_text_may_ask_another_session_of_the_engine(self):
        inner = []
        with model.engine(threads=1) as engine:
            engine.session().reply("Hello!", lambda _: inner.append(engine.session().reply("hi", max_tokens=1)) or None,
                                   max_tokens=3)
        self.assertEqual({reply.generated_tokens for reply in inner}, {1})


class Handles(OfEngine):
    def handles(self):
        return [model, self.engine, self.engine.session(), self.engine.conversation(card=CARD), kaiju.Runtime()]

    def test_a_handle_is_never_copied_or_pickled(self):
        for handle in self.handles():
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.subTest(handle=handle), self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                    way(handle)
        reply = self.engine.session().reply("Hello!", max_tokens=2)
        self.assertEqual(pickle.loads(pickle.dumps(reply)), str(reply))

    def test_what_is_closed_says_so_and_closes_again(self):
        engine = model.engine(threads=1)
        session, talk, other = engine.session(), engine.conversation(card=CARD), kaiju.Model(MODEL, verify=0)
        ids = [20, 21]
        calls = {
            "session": (lambda: session.submit(ids), lambda: session.generate(ids), lambda: session.reply("hi"),
                        lambda: list(session.stream("hi")), session.save, lambda: session.save_file("x"),
                        session.tokens, session.fork, lambda: session.truncate(0), lambda: len(session)),
            "conversation": (lambda: talk.say(ids), talk.swipe, lambda: talk.choose(0), lambda: talk.append(ids, ids),
                             lambda: talk.edit(0, ids), talk.undo, lambda: talk.fork(0), lambda: talk.turn(0),
                             talk.tokens, talk.describe),
            "engine": (engine.step, engine.poll, engine.pending, engine.now, engine.session, engine.wait, engine.wake,
                       engine.metrics, lambda: engine.cancel(1), lambda: engine.suspend(1), lambda: engine.resume(1),
                       lambda: engine.restore(b""), lambda: engine.restore_file("x")),
            "model": (lambda: other.tokenize("a"), lambda: other.detokenize(ids), lambda: other.chat_format("a"),
                      lambda: other.name, other.engine),
        }
        for handle in (session, talk, engine, other):
            handle.close()
            handle.close()
            self.assertTrue(handle.closed)
            for number, call in enumerate(calls[handle._kind]):
                with self.subTest(kind=handle._kind, call=number):
                    self.assertRaisesRegex(kaiju.Closed, f"the {handle._kind} is closed", call)

    def test_what_was_made_of_a_closed_engine_lives_on_but_asks_for_no_reply(self):
        engine = kaiju.Model(MODEL, verify=0).engine(threads=1)
        engine.model.close()
        session, talk = engine.session(), engine.conversation(head=[20])
        engine.close()
        for call in (lambda: session.submit([20]), lambda: session.generate([20]), lambda: talk.say([20])):
            self.assertRaises(kaiju.Closed, call)
        self.assertEqual((talk.tokens(), session.tokens()), ([20], []))
        session.save()

    def test_handles_close_in_any_order(self):
        for order in range(24):
            own = kaiju.Model(MODEL, verify=0) if order < 3 else model
            engine = own.engine(threads=1)
            handles = [engine, engine.session(), engine.conversation(head=[20])]
            handles[1].submit([20], max_tokens=4)
            engine.step()
            for _ in range(3):
                handles.pop(order % len(handles)).close()
                order //= 2
            if own is not model:
                own.close()

    def test_handles_and_streams_may_be_let_go_inside_a_callback(self):
        things = []

        def clock():  # inside a call of C
            nonlocal things
            if things:
                things = things[1:]
            return 1000

        with model.engine(threads=1, clock=clock) as engine:
            request = engine.session().submit([20], max_tokens=5, deadline=5000)
            request.suspend()
            engine.step()
            engine.poll()
            for _ in range(10):
                stream = engine.session().stream("Hello!", max_tokens=100)
                made = [stream, engine.session(), engine.conversation(), engine.session()]
                next(stream)
                while engine.wait(0):
                    engine.step()
                    engine.poll()
                things, made, stream = made, None, None
                while things:
                    if engine.wait(0.001):
                        engine.step()
                        engine.poll()
            request.cancel()
            request.wait()
            self.assertTrue(engine.session().reply("Hello!", max_tokens=2))
            self.assertLessEqual(engine.metrics().sessions, 3)

    def test_what_was_never_made_is_let_go_without_a_word(self):
        said_, sys.unraisablehook = [], lambda raised: said_.append(raised)
        try:
            for kind in (kaiju.Model, kaiju.Engine, kaiju.Session, kaiju.Conversation, kaiju.Options, kaiju.Runtime,
                         kaiju.Stream):
                kind.__new__(kind).close()
            for make in (lambda: kaiju.Model("/nowhere"), lambda: kaiju.Model(MODEL, no_such=1),
                         lambda: model.engine(backend="none"), lambda: kaiju.Engine(None),
                         lambda: self.engine.conversation(head=[20] * model.context),
                         lambda: self.engine.restore_file("/nowhere"), lambda: self.engine.session(card=5)):
                self.assertRaises((kaiju.Error, TypeError), make)
            ring = [kaiju.Model(MODEL, verify=0).engine(threads=2)]
            ring += [ring[0].session(), ring]
            ring[0].ring = ring
            del ring
            gc.collect()
        finally:
            sys.unraisablehook = sys.__unraisablehook__
        self.assertEqual(said_, [])

    def test_an_engine_is_closed_while_other_threads_are_in_its_calls(self):
        for _ in range(10):
            engine, began, raised = model.engine(threads=1), threading.Event(), []

            def drive(session):
                try:
                    while True:
                        session.generate([20, 21], max_tokens=1)
                        began.set()
                except kaiju.Error as error:
                    raised.append(str(error))

            thread = threading.Thread(target=drive, args=(engine.session(),))
            thread.start()
            began.wait()
            engine.close()
            thread.join()
            self.assertEqual(raised, ["the engine is closed"])

    def test_a_program_may_end_with_everything_open(self):
        self.assertEqual(in_python(f"""
import threading, kaiju
engine = kaiju.Model({MODEL!r}, verify=0).engine(threads=2)
session, talk = engine.session(), engine.conversation(head=[20])
engine.ring = [session, talk, engine]
stream = session.stream("Hello!", max_tokens=500)
next(stream)
def drive():
    while True: engine.session().generate([20, 21], max_tokens=1)
threading.Thread(target=drive, daemon=True).start()
"""), (0, "", ""))

    def test_an_object_in_a_cycle_finds_its_session_closed_and_not_freed(self):
        code, out, err = in_python(f"""
import gc, kaiju
engine = kaiju.Model({MODEL!r}, verify=0).engine(threads=1)
class Chat:
    def __init__(self, session):
        self.session, self.me = session, self
    def __del__(self):
        try:
            self.session.generate([1], max_tokens=1)
        except kaiju.Error as error:
            print(error)
for _ in range(5):
    Chat(engine.session())
    gc.collect()
""")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(set(out.split("\n")) - {"the session is closed", ""}, set())


class Fork(OfEngine):
    def test_a_child_of_fork_ends_in_every_way(self):
        self.assertEqual(in_python(f"""
import multiprocessing, os, signal, sys, kaiju
model = kaiju.Model({MODEL!r}, verify=0)
engines = [model.engine(threads=threads) for threads in (1, 2, 4)]
sessions = [engine.session() for engine in engines]
talks = [engine.conversation(head=[20]) for engine in engines]
streams = [session.stream("Hello!", max_tokens=100) for session in sessions]
for stream in streams: next(stream)
def close():
    for handle in streams + engines + sessions + talks + [model]: handle.close()
def ended(leave):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        leave()
        sys.exit(3)
    return os.waitpid(child, 0)[1] >> 8
def let_go():
    for handles in (talks, engines, sessions, streams): handles.clear()
print([ended(leave) for leave in (lambda: None, lambda: os._exit(3), close, let_go)])
process = multiprocessing.get_context("fork").Process(target=len, args=(engines,))
process.start()
process.join(20)
print(process.exitcode)
"""), (0, "[3, 3, 3, 3]\n0\n", ""))

    def test_a_child_of_fork_is_refused_its_parents_engine_and_makes_one_of_its_model(self):
        with model.engine(threads=4) as engine, engine.session() as session:
            alone = session.generate(STORY, max_tokens=5)
            talk, request = engine.conversation(card=CARD), session.submit(STORY, max_tokens=50, stop_token=-1)
            engine.step()
            locked, forked = threading.Event(), threading.Event()

            def hold():
                with engine._lock:
                    locked.set()
                    forked.wait()

            thread = threading.Thread(target=hold)
            thread.start()
            locked.wait()

            def child():
                for call in (engine.step, engine.poll, engine.pending, engine.now, engine.session, engine.wait,
                             engine.metrics, request.wait, request.cancel, request.suspend, request.resume,
                             lambda: engine.restore_file("x"), lambda: session.submit([20]),
                             lambda: session.generate([20]), lambda: session.reply("hi"), session.save, session.tokens,
                             session.fork, lambda: talk.say([20]), talk.swipe, talk.tokens, talk.describe,
                             lambda: engine.conversation(card=CARD)):
                    try:
                        call()
                    except kaiju.Error as error:
                        assert "forked" in str(error), error
                    else:
                        raise AssertionError("not refused")
                with model.engine(threads=4) as own, own.session() as fresh:
                    assert fresh.generate(STORY, max_tokens=5) == alone
                for handle in (talk, session, engine, model):
                    handle.close()

            self.assertEqual(in_child(child), 0)
            forked.set()
            thread.join()
            self.assertEqual(request.wait().generated_tokens, 50)


class CommandLine(Test):
    def run_program(self, *arguments, said=""):
        environment = dict(os.environ, KAIJU_LIBRARY=LIBRARY, PYTHONPATH=PACKAGE)
        ran = subprocess.run([sys.executable, "-m", "kaiju", *arguments], input=said, env=environment,
                             capture_output=True, text=True, timeout=60)
        return ran.returncode, ran.stdout, ran.stderr

    def test_a_pipe_gets_one_reply_a_line(self):
        code, out, err = self.run_program("chat", "--character", "wren", said="Hello! Who are you?\n/retry\n\nBye!\n")
        self.assertEqual((code, err, len(out.splitlines())), (0, "", 3))
        again = self.run_program("chat", "--character", "Wren", "--say", "Hello! Who are you?")
        self.assertEqual(again, (0, out.splitlines()[0] + "\n", ""))

    def test_mistakes_are_one_line(self):
        for arguments, says in ((("chat", "--character", "nobody"), "there are cindergrove"),
                                (("chat", "--model", "/nowhere"), "/nowhere: cannot open"),
                                (("chat", "--character", "/nowhere.card"), "/nowhere.card: No such file"),
                                (("chat", "--say", "hi", "--temperature", "999"), "generate.temperature is 999"),
                                (("model", __file__), "support|package")):
            code, out, err = self.run_program(*arguments)
            self.assertEqual((code, out, len(err.splitlines())), (1, "", 1), err)
            self.assertRegex(err, says)
        code, _, err = self.run_program("chat", said="/nothing\n")
        self.assertEqual((code, err), (1, "python -m kaiju: no command /nothing; /help lists them\n"))
        self.assertEqual(self.run_program("nothing")[0], 2)

    def test_help_options_and_facts_are_printed(self):
        for arguments, says in (((), "python -m kaiju chat"), (("--help",), "python -m kaiju import SOURCE"),
                                (("options",), "generate.temperature"), (("model",), "kaiju-nano"),
                                (("chat", "--list"), "wren"), (("--version",), "libkaiju|kaiju")):
            code, out, err = self.run_program(*arguments)
            self.assertEqual((code, err), (0, ""))
            self.assertRegex(out, says)


if __name__ == "__main__":
    main()
