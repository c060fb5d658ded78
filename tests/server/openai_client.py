"""What the tests share that ask kaiju-server through the package openai. Without the package they are skipped."""

import unittest

try:
    import openai
except ImportError:
    openai = None

from running import ASK, OfServer


@unittest.skipIf(openai is None, "the package openai is not installed")
class OfOpenAI(OfServer):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)
        self.model = self.client.models.list().data[0].id

    def create(self, messages=ASK, **options):
        return self.client.chat.completions.create(model=self.model, messages=messages, **{"seed": 1, **options})

    def assert_answers(self):
        """The server generates as it should."""
        answer = self.create(temperature=0)
        self.assertEqual(answer.choices[0].message.content, "I grow blue tomatoes.")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        return answer
