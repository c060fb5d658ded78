"""The parts of kaiju-gate CANDIDATE --against CURRENT alone: rules, figures, judges, needles, windows.

python3 release_parts.py SOURCE_FOLDER MODEL"""

import contextlib
import http.server
import json
import threading
import unittest
from unittest import mock

from gate import MODEL, Case, main
import numpy as np

from kaiju_gate import rules, standard
from kaiju_gate.rates import Estimate
from kaiju_gate.report import Report
from kaiju_gate.release import calibrate, judged, needle, programs, rated, speed, stand_in, texts, traffic, windows
from kaiju_gate.release.both import Pair
from kaiju_gate.release.conversations import Conversation, conversations
from kaiju_gate.release.playing import Played, Said
from kaiju_gate.release.verdicts import Verdict
from kaiju_gate.wrong import Wrong

SEED = 5


def played(tier, replies=("Good evening, friend.",) * 8, number=0):
    conversation = Conversation(f"{tier}-{number}", tier, "Ada\nAda keeps bees.", ("Hello!",) * len(replies), ())
    return Played(conversation, tuple(Said(text, True, 5, 100, 90) for text in replies))


def broken(report, warm_up_planned=False):
    findings = rules.check(rules.rules_of(standard.release(warm_up_planned), []), report.measures)
    return [finding.rule for finding in findings if finding.broken]


class Scores(Case):
    def scored(self, **scores):
        return [(played(tier, number=n), Verdict(s, s, s)) for tier, each in scores.items() for n, s in enumerate(each)]

    def report(self, candidate, current):
        report = Report("")
        names = ("user-created", "official", "mature")
        of = [self.scored(**dict(zip(names, each))) for each in (candidate, current)]
        judged.report_scores(report, "test", Pair(*of))
        return report

    def test_a_tier_that_falls_blocks_though_the_mean_rises(self):
        report = self.report(([5.0] * 4, [5.0] * 4, [4.2] * 4), ([4.3] * 4, [4.3] * 4, [4.33] * 4))
        self.assertGreater(report.measures["judge"].value, 4.5)
        self.assertEqual(broken(report), ["judge-down:mature>3"])

    def test_a_tier_below_four_blocks_though_it_rises(self):
        report = self.report(([5.0] * 4, [5.0] * 4, [3.9] * 4), ([5.0] * 4, [5.0] * 4, [3.0] * 4))
        self.assertEqual(broken(report), ["judge:mature<4"])

    def test_a_fall_of_less_than_three_points_passes(self):
        report = self.report(([4.4] * 4, [4.5] * 4, [4.5] * 4), ([4.5] * 4, [4.5] * 4, [4.5] * 4))
        self.assertAlmostEqual(report.measures["judge-down:user-created"].value, 2.5)
        self.assertEqual(broken(report), [])


class Rules(Case):
    def test_a_star_is_a_rule_for_each_measure_without_its_own(self):
        measures = {"judge:a": Estimate(3, 3, 3), "judge:b": Estimate(3.5, 3, 4), "other": Estimate(0, 0, 0)}
        found = rules.check([rules.parse("judge:*<4", False), rules.parse("judge:b<3")], measures)
        self.assertEqual([(each.rule, each.broken) for each in found], [("judge:a<4", True), ("judge:b<3", False)])
        with self.assertRaises(Wrong):
            rules.check([rules.parse("nothing:*<4")], measures)


class Cache(Case):
    def report(self, candidate, current):
        report = Report("")
        figures = [{"token_hit_rate": rate, "token_hit_rate_belady": 1, "requests": 1} for rate in (candidate, current)]
        traffic.report(report, {"official": Pair(*figures)})
        return report

    def test_less_than_half_or_two_points_less_blocks_unless_warm_up_is_planned(self):
        for candidate, current, rule in (
            (0.49, 0.49, ["replay:official<50%"]),
            (0.9, 0.93, ["replay-down:official>2%"]),
            (0.9, 0.915, []),
        ):
            self.assertEqual(broken(self.report(candidate, current)), rule)
            self.assertEqual(broken(self.report(candidate, current), True), [])

    def test_longer_replies_and_more_bytes_change_what_is_replayed(self):
        asked = []

        def run_json(_, *options):
            asked.append(dict(zip(options[1::2], options[2::2])))
            return {"requests": 100, "token_hit_rate": 0.9}

        with mock.patch.object(programs, "run_json", run_json):
            tiers = {"official": {"memory": 0.2, "reply-tokens": 50, "conversations": 2000}}
            traffic.replays(tiers, 100, Pair(traffic.Shape(20, 4000), traffic.Shape(10, 2000)))
        found = [(each["--memory"], each["--reply-tokens"]) for each in asked]
        self.assertEqual(found, [("0.2", "50"), ("0.1", "100.0")])
        self.assertEqual({each["--conversations"] for each in asked}, {"20"})


