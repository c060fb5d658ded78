"""Many threads and many asyncio streams on one engine: each gets the reply that it would get alone, none waits for
ever, none keeps the processor busy while it waits, and leaving or cancelling a stream ends its request.

    threads.py LIBKAIJU MODEL KAIJU_MAKE [Class.test ...]"""

import asyncio
import gc
import resource
import threading
import time

from support import MODEL, Test, kaiju, made_model, main

tiny = made_model()  # of random weights: only tokens go in
ENGINE = {"threads": 1, "cache_bytes": 1 << 24}


def prompt(number):
    return [number % 251 + 1, number // 251 + 1, 7]


def in_threads(count, body):
    """Runs body(i) in `count` threads; what they raised."""
    raised = []

    def run(i):
        try:
            body(i)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    return raised


class Threads(Test):
    def test_16_threads_with_200_replies_each_get_what_one_alone_gets(self):
        with tiny.engine(**ENGINE) as engine:
            alone = {}
            for number in range(200):
                with engine.session() as session:
                    alone[number] = session.generate(prompt(number), max_tokens=3, stop_token=-1, temperature=1.0,
                                                     seed=number).tokens
            self.assertGreater(len({tuple(tokens) for tokens in alone.values()}), 100)
        with tiny.engine(max_running=16, **ENGINE) as engine:
            wrong = []

            def replies(thread):
                for i in range(200):
                    number = (i + 13 * thread) % 200
                    with engine.session() as session:
                        tokens = session.generate(prompt(number), max_tokens=3, stop_token=-1, temperature=1.0,
                                                  seed=number).tokens
                    if tokens != alone[number]:
                        wrong.append(number)

            self.assertEqual(in_threads(16, replies), [])
            self.assertEqual(wrong, [])
            self.assertEqual((engine.pending(), engine.metrics().requests_done), (0, 3200))

    def test_threads_that_stream_get_their_own_text(self):
        with kaiju.Model(MODEL, verify=0).engine(threads=1) as engine:
            said = [f"My name is {name}." for name in ("Ada", "Ben", "Cleo", "Dan")]
            alone = [engine.session().reply(text, max_tokens=8) for text in said]
            got = {}

            def stream(i):
                got[i] = "".join(engine.session().stream(said[i], max_tokens=8))

            self.assertEqual(in_threads(4, stream), [])
            self.assertEqual([got[i] for i in range(4)], alone)

    def test_a_loop_of_ones_own_goes_on_beside_threads_that_ask_for_replies(self):
        with tiny.engine(max_running=4, **ENGINE) as engine:
            ended = threading.Event()

            def replies(i):
                for number in range(30):
                    engine.session().generate(prompt(number), max_tokens=3)

            threads = [threading.Thread(target=replies, args=(i,)) for i in range(3)]
            for thread in threads:
                thread.start()
            sessions = [engine.session() for _ in range(20)]
            mine = {session.submit(prompt(9), max_tokens=3, user_data=i).id: i for i, session in enumerate(sessions)}
            events = []
            while sum(event.last for event in events) < len(mine):
                engine.step()
                events += engine.poll()
                engine.wait(0.01)
            for thread in threads:
                thread.join(30)
                self.assertFalse(thread.is_alive())
            ended.set()
            self.assertEqual({event.request: event.user_data for event in events}, mine)

    def test_who_waits_sleeps(self):
        with tiny.engine(**ENGINE) as engine, engine.session() as session:
            request = session.submit(prompt(1), max_tokens=3)
            request.suspend()
            threads = [threading.Thread(target=request.wait) for _ in range(4)]
            before = resource.getrusage(resource.RUSAGE_SELF)
            for thread in threads:
                thread.start()
            time.sleep(1)
            after = resource.getrusage(resource.RUSAGE_SELF)
            self.assertTrue(all(thread.is_alive() for thread in threads))
            request.resume()
            for thread in threads:
                thread.join(20)
                self.assertFalse(thread.is_alive())
            self.assertLess(after.ru_utime - before.ru_utime, 0.5)  # a busy loop takes the whole second

    def test_closing_the_engine_wakes_threads_that_wait(self):
        engine = tiny.engine(**ENGINE)
        request = engine.session().submit(prompt(1), max_tokens=3)
        request.suspend()
        raised = []

        def wait():
            try:
                request.wait()
            except kaiju.Error as error:
                raised.append(type(error))

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        engine.close()
        for thread in threads:
            thread.join(20)
            self.assertFalse(thread.is_alive())
        self.assertEqual(raised, [kaiju.Closed] * 3)

    def test_two_replies_of_one_session_at_once_are_refused_not_mixed(self):
        with tiny.engine(**ENGINE) as engine, engine.session() as session:
            session.submit(prompt(1), max_tokens=50, stop_token=-1)
            with self.assertRaises(kaiju.Busy):
                session.generate(prompt(2), max_tokens=1)
            while engine.pending():
                engine.step()
                engine.poll()
            self.assertEqual(session.generate(prompt(2), max_tokens=1).generated_tokens, 1)


class Asyncio(Test):
    def test_1000_streams_of_one_engine_need_no_thread_each(self):
        with tiny.engine(max_running=64, **ENGINE) as engine:
            alone = {number: engine.session().generate(prompt(number), max_tokens=3, stop_token=-1).tokens
                     for number in range(50)}
            most = 0

            async def one(number):
                nonlocal most
                stream = engine.session().stream_tokens(prompt(number), max_tokens=3, stop_token=-1)
                async for _ in stream:
                    pass
                most = max(most, threading.active_count())
                return (await stream).tokens

            async def all_of_them():
                return await asyncio.gather(*[one(i % 50) for i in range(1000)])

            got = asyncio.run(all_of_them())
            self.assertEqual(got, [alone[i % 50] for i in range(1000)])
            self.assertLessEqual(most, 3)
            self.assertEqual(engine.pending(), 0)

    def test_leaving_the_loop_cancels_the_request(self):
        with kaiju.Model(MODEL, verify=0).engine(threads=1) as engine:
            async def leave():
                session = engine.session()
                async for _ in session.stream("Tell me a story.", max_tokens=1000, stop_token=-1):
                    break
                return await session.stream("Hello!", max_tokens=2)  # the session is free again

            reply = asyncio.run(leave())
            self.assertEqual(reply.generated_tokens, 2)
            self.assertEqual(engine.pending(), 0)
            self.assertLess(engine.metrics().tokens_decoded, 100)

    def test_cancelling_the_task_cancels_the_request(self):
        with tiny.engine(**ENGINE) as engine:
            async def cancelled():
                session, begun = engine.session(), asyncio.Event()

                async def read():
                    stream = session.stream_tokens(prompt(1), max_tokens=200, stop_token=-1)
                    async for _ in stream:
                        pass

                async def watch():
                    while not engine.metrics().tokens_decoded:
                        await asyncio.sleep(0)
                    begun.set()

                task = asyncio.create_task(read())
                await watch()
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    pass
                else:
                    self.assertTrue(begun.is_set())
                return (await session.stream_tokens(prompt(2), max_tokens=1)).generated_tokens

            self.assertEqual(asyncio.run(cancelled()), 1)
            self.assertEqual(engine.pending(), 0)

    def test_a_timeout_of_asyncio_ends_the_request(self):
        with kaiju.Model(MODEL, verify=0).engine(threads=1) as engine:
            async def late():
                with self.assertRaises(asyncio.TimeoutError):
                    stream = engine.session().stream("Hello!", max_tokens=4000, stop_token=-1)
                    await asyncio.wait_for(_reply(stream), 0.3)

            asyncio.run(late())
            end = time.monotonic() + 20
            while engine.pending() and time.monotonic() < end:
                time.sleep(0.01)
            self.assertEqual(engine.pending(), 0)
            self.assertLess(engine.metrics().tokens_decoded, 4000)

    def test_streams_of_several_loops_and_threads_share_an_engine(self):
        with tiny.engine(max_running=8, **ENGINE) as engine:
            alone = engine.session().generate(prompt(5), max_tokens=3).tokens

            async def ten():
                return await asyncio.gather(*[_reply(engine.session().stream_tokens(prompt(5), max_tokens=3))
                                              for _ in range(10)])

            def some(i):
                if i % 2:
                    replies = asyncio.run(ten())
                else:
                    replies = [engine.session().generate(prompt(5), max_tokens=3) for _ in range(10)]
                assert [reply.tokens for reply in replies] == [alone] * 10

            self.assertEqual(in_threads(6, some), [])

    def test_an_error_reaches_the_loop(self):
        with tiny.engine(**ENGINE) as engine:
            async def wrong():
                with self.assertRaises(kaiju.InvalidArgument):
                    await engine.session().stream_tokens(prompt(1), max_tokens=100000)
                with self.assertRaisesRegex(kaiju.InvalidArgument, "did you mean 'max_tokens'"):
                    engine.session().stream_tokens(prompt(1), max_token=1)
                stream = engine.session().stream_tokens(prompt(1), max_tokens=100, stop_token=-1)
                stream_task = asyncio.ensure_future(_reply(stream))
                await asyncio.sleep(0)
                engine.close()
                with self.assertRaises(kaiju.Closed):
                    await stream_task

            asyncio.run(wrong())

    def test_a_stream_that_is_let_go_cancels_its_request(self):
        with tiny.engine(**ENGINE) as engine, engine.session() as session:
            stream = session.stream_tokens(prompt(1), max_tokens=200, stop_token=-1)
            stream._begin()
            del stream
            gc.collect()
            self.assertEqual(session.generate(prompt(2), max_tokens=1).generated_tokens, 1)
            self.assertEqual(engine.pending(), 0)
            self.assertLess(engine.metrics().tokens_decoded, 20)


async def _reply(stream):
    return await stream


if __name__ == "__main__":
    main()
