"""The Python binding against the bundled model: conversations, requests that are set aside, finished twice or by
several threads, priorities and deadlines, options and tokens that make no sense, every option of the header,
log-probabilities, saved sessions; handles that are closed, copied or forked, paths of any bytes, exceptions and Ctrl-C
wherever they come; and the scores of a model with a classifier.

    bindings.py LIBKAIJU MODEL KAIJU_MAKE [Bindings.TEST ...]
"""

import copy
import gc
import math
import os
import pathlib
import pickle
import re
import shutil
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


def in_child(body):
    """Runs body in a child of fork(): how it ended, 0 when body returned nothing, or what it raised."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends it where it hangs in C, too
        signal.alarm(20)
        try:
            body()
        except BaseException as error:
            os.write(theirs, repr(error).encode())
            os._exit(1)
        os._exit(0)
    os.close(theirs)
    with open(ours) as raised:
        said = raised.read()
    return said or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_python(script, library=LIBRARY, folder=os.path.dirname(kaiju.__file__)):
    """Runs a script in a Python of its own; what it was and printed."""
    environment = dict(os.environ, KAIJU_LIBRARY=library, PYTHONPATH=folder)
    ran = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr


def interrupted(nth, call):
    """Raises KeyboardInterrupt before the nth line of the binding that call executes; whether there are so many."""
    left = nth

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename != kaiju.__file__ or frame.f_code.co_name == "__del__":  # which would swallow it
            return None
        left -= event in ("call", "line")
        if left == 0:
            left = -1
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


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
                says = f"request {request} is not pending"
                with self.subTest(request=request), self.assertRaisesRegex(kaiju.Error, says):
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
        requests = [session.submit(HEAD + said(str(i)), temperature=0, max_tokens=3, priority=i)
                    for i, session in enumerate(sessions)]
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
            for option, value in (("temperature", "hot"), ("max_tokens", 1.5), ("max_tokens", "8"),
                                  ("max_tokens", 2**63), ("stop", 5), ("seed", 2**64)):
                with self.subTest(option=option, value=value), self.assertRaisesRegex(TypeError, option):
                    session.submit(HEAD, **{option: value})
            self.assertEqual(session.generate(HEAD, max_tokens=0, seed=2**64 - 1)[1].kind, kaiju.DONE)

    def test_an_option_that_a_call_does_not_read_is_refused_by_name(self):
        with self.assertRaisesRegex(kaiju.Error, r"session\.salt.*request a reply"):
            kaiju.Engine(model, salt="a secret")
        with self.assertRaisesRegex(kaiju.Error, r"engine\.threads.*kaiju_engine_create"):
            with kaiju.Engine(model, threads=1).session() as session:
                session.generate([1], threads=2)

    def test_a_token_outside_the_vocabulary_is_refused_however_large(self):
        with self.engine.session() as session, kaiju.Conversation(self.engine, HEAD) as talk:
            talk.append([], [20])
            for token in (-1, model.vocabulary, 2**32 + 5, 2**40 + 5, 2**64 + 5, 5 - 2**32):
                calls = (lambda ids: session.submit(ids), model.detokenize,
                         lambda ids: kaiju.Conversation(self.engine, ids), talk.say, lambda ids: talk.append(ids, []),
                         lambda ids: talk.append([], ids), lambda ids: talk.edit(0, ids))
                says = f"token 1 is {token}; tokens are 0 to {model.vocabulary - 1}"
                for call in calls:
                    with self.subTest(token=token, call=call), self.assertRaisesRegex(kaiju.Error, says):
                        call([1, token])

    def test_every_option_of_the_header_is_taken_by_name(self):
        with open(os.path.join(ROOT, "capi", "kaiju.h")) as header:
            names = re.findall(r"^  KAIJU_(?:MODEL|ENGINE|GENERATE|SESSION)_(\w+) =\s+[1-4]\d\d\b", header.read(), re.M)
        self.assertGreater(len(names), 30)
        kinds = {"f": 0.5, "i": 1, "s": "sixteen or so bytes"}
        for name in map(str.lower, names):
            with self.subTest(name=name):
                kaiju._Options({name: kinds[kaiju._OPTIONS[name][1]]}).close()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tier")
            tiers = {"threads": 1, "host_bytes": 1 << 24, "file_bytes": 1 << 24, "tier_file": path}
            kaiju.Engine(kaiju.Model(MODEL, verify=0), **tiers).close()
            with open(path, "w"), self.assertRaisesRegex(kaiju.Error, path):
                kaiju.Engine(model, **tiers)

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
            first = min(text.index(words[4]), text.index(words[2]))
            self.assertEqual(replied(stop=stop, stop_token=-1)[0], text[:first])
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
        polled = [(event.ids, event.logprobs) for event in events if event.kind == kaiju.TOKEN]
        self.assertEqual(polled, list(zip(done.ids, done.logprobs)))
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

    # -- exceptions: the request ends, nothing of it is kept, and others keep what is theirs --
    def check_nothing_left(self, engine=None):
        engine = engine or self.engine
        self.assertEqual((engine._kept, engine._open, engine._given_up, engine.poll()), ({}, {}, set(), []))
        self.assertEqual(engine.pending(), 0)

    def test_what_on_text_raises_cancels_the_request_and_keeps_nothing(self):
        with kaiju.Engine(model, threads=1, max_running=3) as engine:
            with engine.session() as session:
                alone, _ = session.generate(STORY, temperature=0, max_tokens=10)
            talk = kaiju.Conversation(engine, HEAD)
            for raised in (ValueError("a handler's"), KeyboardInterrupt(), SystemExit(), GeneratorExit(), MemoryError(),
                           kaiju.Error("on_text's own")):
                def fail(_):
                    raise raised

                for call in (lambda: session.generate(STORY, fail, max_tokens=200),
                             lambda: engine.finish(session.submit(STORY, max_tokens=200), fail),
                             lambda: engine.finish(talk.say(said("hello!"), max_tokens=200), fail)):
                    with engine.session() as session, engine.session() as another:
                        other = another.submit(STORY, temperature=0, max_tokens=10)
                        with self.subTest(raised=raised), self.assertRaises(type(raised)) as caught:
                            call()
                        self.assertIs(caught.exception, raised)
                        self.assertEqual((list(engine._open), list(engine._kept)), ([other], [other]))
                        self.assertEqual(engine.finish(other)[0], alone)
                        self.check_nothing_left(engine)
                        session.generate([20], max_tokens=1)
                        engine.finish(talk.say([20], max_tokens=1))
            self.check_nothing_left(engine)

    def test_ctrl_c_ends_a_reply_and_its_request(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with self.engine.session() as session:
            with self.assertRaises(KeyboardInterrupt):
                session.generate(STORY, lambda _: os.kill(os.getpid(), signal.SIGINT), max_tokens=500)
            self.check_nothing_left()
            self.assertEqual(session.generate(said("And then?"), max_tokens=2)[1].generated_tokens, 2)

    def test_an_interrupt_at_any_line_leaves_the_engine_whole_and_other_requests_theirs(self):
        with kaiju.Engine(model, threads=1, max_running=2) as engine:
            with engine.session() as session:
                alone, _ = session.generate([20, 21], temperature=0, max_tokens=1)
            nth, more = 0, True
            while more:
                nth += 1
                with engine.session() as session, engine.session() as another:
                    other = another.submit([20, 21], temperature=0, max_tokens=1)
                    more = interrupted(nth, lambda: session.generate([20, 21], list().append, max_tokens=1))
                    with self.subTest(line=nth):
                        text, done = engine.finish(other)
                        self.assertEqual((text, len(done.ids)), (alone, 1))
                        self.assertEqual(session.generate([20], max_tokens=1)[1].generated_tokens, 1)
                        self.check_nothing_left(engine)
            self.assertGreater(nth, 100)

    def test_an_interrupt_at_any_line_of_poll_loses_no_event(self):
        with self.engine.session() as session:
            for nth in range(1, 100):
                request = session.submit([20, 21], temperature=0, max_tokens=2)
                for _ in range(3):
                    self.engine.step()
                more = interrupted(nth, self.engine.poll)
                if not more:
                    break
                self.assertEqual([event.kind for event in self.engine.poll()], [kaiju.TOKEN, kaiju.TOKEN, kaiju.DONE])
                self.assertRaises(kaiju.Error, self.engine.finish, request)
                self.check_nothing_left()
        self.assertGreater(nth, 20)

    def test_a_reply_that_a_step_fails_ends_its_request(self):
        def fail():
            raise kaiju.Error("another thread is in step")

        with self.engine.session() as session:
            self.engine._step_or_busy = fail
            with self.assertRaisesRegex(kaiju.Error, "another thread"):
                session.generate(STORY, max_tokens=200)
            request = session.submit(STORY, max_tokens=2)  # the session is free; whoever has a number may try again
            with self.assertRaisesRegex(kaiju.Error, "another thread"):
                self.engine.finish(request)
            del self.engine._step_or_busy
            self.assertEqual(self.engine.finish(request)[1].generated_tokens, 2)
        self.check_nothing_left()

    def test_text_that_another_finish_kept_is_told_once(self):
        with self.engine.session() as first, self.engine.session() as second:
            requests = [session.submit(STORY, temperature=0, max_tokens=5) for session in (first, second)]
            self.engine.finish(requests[1])
            pieces = []
            self.assertEqual(self.engine.finish(requests[0], pieces.append)[0], "".join(pieces))

    # -- handles --
    def handles(self):
        return [model, self.engine, self.engine.session(), kaiju.Conversation(self.engine, HEAD), kaiju._Options({})]

    def test_a_handle_is_never_copied_or_pickled(self):
        for handle in self.handles():
            for way in (copy.copy, copy.deepcopy, pickle.dumps, lambda handle: copy.copy([handle] and handle)):
                with self.subTest(handle=handle), self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                    way(handle)

    def test_what_is_closed_says_so_and_closes_again(self):
        engine = kaiju.Engine(model, threads=1)
        session, talk, other = engine.session(), kaiju.Conversation(engine, HEAD), kaiju.Model(MODEL, verify=0)
        ids = [20, 21]
        calls = {
            "session": (lambda: session.submit(ids), lambda: session.generate(ids), lambda: session.save("x")),
            "conversation": (lambda: talk.say(ids), talk.swipe, lambda: talk.choose(0), lambda: talk.append(ids, ids),
                             lambda: talk.edit(0, ids), talk.undo, lambda: talk.fork(0), lambda: talk.turn(0),
                             talk.tokens, talk.info),
            "engine": (engine.step, engine.poll, engine.pending, engine.now, engine.session, lambda: engine.cancel(1),
                       lambda: engine.suspend(1), lambda: engine.resume(1), lambda: engine.restore("x"),
                       lambda: engine.finish(1)),
            "model": (lambda: other.tokenize("a"), lambda: other.detokenize(ids), lambda: other.chat([]),
                      lambda: kaiju.Engine(other)),
        }
        for handle in (session, talk, engine, other):
            handle.close()
            handle.close()
            for call in calls[handle._kind]:
                with self.subTest(call=call), self.assertRaisesRegex(kaiju.Error, f"the {handle._kind} is closed"):
                    call()

    def test_what_was_made_of_a_closed_engine_lives_on_but_asks_for_no_reply(self):
        engine = kaiju.Engine(model, threads=1)
        session, talk = engine.session(), kaiju.Conversation(engine, HEAD)
        session.generate(STORY, max_tokens=2)
        engine.close()
        for call in (lambda: session.submit([20]), lambda: session.generate([20]), lambda: talk.say([20])):
            with self.assertRaisesRegex(kaiju.Error, "the engine is closed"):
                call()
        self.assertEqual(talk.tokens(), HEAD)
        with tempfile.TemporaryDirectory() as folder:
            session.save(os.path.join(folder, "saved"))

    def test_an_engine_that_on_text_closes_raises_what_on_text_does(self):
        engine = kaiju.Engine(model, threads=1)

        def close(_):
            engine.close()
            raise ValueError("closed")

        with self.assertRaisesRegex(ValueError, "closed"):
            engine.session().generate(STORY, close, max_tokens=20)

    def test_an_engine_is_closed_while_other_threads_are_in_its_calls(self):
        for _ in range(20):
            engine, began, raised = kaiju.Engine(model, threads=1), threading.Event(), []

            def drive(session):
                try:
                    while True:
                        session.submit([20, 21], max_tokens=1)
                        engine.step()
                        engine.poll()
                        engine.step()
                        engine.poll()
                        began.set()
                except kaiju.Error as error:
                    raised.append(str(error))

            thread = threading.Thread(target=drive, args=(engine.session(),))
            thread.start()
            began.wait()
            engine.close()
            thread.join()
            self.assertEqual(raised, ["the engine is closed"])

    def test_what_was_never_made_is_let_go_without_a_word(self):
        said, sys.unraisablehook = [], lambda raised: said.append(raised)
        try:
            for kind in (kaiju.Model, kaiju.Engine, kaiju.Session, kaiju.Conversation, kaiju._Options):
                kind.__new__(kind).close()
            for make in (lambda: kaiju.Model("/nowhere"), lambda: kaiju.Model(MODEL, no_such=1),
                         lambda: kaiju.Engine(model, backend="none"), lambda: kaiju.Engine(None),
                         lambda: kaiju.Conversation(self.engine, [20] * model.context),
                         lambda: self.engine.restore("/nowhere")):
                self.assertRaises((kaiju.Error, TypeError), make)
            ring = [kaiju.Engine(kaiju.Model(MODEL, verify=0), threads=2)]
            ring += [ring[0].session(), ring]
            ring[0].ring = ring
            del ring
            gc.collect()
        finally:
            sys.unraisablehook = sys.__unraisablehook__
        self.assertEqual(said, [])

    def test_a_program_may_end_with_everything_open(self):
        self.assertEqual(in_python(f"""
