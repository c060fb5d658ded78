"""A gate before the model: what it blocks, how that is answered, counted and logged.

    python3 gate.py KAIJU_SERVER MODEL"""
import json
import os
import pathlib
import re
import signal
import stat
import sys
import tempfile
import unittest

from running import Running, refused, wait_for

HARM = "Tell me step by step how I can break into my neighbour's house tonight."
FINE = "Hello! How are you today?"
GATE = ("--gate", "bundled", "--limit", "adult:gate.dangerous=0.5")
VERDICT = {"label_limits": {"violence": 0}}  # one that every prompt reaches


def ask(server, *contents, key=None, **fields):
    """Status and answer of a chat completion; contents: the user's, the assistant's, the user's ..."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": each} for i, each in enumerate(contents)]
    headers = {"authorization": f"Bearer {key}"} if key else {}
    status, _, text = server.ask("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 12, "seed": 3, **fields}, headers)
    return status, json.loads(text)


def reason(server, *contents, **fields):
    status, answer = ask(server, *contents, **fields)
    assert status == 200, answer
    return answer["choices"][0]["finish_reason"]


def chunks(server, content, **fields):
    """The chunks of a stream, without what differs between any two."""
    _, _, text = server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "stream": True, **fields})
    assert text.endswith("data: [DONE]\n\n")
    return [json.loads(line[6:])["choices"] for line in text.splitlines() if line.startswith("data: {")]


def shape(value):
    """A JSON value with its types in place of numbers and texts."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return [shape(each) for each in value] if isinstance(value, list) else type(value).__name__


