"""Streams of chat completions that survive the loss of their server: what a broken stream has begun is continued
elsewhere, from its tokens so far, with the same tokens that it would have had.

    for piece in continuing.Stream("http://127.0.0.1:8080", {"messages": [...], "seed": 7}):
        print(piece, end="")

The address is that of a router, or of any of several servers with the same checkpoint. A seed is drawn where the body
has none. Standard library only.
"""

import http.client
import json
import random
import socket
import time
import urllib.parse

PATH = "/v1/chat/completions"


class Failed(Exception):
    """An answer that asking again does not change, or too many failures in a row."""


class Broken(Exception):
    """A stream ended too early, or an answer says to ask again."""


class Stream:
    """The pieces of a reply's text. Then `text`, `tokens` and `finish_reason` are those of the whole reply, `usage` is
    that of its last request, whose headers are `answer_headers`; `resumed` counts how often it was continued, and
    `errors` says why, and why requests failed before they had begun.

    `addresses`: one, or several that are asked in turn. `stall_seconds`: a stream that is silent for so long is broken
    off, as its server may have stopped; None: never. `attempts`: failures in a row that are the end. `pause_seconds`:
    before the second and each later attempt. `from_tokens` False: the reply is generated again from its beginning."""

    def __init__(self, addresses, body, stall_seconds=30, attempts=8, pause_seconds=0.25, from_tokens=True, headers=None):
        self.addresses = [addresses] if isinstance(addresses, str) else list(addresses)
        self.body = {**body, "stream": True, "return_token_ids": True, "stream_options": {"include_usage": True}}
        if self.body.get("seed") is None:
            self.body["seed"] = random.getrandbits(63)
        self.stall_seconds, self.attempts, self.pause_seconds = stall_seconds, attempts, pause_seconds
        self.from_tokens, self.headers = from_tokens, headers or {}
        self.text, self.tokens, self.prompt = "", [], None
        self.finish_reason, self.usage, self.resumed = None, None, 0
        self.errors, self.answer_headers = [], {}

    def __iter__(self):
        failures, asked = 0, 0
        while self.finish_reason is None:
            known = len(self.tokens)
            try:
                yield from self._once(self.addresses[asked % len(self.addresses)])
            except (Broken, OSError, http.client.HTTPException) as error:
                self.errors.append(str(error) or type(error).__name__)
                failures = 1 if len(self.tokens) > known else failures + 1
                if failures >= self.attempts:
                    raise Failed(f"{failures} failures in a row, the last: {error!r}") from error
                if failures > 1:
                    time.sleep(self.pause_seconds)
                self.resumed += bool(self.tokens)
            asked += 1

    def _request(self):
        body = dict(self.body)
        if self.prompt is not None:
            body["prompt_token_ids"] = self.prompt
            if self.tokens and self.from_tokens:
                body["reply_token_ids"] = self.tokens
        return json.dumps(body)

    def _once(self, address):
        """One request: yields what is new of its text."""
        where = urllib.parse.urlsplit(address)
        kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        connection = kind(where.hostname, where.port, timeout=self.stall_seconds)
        try:
            connection.request("POST", where.path + PATH, self._request(), {"content-type": "application/json", **self.headers})
            answer = connection.getresponse()
            self.answer_headers = {name.lower(): value for name, value in answer.getheaders()}
            if answer.status != 200:
                self._refused(answer)
            yield from self._events(answer)
        except socket.timeout as error:
            raise Broken(f"nothing came for {self.stall_seconds} s") from error
        finally:
            connection.close()

    def _refused(self, answer):
        text = answer.read().decode(errors="replace")
        try:
            error = json.loads(text)["error"]
        except (ValueError, KeyError, TypeError):
            error = {}
        if error.get("code") == "not_continuable" and self.from_tokens:
            self.from_tokens = False  # the same reply comes again, from its beginning
        elif answer.status not in (408, 429) and answer.status < 500:
            raise Failed(f"{answer.status}: {error.get('message', text[:200])}")
        raise Broken(f"{answer.status}: {error.get('message', text[:200])}")

    def _events(self, answer):
        text, tokens, reason = "", [], None
        while True:
            line = answer.readline()
            if not line:
                raise Broken("the stream broke off")
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                break
            event = json.loads(line[6:])
            if "error" in event:
                wrong = event["error"].get("code") == "other_reply"
                raise (Failed if wrong else Broken)(event["error"].get("message", "the server failed"))
            if event.get("prompt_token_ids") and self.prompt is None:
                self.prompt = event["prompt_token_ids"]
            self.usage = event.get("usage") or self.usage
            for choice in event.get("choices", ()):
                text += choice["delta"].get("content") or ""
                tokens += choice.get("token_ids") or []
                reason = choice.get("finish_reason") or reason
            if reason == "abort":
                raise Broken("the server ended the reply")
            yield from self._take(text, tokens)
        if reason is None:
            raise Broken("the stream had no end")
        if len(tokens) < len(self.tokens):
            raise Failed("a continued reply has fewer tokens than before")
        self.finish_reason = reason

    def _take(self, text, tokens):
        """A stream begins with what is known already."""
        known = min(len(tokens), len(self.tokens))
        if tokens[:known] != self.tokens[:known] or not (text.startswith(self.text) or self.text.startswith(text)):
            raise Failed("a continued reply has other tokens than before")
        if len(tokens) > known:
            self.tokens = list(tokens)
        if len(text) > len(self.text):
            new, self.text = text[len(self.text) :], text
            yield new
