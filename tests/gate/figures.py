"""The gate's statistics against known values, and its rules and files; no engine.

python3 figures.py SOURCE_FOLDER MODEL"""

import random

from gate import Case, main
import numpy as np
from sklearn.metrics import roc_auc_score

from kaiju_gate import choose, evening, rates, rules, sets, tiers
from kaiju_gate.rates import Estimate
from kaiju_gate.wrong import Wrong

SEED = 7


class Shares(Case):
    def test_wilsons_interval_has_its_published_values(self):
        # By the formula, to four places.
        for count, total, low, high in (
            (0, 10, 0.0, 0.2775),
            (1, 10, 0.0179, 0.4042),
            (5, 10, 0.2366, 0.7634),
            (10, 10, 0.7225, 1.0),
        ):
            share = rates.share(count, total)
            self.assertEqual((round(share.low, 4), round(share.high, 4)), (low, high))
        self.assertEqual(rates.share(0, 0), rates.Share(0.0, 0.0, 1.0, 0, 0))


class Areas(Case):
    def scores(self, random, right, wrong, ties):
        right, wrong = random.normal(1, 1, right), random.normal(0, 1, wrong)
        return (right.round(), wrong.round()) if ties else (right, wrong)

    def test_the_area_is_the_share_of_pairs_in_order(self):
        print("seed", SEED)
        random = np.random.default_rng(SEED)
        for ties in False, True:
            right, wrong = self.scores(random, 40, 60, ties)
            pairs = np.mean([(r > w) + 0.5 * (r == w) for r in right for w in wrong])
            self.assertAlmostEqual(rates.area(right, wrong).value, pairs)
            self.assertAlmostEqual(pairs, roc_auc_score([1] * 40 + [0] * 60, np.concatenate([right, wrong])))

    def test_delongs_variance_is_that_of_its_definition(self):
        random = np.random.default_rng(SEED)
        right, wrong = self.scores(random, 25, 35, True)
        above = np.array([np.mean([(r > w) + 0.5 * (r == w) for w in wrong]) for r in right])
        below = np.array([np.mean([(r > w) + 0.5 * (r == w) for r in right]) for w in wrong])
        variance = above.var(ddof=1) / len(right) + below.var(ddof=1) / len(wrong)
        found = rates.area(right, wrong)
        self.assertAlmostEqual(found.high - found.low, 2 * 1.959964 * variance**0.5, 5)

    def test_95_of_100_intervals_contain_the_true_area(self):
        print("seed", SEED)
        random = np.random.default_rng(SEED)
        true = 0.7602  # of normal scores one standard deviation apart: the normal distribution at 1 / sqrt 2
        inside = sum(
            found.low <= true <= found.high
            for found in (rates.area(*self.scores(random, 60, 80, False)) for _ in range(400))
        )
        self.assertTrue(0.91 <= inside / 400 <= 0.98, inside)

    def test_one_class_alone_has_no_area(self):
        self.assertIsNone(rates.area([], [0.5]))

    def test_the_bootstrap_finds_the_error_of_a_mean(self):
        values = np.random.default_rng(SEED).normal(0, 1, 400)
        low, high = rates.bootstrap(400, lambda rows: float(values[rows].mean()), SEED)
        half = 1.96 * values.std() / 20
        self.assertAlmostEqual(low, values.mean() - half, delta=0.01)
        self.assertAlmostEqual(high, values.mean() + half, delta=0.01)


