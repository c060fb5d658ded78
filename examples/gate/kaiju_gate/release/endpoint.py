"""A judge behind any endpoint that speaks OpenAI's chat protocol, kaiju-server's included."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
from typing import Any, Sequence

from ..progress import Progress
from ..wrong import Wrong
from .playing import Played
from .verdicts import ASPECTS, LEAST, MOST, Verdict

_AT_ONCE = 8
_TRIES = 3  # for an answer in the form that was asked for; the client itself repeats what the network lost
_RUBRIC = """You score how well an actor stays in character. You read a character's card and a conversation, and score
the character's lines from 1 (broken) to 5 (flawless):
- speech: the lines sound like this character, make sense, and answer what was said. Length is no merit.
- backstory: what the lines say agrees with the card and with what the user told; facts that are asked for are given.
- goals: the character wants what the card says it wants.
Do not reward agreeing with the user. Answer with JSON alone: {"speech": 4, "backstory": 5, "goals": 3}"""
_SCORE = {"type": "integer", "minimum": int(LEAST), "maximum": int(MOST)}
_SCHEMA = {
    "type": "object",
    "properties": dict.fromkeys(ASPECTS, _SCORE),
    "required": list(ASPECTS),
    "additionalProperties": False,
}


def _transcript(played: Played) -> str:
    name = played.conversation.card.split("\n")[0]
    lines = [f"{name if role == 'character' else 'User'}: {text}" for role, text in played.messages()[1:]]
    return f"CARD\n{played.conversation.card}\n\nCONVERSATION\n" + "\n".join(lines)


def _verdict(text: str) -> Verdict | None:
    """The first JSON object of a text, if it is three scores."""
    found = re.search(r"\{.*?\}", text, re.S)
    try:
        scores = json.loads(found[0]) if found else {}
        values = [float(scores[aspect]) for aspect in ASPECTS]
    except (ValueError, KeyError, TypeError):
        return None
    return Verdict(*values) if all(LEAST <= value <= MOST for value in values) else None


class Endpoint:
    """Asks `model` at `url`. The key is OPENAI_API_KEY of the environment."""

    def __init__(self, url: str, model: str):
        try:
            import openai
        except ImportError:
            raise Wrong("--judge-url asks with the package openai, which is missing: pip install openai") from None
        self._openai, self._model, self.name = openai, model, model
        key = os.environ.get("OPENAI_API_KEY", "none")
        self._client = openai.OpenAI(base_url=url, api_key=key, max_retries=3, timeout=120)
        self._form: dict[str, Any] = {
            "type": "json_schema",
            "json_schema": {"name": "scores", "strict": True, "schema": _SCHEMA},
        }

    def _ask(self, transcript: str, seed: int, form: dict[str, Any]) -> str:
        options: dict[str, Any] = {"response_format": form} if form else {}
        messages = [{"role": "system", "content": _RUBRIC}, {"role": "user", "content": transcript}]
        answer = self._client.chat.completions.create(
            model=self._model, messages=messages, temperature=0, seed=seed, max_tokens=100, **options
        )
        return answer.choices[0].message.content or ""

    def _answer(self, transcript: str, seed: int) -> str:
        form = self._form  # other threads may find out meanwhile that the endpoint knows no schemas
        try:
            return self._ask(transcript, seed, form)
        except self._openai.BadRequestError as error:
            if not form:
                raise Wrong(f"the judge {self._model} refuses: {error}") from None
        self._form = {}  # the rubric asks for the same
        return self._answer(transcript, seed)

    def _one(self, played: Played) -> Verdict:
        text = ""
        for seed in range(_TRIES):
            try:
                text = self._answer(_transcript(played), seed)
            except self._openai.OpenAIError as error:
                raise Wrong(f"the judge {self._model} does not answer: {error}") from None
            verdict = _verdict(text)
            if verdict:
                return verdict
        raise Wrong(f"the judge {self._model} says {text[:100]!r}, and not three scores from 1 to 5")

    def __call__(self, played: Sequence[Played]) -> list[Verdict]:
        found = []
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool, Progress("judging", len(played)) as progress:
            try:
                for verdict in pool.map(self._one, played):
                    found.append(verdict)
                    progress.add()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return found
