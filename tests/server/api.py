"""OpenAI's API of kaiju-server: chats, streams, samplers and texts, through the package openai; where replies end; and
clients that send the whole chat each time.

    api.py KAIJU_SERVER MODEL [Class.test ...]

Without the package openai (tests/server/requirements.txt) what needs it is skipped.
"""

import concurrent.futures
import sys
import unittest

from openai_client import OfOpenAI, openai
from running import ASK, OfServer


class OpenAI(OfOpenAI):
    def test_a_chat_answers_in_character(self):
        answer = self.assert_answers()
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_a_stream_spells_the_same_reply(self):
        whole = self.create(temperature=1.0, max_tokens=30)
        chunks = list(self.create(temperature=1.0, max_tokens=30, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason],
                         [whole.choices[0].finish_reason])

    def test_parallel_replies_equal_those_alone(self):
        alone = [self.create(seed=i, temperature=1.0, max_tokens=20).choices[0].message.content for i in range(12)]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            together = list(pool.map(lambda i: self.create(seed=i, temperature=1.0, max_tokens=20).choices[0].message.content, range(12)))
        self.assertEqual(together, alone)

    def test_n_choices_are_those_of_one_seed(self):
        answer = self.create(n=3, temperature=1.0, max_tokens=20)
        texts = [choice.message.content for choice in answer.choices]
        self.assertEqual(len(texts), 3)
        self.assertEqual(texts[0], self.create(temperature=1.0, max_tokens=20).choices[0].message.content)
        self.assertGreater(len(set(texts)), 1)

    def test_samplers_of_other_servers_work(self):
        def said(**fields):
            return self.create(temperature=1.0, max_tokens=40, seed=11, extra_body=fields).choices[0].message.content

        plain = said()
        neutral = {"frequency_penalty": 0, "presence_penalty": 0, "typical_p": 1, "dry_multiplier": 0, "xtc_probability": 0, "top_n_sigma": 0, "no_repeat_ngram_size": 0,
                   "epsilon_cutoff": 0, "eta_cutoff": 0, "dynamic_temperature": False, "repetition_penalty_range": 0}
        self.assertEqual(said(**neutral), plain)
        for fields in ({"top_n_sigma": 0.001}, {"epsilon_cutoff": 1}, {"dynamic_temperature": True, "dynatemp_low": 0.001, "dynatemp_high": 0.001}):
            self.assertEqual(said(**fields), self.create(temperature=0, max_tokens=40).choices[0].message.content, fields)
        once = self.create(temperature=1.0, max_tokens=40, seed=11, logprobs=True, extra_body={"no_repeat_ngram_size": 1})
        tokens = [one.token for one in once.choices[0].logprobs.content]
        self.assertEqual(len(tokens), len(set(tokens)))
        for fields in ({"frequency_penalty": 20}, {"presence_penalty": 20}, {"xtc_probability": 1, "xtc_threshold": 0.05}, {"dry_multiplier": 50, "dry_allowed_length": 1, "dry_sequence_breakers": []}):
            self.assertNotEqual(said(**fields), plain, fields)
            self.assertEqual(said(**fields), said(**fields))

    def test_mirostat_takes_the_place_of_samplers_that_drop(self):
        def said(**fields):
            return self.create(temperature=2.5, max_tokens=40, seed=11, extra_body=fields).choices[0].message.content

        steered = said(mirostat_mode=2, mirostat_tau=4, mirostat_eta=0.5)
        self.assertEqual(said(mirostat=2, mirostat_tau=4, mirostat_eta=0.5, top_k=1, min_p=0.5, xtc_probability=1), steered)
        self.assertNotEqual(said(mirostat_mode=2, mirostat_tau=1, mirostat_eta=0.5), steered)
        self.assertEqual(said(mirostat_mode=0, mirostat_tau=3), said())
        # No surprise at all: the likeliest token each time.
        self.assertEqual(said(mirostat_mode=2, mirostat_tau=0), self.create(temperature=0, max_tokens=40).choices[0].message.content)

    def test_log_probabilities_and_alternatives(self):
        answer = self.create(logprobs=True, top_logprobs=2, temperature=0, max_tokens=4)
        for one in answer.choices[0].logprobs.content:
            self.assertLessEqual(one.logprob, 0)
            self.assertEqual(one.top_logprobs[0].token, one.token)
            self.assertEqual(len(one.top_logprobs), 2)

    def test_a_stop_string_ends_a_reply_and_is_not_in_it(self):
        answer = self.create(temperature=0, stop=[" tomatoes"])
        self.assertEqual((answer.choices[0].message.content, answer.choices[0].finish_reason), ("I grow blue", "stop"))

    def test_a_last_assistant_message_is_continued(self):
        answer = self.create(ASK + [{"role": "assistant", "content": "I grow blue"}], temperature=0)
        self.assertEqual(answer.choices[0].message.content, " tomatoes.")

    def test_a_text_is_completed(self):
        answer = self.client.completions.create(model=self.model, prompt=["Once upon a time", "The garden"], max_tokens=5,
                                                seed=2, echo=True)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        self.assertTrue(answer.choices[1].text.startswith("The garden"))

    def test_a_closed_stream_cancels_its_request(self):
        before = self.server.metric("kaiju_disconnects_total")
        stream = self.create(stream=True, max_tokens=3000, temperature=1.0, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.wait_for(lambda: self.server.metric("kaiju_requests_unfinished") == 0)
        self.wait_for(lambda: self.server.metric("kaiju_disconnects_total") == before + 1)

    def test_mistakes_are_the_clients_errors(self):
        for options, says in (({"temperature": 101}, "temperature must be from 0 to 100"), ({"n": 0}, "n must be"),
                              ({"max_tokens": 5000}, "max_tokens is 5000"), ({"logit_bias": {"x": 1}}, "logit_bias must be"),
                              ({"extra_body": {"mirostat_mode": 1}}, "mirostat_mode 1 is not supported"), ({"extra_body": {"mirostat_tau": -1}}, "mirostat_tau must be from"), ({"frequency_penalty": 101}, "frequency_penalty must be from"),
                              ({"extra_body": {"dry_multiplier": 1, "dry_sequence_breakers": "x"}}, "dry_sequence_breakers must be"),
                              ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.create(**options)
            self.assertIn(says, str(caught.exception))


class Transcripts(OfServer):
    """Clients that send the whole chat each time: nothing that was computed or generated is computed twice."""

    def test_each_turn_computes_only_what_is_new(self):
        messages = list(ASK)
        for question in ("What are you afraid of?", "Why?", "Tell me more."):
            answer = self.server.chat(messages, temperature=1.0, seed=3, max_tokens=24)
            used = answer["usage"]
            messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
                         {"role": "user", "content": question}]
            status, rendered = self.server.post("/v1/chat/completions/render", messages=messages)
            again = self.server.chat(messages, temperature=0, max_tokens=1)["usage"]
            self.assertEqual(again["prompt_tokens"], len(rendered["token_ids"]))
            # all of the turn before but the last sampled token, whose KV no step has computed
            self.assertGreaterEqual(again["prompt_tokens_details"]["cached_tokens"], used["total_tokens"] - 1)
            self.assertIn(again["prompt_tokens_details"]["reuse_end"], ("new", "different"))

    def test_generated_tokens_are_kept_and_not_those_of_their_text(self):
        """Hot replies of small pieces, whose texts a tokenizer spells otherwise."""
        differ = 0
        for seed in range(20):
            messages = [{"role": "user", "content": "Hello!"}]
            answer = self.server.chat(messages, temperature=1.5, seed=seed, max_tokens=20, logprobs=True)
            text = answer["choices"][0]["message"]["content"]
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "What?"}]
            kept = self.server.post("/tokenize", messages=messages, return_token_strs=True)[1]["token_strs"]
            pieces = [one["token"] for one in answer["choices"][0]["logprobs"]["content"]]
            self.assertIn(pieces, [kept[i:i + len(pieces)] for i in range(len(kept))])
            status, spelled = self.server.post("/tokenize", prompt=text, add_special_tokens=False, return_token_strs=True)
            differ += spelled["token_strs"] != [piece for piece in pieces if piece]
        self.assertGreater(differ, 0)  # else the test would say nothing

    def test_an_edited_transcript_is_computed_from_the_edit(self):
        messages = ASK + [{"role": "assistant", "content": "Nothing at all."}, {"role": "user", "content": "Why?"}]
        self.assertEqual(self.server.chat(messages, max_tokens=4)["choices"][0]["finish_reason"] in ("stop", "length"), True)


class Ends(OfServer):
    """Where a reply ends."""

    def test_min_tokens_keeps_a_reply_from_ending(self):
        answer = self.server.chat(ASK, temperature=0, min_tokens=20, max_tokens=30)
        self.assertGreaterEqual(answer["usage"]["completion_tokens"], 20)

    def test_a_reply_that_the_loop_guard_cut_has_no_broken_character_at_its_end(self):
        status, answer = self.server.post("/tokenize", prompt="\U0001f426", add_special_tokens=False)
        first = next(token for token in answer["tokens"] if self.server.post("/detokenize", tokens=[token])[1]["prompt"] == "\ufffd")
        answer = self.server.chat(ASK, temperature=0, max_tokens=200, loop_guard=True, logit_bias={str(first): 100})
        choice = answer["choices"][0]
        self.assertLess(answer["usage"]["completion_tokens"], 200)  # else nothing was cut
        self.assertFalse(choice["message"]["content"].endswith("\ufffd"), choice)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