class Texts(Case):
    def test_kl_and_losses_are_those_of_their_definitions(self):
        print("seed", SEED)
        random = np.random.default_rng(SEED)
        current, candidate = random.normal(0, 3, (2, 300, 16)).astype(np.float32)
        tokens = random.integers(0, 16, 300)
        p, q = (np.exp(x.astype(float)) / np.exp(x.astype(float)).sum(1, keepdims=True) for x in (current, candidate))
        kl = texts._divergence(current, candidate)
        np.testing.assert_allclose(kl, (p * np.log(p / q)).sum(1)[:-1], rtol=1e-9)
        np.testing.assert_allclose(texts._losses(current, tokens), -np.log(p[np.arange(299), tokens[1:]]), rtol=1e-9)
        report = Report("")
        losses = {"candidate": texts._losses(candidate, tokens), "current": texts._losses(current, tokens)}
        texts.report(report, {"noise": texts.Reading(losses, kl)})
        self.assertIn("kl:noise>0.05", broken(report))

    def test_times_are_compared_line_by_line(self):
        report = Report("")
        times = {"candidate": {"decode, 1": 9, "decode, 16": 12}, "current": {"decode, 1": 9, "decode, 16": 10}}
        speed.report(report, times)
        self.assertAlmostEqual(report.measures["slower:decode"].value, 1.2)
        self.assertEqual(broken(report), ["slower:decode>1.1"])


class Windows(Case):
    def test_a_copy_without_windows_says_the_same_within_them(self):
        copy = self.path("copy.safetensors")
        self.assertTrue(windows.without_windows(MODEL, copy))
        self.assertEqual({layer.get("window", 4096) for layer in windows.config_of(copy)["layers"]}, {4096})
        ids = self.path("ids.txt")
        digests = []
        for count in (200, 1500):
            with open(ids, "w", encoding="ascii") as file:
                file.write(" ".join(str(8 + n * n % 8000) for n in range(count)))
            said = [programs.run("kaiju-score", path, "--tokens", ids) for path in (MODEL, copy)]
            digests.append([text.split("bits:")[1] for text in said])
        self.assertEqual(*digests[0])
        self.assertNotEqual(*digests[1])


class Needles(Case):
    def test_a_needle_is_told_once_at_its_depth(self):
        for length, depth in ((1024, 0), (2048, 50), (1024, 100)):
            drawn, attempt = None, 0
            while drawn is None:
                drawn, attempt = needle._draw(length, depth, 0, attempt), attempt + 1
            said = [stand_in.is_right(text, drawn.answers) for role, text in drawn.messages if role == "user"]
            self.assertEqual(sum(said), 1)
            self.assertAlmostEqual(said.index(True) / (len(said) - 2), depth / 100, delta=0.1)

    def test_only_what_is_farther_than_the_window_is_beyond_it(self):
        asked = [needle.Needle(str(depth), 2048, depth, (), ()) for depth in needle.DEPTHS]
        right = {each.id: each.depth > 0 for each in asked}
        report = Report("")
        needle.report(report, asked, Pair(right, dict.fromkeys(right, True)), Pair(None, None), 1024)
        self.assertEqual(report.measures["needle:beyond"].total, 2)
        self.assertEqual(broken(report), ["needle-down>5", "needle-down:beyond>5"])


class StandIn(Case):
    def test_broken_replies_have_faults_and_sound_ones_none(self):
        for text, ended, fault in (
            ("", True, "empty"),
            ("I keep bees in the garden", False, "has no end"),
            ("xqz vlorp gnaf dwib", True, "is no English"),
            ("I keep bees and I keep bees and I keep bees and I keep bees", True, "repeats itself"),
            ("As an AI I have no bees.", True, "leaves the role"),
            ("I said this to you before.", True, "was said before"),
        ):
            self.assertIn(fault, stand_in.faults(text, ended, ["I said this to you before."], "Ada keeps bees."), text)
        self.assertEqual(stand_in.faults("I keep bees behind the old mill.", True, [], "Ada keeps bees."), [])

    def test_known_answers_are_counted_by_aspect(self):
        conversation = conversations(1)[0]
        right = [ask.answers[0] if ask else "Well met." for ask in conversation.asks]
        wrong = [f"I could not say, number {n}." for n in range(8)]
        for replies, score in ((right, 5), (wrong, 1)):
            said = tuple(Said(text, True, 5, 9, 0) for text in replies)
            (verdict,) = stand_in.StandIn()([Played(conversation, said)])
            self.assertEqual((verdict.backstory, verdict.goals), (score, score))


