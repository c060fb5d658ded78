"""The Python binding against the bundled model: conversations, requests that are set aside, finished twice or by several threads, priorities and deadlines, options and tokens
that make no sense, every option of the header, log-probabilities, saved sessions; and the scores of a model with a classifier.

    bindings.py LIBKAIJU MODEL KAIJU_MAKE
"""

import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

LIBRARY, MODEL, MAKE = sys.argv[1:4]
os.environ["KAIJU_LIBRARY"] = LIBRARY
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "examples", "bindings"))
import kaiju  # noqa: E402

model = kaiju.Model(MODEL)
HEAD = model.chat([("card", "Wren\nWren is a travelling hedge witch.")], 0)
HOT = {"temperature": 1.0, "seed": 7, "max_tokens": 8}


def said(text):
    return model.chat([("user", text)])


STORY = HEAD + said("Tell me a story.")


def stuck(*_):
    raise AssertionError("it does not end")


signal.signal(signal.SIGALRM, stuck)


class Bindings(unittest.TestCase):
    def setUp(self):
        signal.setitimer(signal.ITIMER_REAL, 60, 60)
        self.engine = kaiju.Engine(model, threads=1, max_running=1)

    def tearDown(self):
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.assertEqual(self.engine.pending(), 0)

    def reply(self, talk, text):
        return self.engine.finish(talk.say(said(text), **HOT))

    def test_a_conversation_keeps_its_turns(self):
        talk = kaiju.Conversation(self.engine, HEAD)
        first, done = self.reply(talk, "hello!")
        self.assertIn(done.reason, (kaiju.STOP, kaiju.LENGTH))
        self.assertEqual(model.detokenize(talk.turn(0)), first.lstrip(" "))
        self.assertEqual(talk.turn(0, kaiju.INPUT), said("hello!"))
        info = talk.info()
        self.assertEqual((info.turns, info.turns_dropped, info.replies, info.reply), (1, 0, 1, 0))
        self.assertEqual(info.tokens, len(talk.tokens()))
        self.assertEqual(talk.tokens()[:len(HEAD)], HEAD)

    def test_swipes_differ_and_can_be_chosen(self):
        talk = kaiju.Conversation(self.engine, HEAD)
        self.reply(talk, "hello!")
        first = talk.turn(0)
        text, done = self.engine.finish(talk.swipe(**HOT))
        self.assertEqual(done.cached_tokens, done.prompt_tokens - 1)
        self.assertNotEqual(talk.turn(0), first)
        self.assertEqual(talk.info().reply, 1)
        talk.choose(0)
        self.assertEqual(talk.turn(0), first)
        with self.assertRaisesRegex(kaiju.Error, "there is no reply 2"):
            talk.choose(2)

    def test_edit_undo_and_fork(self):
        talk = kaiju.Conversation(self.engine, HEAD)
        talk.append([], model.tokenize("Welcome!"))
        self.reply(talk, "hello!")
        self.reply(talk, "who are you?")
        with talk.fork(2) as child:
            self.assertEqual(child.info().turns, 2)
            self.assertEqual(child.turn(1), talk.turn(1))
            self.reply(child, "another way")
        talk.edit(1, said("good day!"))
        self.assertEqual((talk.info().turns, talk.info().replies), (2, 0))
        text, _ = self.engine.finish(talk.swipe(**HOT))
        self.assertEqual(model.detokenize(talk.turn(1)), text.lstrip(" "))
        talk.edit(1, [20, 21], kaiju.REPLY)
        self.assertEqual(talk.turn(1), [20, 21])
        talk.undo()
        talk.undo()
        self.assertEqual(talk.tokens(), HEAD)

    def test_a_suspended_request_goes_on_with_the_same_words(self):
        with self.engine.session() as session:
            alone, _ = session.generate(STORY, temperature=0, max_tokens=20)
        with self.engine.session() as session:
            request = session.submit(STORY, temperature=0, max_tokens=20)
            pieces, kinds = [], []
            for step in range(200):
                self.engine.step()
                events = self.engine.poll()
                pieces += [event.said for event in events]
                kinds += [event.kind for event in events if event.kind != kaiju.TOKEN]
                if step == 2:
                    self.engine.suspend(request)
                if step == 10:
                    self.assertEqual(kinds, [kaiju.SUSPENDED])
                    self.assertEqual(events, [])
                    self.engine.resume(request)
            self.assertEqual(kinds, [kaiju.SUSPENDED, kaiju.RESUMED, kaiju.DONE])
            self.assertEqual("".join(pieces), alone)

    def test_finish_refuses_a_request_that_is_not_pending(self):
        with self.engine.session() as first, self.engine.session() as second, self.engine.session() as third:
            done = first.submit(STORY, max_tokens=2)
            self.engine.finish(done)
            polled = second.submit(STORY, max_tokens=2)
            kinds = []
            while kaiju.DONE not in kinds:
                self.engine.step()
                kinds += [event.kind for event in self.engine.poll()]
            live = third.submit(STORY, max_tokens=2)
            for request in (done, polled, live + 1, 0):
                with self.subTest(request=request), self.assertRaisesRegex(kaiju.Error, f"request {request} is not pending"):
                    self.engine.finish(request)
            self.assertEqual(self.engine.finish(live)[1].generated_tokens, 2)

    def test_finish_refuses_what_its_thread_suspended_until_that_is_resumed(self):
        with self.engine.session() as session:
            alone, _ = session.generate(STORY, temperature=0, max_tokens=20)
        with self.engine.session() as session, self.engine.session() as another:
            request, other = session.submit(STORY, temperature=0, max_tokens=20), another.submit(STORY, max_tokens=2)
            suspended = []

            def pause(_):
                if not suspended:
                    suspended.append(self.engine.suspend(request))

            with self.assertRaisesRegex(kaiju.Error, f"request {request} is suspended .* resume or cancel it"):
                self.engine.finish(request, pause)
            self.assertEqual(self.engine.finish(other)[1].generated_tokens, 2)
            self.engine.resume(request)
            self.assertEqual(self.engine.finish(request)[0], alone)

            request = session.submit(STORY, max_tokens=20)
            self.engine.suspend(request)
            self.engine.cancel(request)
            self.assertEqual(self.engine.finish(request)[1].reason, kaiju.CANCELLED)

    def test_finish_waits_for_another_threads_resume_and_for_a_deadline(self):
        with self.engine.session() as session:
            request = session.submit(STORY, max_tokens=2)
            other = threading.Thread(target=self.engine.suspend, args=(request,))
            other.start()
            other.join()
            threading.Timer(0.1, self.engine.resume, (request,)).start()
            self.assertEqual(self.engine.finish(request)[1].generated_tokens, 2)
            request = session.submit(STORY, max_tokens=2, deadline=self.engine.now() + 10**8)
            self.engine.suspend(request)
            self.assertEqual(self.engine.finish(request)[1].reason, kaiju.DEADLINE)

    def test_threads_finish_requests_that_others_step(self):
        with self.engine.session() as session:
            alone, _ = session.generate(STORY, temperature=0, max_tokens=20)
        sessions = [self.engine.session() for _ in range(3)]
        requests = [session.submit(STORY, temperature=0, max_tokens=20) for session in sessions]
        texts = []

        def finish(request):
            while True:
                try:
                    return texts.append(self.engine.finish(request)[0])
                except kaiju.Error as error:
                    if "another thread is in step" not in str(error):
                        return texts.append(error)

        threads = [threading.Thread(target=finish, args=(request,), daemon=True) for request in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts, [alone] * 3)

    def test_higher_priority_is_served_first(self):
        sessions = [self.engine.session() for _ in range(3)]
        requests = [session.submit(HEAD + said(str(i)), temperature=0, max_tokens=3, priority=i) for i, session in enumerate(sessions)]
        done = []
        while len(done) < 3:
            self.engine.step()
            done += [event.request for event in self.engine.poll() if event.kind == kaiju.DONE]
        self.assertEqual(done, requests[::-1])

    def test_a_deadline_and_a_cancel_end_a_request(self):
        with self.engine.session() as late, self.engine.session() as cancelled:
            request = late.submit(HEAD, max_tokens=500, deadline=self.engine.now() + 1)
            other = cancelled.submit(HEAD, max_tokens=500)
            self.engine.cancel(other)
            self.assertEqual(self.engine.finish(request)[1].reason, kaiju.DEADLINE)
            self.assertEqual(self.engine.finish(other)[1].reason, kaiju.CANCELLED)

    def test_text_comes_as_it_is_made_until_on_text_stops_it(self):
        pieces = []
        with self.engine.session() as session:
            text, done = session.generate(HEAD + said("hello!"), pieces.append, **HOT)
            self.assertEqual("".join(pieces), text)
            self.assertEqual(done.kind, kaiju.DONE)
        with self.engine.session() as session:
            with self.assertRaisesRegex(kaiju.Error, "on_text stopped the reply"):
                session.generate(HEAD + said("hello!"), lambda piece: True, **HOT)

    def test_an_option_of_another_type_is_refused_by_name(self):
        with self.engine.session() as session:
            for option, value in (("temperature", "hot"), ("max_tokens", 1.5), ("max_tokens", "8"), ("max_tokens", 2**63), ("stop", 5), ("seed", 2**64)):
                with self.subTest(option=option, value=value), self.assertRaisesRegex(TypeError, option):
                    session.submit(HEAD, **{option: value})
            self.assertEqual(session.generate(HEAD, max_tokens=0, seed=2**64 - 1)[1].kind, kaiju.DONE)

    def test_a_token_outside_the_vocabulary_is_refused_however_large(self):
        with self.engine.session() as session, kaiju.Conversation(self.engine, HEAD) as talk:
            talk.append([], [20])
            for token in (-1, model.vocabulary, 2**32 + 5, 2**40 + 5, 2**64 + 5, 5 - 2**32):
                calls = (lambda ids: session.submit(ids), model.detokenize, lambda ids: kaiju.Conversation(self.engine, ids), talk.say,
                         lambda ids: talk.append(ids, []), lambda ids: talk.append([], ids), lambda ids: talk.edit(0, ids))
                for call in calls:
                    with self.subTest(token=token, call=call), self.assertRaisesRegex(kaiju.Error, f"token 1 is {token}; tokens are 0 to {model.vocabulary - 1}"):
                        call([1, token])

    def test_every_option_of_the_header_is_taken_by_name(self):
        with open(os.path.join(ROOT, "capi", "kaiju.h")) as header:
            names = re.findall(r"^  KAIJU_(?:MODEL|ENGINE|GENERATE|SESSION)_(\w+) = [1-4]\d\d,?  ", header.read(), re.M)
        self.assertGreater(len(names), 30)
        kinds = {"f": 0.5, "i": 1, "s": "sixteen or so bytes"}
        for name in map(str.lower, names):
            with self.subTest(name=name):
                kaiju._Options({name: kinds[kaiju._OPTIONS[name][1]]}).close()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tier")
            kaiju.Engine(kaiju.Model(MODEL, verify=0), threads=1, host_bytes=1 << 24, file_bytes=1 << 24, tier_file=path).close()
            with open(path, "w"), self.assertRaisesRegex(kaiju.Error, path):
                kaiju.Engine(model, threads=1, host_bytes=1 << 24, file_bytes=1 << 24, tier_file=path)

    def test_stops_come_alone_or_in_a_list(self):
        with self.engine.session() as session:
            text, done = session.generate(STORY, max_tokens=12, stop_token=-1)
        ids = [token for token, in done.ids]
        self.assertEqual(len(ids), 12)
        words = text.split()

        def replied(**options):
            with self.engine.session() as session:
                text, done = session.generate(STORY, max_tokens=12, **options)
                return text, [token for token, in done.ids]

        self.assertEqual(replied(stop_token=ids[5])[1], ids[:ids.index(ids[5]) + 1])
        self.assertEqual(replied(stop_token=[ids[7], ids[3]])[1], ids[:min(ids.index(ids[7]), ids.index(ids[3])) + 1])
        for stop in ([words[4], words[2]], (words[4], words[2])):
            self.assertEqual(replied(stop=stop, stop_token=-1)[0], text[:min(text.index(words[4]), text.index(words[2]))])
        self.assertEqual(replied(stop=words[3], stop_token=[-1])[0], text[:text.index(words[3])])
        self.assertEqual(replied(stop=[], stop_token=-1)[0], text)
        with self.engine.session() as session:
            for wrong in ({"stop": ["a", 5]}, {"stop_token": ["a"]}, {"top_k": [1]}):
                with self.subTest(wrong=wrong), self.assertRaisesRegex(TypeError, next(iter(wrong))):
                    session.submit(STORY, **wrong)

    def test_log_probabilities_come_with_every_token(self):
        with self.engine.session() as session:
            _, done = session.generate(STORY, temperature=0, max_tokens=4, logprobs=3)
        self.assertEqual([len(ids) for ids in done.ids], [4] * done.generated_tokens)
        for ids, values in zip(done.ids, done.logprobs):
            self.assertEqual((ids[0], values[0]), (ids[1], values[1]))  # greedy: the token is its best alternative
            self.assertEqual(values[1:], sorted(values[1:], reverse=True))
            self.assertLess(sum(map(math.exp, values[1:])), 1)
        with self.engine.session() as session:
            session.submit(STORY, temperature=0, max_tokens=4, logprobs=3)
            events = []
            while self.engine.pending():
                self.engine.step()
                events += self.engine.poll()
        self.assertEqual([(event.ids, event.logprobs) for event in events if event.kind == kaiju.TOKEN], list(zip(done.ids, done.logprobs)))
        with self.engine.session() as session:
            _, plain = session.generate(STORY, temperature=0, max_tokens=4)
        self.assertEqual(plain.logprobs, [values[:1] for values in done.logprobs])

    def test_a_restored_session_goes_on_where_the_saved_one_was(self):
        with tempfile.TemporaryDirectory() as folder, self.engine.session() as session:
            path, key = os.path.join(folder, "saved"), "a key of two dozen bytes"
            session.generate(STORY, **HOT)
            session.save(path, key=key)
            text, _ = session.generate(said("And then?"), **HOT)
            with kaiju.Engine(model, threads=1) as other:
                with other.restore(path, key=key) as again:
                    went_on, done = again.generate(said("And then?"), **HOT)
                self.assertEqual(went_on, text)
                self.assertGreater(done.cached_tokens, 0)
                with self.assertRaises(kaiju.Error):
                    other.restore(path, key=key[::-1])
            session.save(path, kv=0)
            self.engine.restore(path).close()

    def test_scores_come_with_every_token(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "classifier.safetensors")
            subprocess.run([MAKE, "--preset", "nano", "--layers", "1", "--labels", "2", "--out", path], check=True)
            judging = kaiju.Model(path)
        self.assertEqual(judging.labels, ["label 0", "label 1"])
        with kaiju.Engine(judging, threads=1, max_running=1) as engine, engine.session() as first, engine.session() as second, engine.session() as third:
            _, done = first.generate([20, 21, 22], max_tokens=3, scores=1)
            self.assertEqual([len(scores) for scores in done.judged], [2, 2, 2])
            self.assertNotEqual(done.judged[0], done.judged[1])
            early, late = [session.submit([20, 21, 22], max_tokens=3, scores=1) for session in (second, third)]
            self.assertEqual([engine.finish(request)[1].judged for request in (late, early)], [done.judged] * 2)
            self.assertEqual(first.generate([23], max_tokens=3)[1].judged, [])


unittest.main(argv=sys.argv[:1])
