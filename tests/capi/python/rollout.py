"""A rollout in Python: shares, moves, the way back, warming beside other threads, and nothing that leaks.

    rollout.py LIBKAIJU MODEL KAIJU_MAKE"""

import os
import threading

from support import Test, kaiju, made_model, main


class Rollouts(Test):
    def setUp(self):
        super().setUp()
        self.old = made_model().engine(threads=1)
        self.new = made_model(name="other").engine(threads=1)
        self.rollout = kaiju.Rollout(self.old)

    def test_a_candidate_becomes_the_current_engine(self):
        rollout = self.rollout
        self.assertEqual(rollout.describe().phase, kaiju.Phase.STEADY)
        rollout.begin(self.new)
        rollout.add_prefix([5] * 100, character="wren/1")
        with self.assertRaisesRegex(kaiju.Busy, "100 tokens"):
            rollout.share = 0.5
        while rollout.warm(48):
            pass
        stays = rollout.session("a")
        stays.generate([1, 2, 3], max_tokens=4)
        rollout.share = 1
        self.assertEqual(rollout.share, 1)
        self.assertIs(rollout.engine_for("a"), self.new)
        self.assertFalse(rollout.next_turn(stays, "a"))
        self.assertIs(stays.engine, self.old)
        rollout.promote()
        self.assertIsNone(rollout.take_drained())
        stays.close()
        self.assertIs(rollout.take_drained(), self.old)
        self.assertIs(rollout.describe().current, self.new)
        self.assertIsNone(rollout.describe().other)

    def test_the_way_back(self):
        self.rollout.begin(self.new)
        self.rollout.share = 1
        session = self.rollout.session("a")
        session.generate([1, 2, 3], max_tokens=4)
        tokens = session.tokens()
        self.rollout.roll_back()
        self.assertTrue(self.rollout.next_turn(session, "a"))
        self.assertIs(session.engine, self.old)
        self.assertEqual(session.tokens(), tokens)
        reply = session.generate([9], max_tokens=4)
        lone = self.old.session()
        self.assertEqual(lone.generate(tokens + [9], max_tokens=4).tokens, reply.tokens)
        self.assertIs(self.rollout.take_drained(), self.new)

    def test_warming_beside_threads_that_use_both_engines(self):
        self.rollout.begin(self.new)
        for i in range(20):
            self.rollout.add_prefix([i] * 150, salt="s")
        failed = []

        def talk(engine):
            try:
                for i in range(20):
                    engine.session().generate([i, 1, 2], max_tokens=8)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=talk, args=(engine,)) for engine in (self.old, self.new) for _ in range(2)]
        for thread in threads:
            thread.start()
        while self.rollout.warm(32):
            pass
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])

    def test_what_is_wrong_is_said(self):
        rollout = self.rollout
        for call in rollout.promote, rollout.roll_back, rollout.warm:
            with self.assertRaisesRegex(kaiju.NotFound, "no candidate"):
                call()
        with self.assertRaises(kaiju.WrongType):
            kaiju.Rollout("engine")
        with self.assertRaises(kaiju.WrongType):
            rollout.begin(None)
        with self.assertRaises(kaiju.WrongType):
            rollout.engine_for(1)
        with self.assertRaisesRegex(kaiju.Unsupported, "vocabulary"):
            rollout.begin(made_model(vocab_size=288).engine(threads=1))
        rollout.begin(self.new)
        with self.assertRaises(kaiju.Busy):
            rollout.begin(made_model().engine(threads=1))
        for share in -0.1, 1.1, 1e30, float("nan"):
            with self.assertRaises(kaiju.InvalidArgument):
                rollout.share = share
        with self.assertRaises(kaiju.WrongType):
            rollout.share = "half"

    def test_memory_is_said_beforehand(self):
        model = made_model()
        need = model.memory_need(max_running=4)
        taken = need.weight_bytes + need.kv_bytes + need.workspace_bytes
        model.engine(max_running=4, memory_limit=taken)
        model.engine(max_running=4, memory_limit=kaiju.FREE_MEMORY)
        with self.assertRaisesRegex(kaiju.OutOfMemory, "the limit is"):
            model.engine(max_running=4, memory_limit=taken - 1)
        self.assertEqual(need.kv_bytes, model.engine(max_running=4).describe().cache_bytes)

    def test_swaps_leak_nothing(self):
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

        models = [made_model(), made_model(name="other")]
        self.new = self.old = None
        first = 0
        for i in range(200):
            self.rollout.begin(models[i % 2].engine(threads=1, max_running=2))
            self.rollout.share = 1
            session = self.rollout.session("a")
            session.generate([1, 2, 3], max_tokens=2)
            session.close()
            (self.rollout.roll_back if i % 3 == 0 else self.rollout.promote)()
            self.rollout.take_drained().close()
            if i == 50:
                first = resident()
        self.assertLess(resident() - first, 4 << 20)


if __name__ == "__main__":
    main()
