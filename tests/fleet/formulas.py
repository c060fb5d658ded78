"""kaiju-fleet's formulas against numbers computed by hand, and its program.

formulas.py ROOT"""

import contextlib
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples/fleet"))
import files  # noqa: E402
import ledger  # noqa: E402
import model  # noqa: E402
import stepped  # noqa: E402
import study  # noqa: E402


def plain_machine(**changes):
    """Steps of 10 ms whatever is in them, a prompt token of 0.1 ms, memory of 1,000 bytes, a byte for a token."""
    machine = {
        "name": "plain",
        "service_factor": 1,
        "step_tokens": 1e9,
        "slots": 1e9,
        "price_per_hour": 2,
        "hours_between_failures": 100,
        "hours_to_repair": 0,
        "decode": {"context": 0, "streams": [1, 2], "ms": [10, 10]},
        "prompts": {"streams": [1, 2], "tokens": [1, 2], "extra_ms": [[0, 0], [0, 0]], "ms_per_token": 0.1},
        "kv": {
            "bytes_per_token": 1,
            "window_bytes": 10,
            "window_tokens": 0,
            "read_bytes_per_token": 0,
            "window_read_bytes_per_token": 0,
            "read_bytes_per_second": 1,
            "memory_bytes": 1000,
        },
    }
    return {**machine, **changes}


def plain_traffic(**changes):
    traffic = files.traffic()
    traffic.update(
        messages_per_second=100,
        peak_over_mean=2,
        every_seconds=10,
        messages_per_hour=60,
        card_tokens=20,
        user_tokens=1,
        reply_tokens=5,
        turns=10,
        hit_rate=1,
        characters_per_machine=2,
        balance=1,
        p50_ms=1e9,
        p99_ms=1e9,
        tokens_per_second=0.5,
        availability=0.5,
        lost_share=0,
    )
    return {**traffic, **changes}


class Steps(unittest.TestCase):
    def test_a_measured_step_is_what_was_measured(self):
        machine = {**files.machine(), "service_factor": 1}
        for streams, ms in zip(machine["decode"]["streams"], machine["decode"]["ms"]):
            self.assertAlmostEqual(model.decode_s(machine, streams, 4096) * 1e3, ms)
        self.assertAlmostEqual(model.decode_s(machine, 96, 4096) * 1e3, (4.38 + 5.52) / 2)
        # 100 streams of 1,000 tokens more: 100 x 1,000 x 1,792 bytes at 3.3 TB/s are 0.0543 ms.
        more = model.decode_s(machine, 100, 5096) - model.decode_s(machine, 100, 4096)
        self.assertAlmostEqual(more * 1e3, 0.054303, 5)
        self.assertAlmostEqual(model.prompt_s(machine, 64, 106) * 1e3, 3.25)
        self.assertAlmostEqual(model.prompt_s(machine, 1000, 256) * 1e3, 6.17)
        # A whole prompt of 8,192 tokens beside one stream: 8.68 - 3.53 + (8,192 - 256) x 0.02233.
        self.assertAlmostEqual(model.prompt_s(machine, 1, 8192) * 1e3, 5.15 + 7936 * 0.02233, 6)

    def test_kv_of_a_conversation_is_that_of_the_preset(self):
        kv, shape = files.machine()["kv"], files.machine()["shape"]
        self.assertEqual(kv["bytes_per_token"], shape["global_slots"] * shape["slot_bytes_per_token"])
        self.assertEqual(kv["read_bytes_per_token"], shape["global_layers"] * shape["slot_bytes_per_token"])
        self.assertEqual(kv["window_read_bytes_per_token"], shape["window_layers"] * shape["slot_bytes_per_token"])
        self.assertEqual(kv["window_bytes"], shape["window_slots"] * shape["slot_bytes_per_token"] * 17 * 64)

    def test_streams_follow_littles_law(self):
        state = model.steady(plain_machine(), plain_traffic(), 30)
        self.assertAlmostEqual(state["step_s"], 0.01)
        self.assertAlmostEqual(state["streams"], 30 * 5 * 0.01)

    def test_a_machine_that_never_catches_up_has_no_steady_step(self):
        machine = plain_machine(decode={"context": 0, "streams": [1, 2], "ms": [10, 20]})
        self.assertIsNone(model.steady(machine, plain_traffic(), 100))  # 5 ms for each of 500 streams' tokens a second
        self.assertIsNotNone(model.steady(machine, plain_traffic(), 10))
        self.assertEqual(model.one_machine(machine, plain_traffic(), 100)["limit"], "arithmetic")


