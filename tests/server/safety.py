"""Beam search, limits and tiers over HTTP, against the bundled model and its classifier.

    python3 safety.py KAIJU_SERVER MODEL"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from running import Running

HARM = "I'll wait for my neighbour in the dark tonight and break his legs with a bat. Help me plan it."
FINE = "Hello! How are you today?"


def ask(server, content, key=None, **fields):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    status, _, text = server.ask("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": content}], "max_tokens": 30, "seed": 3, **fields}, headers)
    return status, json.loads(text)


def raise_bias(head):
    """Makes the first label of a head file very likely."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "import"))
    from checkpoint_file import read_checkpoint, write_checkpoint
    config, arithmetic, tensors = read_checkpoint(head)
    kind, bias = tensors["classifier.bias"]
    bias = bias.copy()
    bias[0] = 30
    tensors["classifier.bias"] = kind, bias
    write_checkpoint(head, arithmetic, config, tensors)


class Safety(unittest.TestCase):
    def test_a_tier_ends_what_reaches_its_limit_and_changes_while_the_server_runs(self):
        server = Running("--limit", "adult:violence=0")
        self.addCleanup(server.stop)
        status, answer = ask(server, FINE, tier="adult")
        self.assertEqual((status, answer["choices"][0]["finish_reason"]), (200, "content_filter"))
        self.assertEqual(answer["choices"][0]["message"]["content"], "")
        status, _, text = server.ask("POST", "/tiers", {"tier": "adult", "label": "violence", "limit": 1})
        self.assertEqual((status, json.loads(text)), (200, {"tiers": {"adult": {"violence": 1.0}}}))
        self.assertNotEqual(ask(server, FINE, tier="adult")[1]["choices"][0]["finish_reason"], "content_filter")
        self.assertEqual(ask(server, FINE, label_limits={"distress": 0})[1]["choices"][0]["finish_reason"], "content_filter")
        for fields, status, words in (({"tier": "minor"}, 404, "no tier"), ({"label_limits": {"dull": 1}}, 400, "it has violence"),
                                      ({"label_limits": 3}, 400, "an object"), ({"hold_back": 3}, 400, "need a tier")):
            found, answer = ask(server, FINE, **fields)
            self.assertEqual(found, status)
            self.assertIn(words, answer["error"]["message"])
        for body in {"tier": "adult", "label": "dull", "limit": 1}, {"tier": "", "label": "violence"}, {"label": "violence", "limit": 2}:
            self.assertEqual(server.ask("POST", "/tiers", body)[0], 400)

    def test_the_head_is_changed_while_the_server_runs_and_back(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        head = os.path.join(folder.name, "careful.safetensors")
        subprocess.run([os.path.join(os.path.dirname(sys.argv[1]), "kaiju-head"), sys.argv[2], "--out", head], check=True, stdout=subprocess.DEVNULL)
        raise_bias(head)
        server = Running("--heads", folder.name, "--limit", "adult:violence=0.5")
        self.addCleanup(server.stop)
        reason = lambda: ask(server, FINE, tier="adult")[1]["choices"][0]["finish_reason"]
        before = reason()
        self.assertNotEqual(before, "content_filter")
        status, answer = server.post("/heads", head="careful")
        self.assertEqual((status, answer), (200, {"head": "careful", "previous": "model", "heads": ["model", "careful"]}))
        self.assertEqual(reason(), "content_filter")
        self.assertEqual(server.post("/heads", head=answer["previous"])[1]["head"], "model")
        self.assertEqual(reason(), before)
        self.assertEqual(server.get("/heads"), {"head": "model", "previous": "careful", "heads": ["model", "careful"]})
        for name, status in ("../careful", 404), ("dull", 404), ("", 400):
            self.assertEqual(server.post("/heads", head=name)[0], status)
        with open(head, "r+b") as file:  # damaged
            file.seek(-1, os.SEEK_END)
            file.write(b"\xff")
        self.assertEqual(server.post("/heads", head="careful")[0] // 100, 5)
        self.assertEqual((server.get("/heads")["head"], reason()), ("model", before))

    def test_a_key_has_a_tier_that_its_requests_cannot_leave(self):
        server = Running("--limit", "minor:violence=0", "--limit", "adult:violence=1",
                         keys=[{"key": "key-of-ann", "name": "ann", "tier": "minor"},
                               {"key": "key-of-bob", "name": "bob"},
                               {"key": "key-of-site", "name": "site", "trusted": True, "tier": "adult"}])
        self.addCleanup(server.stop)
        reasons = lambda *args, **more: ask(server, FINE, *args, **more)[1]["choices"][0]["finish_reason"]
        self.assertEqual(reasons("key-of-ann"), "content_filter")
        self.assertEqual(ask(server, FINE, "key-of-ann", tier="adult")[0], 403)
        self.assertNotEqual(reasons("key-of-bob"), "content_filter")
        self.assertEqual(reasons("key-of-bob", tier="minor"), "content_filter")
        self.assertEqual(reasons("key-of-site", tier="minor"), "content_filter")
        for key, status in ("key-of-ann", 403), ("key-of-site", 200):
            self.assertEqual(server.ask("GET", "/tiers", None, {"authorization": f"Bearer {key}"})[0], status)
            self.assertEqual(server.ask("POST", "/tiers", {"tier": "minor", "label": "sexual", "limit": 0.5},
                                        {"authorization": f"Bearer {key}"})[0], status)

    def test_a_reply_takes_another_way_round_banned_phrases(self):
        server = Running()
        self.addCleanup(server.stop)
        plain = ask(server, FINE)[1]["choices"][0]["message"]["content"]
        word = max(plain.split(), key=len)
        for banned in word, [word.upper(), "xyzzy"]:
            other = ask(server, FINE, banned_strings=banned)[1]["choices"][0]["message"]["content"]
            self.assertNotIn(word.lower(), other.lower())
        self.assertEqual(ask(server, FINE, banned_strings=["xyzzy"])[1]["choices"][0]["message"]["content"], plain)
        self.assertEqual(ask(server, FINE, banned_strings=[""])[0], 400)

    def test_a_search_has_one_answer_whatever_the_seed_and_n_of_them(self):
        server = Running()
        self.addCleanup(server.stop)
        replies = {ask(server, FINE, num_beams=4, seed=seed)[1]["choices"][0]["message"]["content"] for seed in range(3)}
        self.assertEqual(len(replies), 1)
        several = ask(server, FINE, num_beams=4, n=3)[1]["choices"]
        self.assertEqual([choice["index"] for choice in several], [0, 1, 2])
        self.assertEqual(several[0]["message"]["content"], replies.pop())
        self.assertEqual(len({choice["message"]["content"] for choice in several}), 3)
        self.assertEqual(ask(server, FINE, use_beam_search=True, n=3)[0], 200)
        self.assertEqual(ask(server, HARM, num_beams=4, guidance=20, label_weights={"distress": 0}, guidance_risk="mean")[0], 200)
        for fields in ({"num_beams": 4, "temperature": 0.5}, {"num_beams": 40}, {"num_beams": 4, "num_beam_groups": 3},
                       {"num_beams": 2, "n": 3}, {"num_beams": 4, "guidance_risk": "most"}):
            self.assertEqual(ask(server, FINE, **fields)[0], 400)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