class People(Case):
    def test_logs_of_convai2_become_conversations(self):
        def said(bot, text):
            return {"sender_class": "Bot" if bot else "Human", "text": text}

        dialog = [said(0, "Hi!"), said(0, "You there?"), said(1, "Yes."), said(0, "Who?"), said(1, "Me.")]
        dialog += [said(1, "Ada."), said(0, "Bees?"), said(1, "Many."), said(0, "Bye")]
        rows = [{"dialog": dialog, "bot_profile": ["i keep bees."], "eval_score": score} for score in (4, None)]
        path = self.path("volunteers.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(rows, file)
        (found,) = rated.read(path)
        self.assertEqual(found.rating, 4)
        self.assertEqual(found.played.conversation.says, ("Hi! You there?", "Who?", "Bees?"))
        self.assertEqual([each.text for each in found.played.replies], ["Yes.", "Me. Ada.", "Many."])

    def test_a_judge_that_rewards_length_or_agreement_is_found(self):
        def likes(measure):
            def judge(conversations):
                return [Verdict(min(5.0, 2 + measure(each)), None, None) for each in conversations]

            judge.name = "test"
            return judge

        sets = [rated.Rated(played("rated", ("I keep bees.", "Ask me.", "No."), n), 3) for n in range(4)]
        scores = np.full(4, 2.0)
        length = likes(lambda each: (len(each.replies[0].text) > 50) * 1.0)
        agreement = likes(lambda each: ("agree" in each.replies[1].text) * 1.0)
        for judge, gained in ((length, "padding"), (agreement, "flattery")):
            report = Report("")
            calibrate._report_rewards(report, judge, sets, scores)
            values = {name: report.measures[name].value for name in ("padding", "flattery")}
            self.assertEqual(values, {"padding": 0, "flattery": 0, gained: 25})

    def test_a_judge_that_moved_since_is_found(self):
        path = self.path("before.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"scores": {"a": 4, "b": 3, "c": 2}}, file)
        report = Report("")
        calibrate._report_drift(report, path, {"a": 4.5, "b": 3.5, "c": 2.5, "d": 1})
        self.assertAlmostEqual(report.measures["drift"].value, 12.5)
        self.assertAlmostEqual(report.measures["drift-order"].value, 1)


class _Judge(http.server.BaseHTTPRequestHandler):
    """Answers like an endpoint of OpenAI's protocol that knows no schemas, and that talks first."""

    asked: list = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        status, answer = 200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": self.says}}]}
        if "response_format" in body:
            status, answer = 400, {"error": {"message": "response_format is not supported"}}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def endpoint(says):
    handler = type("Judge", (_Judge,), {"says": says, "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", handler.asked
    finally:
        server.shutdown()
        server.server_close()


class Programs(Case):
    def test_one_that_is_missing_is_told_before_anything_is_measured(self):
        from kaiju_gate.arguments import parser
        from kaiju_gate.release import run

        args = parser().parse_args(["release", MODEL, "--against", MODEL, "--only", "speed"])
        with (
            mock.patch.object(programs, "_folders", lambda: []),
            mock.patch.object(run, "measure", side_effect=AssertionError("it measures")),
            self.assertRaisesRegex(Wrong, "kaiju-bench is missing"),
        ):
            run.run(args)


class Endpoints(Case):
    def setUp(self):
        try:
            import openai  # noqa: F401
        except ImportError:
            self.skipTest("openai is missing")
        from kaiju_gate.release.endpoint import Endpoint

        self.endpoint = Endpoint

    def test_scores_are_read_from_what_a_judge_says(self):
        with endpoint('Here: {"speech": 4, "backstory": 5, "goals": 2}') as (url, asked):
            verdicts = self.endpoint(url, "big")([played("mature"), played("official")])
        self.assertEqual(verdicts, [Verdict(4, 5, 2)] * 2)
        read = asked[-1]["messages"][1]["content"]
        for part in "Ada keeps bees.", "User: Hello!", "Ada: Good evening, friend.":
            self.assertIn(part, read)

    def test_a_judge_that_gives_no_scores_is_refused(self):
        for says in "Lovely!", '{"speech": 9, "backstory": 5, "goals": 2}':
            with endpoint(says) as (url, _), self.assertRaisesRegex(Wrong, "not three scores"):
                self.endpoint(url, "big")([played("mature")])

    def test_a_judge_that_does_not_answer_is_named(self):
        judge = self.endpoint("http://127.0.0.1:9/v1", "big")
        judge._client = judge._client.with_options(max_retries=0)
        with self.assertRaisesRegex(Wrong, "big does not answer"):
            judge([played("mature")])


if __name__ == "__main__":
    main()