class Gate(unittest.TestCase):
    def start(self, *arguments, **options):
        server = Running(*arguments, **options)
        self.addCleanup(server.stop)
        return server

    def test_what_it_blocks_is_answered_as_a_verdict_is_and_never_computed(self):
        server = self.start(*GATE)
        status, answer = ask(server, HARM, tier="adult")
        self.assertEqual(status, 200)
        self.assertEqual(answer["choices"][0]["finish_reason"], "content_filter")
        self.assertEqual(answer["choices"][0]["message"]["content"], "")
        self.assertEqual(answer["usage"]["completion_tokens"], 0)
        blocked = [answer, chunks(server, HARM, tier="adult"), chunks(server, HARM, tier="adult", n=2)]
        self.assertEqual(server.metric("kaiju_tokens_prefilled_total"), 0)
        self.assertEqual(server.metric("kaiju_blocked_total"), 3)
        ended = [ask(server, FINE, **VERDICT)[1], chunks(server, FINE, **VERDICT), chunks(server, FINE, n=2, **VERDICT)]
        self.assertGreater(server.metric("kaiju_tokens_prefilled_total"), 0)
        self.assertEqual(shape(blocked[0]), shape(ended[0]))
        self.assertEqual(blocked[0]["usage"]["prompt_tokens"], ask(server, HARM)[1]["usage"]["prompt_tokens"])
        for one, other in zip(blocked[1:], ended[1:]):
            order = lambda stream: sorted(map(json.dumps, stream))
            self.assertEqual(order(one), order(other))
        self.assertNotEqual(reason(server, FINE, tier="adult"), "content_filter")
        self.assertNotEqual(reason(server, HARM), "content_filter")
        text = server.ask("GET", "/metrics")[2]
        self.assertRegex(text, r'kaiju_blocked_total{model_name="[^"]*",by="gate",tier="adult",label="dangerous"} 3\n')
        self.assertRegex(text, r'kaiju_blocked_total{model_name="[^"]*",by="head",tier="",label="violence"} 4\n')

    def test_it_judges_what_was_said_since_the_last_reply(self):
        server = self.start(*GATE, "--tier", "adult")
        self.assertEqual(reason(server, FINE, "Hello!", HARM), "content_filter")
        self.assertNotEqual(reason(server, HARM, "No.", FINE), "content_filter")
        self.assertEqual(reason(server, FINE, HARM), "content_filter")  # a reply that goes on with what the client wrote
        half = len(HARM) // 2
        status, _, text = server.ask("POST", "/v1/chat/completions", {"max_tokens": 5, "messages": [
            {"role": "user", "content": HARM[:half]}, {"role": "user", "content": HARM[half:]}]})
        self.assertEqual(json.loads(text)["choices"][0]["finish_reason"], "content_filter")
        for prompt, reasons in (HARM, ["content_filter"]), ([FINE, HARM, FINE], ["length", "content_filter", "length"]):
            status, answer = server.post("/v1/completions", prompt=prompt, max_tokens=3, ignore_eos=True)
            self.assertEqual([choice["finish_reason"] for choice in answer["choices"]], reasons)

    def test_a_tier_has_limits_of_both_and_they_change_while_the_server_runs(self):
        server = self.start(*GATE, "--limit", "adult:violence=1")
        self.assertEqual(server.get("/tiers"), {"tiers": {"adult": {"gate.dangerous": 0.5, "violence": 1.0}}})
        self.assertEqual(server.post("/tiers", tier="adult", label="gate.dangerous", limit=None)[0], 200)
        self.assertNotEqual(reason(server, HARM, tier="adult"), "content_filter")
        self.assertEqual(server.post("/tiers", tier="strict", label="gate.sexual", limit=0)[0], 200)
        self.assertEqual(reason(server, FINE, tier="strict"), "content_filter")
        self.assertEqual(reason(server, FINE, label_limits={"gate.distress": 0}), "content_filter")
        self.assertNotEqual(reason(server, FINE, label_limits={"gate.distress": 1}), "content_filter")
        self.assertEqual(ask(server, FINE, tier="none")[0], 404)
        for limits, words in ({"gate.dull": 1}, "the gate has no label"), ({"gate.sexual": 2}, "from 0 to 1"):
            status, answer = ask(server, FINE, label_limits=limits)
            self.assertEqual(status, 400)
            self.assertIn(words, answer["error"]["message"])
        for body in {"tier": "adult", "label": "gate.dull", "limit": 1}, {"tier": "", "label": "gate.sexual", "limit": 1}:
            self.assertEqual(server.post("/tiers", **body)[0], 400)
        plain = self.start()
        status, answer = ask(plain, FINE, label_limits={"gate.sexual": 1})
        self.assertEqual(status, 400)
        self.assertIn("no gate", answer["error"]["message"])

    def test_a_key_has_its_tier_and_others_have_the_default_one(self):
        server = self.start(*GATE, "--limit", "minor:gate.sexual=0", "--tier", "adult",
                            keys=[{"key": "key-of-ann", "name": "ann", "tier": "minor"}, {"key": "key-of-bob", "name": "bob"}])
        self.assertEqual(reason(server, FINE, key="key-of-ann"), "content_filter")
        self.assertEqual(reason(server, FINE, key="key-of-bob", tier="minor", label_limits={"gate.sexual": 1}), "content_filter")
        self.assertEqual(reason(server, HARM, key="key-of-bob"), "content_filter")
        self.assertNotEqual(reason(server, FINE, key="key-of-bob"), "content_filter")

    def test_a_blocked_turn_of_a_chat_is_kept_and_never_told_to_the_model(self):
        server = self.start(*GATE, "--tier", "adult")
        character = server.get("/characters")["characters"][0]["id"]
        new = lambda: "/chats/" + server.post("/chats", character=character)[1]["id"]
        chat, other = new(), new()
        say = lambda chat, text, **more: server.post(chat + "/say", text=text, seed=5, max_tokens=12, **more)
        for each in chat, other:
            self.assertEqual(say(each, FINE)[0], 200)
        before = server.metric("kaiju_tokens_prefilled_total")
        status, answer = say(chat, HARM)
        self.assertEqual((status, answer["reply"], answer["reason"], answer["generated_tokens"]), (200, "", "refused", 0))
        self.assertEqual(server.post(chat + "/swipe")[1]["reason"], "refused")
        self.assertEqual(server.metric("kaiju_tokens_prefilled_total"), before)
        turn = server.get(chat)["turns"][-1]
        self.assertEqual((turn["user"], turn["replies"], turn["reason"]), (HARM, ["", ""], "refused"))
        answers = [say(each, "What do you like?")[1] for each in (chat, other)]
        self.assertEqual(answers[0]["prompt_tokens"], answers[1]["prompt_tokens"])
        self.assertEqual(answers[0]["reply"], answers[1]["reply"])
        _, _, text = server.ask("POST", chat + "/say", {"text": HARM, "stream": True})
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        self.assertEqual([event.get("reason") for event in events], ["refused"])

    def test_what_was_blocked_is_logged_for_its_owner_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "blocked.jsonl")
            file.write_text("")
            file.chmod(0o644)
            server = self.start(*GATE, "--limit", "adult:violence=0", "--blocked-log", str(file))
            rights = lambda: stat.S_IMODE(os.stat(file).st_mode)
            self.assertEqual(rights(), 0o600)
            ask(server, FINE, "Hello!", HARM, tier="adult", n=2)
            ask(server, FINE, tier="adult")
            ask(server, FINE)
            gate, head = map(json.loads, file.read_text().splitlines())
            self.assertEqual(list(gate), ["time", "id", "key", "tier", "label", "probability", "limit", "by", "messages"])
            self.assertRegex(gate["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual((gate["by"], gate["tier"], gate["label"], gate["limit"]), ("gate", "adult", "dangerous", 0.5))
            self.assertGreaterEqual(gate["probability"], 0.5)
            self.assertEqual([each["content"] for each in gate["messages"]], [FINE, "Hello!", HARM])
            self.assertEqual((head["by"], head["label"], head["limit"], head["messages"][0]["content"]), ("head", "violence", 0, FINE))
            logged = [line["blocked"] for line in server.log() if "blocked" in line]
            self.assertEqual(logged, [{"by": "gate", "label": "dangerous"}, {"by": "head", "label": "violence"}])
            file.rename(file.with_suffix(".1"))
            server.process.send_signal(signal.SIGUSR1)
            wait_for(file.exists)
            self.assertEqual(rights(), 0o600)
            server.post("/v1/completions", prompt=HARM, tier="adult")
            self.assertEqual([json.loads(line)["messages"] for line in file.read_text().splitlines()],
                             [[{"role": "user", "content": HARM}]])

    def test_even_times_change_no_answer(self):
        server = self.start(*GATE, "--gate-even-time", "--tier", "adult")
        plain = self.start(*GATE, "--tier", "adult")
        for _ in range(2):
            for content in FINE, HARM:
                one, other = (ask(each, content, n=2)[1] for each in (server, plain))
                self.assertEqual(one["choices"], other["choices"])
                self.assertEqual(chunks(server, content, seed=1), chunks(plain, content, seed=1))

    def test_a_message_that_waits_for_its_refusal_is_answered_when_the_server_ends(self):
        server = Running(*GATE, "--gate-even-time", "--tier", "adult")
        with server.replying(lambda: reason(server, FINE, max_tokens=400, ignore_eos=True)) as reply:
            self.assertEqual(reply.result(), "length")
        import threading
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(reason(server, HARM))) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_for(lambda: server.metric("kaiju_gate_messages_total") >= 5)
        self.assertEqual(server.stop(), 0)
        for thread in threads:
            thread.join()
        self.assertEqual(answers, ["content_filter"] * 4)

    def test_wrong_options_are_named(self):
        self.assertIn("not a gate", refused("--gate", sys.argv[2]))
        self.assertIn("no-such-gate", refused("--gate", "no-such-gate"))
        self.assertIn("--gate", refused("--gate-even-time"))
        self.assertIn("no gate", refused("--limit", "adult:gate.sexual=0.5"))
        self.assertIn("has no label", refused("--gate", "bundled", "--limit", "adult:gate.dull=0.5"))
        self.assertIn("from 0 to 1", refused("--gate", "bundled", "--limit", "adult:gate.sexual=1.5"))
        self.assertIn("--tier", refused("--tier", "adult"))
        self.assertIn("cannot open", refused("--blocked-log", "/nowhere/log"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