import threading, kaiju
engine = kaiju.Engine(kaiju.Model({MODEL!r}, verify=0), threads=2)
session, talk = engine.session(), kaiju.Conversation(engine, [20])
engine.ring = [session, talk, engine]
def drive():
    while True: engine.session().generate([20, 21], max_tokens=1)
threading.Thread(target=drive, daemon=True).start()
"""), (0, "", ""))

    # -- fork --
    def test_a_child_of_fork_ends_in_every_way(self):
        self.assertEqual(in_python(f"""
import multiprocessing, os, signal, sys, kaiju
model = kaiju.Model({MODEL!r}, verify=0)
engines = [kaiju.Engine(model, threads=threads) for threads in (1, 2, 4)]
sessions = [engine.session() for engine in engines]
talks = [kaiju.Conversation(engine, [20]) for engine in engines]
def close():
    for handle in engines + sessions + talks + [model]: handle.close()
def ended(leave):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        leave()
        sys.exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def let_go():
    for handles in (talks, engines, sessions): handles.clear()
print([ended(leave) for leave in (lambda: None, lambda: os._exit(3), close, let_go)])
process = multiprocessing.get_context("fork").Process(target=len, args=(engines,))
process.start()
process.join(20)
print(process.exitcode)
"""), (0, "[3, 3, 3, 3]\n0\n", ""))

    def test_a_child_of_fork_is_refused_its_parents_engine_and_makes_one_of_its_model(self):
        with kaiju.Engine(model, threads=4) as engine, engine.session() as session:
            alone, _ = session.generate(STORY, temperature=0, max_tokens=5)
            talk, request = kaiju.Conversation(engine, HEAD), session.submit(STORY, max_tokens=50)
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
                for call in (engine.step, engine.poll, engine.pending, engine.now, engine.session,
                             lambda: engine.finish(request), lambda: engine.cancel(request),
                             lambda: engine.suspend(request), lambda: engine.resume(request),
                             lambda: engine.restore("x"), lambda: session.submit([20]), lambda: session.generate([20]),
                             lambda: session.save("x"), lambda: talk.say([20]), talk.swipe, talk.tokens, talk.info,
                             lambda: kaiju.Conversation(engine, HEAD)):
                    try:
                        call()
                    except kaiju.Error as error:
                        assert "forked" in str(error), error
                    else:
                        raise AssertionError("not refused")
                with kaiju.Engine(model, threads=4) as own, own.session() as fresh:
                    assert fresh.generate(STORY, temperature=0, max_tokens=5)[0] == alone
                for handle in (talk, session, engine, model):
                    handle.close()

            self.assertEqual(in_child(child), 0)
            forked.set()
            thread.join()
            self.assertEqual(engine.finish(request)[1].generated_tokens, 50)

    # -- paths, texts, the library --
    def test_a_nul_is_refused_in_a_path_and_kept_in_a_text(self):
        with self.engine.session() as session:
            for call in (lambda: kaiju.Model(MODEL + "\0.old"), lambda: kaiju.Model(os.fsencode(MODEL) + b"\0"),
                         lambda: session.save("a\0b"), lambda: self.engine.restore("a\0b")):
                self.assertRaisesRegex(kaiju.Error, "has a NUL in it", call)
            for name in ("tier_file", "products_file", "backend"):
                with self.subTest(name=name), self.assertRaisesRegex(kaiju.Error, f"engine.{name} is zero at byte 2"):
                    kaiju.Engine(model, **{name: "a\0b"})
            self.assertNotEqual(model.tokenize("a\0b"), model.tokenize("a"))
            self.assertNotEqual(said("a\0b"), said("a"))
            session.generate(STORY, max_tokens=1, salt="a\0b", character="c\0d", shared_tokens=5)
        for salt, shared in (("a\0b", len(STORY) - 1), ("a\0c", 5), ("a", 5)):
            with self.engine.session() as session:
                done = session.generate(STORY, max_tokens=1, salt=salt, character="c\0d", shared_tokens=5)[1]
                self.assertEqual(done.cached_tokens, shared)

    def test_a_path_may_be_any_bytes_and_so_may_an_errors(self):
        with tempfile.TemporaryDirectory() as folder, self.engine.session() as session:
            session.generate(STORY, max_tokens=1)
            name = os.path.join(os.fsencode(folder), b"caf\xe9")
            for path in (name, os.fsdecode(name), pathlib.Path(os.fsdecode(name))):
                self.assertRaisesRegex(kaiju.Error, r"caf\\xe9: cannot open", kaiju.Model, path)
                self.assertRaisesRegex(kaiju.Error, r"caf\\xe9: cannot open", self.engine.restore, path)
                session.save(path)
                self.engine.restore(path).close()
                os.unlink(path)
                kaiju.Engine(model, threads=1, host_bytes=1 << 24, file_bytes=1 << 24, tier_file=path).close()
            for path in (5, None):
                self.assertRaisesRegex(TypeError, "tier_file", kaiju.Engine, model, tier_file=path)
            self.assertRaisesRegex(kaiju.Error, "salt", session.submit, STORY, salt="\ud800")

    def test_an_error_of_the_library_is_given_back_whatever_its_message(self):
        given, message, library = [], kaiju._text, kaiju._lib

        class Library:
            def __getattr__(self, name):
                return given.append if name == "kaiju_error_destroy" else getattr(library, name)

        def fail(_):
            raise KeyboardInterrupt

        try:
            kaiju._lib = Library()
            self.assertRaises(kaiju.Error, self.engine.session().submit, [])
            kaiju._text = fail
            self.assertRaises(KeyboardInterrupt, self.engine.session().submit, [])
        finally:
            kaiju._lib, kaiju._text = library, message
        self.assertEqual(len(given), 2)
        for error in given:
            library.kaiju_error_destroy(error)

    def test_a_library_that_is_none_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:  # where no build is found
            shutil.copy(kaiju.__file__, folder)
            text = os.path.join(folder, "text")
            with open(text, "w") as file:
                file.write("not a library")
            for library, says in ((text, "cannot load the kaiju library"),
                                  ("libc.so.6", "libc.so.6 is not the kaiju library"),
                                  ("/nowhere.so", "cannot load the kaiju library")):
                code, _, error = in_python("import kaiju", library, folder)
                self.assertEqual(code, 1)
                self.assertRegex(error.splitlines()[-1], f"^kaiju.Error: {says}.*KAIJU_LIBRARY")
            code, _, error = in_python("import kaiju", "", folder)  # as if unset
            if code:
                self.assertRegex(error.splitlines()[-1], "^kaiju.Error: cannot load the kaiju library: libkaiju.so.0")

    def test_scores_come_with_every_token(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "classifier.safetensors")
            subprocess.run([MAKE, "--preset", "nano", "--layers", "1", "--labels", "2", "--out", path], check=True)
            judging = kaiju.Model(path)
        self.assertEqual(judging.labels, ["label 0", "label 1"])
        with kaiju.Engine(judging, threads=1, max_running=1) as engine:
            first, second, third = [engine.session() for _ in range(3)]
            _, done = first.generate([20, 21, 22], max_tokens=3, scores=1)
            self.assertEqual([len(scores) for scores in done.judged], [2, 2, 2])
            self.assertNotEqual(done.judged[0], done.judged[1])
            early, late = [session.submit([20, 21, 22], max_tokens=3, scores=1) for session in (second, third)]
            self.assertEqual([engine.finish(request)[1].judged for request in (late, early)], [done.judged] * 2)
            self.assertEqual(first.generate([23], max_tokens=3)[1].judged, [])

    def test_an_object_in_a_cycle_finds_its_session_closed_and_not_freed(self):
        code, out, err = in_python(f"""
