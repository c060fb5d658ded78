"""The journal: replies of a busy server computed again by kaiju-replay, its encryption, and erasing users.

    python3 journal.py KAIJU_SERVER MODEL"""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from running import Running, wait_for

REPLAY = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "kaiju-replay")
MODEL = os.path.abspath(sys.argv[2])
SAID = "The password of the tower is zirconium."


def ask(server, content, key=None, **fields):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 16, **fields}
    return server.ask("POST", "/v1/chat/completions", body, headers)


class Journal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.journal, self.key = self.folder / "journal", self.folder / "key"
        self.key.write_text("k" * 40 + "\n")

    def start(self, *arguments, **options):
        server = Running("--journal", str(self.journal), "--journal-key", str(self.key), *arguments, **options)
        self.addCleanup(server.stop)
        return server

    def replay(self, *arguments, key=None):
        done = subprocess.run([REPLAY, str(self.journal), "--key", str(key or self.key), *map(str, arguments)], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def say_much(self, server):
        """Replies of every kind at once; how many."""
        asked = [{"temperature": 0.9, "seed": i} for i in range(8)]
        asked += [{"n": 3, "seed": 5}, {"num_beams": 3}, {"stop": ["e"]}, {"stream": True}, {"mirostat_mode": 2}, {"dry_multiplier": 0.8, "xtc_probability": 0.4},
                  {"banned_strings": ["the"]}, {"label_limits": {"violence": 0}}, {"response_format": {"type": "json_object"}}]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda fields: ask(server, SAID, **fields), asked))
        grammars = answers.pop()[0] == 200  # a server that was built without them refuses the last
        self.assertEqual([status for status, _, _ in answers], [200] * len(answers))
        whole = json.loads(ask(server, SAID, seed=9, return_token_ids=True)[2])
        begun = {"prompt_token_ids": whole["prompt_token_ids"], "reply_token_ids": whole["choices"][0]["token_ids"][:5]}
        self.assertEqual(ask(server, SAID, seed=9, **begun)[0], 200)
        return len(answers) + 4, grammars

    def test_replies_of_a_busy_server_are_computed_again(self):
        server = self.start()
        replies, grammars = self.say_much(server)
        server.stop()
        status, said = self.replay("--model", MODEL)
        self.assertEqual(status, 0, said)
        self.assertIn(f"{replies + grammars} replies: {replies} equal, 0 differ" + grammars * ", 1 cannot be computed again", said)
        self.assertIn("1 refused replies: 1 would be refused again", said)
        self.assertIn("violence", said)
        status, said = self.replay("--list")
        self.assertEqual((status, len(said.splitlines())), (0, replies + grammars))

    def test_a_later_turn_takes_few_bytes(self):
        server = self.start()
        messages = []
        for turn in range(12):
            messages += [{"role": "user", "content": f"And what did you do on day {turn}? Tell me all of it."}]
            _, _, text = server.ask("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 40, "seed": turn})
            messages += [{"role": "assistant", "content": json.loads(text)["choices"][0]["message"]["content"]}]
        wait_for(lambda: server.metric("kaiju_journal_replies_total") == 12)  # a thread of its own writes them
        _, _, text = server.ask("GET", "/metrics")
        value = lambda name: int(float(re.search(rf"^{name}\S* (\S+)$", text, re.M).group(1)))
        tokens = value("vllm:generation_tokens_total") + value("kaiju_cache_miss_new_total")
        self.assertLess(value("kaiju_journal_bytes_total"), 6 * tokens)

    def test_nobody_reads_it_without_the_key(self):
        server = self.start()
        ask(server, SAID, user="anna")
        server.stop()
        for file in self.journal.iterdir():
            self.assertEqual(file.stat().st_mode & 0o077, 0, file)
            for word in (b"anna", b"KREC", b"max_tokens"):
                self.assertNotIn(word, file.read_bytes())
        other = self.folder / "other"
        other.write_text("o" * 40)
        status, said = self.replay("--list", key=other)
        self.assertEqual(status, 1)
        self.assertIn("another key", said)
        other.write_text("short")
        status, said = self.replay("--list", key=other)
        self.assertIn("head -c 48 /dev/urandom", said)

    def test_an_erased_user_is_gone_and_others_stay(self):
        server = self.start()
        for user in ("anna", "bert", "anna"):
            ask(server, SAID, user=user)
        status, _, text = server.ask("POST", "/journal/erase", {"user": "anna"})
        self.assertEqual((status, json.loads(text)), (200, {"erased": True}))
        _, _, text = server.ask("POST", "/journal/erase", {"user": "anna"})
        self.assertEqual(json.loads(text), {"erased": False})
        ask(server, SAID, user="anna")  # a new one of the same name
        code, said = self.replay("--erase", "everybody/bert")
        self.assertIn("written by another process", said)
        server.stop()
        status, said = self.replay("--model", MODEL)
        self.assertEqual(status, 0, said)
        self.assertIn("2 entries are erased\n2 replies: 2 equal", said)
        self.assertIn("2 entries are erased\n2", self.replay("--list", "--user", "everybody/bert")[1])
        self.assertEqual(self.replay("--erase", "everybody/bert"), (0, "nobody can read the entries of everybody/bert any more\n"))
        self.assertEqual(self.replay("--list", "--user", "everybody/bert")[0], 1)

    def test_a_killed_server_leaves_its_replies_and_a_damaged_entry_the_others(self):
        server = self.start()
        for seed in range(4):
            ask(server, SAID, seed=seed)
        wait_for(lambda: server.metric("kaiju_journal_replies_total") == 4)  # a thread of its own writes them
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server = self.start()
        ask(server, SAID)
        server.stop()
        files = sorted(self.journal.glob("*.kjj"))
        self.assertEqual(len(files), 2)
        self.assertIn("5 replies: 5 equal", self.replay("--model", MODEL)[1])
        whole = files[0].read_bytes()
        files[0].write_bytes(whole[:-10])
        self.assertIn("1 entries are damaged or cut off\n4 replies: 4 equal", self.replay("--model", MODEL)[1])
        wrong = bytearray(whole)
        wrong[-10] ^= 1
        files[0].write_bytes(wrong)
        self.assertIn("1 entries are damaged or cut off\n4 replies: 4 equal", self.replay("--model", MODEL)[1])

    def test_users_are_those_of_their_key(self):
        keys = self.folder / "keys.json"
        keys.write_text(json.dumps({"keys": [{"key": "one-secret-key-1", "name": "one"}, {"key": "two-secret-key-2", "name": "two"}]}))
        server = self.start("--keys", str(keys))
        for key in ("one-secret-key-1", "two-secret-key-2"):
            ask(server, SAID, key=key, user="anna")
        server.ask("POST", "/journal/erase", {"user": "anna"}, {"authorization": "Bearer one-secret-key-1"})
        server.stop()
        self.assertEqual(self.replay("--list", "--user", "one/anna")[0], 1)
        self.assertEqual(self.replay("--list", "--user", "two/anna")[0], 0)

    def test_what_is_missing_is_said(self):
        server = Running()
        self.addCleanup(server.stop)
        status, _, text = server.ask("POST", "/journal/erase", {"user": "anna"})
        self.assertEqual((status, json.loads(text)["error"]["code"]), (404, "no_journal"))
        status, said = self.replay("--list")
        self.assertEqual(status, 1)
        self.assertIn("has no journal", said)
        self.assertEqual(self.replay()[0], 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