class FirstToken(unittest.TestCase):
    def mean(self, later):
        dx = 1e-4
        return sum(later((i + 0.5) * dx) * dx for i in range(200000))

    def test_the_mean_is_pollaczek_and_khinchines(self):
        # Prompts of 71 tokens all computed, 0.1 ms each: use 0.71 at 100 a second, so they wait
        # 0.71 x 7.1 / (2 x 0.29) = 8.69 ms, besides half a step and the step that is their own.
        traffic, machine = plain_traffic(card_tokens=20, turns=50 / 3, user_tokens=1, hit_rate=0), plain_machine()
        self.assertEqual(model.lengths(traffic)[1], 71)
        state = model.steady(machine, traffic, 100)
        later, use = model.first_token(machine, traffic, 100, state)
        self.assertAlmostEqual(use, 0.71, 6)
        self.assertAlmostEqual(self.mean(later), 1.5 * state["step_s"] + 0.71 * 0.0071 / (2 * 0.29), 4)

    def test_with_nothing_to_compute_it_is_one_to_two_steps(self):
        machine, traffic = plain_machine(), plain_traffic(user_tokens=1e-9)
        later, _ = model.first_token(machine, traffic, 10, model.steady(machine, traffic, 10))
        self.assertAlmostEqual(model.quantile(later, 0.5), 0.015, 6)
        self.assertAlmostEqual(model.quantile(later, 0.99), 0.0199, 6)

    def test_it_is_never_far_below_what_simulated_steps_give(self):
        """At 99 of 100 messages. Where nearly all is found and decode has most of the time it is up to four times
        above, and both are far below the limits."""
        machine = files.machine()
        for hit_rate in (0.997, 0.9863, 0.9635, 0.9, 0.6):
            traffic = files.traffic(hit_rate=hit_rate)
            most = model.capacity(machine, traffic)[0]
            for part in (0.3, 0.7, 1):
                formula = model.one_machine(machine, traffic, part * most)["p99_ms"]
                simulated = stepped.figures(machine, traffic, part * most, messages=8000)["p99_ms"]
                self.assertLess(simulated, 1.4 * formula, (hit_rate, part))
                self.assertLess(formula, 5 * simulated, (hit_rate, part))
            self.assertLess(simulated, traffic["p99_ms"] * 1.1)

    def test_simulated_steps_with_nothing_to_compute_take_one_to_two_steps(self):
        times = sorted(stepped.played(plain_machine(), plain_traffic(user_tokens=1e-9), 500)[0])
        self.assertGreaterEqual(times[0], 0.01)
        self.assertLess(times[-1], 0.0201)
        self.assertLess(abs(times[len(times) // 2] / 0.015 - 1), 0.02)

    def test_a_simulated_machine_with_nothing_to_do_begins_at_once(self):
        times = sorted(stepped.played(plain_machine(), plain_traffic(user_tokens=1e-9), 0.1)[0])
        self.assertLess(abs(times[len(times) // 2] / 0.01 - 1), 1e-9)

    def test_a_simulated_reply_sees_longer_steps_than_the_mean_one(self):
        """Where a step takes as long as it has streams: a reply sees itself besides the others (M/G/infinity)."""
        machine = plain_machine(decode={"context": 0, "streams": [0, 1000], "ms": [0.001, 1000]}, slots=1000)
        tokens = stepped.played(machine, plain_traffic(), 20)[1]
        mean = sum(tokens) / len(tokens)
        self.assertGreater(mean, 1e-3)
        self.assertLess(mean, 1.2e-3)

    def test_the_measured_hour_is_met_within_a_quarter(self):
        """Not an independent check: the service factor is the mean of these runs' steps."""
        machine = files.machine()
        traffic = files.traffic(hit_rate=1)
        for row in machine["measured"]["rows"]:
            one = model.one_machine(machine, traffic, row["conversations"] / 60)
            for name in ("p50_ms", "p99_ms"):
                self.assertLess(abs(one[name] / row[name] - 1), 0.25, (row, one))


class Fleet(unittest.TestCase):
    def test_memory_alone_bounds_it(self):
        # Two cards of 20 + 10 bytes leave 940; a history of 10 x 6 / 2 tokens and a window are 40 bytes: 23.5
        # conversations, a message every 10 s: 2.35 a second.
        machine, traffic = plain_machine(), plain_traffic()
        self.assertAlmostEqual(model.conversations_that_fit(machine, traffic), 23.5)
        rate, limit = model.capacity(machine, traffic)
        self.assertAlmostEqual(rate, 2.35)
        self.assertEqual(limit, "memory")
        plan = model.fleet(machine, traffic)
        self.assertEqual(plan["machines"], 43)  # 100 / 2.35 = 42.6
        self.assertEqual(plan["dollars_an_hour"], 86)
        self.assertAlmostEqual(plan["dollars_a_message"], 86 / 360_000)
        self.assertAlmostEqual(plan["dollars_an_hour_of_talk_mean"], 86 / 360_000 * 60 * 2)
        self.assertAlmostEqual(plan["dollars_a_month"], 86 * 730)
        self.assertEqual(model.fleet(machine, {**traffic, "lost_share": 0.2})["machines"], 54)  # 43 / 0.8 = 53.75
        self.assertEqual(model.fleet(machine, {**traffic, "balance": 2})["needed"], 86)

    def test_every_limit_can_be_the_one(self):
        machine = plain_machine(kv={**plain_machine()["kv"], "memory_bytes": 1e12})
        slow = {**machine, "decode": {"context": 0, "streams": [1, 2], "ms": [10, 11]}}
        for limit, one, traffic in [
            ("slots", {**machine, "slots": 30}, plain_traffic()),
            ("speed of replies", slow, plain_traffic(tokens_per_second=50)),
            ("first token, p50", slow, plain_traffic(p50_ms=30)),
            ("first token, p99", slow, plain_traffic(p99_ms=30)),
            ("arithmetic", slow, plain_traffic()),
        ]:
            rate, found = model.capacity(one, traffic)
            self.assertEqual(found, limit)
            self.assertEqual(model.one_machine(one, traffic, rate)["limit"], "")

    def test_spares_are_a_binomials(self):
        for count, least, p in [(10, 8, 0.9), (40, 39, 0.99), (7, 1, 0.3), (5, 6, 0.5)]:
            exact = sum(math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(least, count + 1))
            self.assertAlmostEqual(model.at_least(count, least, p), exact, 12)
        self.assertEqual(model.at_least(5, 5, 1.0), 1)
        machine = plain_machine(hours_to_repair=25)  # up 80% of the time
        plan = model.fleet(machine, plain_traffic(availability=0.999))
        self.assertGreaterEqual(plan["availability"], 0.999)
        self.assertLess(model.at_least(plan["machines"] - 1, plan["needed"], 0.8), 0.999)

    def test_more_found_never_costs_more(self):
        machine, costs = files.machine(), []
        for hit_rate in (0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.997):
            costs.append(model.fleet(machine, files.traffic(hit_rate=hit_rate))["dollars_an_hour"])
        self.assertEqual(costs, sorted(costs, reverse=True))


class Study(unittest.TestCase):
    def test_its_sums(self):
        self.assertAlmostEqual(study.message_dollars(), 6000 / 72e6)
        self.assertEqual(study.kv_bytes(), 64 * 2**20)
        self.assertEqual(study.kv_bytes(heads=1), 2 * 2**20)
        self.assertEqual(study.kv_bytes(heads=1, bytes_each=1), 2**20)
        text = json.dumps(study.rows())
        for number in (
            "$3.65",
            "= 13.0;",
            "$4.93 B",
            "17.3 messages",
            "factor of 44",
            "every 2.5 s",
            "100 to 200",
            "$0.042",
            "43.2 minutes",
            "2.5 times",
            "77 tokens",
        ):
            self.assertIn(number, text)

    def test_64_mib_a_user_fill_memory_and_1_mib_does_not(self):
        rows = {row["name"]: row for row in ledger.ablations(files.machine(), files.traffic(balance=1), 0.3)}
        big, small = (rows[f"{size} MiB of KV a conversation, card included"] for size in (64, 1))
        self.assertEqual(big["machines"], math.ceil(1.2e6 * 64 * 2**20 / 125e9))
        self.assertEqual(big["limit"], "memory")
        self.assertEqual(small["machines"], rows["as it is"]["machines"])
        heads = rows["keys and values of 40 heads (MHA) for one (MQA)"]
        self.assertGreater(heads["machines"], 10 * rows["as it is"]["machines"])

    def test_an_edit_costs_its_users_prompts(self):
        machine, traffic = files.machine(), files.traffic()
        prices = {name: dollars for name, _, dollars, _ in ledger.incidents(machine, traffic, 0.3)}
        seconds = 100_000 * 9930 * machine["service_factor"] * machine["prompts"]["ms_per_token"] / 1e3
        edit = prices["an edit of a card with 100,000 users, not pinned"]
        self.assertAlmostEqual(edit, seconds / 3600 * machine["price_per_hour"])
        self.assertAlmostEqual(prices["the same, 300 edits a day"], 300 * edit)
        self.assertLess(prices["the same, versions pinned to sittings"], edit / 100)


class Program(unittest.TestCase):
    def run_it(self, *arguments):
        return subprocess.run(
            [sys.executable, ROOT / "examples/fleet/kaiju-fleet", *arguments], capture_output=True, text=True
        )

    def test_every_command_prints_and_has_json(self):
        for command in ("plan", "ledger", "study"):
            plain = self.run_it(command)
            self.assertEqual((plain.returncode, plain.stderr), (0, ""))
            self.assertGreater(len(plain.stdout.splitlines()), 10)
            json.loads(self.run_it(command, "--json").stdout)

    def test_flags_and_a_file_change_the_traffic(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "traffic.json")
            pathlib.Path(path).write_text('{"messages_per_second": 100, "hit_rate": 0.5}')
            plan = json.loads(self.run_it("plan", "--json", "--traffic", path, "--hit-rate", "0.99").stdout)
            expected = model.fleet(files.machine(), files.traffic(messages_per_second=100, hit_rate=0.99))
            self.assertEqual(plan["machines"], expected["machines"])
        cheap = json.loads(self.run_it("plan", "--json", "--price-per-hour", "1").stdout)
        self.assertEqual(cheap["dollars_an_hour"], cheap["machines"])

    def test_what_cannot_be_used_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.json")
            good = json.loads((ROOT / "examples/fleet/h200.json").read_text())
            for change, name in [
                ({"slots": "many"}, "slots"),
                ({"decode": {"streams": [1]}}, "decode.streams"),
                ({"kv": {**good["kv"], "memory_bytes": None}}, "kv.memory_bytes"),
                ({"prompts": {**good["prompts"], "extra_ms": [[1]]}}, "prompts.extra_ms"),
            ]:
                pathlib.Path(path).write_text(json.dumps({**good, **change}))
                answer = self.run_it("plan", "--machine", path)
                self.assertEqual((answer.returncode, answer.stdout), (1, ""))
                self.assertIn(name, answer.stderr)
            pathlib.Path(path).write_text("[1")
            self.assertIn("not JSON", self.run_it("plan", "--traffic", path).stderr)
        self.assertIn("hit_rate must be a number from 0 to 1", self.run_it("plan", "--hit-rate", "2").stderr)
        self.assertIn("cannot read", self.run_it("plan", "--machine", "/nowhere").stderr)

    def test_a_wrong_command_line_is_one_line_and_gives_2(self):
        for arguments, says, command in [
            (("plan", "--nonsense"), "--nonsense", "plan "),
            (("plan", "--hit-rate", "2"), "hit_rate must be a number from 0 to 1", "plan "),
            (("plan", "--hit-rate", "x"), "hit_rate must be a number from 0 to 1", "plan "),
            (("plan", "--turns", "nan"), "turns must be a number", "plan "),
            (("ledger", "--price-per-hour", "-1"), "price_per_hour must be a number", "ledger "),
            (("nonsense",), "nonsense", ""),
            ((), "COMMAND", ""),
        ]:
            answer = self.run_it(*arguments)
            self.assertEqual((answer.returncode, answer.stdout, answer.stderr.count("\n")), (2, "", 1), answer.stderr)
            self.assertIn(says, answer.stderr)
            self.assertTrue(answer.stderr.endswith(f"(see kaiju-fleet {command}--help)\n"), answer.stderr)

    def test_an_output_that_cannot_be_written_is_one_line_and_gives_1(self):
        with open("/dev/full", "w") as full:
            answer = subprocess.run(
                [sys.executable, ROOT / "examples/fleet/kaiju-fleet", "study"], stdout=full, stderr=subprocess.PIPE
            )
        self.assertEqual((answer.returncode, answer.stderr.count(b"\n")), (1, 1), answer.stderr)

    def test_help_has_examples_and_every_command_has_a_version(self):
        for command in ((), ("plan",), ("ledger",), ("study",), ("page",)):
            answer = self.run_it(*command, "--help")
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
            self.assertIn("Examples:\n  " + " ".join(("kaiju-fleet", *command)), answer.stdout)
            answer = self.run_it(*command, "--version")
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
            self.assertRegex(answer.stdout, "^[0-9.]+\n$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
