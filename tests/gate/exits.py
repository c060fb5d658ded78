"""kaiju-gate with the bundled model: its exit codes, limits that are too low, wrong files; blocked messages again.

python3 exits.py SOURCE_FOLDER MODEL"""

import json
import os

from gate import FOLDER, FROZEN, MODEL, Case, lines, main, run


class Safety(Case):
    """On every sixth row of the frozen sets."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rows = [row for path in FROZEN for row in lines(path)][::6]
        cls.set = cls.write("set.jsonl", cls.rows)

    def json(self, *arguments):
        code, out, err = run("safety", MODEL, "--set", self.set, "--json", self.path("out.json"), *arguments)
        self.assertIn(code, (0, 1), out + err)
        with open(self.path("out.json"), encoding="utf-8") as file:
            return code, json.load(file)

    def test_the_bundled_limits_pass_and_lower_ones_fail(self):
        # Few rows have wide intervals.
        passes = [
            "--fail-if",
            "fine:adult>5%",
            "--fail-if",
            "fine:adult:high>100%",
            "--fail-if",
            "fine:minor:high>100%",
        ]
        code, found = self.json(*passes)
        self.assertEqual((code, found["passed"]), (0, True), found["findings"])
        code, found = self.json(*passes, "--limit", "adult:violence=0.001")
        self.assertEqual((code, found["passed"]), (1, False))
        self.assertEqual([finding["rule"] for finding in found["findings"] if finding["broken"]], ["fine:adult>5%"])
        self.assertEqual(self.json("--fail-if", "none", "--limit", "adult:violence=0.001")[0], 0)
        self.assertEqual(self.json("--fail-if", "none", "--fail-if", "auc:sexual<0.999")[0], 1)

    def test_shares_are_counted_from_the_scores(self):
        _, found = self.json("--fail-if", "none", "--limit", "minor:sexual=none")
        limits, scores = found["tiers"]["minor"], found["scores"]
        self.assertNotIn("sexual", limits)
        fine = [row["id"] for row in self.rows if row["tier"] == "minor"]
        blocked = sum(any(scores[id][label] >= limit for label, limit in limits.items()) for id in fine)
        measure = found["measures"]["fine:minor"]
        self.assertEqual((measure["count"], measure["total"]), (blocked, len(fine)))

    def test_another_classifier_and_figures_are_shown_beside(self):
        self.json("--fail-if", "none")
        for name in "roc.svg", "roc.png":
            code, out, err = run(
                "safety",
                MODEL,
                "--set",
                self.set,
                "--fail-if",
                "none",
                "--beside",
                self.path("out.json"),
                "--plot",
                self.path(name),
                "--html",
                self.path("page.html"),
            )
            self.assertEqual(code, 0, err)
            self.assertGreater(os.path.getsize(self.path(name)), 5000)
        first = next(line for line in out.splitlines() if line.startswith("  any")).split()
        self.assertEqual(first[4], first[8])  # the same scores have the same area
        with open(self.path("page.html"), encoding="utf-8") as file:
            page = file.read()
        for part in "<svg", "DeLong", "<td>adult, all</td>":
            self.assertIn(part, page)

    def test_an_evening_catches_a_limit_that_refuses_drama(self):
        kinds = sorted({row["how"] for row in self.rows if row["id"].startswith("fine")})
        hour = {"messages": 20000, "tiers": {"adult": 0.7, "minor": 0.3}, "harm": 0.05, "fine": dict.fromkeys(kinds, 1)}
        drama = {**hour, "fine": {"drama": 1, "fiction_violence": 1}}
        day = self.path("day.json")
        with open(day, "w", encoding="utf-8") as file:
            json.dump({"hours": [hour] * 18 + [drama] * 4 + [hour] * 2}, file)
        ask = ["safety", MODEL, "--set", self.set, "--evening", day, "--fail-if", "hour:minor>10%"]
        code, out, err = run(*ask, "--fail-if", "hour:adult>10%")
        self.assertEqual(code, 0, out + err)
        code, out, err = run(
            *ask, "--fail-if", "hour:adult>10%", "--limit", "adult:violence=0.02", "--json", self.path("day.out")
        )
        self.assertEqual(code, 1, out + err)
        with open(self.path("day.out"), encoding="utf-8") as file:
            measures = json.load(file)["measures"]
        worst = max(range(24), key=lambda number: measures[f"hour:adult:{number}"]["value"])
        self.assertIn(worst, range(18, 22))

    def test_what_is_wrong_is_refused_and_named(self):
        ask = ["safety", MODEL, "--set", self.set]
        self.refused("cannot be loaded", "safety", self.path("nothing.safetensors"))
        self.refused("nothing.jsonl cannot be read", "safety", MODEL, "--set", self.path("nothing.jsonl"))
        self.refused("dull", *ask, "--limit", "adult:dull=0.5")
        self.refused("TIER:LABEL=LIMIT", *ask, "--limit", "adult=0.5")
        self.refused("there is no measure", *ask, "--fail-if", "fine:nobody>1%")
        self.refused("exclude each other", *ask, "--evening", "--replay", self.set)
        self.refused("no scores of", *ask, "--beside", self.write("beside.json", [{}]))
        self.refused("cannot be written", *ask, "--json", self.path("no/folder.json"))
        self.refused("24", *ask, "--evening", self.write("hours.json", [{"hours": []}]))
        self.refused(
            "the model's classifier has",
            "safety",
            MODEL,
            "--set",
            self.write("labels.jsonl", [{**self.rows[0], "labels": ["dull"]}]),
        )
        self.assertEqual(run("safety")[0], 2)
        self.assertEqual(run()[0], 2)
        code, out, _ = run("safety", "--help")
        self.assertEqual(code, 0)
        self.assertIn("fine:TIER", out)


class Replay(Case):
    """Messages that violence at 0.5 blocks, as a server would log them."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        harmful = [row for row in lines(FROZEN[0]) if "sexual" in row["labels"]][::4]
        run(
            "safety",
            MODEL,
            "--set",
            cls.write("set.jsonl", harmful),
            "--fail-if",
            "none",
            "--json",
            cls.path("scores.json"),
        )
        with open(cls.path("scores.json"), encoding="utf-8") as file:
            scores = json.load(file)["scores"]
        cls.blocked = []
        for row in harmful:
            probability = scores[row["id"]]["sexual"]
            if probability >= 0.5:
                messages = [{"role": "card", "content": row["card"]}]
                messages += [
                    {"role": "assistant" if role == "char" else role, "content": text} for role, text in row["turns"]
                ]
                cls.blocked.append(
                    {
                        "time": f"2025-01-01T20:{len(cls.blocked):02}:00Z",
                        "tier": "adult",
                        "label": "sexual",
                        "probability": probability,
                        "limit": 0.5,
                        "messages": messages,
                    }
                )
        cls.log = cls.write("blocked.jsonl", cls.blocked)

    def replay(self, *arguments):
        code, out, err = run("safety", MODEL, "--replay", self.log, "--json", self.path("out.json"), *arguments)
        self.assertIn(code, (0, 1), out + err)
        with open(self.path("out.json"), encoding="utf-8") as file:
            return code, json.load(file)

    def test_the_same_head_and_limits_block_the_same_messages(self):
        self.assertGreater(len(self.blocked), 5)
        code, found = self.replay("--limit", "adult:sexual=0.5")
        self.assertEqual((code, found["measures"]["released"]["count"]), (0, 0))
        self.assertEqual({message["now"] for message in found["messages"]}, {"sexual"})

    def test_what_higher_limits_release_is_counted_and_fails(self):
        limit = sorted(row["probability"] for row in self.blocked)[len(self.blocked) // 2]
        others = [f"--limit=adult:{label}=none" for label in ("self_harm", "harassment", "dangerous")]
        code, found = self.replay("--limit", f"adult:sexual={limit}", *others)
        released = sum(row["probability"] < limit for row in self.blocked)
        self.assertEqual((code, found["measures"]["released"]["count"]), (1, released))
        self.assertEqual(self.replay("--limit", f"adult:sexual={limit}", *others, "--fail-if", "released>90%")[0], 0)

    def test_only_the_last_messages_are_judged(self):
        _, found = self.replay("--last", 3)
        self.assertEqual([message["time"] for message in found["messages"]], [row["time"] for row in self.blocked[-3:]])

    def test_a_damaged_log_is_refused(self):
        ask = ["safety", MODEL, "--replay"]
        for damage, words in (
            ({"tier": "robots"}, "robots"),
            ({"label": "dull"}, "dull"),
            ({"messages": []}, "empty"),
            ({"probability": "x"}, "probability"),
            ({"messages": [{"role": "user"}]}, "role"),
        ):
            self.refused(words, *ask, self.write("damaged.jsonl", [{**self.blocked[0], **damage}]))
        self.refused("no blocked message", *ask, self.write("empty.jsonl", []))


class Limits(Case):
    def test_chosen_limits_block_no_fine_message_of_their_set(self):
        calibration = os.path.join(FOLDER, "sets", "calibration.jsonl")
        tiers = self.path("tiers.json")
        code, out, err = run("limits", MODEL, "--set", calibration, "--out", tiers)
        self.assertEqual(code, 0, out + err)
        code, out, err = run(
            "safety",
            MODEL,
            "--set",
            calibration,
            "--tiers",
            tiers,
            "--fail-if",
            "fine:adult>0",
            "--fail-if",
            "fine:minor>0",
            "--fail-if",
            "fine:adult:high>1",
            "--fail-if",
            "fine:minor:high>1",
        )
        self.assertEqual(code, 0, out + err)


if __name__ == "__main__":
    main()
