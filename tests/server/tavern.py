"""A session as SillyTavern has it with a server of OpenAI's older API: the whole prompt as a text with each request, its
sampling fields, swipes by asking again, a lorebook whose entries come into the prompt when a word is said. Prints what
share of each prompt was reused, and asks everything again, alone and beside others: the replies must be equal.

    tavern.py KAIJU_SERVER MODEL
"""

import concurrent.futures
import json
import sys
import unittest

from running import OfServer, png_card

CARD = {
    "spec": "chara_card_v2",
    "spec_version": "2.0",
    "data": {
        "name": "Pip",
        "description": "Pip is a robot who keeps a garden behind the mill. Pip grows blue tomatoes. Pip is afraid of snails.",
        "personality": "patient, proud of the garden",
        "scenario": "It rains. Ann stands at the gate.",
        "first_mes": "Beep! Mind the seedlings.",
        "mes_example": "<START>\nAnn: Is this your garden?\nPip: It is. Every tomato in it is blue.",
        "character_book": {
            "entries": [
                {"keys": ["mill"], "content": "The mill belongs to old Barnaby, who never sleeps.", "enabled": True, "insertion_order": 1,
                 "extensions": {}},
                {"keys": ["snail"], "content": "The snails come at night, by the hundred.", "enabled": True, "insertion_order": 2,
                 "extensions": {}},
            ]
        },
    },
}
SAID = ["Who are you?", "What do you grow?", "May I have one?", "Who owns the mill?", "Does he like the garden?",
        "What are you afraid of?", "I saw a snail at the gate.", "Shall I chase it away?", "Good night, Pip."]
# What SillyTavern sends beside the prompt, with its neutral values.
FIELDS = {
    "max_new_tokens": 40, "max_tokens": 40, "temperature": 0.8, "top_p": 0.95, "typical_p": 1, "typical": 1, "min_p": 0.02,
    "repetition_penalty": 1.05, "frequency_penalty": 0, "presence_penalty": 0, "top_k": 40, "skew": 0, "min_tokens": 0,
    "length_penalty": 1, "early_stopping": False, "add_bos_token": True, "dynamic_temperature": False, "dynatemp_low": 1,
    "dynatemp_high": 1, "dynatemp_range": 0, "dynatemp_exponent": 1, "smoothing_factor": 0, "smoothing_curve": 1,
    "dry_allowed_length": 2, "dry_multiplier": 0, "dry_base": 1.75, "dry_sequence_breakers": "[\"\\n\"]", "dry_penalty_last_n": 0,
    "max_tokens_second": 0, "stopping_strings": ["\nAnn:"], "stop": ["\nAnn:", "\n"], "truncation_length": 2048,
    "ban_eos_token": False, "skip_special_tokens": True, "include_stop_str_in_output": False, "top_a": 0, "tfs": 1,
    "mirostat_mode": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "custom_token_bans": "", "banned_strings": [],
    "xtc_threshold": 0.1, "xtc_probability": 0, "nsigma": 0, "guidance_scale": 1, "negative_prompt": "", "grammar_string": "",
    "sampler_order": [6, 0, 1, 3, 4, 2, 5], "ignore_eos": False, "spaces_between_special_tokens": True, "n": 1,
}


class Tavern(OfServer):
    def prompt(self, history):
        """The story, the history, and the entries of the lorebook that its last four lines call up, at depth 4 as usual."""
        data = CARD["data"]
        story = f"{data['description']}\nPip's personality: {data['personality']}\n{data['scenario']}\n{data['mes_example'][8:]}\n***\n"
        lines = [f"{name}: {text}" for name, text in history]
        recent = " ".join(lines[-4:]).lower()
        lore = [one["content"] for one in data["character_book"]["entries"] if any(key in recent for key in one["keys"])]
        lines[max(len(lines) - 4, 0):max(len(lines) - 4, 0)] = lore
        return story + "\n".join(lines) + "\nPip:", len(lore)

    def complete(self, prompt, seed):
        status, answer = self.server.post("/v1/completions", prompt=prompt, seed=seed, **FIELDS)
        self.assertEqual(status, 200, answer)
        usage = answer["usage"]
        return answer["choices"][0]["text"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def session(self):
        """(prompt, seed, reply) of every request, and the rows of the table."""
        history, asked, rows = [("Pip", CARD["data"]["first_mes"])], [], []
        for turn, text in enumerate(SAID):
            history.append(("Ann", text))
            prompt, lore = self.prompt(history)
            for swipe in range(2 if turn % 3 == 1 else 1):
                reply, tokens, cached = self.complete(prompt, 100 * turn + swipe)
                asked.append((prompt, 100 * turn + swipe, reply))
                rows.append((turn, swipe, lore, tokens, cached))
            history.append(("Pip", reply.strip()))
        return asked, rows

    def test_a_session_reuses_its_prompts_and_gives_the_same_replies_again(self):
        status, _, text = self.server.ask("POST", "/characters", png_card(CARD), {"content-type": "image/png"})
        self.assertEqual(status, 201, text)
        print("\n".join(["", *json.loads(text)["notes"]]))
        asked, rows = self.session()
        print("\nturn  swipe  lore  prompt  reused  share")
        for turn, swipe, lore, tokens, cached in rows:
            print(f"{turn:4}  {swipe:5}  {lore:4}  {tokens:6}  {cached:6}  {100 * cached / tokens:4.0f}%")
            if swipe:  # the same prompt again
                self.assertGreaterEqual(cached, tokens - 1)
        tokens, cached = sum(row[3] for row in rows), sum(row[4] for row in rows)
        print(f"all{'':17}{tokens:6}  {cached:6}  {100 * cached / tokens:4.0f}%")
        for prompt, seed, reply in asked:
            self.assertEqual(self.complete(prompt, seed)[0], reply)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            others = [pool.submit(self.complete, f"{i} " * 40, i) for i in range(24)]
            again = list(pool.map(lambda one: self.complete(*one[:2])[0], asked * 2))
            for other in others:
                other.result()
        self.assertEqual(again, [reply for _, _, reply in asked] * 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