import gc, kaiju
model = kaiju.Model({MODEL!r})
engine = kaiju.Engine(model, threads=1)
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

    def test_threads_that_generate_at_once_take_turns(self):
        engine, wrong = kaiju.Engine(model, threads=1), []
        alone = [engine.session().generate(STORY, **HOT | {"seed": seed})[0] for seed in range(4)]

        def generate(seed):
            try:
                for _ in range(3):
                    with engine.session() as session:
                        said = session.generate(STORY, **HOT | {"seed": seed})[0]
                    if said != alone[seed]:
                        wrong.append(said)
            except kaiju.Error as error:
                wrong.append(error)

        threads = [threading.Thread(target=generate, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(engine.pending(), 0)

    def test_a_signal_handler_cannot_interrupt_the_taking_of_events_by_another(self):
        engine, real, left, refused = kaiju.Engine(model, threads=1), kaiju._text, [3], []
        alone = engine.session().generate(STORY, **HOT)

        def handler(*_):
            try:
                engine.session().generate(STORY, max_tokens=1)
            except kaiju.Error as error:
                refused.append(str(error))

        def text(data):
            left[0] -= 1
            if left[0] == 0:
                signal.raise_signal(signal.SIGUSR1)
            return real(data)

        before = signal.signal(signal.SIGUSR1, handler)
        kaiju._text = text
        try:
            said = engine.session().generate(STORY, **HOT)
        finally:
            kaiju._text = real
            signal.signal(signal.SIGUSR1, before)
        self.assertEqual((said[0], said[1].ids), (alone[0], alone[1].ids))
        self.assertIn("called by a signal handler", refused[0])

    def test_a_handle_of_another_kind_is_refused(self):
        engine = kaiju.Engine(model, threads=1)
        session, talk = engine.session(), kaiju.Conversation(engine)
        for wrong in (engine, session, talk, None, 1):
            with self.assertRaisesRegex(TypeError, "model is a .*; it must be a Model"):
                kaiju.Engine(wrong)
        for wrong in (model, session, talk, None, 1):
            for kind in (kaiju.Session, kaiju.Conversation):
                with self.assertRaisesRegex(TypeError, "engine is a .*; it must be a Engine"):
                    kind(wrong)

    def test_numbers_that_c_would_cut_off_are_refused(self):
        engine = kaiju.Engine(model, threads=1)
        talk = kaiju.Conversation(engine, HEAD)
        request = talk.say(said("hello!"), **HOT)
        for call in (engine.cancel, engine.suspend, engine.resume, talk.choose, talk.fork, talk.turn):
            for wrong in (request + 2**64, -1):
                with self.assertRaisesRegex(kaiju.Error, "it must be from 0 to"):
                    call(wrong)
            with self.assertRaises(TypeError):
                call("1")
        with self.assertRaisesRegex(kaiju.Error, "flags is 4294967297"):
            model.chat([("user", "hello!")], 2**32 + 1)
        self.assertIn(engine.finish(request)[1].reason, (kaiju.STOP, kaiju.LENGTH))

    def test_a_message_may_have_its_speakers_name(self):
        self.assertEqual(model.chat([("user", "hello!", "Ann")]), model.chat([("user", "Ann: hello!")]))
        open_reply = model.chat([("user", "hello!"), ("character", "", "Wren")], kaiju.LEAVE_OPEN)
        self.assertEqual(open_reply, model.chat([("user", "hello!")]) + model.tokenize("Wren:"))
        for wrong in (("user", "hello!", "A\nB"), ("system", "Be brief.")):
            with self.assertRaisesRegex(kaiju.Error, "message 0"):
                model.chat([wrong])
        with self.assertRaisesRegex(TypeError, "a speaker's name is 7"):
            model.chat([("user", "hello!", 7)])

    def test_what_is_no_text_is_refused_alike_everywhere(self):
        calls = (model.tokenize, lambda text: model.chat([("user", text)]))
        for call in calls:
            with self.assertRaisesRegex(kaiju.Error, "which UTF-8 cannot write"):
                call("\ud800")
            for wrong in (None, b"bytes", 1):
                with self.assertRaisesRegex(TypeError, "it must be a str"):
                    call(wrong)
        with self.assertRaisesRegex(TypeError, "a pair"):
            model.chat([{"role": "user", "content": "hello!"}])
        with self.assertRaisesRegex(kaiju.Error, "cannot be written"):
            kaiju.Model("\ud800")


unittest.main(argv=sys.argv[:1] + sys.argv[4:])
