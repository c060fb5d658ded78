"""kaiju-gate CANDIDATE --against CURRENT blocks candidates that are wrong in different ways, and passes right ones.

Small forms of each part. A wrong candidate is asked only by the part that has to find it.

python3 releasing.py SOURCE_FOLDER MODEL        KAIJU_PROGRAMS: the folder of kaiju-score and kaiju-bench"""

import dataclasses
import json

from gate import FROZEN, MODEL, Case, lines, main, run

import candidates
from kaiju_gate.arguments import parser
from kaiju_gate.release import asking, run as release
from kaiju_gate.release.stand_in import StandIn

PLAN = {"text_tokens": 256, "requests": 300, "rounds": 1}
# Few messages have wide intervals; ten of the current model's own are too many for the standard rules.
LOOSER = ["fine:adult>6%", "fine:adult:high>20%", "fine:minor>6%", "fine:minor:high>20%", "auc:any<0.7"]


class Candidates(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rows = [row for path in FROZEN for row in lines(path)][::8]
        loose = [text for rule in LOOSER for text in ("--fail-if", rule)]
        small = ["--questions", "3", "--conversations", "3", "--needles", "1", "--set", cls.write("set.jsonl", rows)]
        cls.args = parser().parse_args(["release", MODEL, "--against", MODEL, *small, *loose])
        cls.args.signal = ["distress"]
        cls.asked = cls.with_parts("texts", "questions", "conversations", "safety", "replay")
        cls.current = asking.measure(MODEL, cls.asked)

    @classmethod
    def with_parts(cls, *parts):
        cls.args.only = ",".join(parts)
        asked = asking.asked_of(cls.args, 4096)
        return dataclasses.replace(asked, plan=asked.plan.replaced(**PLAN))

    def broken(self, change, asked):
        """The rules that a candidate breaks."""
        path = candidates.make(MODEL, change, self.path(change.__name__ + ".safetensors"))
        rules = self.args.fail_if
        if "safety" not in asked.parts:  # a rule of the command line must have its measure
            self.args.fail_if = []
        report = release.compare(asking.measure(path, asked), self.current, asked, StandIn(), self.args)
        self.args.fail_if = rules
        self.assertEqual(report.broken, any(finding.broken for finding in report.findings))
        return [finding.rule for finding in report.findings if finding.broken]

    def blocks(self, change, part, *rules):
        broken = self.broken(change, self.with_parts(part))
        for rule in rules:
            self.assertTrue(any(text.startswith(rule) for text in broken), f"{rule} is not of {broken}")

    def test_a_damaged_scale_is_blocked_by_the_texts(self):
        self.blocks(candidates.damaged_scale, "texts", "kl:")

    def test_a_worse_requantisation_is_blocked_by_the_texts(self):
        self.blocks(candidates.coarse_weights, "texts", "kl:", "perplexity-up:chats", "perplexity-up:prose")

    def test_exchanged_roles_are_blocked_by_conversations(self):
        self.blocks(candidates.swapped_roles, "conversations", "judge:", "judge-down:")

    def test_a_prompt_format_that_rewrites_the_history_is_blocked_by_the_cache(self):
        self.blocks(candidates.rewritten_history, "conversations", "reuse-down:")

    def test_a_strict_head_is_blocked_by_fine_messages(self):
        self.blocks(candidates.strict_head, "safety", "fine-up:")

    def test_a_model_that_forgets_is_blocked_by_questions(self):
        self.blocks(candidates.forgetful, "questions", "persona-down:turn8", "persona-down:far")

    def test_the_same_weights_and_a_head_that_learned_a_little_more_pass(self):
        for change in candidates.RIGHT:
            with self.subTest(change.__name__):
                self.assertEqual(self.broken(change, self.asked), [])


class CommandLine(Case):
    def test_exit_codes_and_files(self):
        wrong = candidates.make(MODEL, candidates.strict_head, self.path("wrong.safetensors"))
        small = ["--only", "safety", "--set", self.write("set.jsonl", lines(FROZEN[1])[::4] + lines(FROZEN[0])[::30])]
        files = ["--json", self.path("gate.json"), "--html", self.path("gate.html"), "--plot", self.path("gate.svg")]
        code, out, err = run(wrong, "--against", MODEL, *small, *files)
        self.assertEqual(code, 1, out + err)
        self.assertIn("FAILS  fine-up:minor>1%", out)
        with open(self.path("gate.json"), encoding="utf-8") as file:
            found = json.load(file)
        self.assertFalse(found["passed"])
        self.assertEqual(found["measures"]["labels-lost"]["value"], 0)
        with open(self.path("gate.html"), encoding="utf-8") as file:
            page = file.read()
        for part in "<svg", "points by which the candidate is worse", "class=fails":
            self.assertIn(part, page)
        none = ["--fail-if", "none", "--fail-if", "auc:any<0.5"]
        self.assertEqual(run("release", wrong, "--against", MODEL, *small, *none)[0], 0)

    def test_what_is_wrong_is_refused(self):
        self.refused("cannot be loaded", self.path("nothing.safetensors"), "--against", MODEL)
        self.refused("the parts are", MODEL, "--against", MODEL, "--only", "dreams")
        self.refused("belong together", MODEL, "--against", MODEL, "--judge-url", "http://127.0.0.1:9/v1")
        self.refused("cannot be read", "judge", "--ratings", self.path("nothing.json"))
        self.refused("rating", "judge", "--ratings", self.write("lines.jsonl", [{"turns": []}]))


if __name__ == "__main__":
    main()
