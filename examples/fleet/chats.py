"""Chats with many characters over OpenAI's API, and what servers say that they found in their caches."""

import collections
import http.client
import json
import random
import threading

NAMES = ("Wren", "Silas", "Pip", "Odile", "Bram", "Tamsin", "Ivo", "Maud", "Corin", "Nessa")
JOBS = (
    "a travelling hedge witch",
    "a lighthouse keeper",
    "a robot who keeps a garden",
    "a baker in a harbour town",
    "a clockmaker",
    "a ferryman",
    "a beekeeper on a hill",
    "a mapmaker",
    "a stable hand",
    "a teller of tales",
)
LIKES = (
    "blue tomatoes",
    "old maps",
    "rain on the roof",
    "apple bread",
    "brass bells",
    "slow rivers",
    "honey",
    "chess",
    "grey horses",
    "long winters",
)
SAID = (
    "Hello! How are you?",
    "What do you do all day?",
    "What do you like best?",
    "Where do you live?",
    "Tell me about your friends.",
    "What are you afraid of?",
    "I walked here from the town.",
    "It is cold today.",
    "What did you eat this morning?",
    "Do you remember what I told you?",
    "Good night!",
    "What is your name?",
)


class Counts:
    def __init__(self):
        self.lock = threading.Lock()
        self.requests, self.prompt, self.cached, self.failed = 0, 0, 0, 0
        self.by_server = collections.Counter()
        self.replies = {}

    def hit_rate(self):
        return self.cached / max(1, self.prompt)


def card(number):
    """A character's card: some 300 tokens of the bundled model, different from the first words on."""
    dice = random.Random(number)
    name = f"{NAMES[number % 10]} {number}"
    lines = [f"{name} is {JOBS[number // 10 % 10]} who lives in house {number}."]
    while len(lines) < 16:
        lines.append(
            f"{name} {dice.choice(('likes', 'keeps', 'sells', 'dreams of', 'sings of'))} {dice.choice(LIKES)} and "
            f"{dice.choice(LIKES)}."
        )
    return f"{name}\n" + " ".join(lines)


class Chat:
    def __init__(self, number, character):
        self.number, self.character = number, character
        self.messages = [{"role": "system", "content": card(character)}]
        self.turn = 0
        self.lock = threading.Lock()


class Traffic:
    """A list of what happens, decided by the seed before anything is sent: (chat, kind, text)."""

    def __init__(self, characters=200, chats=300, requests=1800, swipe=0.12, edit=0.03, seed=1):
        dice = random.Random(seed)
        weights = [1 / rank for rank in range(1, characters + 1)]
        self.chats = [
            Chat(i, character) for i, character in enumerate(dice.choices(range(characters), weights, k=chats))
        ]
        self.events = []
        begun = set()
        for _ in range(requests):
            chat, draw = dice.randrange(chats), dice.random()
            kind = "say" if chat not in begun else "swipe" if draw < swipe else "edit" if draw < swipe + edit else "say"
            begun.add(chat)
            self.events.append((chat, kind, dice.choice(SAID)))


def prompt_of(chat, kind, text):
    """The chat's messages for this event. A swipe asks for the newest reply again; an edit rewrites the message that it
    answers."""
    if kind in ("swipe", "edit"):
        chat.messages.pop()  # the reply
        if kind == "edit":
            chat.messages[-1] = {"role": "user", "content": text}
    else:
        chat.messages.append({"role": "user", "content": text})
    return chat.messages


def ask(connection, chat, event_number, max_tokens):
    body = json.dumps(
        {
            "prompt_cache_key": f"character-{chat.character}",
            "session_params": {"session_id": f"character-{chat.character}"},  # where vllm-router looks for one
            "messages": chat.messages,
            "model": "any",
            "max_tokens": max_tokens,
            "seed": event_number,
        }
    )
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise OSError(f"{answer.status} {text[:200]!r}")
    return json.loads(text)


def run(port, traffic, at_once=6, max_tokens=16, patience=3):
    """Sends the events in their order, at most so many at once and one of a chat at a time."""
    counts, events, order = Counts(), iter(enumerate(traffic.events)), threading.Lock()

    def worker():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        while True:
            with order:
                event = next(events, None)
                if event is None:
                    return
                number, (at, kind, text) = event
                chat = traffic.chats[at]
                chat.lock.acquire()  # in the order of events, as `order` is held
            try:
                prompt_of(chat, kind, text)
                for left in reversed(range(patience)):
                    try:
                        answer = ask(connection, chat, number, max_tokens)
                        break
                    except (OSError, http.client.HTTPException):
                        connection.close()
                        with counts.lock:
                            counts.failed += 1
                        if left == 0:
                            raise
                reply = answer["choices"][0]["message"]["content"]
                chat.messages.append({"role": "assistant", "content": reply})
                usage = answer["usage"]
                with counts.lock:
                    counts.requests += 1
                    counts.prompt += usage["prompt_tokens"]
                    counts.cached += usage["prompt_tokens_details"]["cached_tokens"]
                    counts.replies[number] = reply
            finally:
                chat.lock.release()

    threads = [threading.Thread(target=worker) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts
