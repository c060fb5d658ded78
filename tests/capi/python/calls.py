"""The first call is sensible; wrong options and values are refused and explained; what a model, an engine and events tell.

    calls.py LIBKAIJU MODEL KAIJU_MAKE [Class.test ...]"""

import gc
import math
import os
import pathlib
import shutil
import subprocess
import tempfile

from bundled import BEGIN, CARD, HOT, STORY, OfEngine, model, said
from support import LIBRARY, MAKE, MODEL, PACKAGE, in_python, kaiju, made_model, main


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
        for stop in ([words[-1], words[1]], (words[-1], words[1])):
            first = min(whole.index(words[-1]), whole.index(words[1]))
            self.assertEqual(replied(stop=stop, stop_token=-1), whole[:first])
        self.assertEqual(replied(stop=words[2], stop_token=[-1]), whole[: whole.index(words[2])])
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
        self.assertEqual(replied(samplers=[("mirostat", 0.0)]), replied())  # no surprise: greedy
        self.assertEqual(kaiju.sampler_describe(kaiju.Sampler.MIROSTAT, 1).name, "mirostat.eta")
        self.refused("last one", lambda: replied(samplers=[("mirostat", 5), ("top_k", 5)]))
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

    def test_an_engine_computes_on_threads_of_its_host(self):
        from concurrent.futures import ThreadPoolExecutor

        prompt, told = STORY * 20, []
        with model.engine(threads=1) as engine:
            expected = engine.session().generate(prompt, max_tokens=8).tokens

        def run(parts, part):
            told.append(parts)
            list(pool.map(part, range(parts)))

        with ThreadPoolExecutor(2) as pool, model.engine(threads=2, host_threads=run) as engine:
            gc.collect()
            self.assertEqual(engine.session().generate(prompt, max_tokens=8).tokens, expected)
        self.assertEqual(set(told), {2})
        self.refused("host_threads", lambda: model.engine(threads=1, host_threads=3), kaiju.WrongType)


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
                                 (kaiju.NotFound, LookupError, lambda: model.label(6)),
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
    def test_a_model_with_another_head_has_its_labels_and_scores(self):
        with tempfile.TemporaryDirectory() as folder:
            head = os.path.join(folder, "head.safetensors")
            subprocess.run([os.path.join(os.path.dirname(MAKE), "kaiju-head"), str(MODEL), "--out", head],
                           check=True, stdout=subprocess.DEVNULL)
            headed = kaiju.Model(MODEL, head=head)
            self.assertEqual(headed.labels, model.labels)
            with headed.engine(threads=1) as engine, engine.session() as session:
                found = session.reply("Hello!", scores=True, max_tokens=1)
            self.assertEqual(found.scores, self.engine.session().reply("Hello!", scores=True, max_tokens=1).scores)
        self.assertRaisesRegex(kaiju.InvalidArgument, "a checkpoint, not a head", kaiju.Model, MODEL, head=MODEL)

    def test_a_model_tells_what_it_is(self):
        self.assertEqual((model.name, model.vocabulary, model.context), ("kaiju-nano", 8192, 4096))
        self.assertEqual(model.labels, ["violence", "sexual", "self_harm", "harassment", "dangerous", "distress"])
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
        with made_model().engine(threads=1) as engine:
            self.assertRaises(kaiju.Unsupported, lambda: engine.session().generate([20], scores=1))

    def test_a_limit_makes_a_verdict_that_ends_or_reports(self):
        judging = made_model("--preset", "nano", "--layers", "1", "--labels", "2")
        asked = {"max_tokens": 12, "stop_token": -1, "temperature": 1.2, "seed": 5, "scores": 1}
        with judging.engine(threads=1, max_running=4) as engine:
            free = engine.session().generate([20, 21, 22], **asked)
            chances = [1 / (1 + math.exp(-scores[1])) for scores in free.scores]
            at = max(range(2, 11), key=lambda i: chances[i])
            limit = (chances[at] + max(chances[:at])) / 2
            first = next(i for i, chance in enumerate(chances) if chance >= limit)
            refused = engine.session().generate([20, 21, 22], label_limit=f"label 1={limit}", **asked)
            self.assertEqual((refused.reason, refused.done.label), (kaiju.Reason.REFUSED, 1))
            self.assertEqual(refused.tokens, free.tokens[:first])
            self.assertEqual(len(refused.done.scores), 6)
            self.assertEqual(len(refused.scores), first)
            engine.set_limit("adult", "label 1", limit)
            held = engine.session().generate([20, 21, 22], tier="adult", hold_back=2, **asked)
            self.assertEqual(held.tokens, free.tokens[:max(0, first - 2)])
            session = engine.session()
            session.submit([20, 21, 22], tier="adult", verdict_reports=1, **asked)
            events = []
            while engine.pending():
                engine.step()
                events += engine.poll()
            verdicts = [event for event in events if event.kind == kaiju.Kind.VERDICT]
            self.assertGreater(len(verdicts), 0)
            self.assertEqual(verdicts[0].label, 1)
            self.assertAlmostEqual(verdicts[0].scores[0], chances[first], 5)
            self.assertEqual([event.tokens[0] for event in events if event.kind == kaiju.Kind.TOKEN], free.tokens)
            engine.set_limit("adult", "label 1", None)
            self.assertEqual(engine.session().generate([20, 21, 22], tier="adult", **asked).tokens, free.tokens)
            for wrong in ({"label_limit": "label 1"}, {"label_limit": "label 9=0.5"}, {"label_limit": "label 1=2"},
                          {"hold_back": 3}):
                self.assertRaises(kaiju.InvalidArgument, lambda: engine.session().generate([20], **wrong))
            self.assertRaises(kaiju.NotFound, lambda: engine.session().generate([20], tier="minor"))
            self.assertRaises(kaiju.InvalidArgument, lambda: engine.set_limit("adult", "label 1", 1.5))
            scored = engine.session().generate([20, 21, 22], max_tokens=0, scores=1)
            self.assertAlmostEqual(scored.done.scores[3], chances[0], 5)

    def test_a_banned_phrase_makes_the_reply_take_another_way(self):
        plain = self.engine.session().reply("Hello!", max_tokens=20, temperature=0.8, seed=3)
        word = max(plain.split(), key=len)
        for phrase in word, word.upper(), word[1:], [word[:2], word[2:]]:
            other = self.engine.session().reply("Hello!", max_tokens=20, temperature=0.8, seed=3, banned=phrase)
            for one in [phrase] if isinstance(phrase, str) else phrase:
                self.assertNotIn(one.lower(), other.lower())
        unused = self.engine.session().reply("Hello!", max_tokens=20, temperature=0.8, seed=3, banned="xyzzy")
        self.assertEqual((str(unused), unused.tokens), (str(plain), plain.tokens))
        self.assertRaises(kaiju.InvalidArgument, lambda: self.engine.session().reply("Hello!", banned=[str(n) for n in range(65)]))

    def test_beams_find_a_likelier_reply_and_streams_tell_its_beginning_first(self):
        with kaiju.Model().engine(threads=1, max_running=8) as engine:
            greedy = engine.session().reply("Hello!", max_tokens=12, stop_token=-1)
            found = engine.session().reply("Hello!", beams=4, max_tokens=12, stop_token=-1)
            self.assertEqual(len(found.tokens), 12)
            self.assertGreaterEqual(sum(found.logprobs), sum(greedy.logprobs))
            one = engine.session().reply("Hello!", beams=1, max_tokens=12, stop_token=-1)
            self.assertEqual(one.tokens, greedy.tokens)
            stream = engine.session().stream("Hello!", beams=4, max_tokens=12, stop_token=-1)
            self.assertEqual("".join(stream), str(found))
            sampled = {str(engine.session().reply("Hello!", beams=3, stochastic=1, seed=seed, max_tokens=6))
                       for seed in range(5)}
            self.assertGreater(len(sampled), 1)
            for wrong in ({"beams": 4, "temperature": 0.5}, {"beams": 4, "beam_groups": 3},
                          {"beams": 4, "beam_candidates": 2}):
                self.assertRaises(kaiju.InvalidArgument, lambda: engine.session().reply("Hello!", **wrong))

    def test_a_recorded_reply_is_computed_again(self):
        with self.engine.model.engine() as engine:
            reply = engine.session().reply("Hello!", max_tokens=12, temperature=0.9, seed=5, record=1)
            self.assertEqual(kaiju.record_tokens(reply.record)[-len(reply.tokens):], reply.tokens)
            self.assertEqual(kaiju.record_describe(reply.record)["seed"], 5)
            again = engine.replay(reply.record)
            self.assertEqual((again.same_model, again.differs_at, again.recorded, again.compared_tokens), (True, None, None, len(reply.tokens)))
            self.assertIsNone(engine.session().reply("Hello!", max_tokens=2).record)
            with self.assertRaises(kaiju.BadModel):
                engine.replay(reply.record[:-1])
            with self.assertRaises(kaiju.BadModel):
                kaiju.record_describe(b"nothing")

    def test_the_weights_in_memory_are_looked_at(self):
        with self.engine.model.engine() as engine:
            looked, whole = engine.scrub(1 << 30)
            self.assertTrue(whole)
            parts = []
            while not parts or not parts[-1][1]:
                parts.append(engine.scrub(looked // 3))
            self.assertEqual(sum(count for count, _ in parts), looked)

    def test_keys_and_values_are_watched_and_get_new_scales(self):
        with self.engine.model.engine(max_running=4) as engine, tempfile.TemporaryDirectory() as folder, \
                kaiju.Calibration(engine, window_blocks=1, windows_known=2) as calibration:
            path = os.path.join(folder, "scales")
            with self.assertRaises(kaiju.NotFound):
                calibration.save(path)
            self.assertFalse(engine.calibrate(calibration))
            before = engine.session().generate(STORY, max_tokens=5).tokens
            for seed in range(3):
                request = engine.session().submit(STORY * 2, max_tokens=100, stop_token=-1, temperature=1, seed=seed)
                while not engine.calibrate(calibration):
                    engine.step()
                request.wait()
            figures = calibration.read()
            self.assertEqual((figures.blocks, figures.windows, figures.known, figures.frozen), (3, 3, 1, 0))
            self.assertGreater(sum(slot.keys for slot in calibration.saturation()), 3 * 64)
            calibration.save(path)
            engine.set_scales(path)
            self.assertEqual(len(engine.session().generate(STORY, max_tokens=5).tokens), 5)
            with self.assertRaisesRegex(kaiju.InvalidArgument, "make one of this engine"):
                engine.calibrate(calibration)
            with kaiju.Calibration(engine) as other:
                self.assertEqual(other.read().known, 1)
            engine.set_scales()
            self.assertEqual(engine.session().generate(STORY, max_tokens=5).tokens, before)
            calibration.reset()
            calibration.thaw()
            self.assertEqual(calibration.read().known, 0)
            with self.assertRaises(kaiju.InputOutput):
                engine.set_scales(path + "-none")

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


if __name__ == "__main__":
    main()