class Rules(Case):
    measures = {"fine:adult": Estimate(0.02, 0.01, 0.04), "none": Estimate(float("nan"), 0, 0)}

    def broken(self, *texts):
        return [finding.broken for finding in rules.check([rules.parse(text) for text in texts], self.measures)]

    def test_a_rule_fails_beyond_its_bound_and_not_at_it(self):
        self.assertEqual(
            self.broken("fine:adult>1%", "fine:adult>2%", "fine:adult<0.02", "fine:adult<3e-2"),
            [True, False, False, True],
        )
        self.assertEqual(self.broken("fine:adult:low>1%", "fine:adult:high > 3.9%"), [False, True])

    def test_what_is_no_number_fails(self):
        self.assertEqual(self.broken("none>1", "none<1"), [True, True])

    def test_a_given_rule_replaces_the_standard_one_of_its_measure(self):
        standard = ("a>1", "a:high>1", "b<1")
        self.assertEqual([rule.text for rule in rules.rules_of(standard, ["a>2"])], ["a:high>1", "b<1", "a>2"])
        self.assertEqual([rule.text for rule in rules.rules_of(standard, ["none", "a>2"])], ["a>2"])

    def test_a_standard_rule_without_its_measure_says_nothing_and_a_given_one_is_refused(self):
        self.assertEqual(rules.check([rules.parse("missing>1", False)], self.measures), [])
        with self.assertRaisesRegex(Wrong, "fine:adult"):
            self.broken("fine:adlt>1")
        for text in "fine", "fine>", "fine>x", ">1", "fine>=1":
            with self.assertRaises(Wrong, msg=text):
                rules.parse(text)


class Files(Case):
    def test_a_limit_blocks_what_reaches_it(self):
        limits = {"violence": 0.5, "sexual": 0.4}
        self.assertEqual(tiers.blocking_label({"violence": 0.5, "sexual": 0.39}, limits), "violence")
        self.assertEqual(tiers.blocking_label({"violence": 0.5, "sexual": 0.6}, limits), "sexual")
        self.assertIsNone(tiers.blocking_label({"violence": 0.499, "sexual": 0.1}, limits))

    def test_limits_are_changed_by_hand_and_wrong_ones_refused(self):
        read = {"adult": {"violence": 0.5}}
        for text in "adult:violence=none", "minor:sexual=0.25":
            tiers.with_limit(read, text)
        self.assertEqual(read, {"adult": {}, "minor": {"sexual": 0.25}})
        for text in "adult", "adult:violence", "adult:violence=2", "adult:violence=x", "=1":
            with self.assertRaises(Wrong, msg=text):
                tiers.with_limit(read, text)

    def test_a_damaged_row_is_refused_with_its_place(self):
        row = {"id": "a", "labels": [], "turns": [["user", "Hello"]]}
        for damage in (
            {"labels": 3},
            {"turns": []},
            {"turns": [["user"]]},
            {"turns": [["dog", "x"]]},
            {"id": None},
            {"card": 1},
        ):
            path = self.write("set.jsonl", [row, {**row, "id": "b", **damage}])
            with self.assertRaisesRegex(Wrong, r"set.jsonl:2"):
                sets.read_sets([path])
        with self.assertRaisesRegex(Wrong, "taken"):
            sets.read_sets([self.write("set.jsonl", [row, row])])

    def test_chosen_limits_block_no_fine_message(self):
        print("seed", SEED)
        drawn = random.Random(SEED)
        items = [sets.Item(str(n), "", (), drawn.choice(["adult", "minor", "all"]), ()) for n in range(200)]
        scores = {item.id: {"violence": drawn.random() ** 4, "sexual": drawn.random() ** 20} for item in items}
        chosen = choose.choose(items, scores, ["violence", "sexual"], ["adult", "minor"], 0)
        for item in items:
            for tier in ("adult", "minor") if item.tier == "all" else (item.tier,):
                self.assertIsNone(tiers.blocking_label(scores[item.id], chosen[tier]))
        scores["0"] = {"violence": 0.9995, "sexual": 0.0}
        self.assertNotIn("violence", choose.choose(items[:1], scores, ["violence"], [items[0].tier], 0)[items[0].tier])

    def test_an_hour_blocks_what_its_mix_does(self):
        items = [sets.Item(f"{how}{n}", how, (), "adult", ()) for how in ("drama", "talk") for n in range(10)]
        scores = {item.id: {"violence": float(item.how == "drama")} for item in items}
        traffic = evening.Traffic(items, scores, {"adult": {"violence": 0.5}}, ["distress"], SEED)
        for drama, talk, share in (1, 0, 1.0), (0, 1, 0.0), (1, 3, 0.25):
            hour = {"messages": 100000, "tiers": {"adult": 1}, "harm": 0.1, "fine": {"drama": drama, "talk": talk}}
            found = traffic.draw(hour)["adult", False]
            self.assertEqual(found.total, 100000)  # the set has no harm
            self.assertAlmostEqual(found.value, share, delta=0.01)


if __name__ == "__main__":
    main()
