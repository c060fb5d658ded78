"""Handles that are closed in any order, copied or forked; exceptions and Ctrl-C wherever they come; the command line.

    handles.py LIBKAIJU MODEL KAIJU_MAKE [Class.test ...]"""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading

from bundled import CARD, HOT, STORY, OfEngine, model
from support import LIBRARY, MODEL, PACKAGE, Test, in_child, in_python, interrupted, kaiju, made_model, main


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
                                (("model", __file__), "handles.py: .*not a safetensors file")):
            code, out, err = self.run_program(*arguments)
            self.assertEqual((code, out, len(err.splitlines())), (1, "", 1), err)
            self.assertRegex(err, says)
        code, _, err = self.run_program("chat", said="/nothing\n")
        self.assertEqual((code, err), (1, "python -m kaiju: no command /nothing; /help lists them\n"))
        self.assertEqual(self.run_program("nothing")[0], 2)

    def test_help_options_and_facts_are_printed(self):
        for arguments, says in (((), "python -m kaiju chat"), (("--help",), "python -m kaiju import SOURCE"),
                                (("import", "--help"), "kaiju-import SOURCE --out FILE"),
                                (("options",), "generate.temperature"), (("model",), "kaiju-nano"),
                                (("chat", "--list"), "wren"), (("--version",), "libkaiju|kaiju")):
            code, out, err = self.run_program(*arguments)
            self.assertEqual((code, err), (0, ""))
            self.assertRegex(out, says)


if __name__ == "__main__":
    main()
