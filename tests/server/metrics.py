"""/metrics of kaiju-server: what Prometheus takes, what it says about each key, and that the dashboard finds what it names.

    metrics.py KAIJU_SERVER MODEL [Class.test ...]

Without promtool (package prometheus) what needs it is skipped.
"""

import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from running import Running

ASK = [{"role": "user", "content": "What do you grow?"}]
ODD = 'ann "the\\first"\nof all'  # a name that has to be escaped
DASHBOARD = pathlib.Path(__file__).parents[2] / "examples" / "server" / "grafana.json"
# vLLM's names have a colon, which promtool's lint does not like in names of metrics.
COLON = re.compile(r"^vllm:\w+ metric names should not contain ':'$")


def expressions():
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


class OfMetrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        keys = [{"key": "key-of-ann", "name": ODD}, {"key": "key-of-bob", "name": "bob", "weight": 2},
                {"key": "key-of-bob-too", "name": "bob", "weight": 2},
                {"key": "key-of-prometheus", "name": "prometheus", "trusted": True}]
        cls.server = Running("--max-running", "2", "--name", 'a "model"', keys=keys)
        cls.ask("key-of-ann", max_tokens=8)
        cls.ask("key-of-ann", max_tokens=8)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    @classmethod
    def ask(cls, key, **body):
        status, _, text = cls.server.ask("POST", "/v1/chat/completions", {"messages": ASK, **body}, {"authorization": f"Bearer {key}"})
        assert status == 200, text
        return json.loads(text)["usage"]

    def text(self, key="key-of-prometheus"):
        status, _, text = self.server.ask("GET", "/metrics", headers={"authorization": f"Bearer {key}"} if key else {})
        self.assertEqual(status, 200)
        return text

    def of_key(self, name, key):
        return float(re.search(rf'^kaiju_key_{name}{{.*key="{key}"}} (\S+)$', self.text(), re.M)[1])

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
    def test_promtool_takes_them(self):
        done = subprocess.run(["promtool", "check", "metrics"], input=self.text(), capture_output=True, text=True, timeout=60)
        lines = (done.stdout + done.stderr).splitlines()
        self.assertEqual([line for line in lines if not COLON.match(line)], [])
        self.assertIn(done.returncode, (0, 3))  # 3: lint had something to say

    def test_names_are_escaped(self):
        self.assertIn('model_name="a \\"model\\""', self.text())
        self.assertIn('key="ann \\"the\\\\first\\"\\nof all"', self.text())

    def test_a_keys_tokens_are_those_of_its_usage(self):
        names = ("prompt_tokens", "cached_tokens", "generated_tokens", "requests")
        before = [self.of_key(f"{name}_total", "bob") for name in names]
        first, second = self.ask("key-of-bob", max_tokens=5, n=2, seed=1), self.ask("key-of-bob-too", max_tokens=5)
        after = [self.of_key(f"{name}_total", "bob") for name in names]
        self.assertEqual([after[i] - before[i] for i in range(4)],
                         [first["prompt_tokens"] + second["prompt_tokens"],
                          first["prompt_tokens_details"]["cached_tokens"] + second["prompt_tokens_details"]["cached_tokens"],
                          first["completion_tokens"] + second["completion_tokens"], 2])
        self.assertEqual(self.of_key("weight", "bob"), 2)

    def test_running_and_waiting_are_told_by_key_and_end_at_nothing(self):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            replies = [pool.submit(self.ask, "key-of-bob", max_tokens=150, ignore_eos=True) for _ in range(3)]
            seen = set()
            while not all(reply.done() for reply in replies):
                text = self.text()
                seen.add(tuple(int(re.search(rf'^kaiju_key_requests_{state}{{.*key="bob"}} (\d+)$', text, re.M)[1])
                               for state in ("running", "waiting")))
        self.assertIn((2, 1), seen)
        self.assertEqual((self.of_key("requests_running", "bob"), self.of_key("requests_waiting", "bob")), (0, 0))

    def test_others_names_are_shown_to_trusted_keys_alone(self):
        for key in (None, "key-of-bob"):
            self.assertNotIn("bob", self.text(key))
            self.assertIn("vllm:prompt_tokens_total", self.text(key))
        self.assertEqual(self.server.ask("GET", "/metrics", headers={"authorization": "Bearer wrong"})[0], 401)

    def test_the_dashboard_names_only_what_there_is(self):
        there = set(re.findall(r"^([\w:]+)(?:{| )", self.text(), re.M))
        count = 0
        for title, expression in expressions():
            names = re.findall(r"\b((?:vllm:|kaiju_)\w+)", expression)
            self.assertTrue(names, f"{title}: {expression}")
            count += len(names)
            for name in names:
                self.assertIn(name, there, title)
        self.assertGreater(count, 30)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
    def test_promtool_takes_the_dashboards_expressions(self):
        rules = [{"record": f"rule:{i}", "expr": expression.replace("$__rate_interval", "1m")} for i, (_, expression) in enumerate(expressions())]
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)  # JSON is YAML
            file.flush()
            done = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
