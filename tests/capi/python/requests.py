"""Requests, saved sessions, prefixes and conversations of the Python package.

    requests.py LIBKAIJU MODEL KAIJU_MAKE [Class.test ...]"""

import gc
import os
import tempfile
import threading

from bundled import BEGIN, CARD, HOT, STORY, OfEngine, model, said
from support import kaiju, main


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

    def test_cache_events_tell_of_a_characters_blocks_alone(self):
        with model.engine(threads=1, cache_events=1000, cache_event_tokens=1) as engine:
            tokens = model.chat_format([("card", "Wren\n" + "Wren is a travelling hedge witch. " * 20)])
            engine.prefix(tokens, character="wren/1").wait()
            engine.session().reply("Hello!", max_tokens=4)
            told = [event for event in engine.poll_cache() if event.kind == kaiju.CacheKind.STORED]
            blocks = engine.cached_blocks()
            self.assertEqual([block.parent for block in blocks], [0] + [block.name for block in blocks[:-1]])
            self.assertEqual(sum((block.tokens for block in blocks), []), tokens)
            self.assertEqual({block.name for block in blocks}, {event.name for event in told})
            self.assertEqual({(block.tier, block.is_private) for block in blocks}, {(kaiju.CacheTier.DEVICE, False)})
            self.assertEqual(engine.poll_cache(), [])
        with self.assertRaises(kaiju.InvalidArgument):
            self.engine.poll_cache()

    def test_a_request_outlives_the_name_of_its_session(self):
        request = self.engine.session().submit(STORY, max_tokens=3, stop_token=-1)
        gc.collect()
        self.assertEqual(request.wait().reason, kaiju.Reason.LENGTH)

    def test_a_call_that_could_not_guide_a_guided_request_refuses_it(self):
        with self.engine.session() as session, self.engine.conversation() as talk:
            talk.append("Hello!", "Hi!")
            bag = kaiju.Options(guided=1)
            for call in (lambda **values: session.reply("Hello!", **values),
                         lambda **values: session.stream("Hello!", **values),
                         lambda **values: session.generate(STORY, **values),
                         lambda **values: session.stream_tokens(STORY, **values),
                         lambda **values: talk.say("Hello!", **values),
                         lambda **values: talk.stream("Hello!", **values), talk.swipe, talk.stream_swipe):
                for values in ({"guided": 1}, {"guided": True}, {"options": bag}, {"options": {"generate.guided": 1}}):
                    with self.assertRaisesRegex(kaiju.InvalidArgument, "submit.*kaiju.structured"):
                        call(**values)
            self.assertEqual(self.engine.pending(), 0)
            self.assertEqual(len(session.generate(STORY, guided=0, max_tokens=2).tokens), 2)

    def test_a_request_is_done_when_poll_has_taken_its_last_event(self):
        with self.engine.session() as session:
            request = session.submit(STORY, max_tokens=2, stop_token=-1)
            for _ in range(50):
                self.engine.step()
            self.assertFalse(request.done)
            events = self.engine.poll()
            self.assertTrue(request.done)
            self.assertEqual([event.kind.name for event in events], ["TOKEN", "TOKEN", "DONE"])

    def test_wait_ends_with_work_with_wake_and_in_time(self):
        self.assertFalse(self.engine.wait(0))
        self.assertFalse(self.engine.wait(0.01))
        threading.Timer(0.1, self.engine.wake).start()
        self.assertFalse(self.engine.wait())
        self.engine.wake()
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
    def test_a_reply_says_why_no_more_of_its_prompt_was_cached(self):
        session = self.engine.session()
        first = session.generate([1, 20, 21, 22], max_tokens=8, stop_token=-1)
        self.assertEqual((first.cached_tokens, first.reuse_end), (0, kaiju.Reuse.NEW))
        session.truncate(6)
        again = session.generate([25, 26], max_tokens=2, stop_token=-1)
        self.assertEqual((again.cached_tokens, again.reuse_end), (6, kaiju.Reuse.DIFFERENT))
        self.assertEqual((again.done.known_tokens, again.done.known_end), (6, kaiju.Reuse.DIFFERENT))

    def test_text_that_changes_every_turn_is_placed_behind_the_history(self):
        messages = [("card", "Pip\nPip is a robot."), ("user", "one"), ("character", "two"), ("user", "three")]
        placed = model.chat_format_volatile(messages, "It is noon.")
        changed = messages[:-1] + [("user", "It is noon.\n\nthree")]
        self.assertEqual(placed.tokens, model.chat_format(changed))
        self.assertGreater(placed.stable_tokens, len(model.chat_format(messages[:3], 0)) - 1)
        deep = model.chat_format_volatile(messages, "It is noon.", depth=3)
        self.assertLess(deep.stable_tokens, deep.stable_behind_history)
        self.assertEqual(deep.stable_behind_history, placed.stable_tokens)

    def test_a_session_is_prefetched_while_its_user_types(self):
        engine = model.engine(threads=1, max_running=1, cache_bytes=1, host_bytes=64 << 20)
        session = engine.session()
        session.generate([1] + [20 + i % 90 for i in range(600)], max_tokens=4, stop_token=-1)
        for other in range(7):
            engine.session().generate([1, 30 + other] + [40 + (i * (other + 3)) % 97 for i in range(900)], max_tokens=1)
        number = session.prefetch(user_data="typing")
        events = []
        while not events:
            engine.step()
            events = engine.poll()
        self.assertEqual((events[0].kind, events[0].request, events[0].user_data), (kaiju.Kind.PREFETCHED, number, "typing"))
        self.assertEqual((events[0].prompt_tokens, events[0].cached_tokens), (605, 604))
        self.assertEqual(session.generate([50], max_tokens=1).cached_tokens, 604)
        talk = engine.conversation(card=CARD)
        talk.say("Hello!", max_tokens=2)
        talk.prefetch(character="pip")
        while not engine.poll():
            engine.step()

    def test_a_tenant_has_a_share(self):
        self.engine.set_share("ann", cache_ceiling_bytes=1 << 30)
        with self.assertRaises(kaiju.InvalidArgument):
            self.engine.set_share("bob", step_floor=2.0)
        with self.assertRaises(kaiju.NotFound):
            self.engine.share_usage("eve")
        self.engine.session().generate([1, 20, 21, 22], max_tokens=8, stop_token=-1, tenant="ann")
        usage = self.engine.share_usage("ann", kaiju.ShareOf.TENANT)
        self.assertEqual((usage.tokens_computed, usage.running), (11, 0))
        self.assertGreater(usage.cache_bytes, 0)

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


if __name__ == "__main__":
    main()
