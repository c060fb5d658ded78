"""A load that keeps asking while a fleet breaks, and what its answers show: every token checked against one server."""

import collections
import dataclasses
import http.client
import json
import random
import threading
import time

import chats
import continuing

TURNS = 10  # of a sitting; the chat then begins anew


@dataclasses.dataclass
class Answer:
    number: int
    chat: int
    body: dict  # the request, without its stream
    prompt: list  # token ids
    tokens: list
    text: str
    reason: str
    prompt_tokens: int
    cached_tokens: int
    server: str  # by the router's header; of the last request
    begun: float
    ended: float
    errors: list  # what the client saw before the answer
    resumed: int  # times that a stream was continued


class Load:
    """Chats with characters through a router at `address`, `at_once` in flight, every second one as a stream that is
    continued if it breaks off. Until stop(), from the moment of start()."""

    def __init__(self, address, chat_count=40, characters=20, at_once=6, max_tokens=40, seed=1, stall_seconds=8):
        self.address, self.max_tokens, self.stall_seconds = address, max_tokens, stall_seconds
        self.traffic = chats.Traffic(characters, chat_count, requests=0, seed=seed)
        self.dice = random.Random(seed)
        self.lock = threading.Lock()
        self.sent, self.answers, self.failures = 0, [], []
        self.turns = collections.Counter()
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=self._work) for _ in range(at_once)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        """Waits for what was asked. Every request has then an answer, or a failure in `failures`."""
        self.ending.set()
        for thread in self.threads:
            thread.join()

    def wait_for(self, count, seconds=600):
        """Until so many more requests were answered."""
        until, goal = time.monotonic() + seconds, len(self.answers) + count
        while len(self.answers) < goal and time.monotonic() < until and not self.failures:
            time.sleep(0.01)

    def _work(self):
        while not self.ending.is_set():
            with self.lock:
                number, self.sent = self.sent, self.sent + 1
                chat = self.traffic.chats[self.dice.randrange(len(self.traffic.chats))]
                draw, said = self.dice.random(), self.dice.choice(chats.SAID)
            with chat.lock:
                self._turn(number, chat, draw, said)

    def _turn(self, number, chat, draw, said):
        if self.turns[chat.number] % TURNS == 0:
            del chat.messages[1:]
        self.turns[chat.number] += 1
        kind = "say" if len(chat.messages) == 1 else "swipe" if draw < 0.12 else "edit" if draw < 0.15 else "say"
        body = {
            "prompt_cache_key": f"character-{chat.character}",
            "messages": [*chats.prompt_of(chat, kind, said)],
            "max_tokens": self.max_tokens,
            "seed": number,
            "return_token_ids": True,
        }
        try:
            answer = (self._stream if number % 2 else self._whole)(number, chat, body)
        except continuing.Failed as failed:
            self.failures.append((number, str(failed)))
            chat.messages.append({"role": "assistant", "content": "..."})
            return
        chat.messages.append({"role": "assistant", "content": answer.text})
        self.answers.append(answer)

    def _answer(self, number, chat, body, begun, **more):
        return Answer(number, chat.number, body, begun=begun, ended=time.monotonic(), **more)

    def _stream(self, number, chat, body):
        begun = time.monotonic()
        stream = continuing.Stream(self.address, body, self.stall_seconds, attempts=80)
        for _ in stream:
            pass
        usage = stream.usage
        return self._answer(
            number, chat, body, begun,
            prompt=stream.prompt, tokens=stream.tokens, text=stream.text, reason=stream.finish_reason,
            prompt_tokens=usage["prompt_tokens"], cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
            server=stream.answer_headers.get("x-kaiju-server", ""), errors=stream.errors, resumed=stream.resumed,
        )  # fmt: skip

    def _whole(self, number, chat, body, attempts=80):
        begun, errors = time.monotonic(), []
        while True:
            try:
                answer, server = self._post(body)
                break
            except (OSError, http.client.HTTPException, continuing.Broken) as error:
                errors.append(str(error) or type(error).__name__)
                if len(errors) == attempts:
                    raise continuing.Failed(f"{attempts} failures, the last: {errors[-1]}") from error
                time.sleep(0.25 if len(errors) > 1 else 0)
        choice, usage = answer["choices"][0], answer["usage"]
        return self._answer(
            number, chat, body, begun,
            prompt=answer["prompt_token_ids"], tokens=choice["token_ids"], text=choice["message"]["content"],
            reason=choice["finish_reason"], prompt_tokens=usage["prompt_tokens"],
            cached_tokens=usage["prompt_tokens_details"]["cached_tokens"], server=server, errors=errors, resumed=0,
        )  # fmt: skip

    def _post(self, body):
        connection = http.client.HTTPConnection(self.address.split("//")[1], timeout=120)
        try:
            connection.request("POST", continuing.PATH, json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status in (408, 429) or answer.status >= 500:
                raise continuing.Broken(f"{answer.status} {text[:200]!r}")
            if answer.status != 200:
                raise continuing.Failed(f"{answer.status} {text[:200]!r}")
            return json.loads(text), answer.headers.get("x-kaiju-server", "")
        finally:
            connection.close()


def wrong(answers, port):
    """Numbers of the answers that one undisturbed server at `port` does not give. It is asked with the answer's own
    prompt tokens, which it refuses unless they are tokens of the answer's messages."""
    found = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    for answer in sorted(answers, key=lambda one: (one.chat, one.number)):
        body = {**answer.body, "prompt_token_ids": answer.prompt}
        connection.request("POST", continuing.PATH, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        got = json.loads(response.read())
        choice = got["choices"][0] if response.status == 200 else {}
        mine = (choice.get("token_ids"), choice.get("message", {}).get("content"), choice.get("finish_reason"))
        if mine != (answer.tokens, answer.text, answer.reason):
            found.append(answer.number)
    connection.close()
    return found


def hit_rate(answers):
    return sum(answer.cached_tokens for answer in answers) / max(1, sum(answer.prompt_tokens for answer in answers))


def by_turn_after(answers, times, most=4):
    """Hit rate of the second half of what was asked before the first of `times`, and those of all chats' first, second,
    ... turns after the newest of `times`; None without any."""
    groups = collections.defaultdict(list)
    places = {}  # of a chat: which time, turns since
    for answer in sorted(answers, key=lambda one: one.begun):
        newest = sum(time_ <= answer.begun for time_ in times)
        which, place = places.get(answer.chat, (0, 0))
        places[answer.chat] = newest, place + 1 if which == newest else 1
        groups[places[answer.chat][1] if newest else 0].append(answer)
    groups[0] = groups[0][len(groups[0]) // 2 :]
    return [hit_rate(groups[place]) if groups[place] else None for place in range(most + 1)]
