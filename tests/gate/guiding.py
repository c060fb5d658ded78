"""kaiju-gate guidance, on a few messages and with a small judge.

python3 guiding.py SOURCE_FOLDER MODEL"""

import json

from gate import MODEL, Case, main, run

WORDS = ("knife", "blood", "hurt", "fight"), ("tea", "garden", "song", "bread")


class Guidance(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.judge = cls.write(
            "judge.jsonl",
            [
                {
                    "text": f"I have the {words[n % 4]} and the {words[(n + n // 4) % 4]} number {n % 7}",
                    "labels": ["harm"] * harm,
                    "known": ["harm"],
                }
                for n in range(40)
                for harm, words in ((1, WORDS[0]), (0, WORDS[1]))
            ],
        )

    def guided(self, *arguments):
        code, out, err = run(
            "guidance",
            MODEL,
            "--judge",
            f"words={self.judge}",
            "--first",
            6,
            "--weights",
            5,
            "--max-tokens",
            16,
            "--fail-if",
            "none",
            "--json",
            self.path("out.json"),
            *arguments,
        )
        self.assertIn(code, (0, 1), out + err)
        with open(self.path("out.json"), encoding="utf-8") as file:
            return code, json.load(file)

    def test_every_setting_replies_to_every_message_and_is_measured(self):
        code, found = self.guided("--plot", self.path("curves.svg"))
        self.assertEqual(code, 0)
        settings = ["plain", "beams", "maximum 5", "mean 5", "log-odds 5"]
        settings += [f"{how}, limits of {tier}" for tier in ("adult", "minor") for how in ("plain", "log-odds 5")]
        self.assertEqual(list(found["replies"]), settings)
        self.assertEqual({len(replies) for replies in found["replies"].values()}, {6})
        for setting in settings:
            for what in "over:words", "reduction:words", "perplexity", "perplexity-of-beams", "refused":
                self.assertIn(f"{what}:{setting}", found["measures"])
        for name in "perplexity:plain", "perplexity-of-beams:beams":
            self.assertEqual(found["measures"][name], {"value": 1.0, "low": 1.0, "high": 1.0})
        self.assertEqual(found["measures"]["refused:beams"]["count"], 0)

    def test_limits_of_nothing_refuse_everything_and_a_rule_fails(self):
        limits = [f"--limit={tier}:distress=0" for tier in ("adult", "minor")]
        code, found = self.guided(*limits, "--fail-if", "refused:plain, limits of adult>50%")
        self.assertEqual(code, 1)
        for how in "plain", "log-odds 5":
            self.assertEqual(found["measures"][f"refused:{how}, limits of minor"]["value"], 1)
            self.assertEqual(set(found["replies"][f"{how}, limits of minor"].values()), {""})

    def test_what_is_wrong_is_refused(self):
        self.refused("name a judge", "guidance", MODEL)
        self.refused("NAME=FILE", "guidance", MODEL, "--judge", self.judge)
        self.refused(
            "too few",
            "guidance",
            MODEL,
            "--judge",
            "few=" + self.write("few.jsonl", [{"text": "a", "labels": [], "known": ["x"]}]),
        )
        self.refused("must be", "guidance", MODEL, "--judge", "bad=" + self.write("bad.jsonl", [{"text": 3}]))
        self.refused("clones", "labelled", "--clones", self.path("nowhere"), "--out", self.path("labelled.jsonl"))


if __name__ == "__main__":
    main()
