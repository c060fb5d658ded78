"""Three kaiju-servers behind HAProxy on loopback: what caches find while one joins, one leaves, a character is suddenly
everybody's, and a popular card is edited all the time; with KV that moves between the servers, and without.

moves.py SERVER [--model FILE] [--events join,leave,sudden,edits]
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import chats
import files
from fleet import BALANCE_FACTOR, Peers, Router, free_ports

EVENTS = ("join", "leave", "sudden", "edits")
STEP = 5  # seconds from one minute that is looked at to the next
PROMPT_TOKENS = "vllm:prefix_cache_queries_total"  # that a server was asked for
TURNS = 12  # of a chat; then its user begins another


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read().decode()


def wait_until(holds, what, seconds=120):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise files.Refused(what)
        time.sleep(0.05)


def is_healthy(port):
    try:
        return bool(get(port, "/health"))
    except OSError:
        return False


class Fleet:
    """Three places for servers, of which some run, with one store, and HAProxy before them."""

    def __init__(self, arguments, moves, running):
        self.arguments = arguments
        self.folder = tempfile.TemporaryDirectory()
        os.mkdir(os.path.join(self.folder.name, "cards"))
        self.ports = free_ports(3)
        self.peers = Peers(self.ports) if moves else None
        self.servers = {}
        for place in running:
            self.start(place)
            wait_until(lambda: is_healthy(self.ports[place]), "a server did not start")
        self.router = Router([f"127.0.0.1:{port}" for port in self.ports], arguments.balance_factor)
        self.port = self.router.ports[0]

    def start(self, place):
        command = [self.arguments.server, "--port", str(self.ports[place]), "--threads", "1", "--log", "none",
                   "--cache-mib", str(self.arguments.cache_mib), "--kv", "none", "--store",
                   os.path.join(self.folder.name, "store"), "--characters",
                   os.path.join(self.folder.name, "cards")]
        if self.arguments.model:
            command += ["--model", self.arguments.model]
        if self.peers:
            command += [*self.peers.options(self.ports[place]), "--warm", str(self.arguments.characters)]
        self.servers[place] = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def leave(self, place):
        server = self.servers.pop(place)
        server.send_signal(signal.SIGTERM)
        server.wait(120)

    def of_each(self, name):
        """A counter of each server that runs, by its place."""
        texts = {place: get(self.ports[place], "/metrics") for place in self.servers}
        return {place: sum(map(float, re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))) for place, text in texts.items()}

    def total(self, name):
        return sum(self.of_each(name).values())

    def close(self):
        self.router.kill()
        for process in self.servers.values():
            process.kill()
            process.wait()
        self.folder.cleanup()


class Talk:
    """One chat over OpenAI's API."""

    def __init__(self, character, number):
        self.character, self.number = character, number
        self.messages = [{"role": "system", "content": chats.card(character)}]

    def say(self, connection, text, max_tokens):
        self.messages.append({"role": "user", "content": text})
        answer = ask(connection, "/v1/chat/completions", {
            "prompt_cache_key": f"character-{self.character}", "messages": self.messages, "max_tokens": max_tokens,
            "seed": self.number})
        self.messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        usage = answer["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def turns(self):
        return len(self.messages) // 2


def ask(connection, path, body, method="POST"):
    connection.request(method, path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise OSError(f"{answer.status} {text[:200]!r}")
    return json.loads(text)


class Load:
    """Chats with characters by Zipf's law, at a constant rate of messages."""

    def __init__(self, port, arguments):
        self.port, self.arguments = port, arguments
        self.dice = random.Random(arguments.seed)
        self.weights = [1 / rank for rank in range(1, arguments.characters + 1)]
        self.talks = [self.new_talk() for _ in range(arguments.chats)]
        self.busy, self.lock = set(), threading.Lock()
        self.found = []  # when, prompt tokens, cached ones
        self.failed = 0
        self.begin, self.ending = time.monotonic(), False
        self.threads = [threading.Thread(target=self.work) for _ in range(arguments.at_once)]
        self.sent = 0
        for thread in self.threads:
            thread.start()

    def new_talk(self):
        character = self.dice.choices(range(len(self.weights)), self.weights)[0]
        return Talk(character, self.dice.randrange(1 << 30))

    def suddenly(self, character, times):
        """Its share of the talks grows so many times, from now on: other talks end and are of it."""
        with self.lock:
            self.weights[character] *= times
            for place in range(len(self.talks)):
                if place not in self.busy and self.dice.random() < 0.5:
                    self.talks[place] = self.new_talk()

    def next(self):
        with self.lock:
            wait = self.begin + self.sent / self.arguments.rate - time.monotonic()
            self.sent += 1
            free = [place for place in range(len(self.talks)) if place not in self.busy]
            place = self.dice.choice(free)
            if self.talks[place].turns() >= TURNS:
                self.talks[place] = self.new_talk()
            self.busy.add(place)
            return place, self.talks[place], self.dice.choice(chats.SAID), wait

    def work(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        while not self.ending:
            place, talk, text, wait = self.next()
            time.sleep(max(0.0, wait))
            try:
                prompt, cached = talk.say(connection, text, self.arguments.max_tokens)
                self.found.append((time.monotonic(), prompt, cached))
            except (OSError, http.client.HTTPException):
                connection.close()
                talk.messages.pop()
                self.failed += 1
            with self.lock:
                self.busy.discard(place)

    def end(self):
        self.ending = True
        for thread in self.threads:
            thread.join()

    def hit_rate(self, begin, end):
        inside = [(prompt, cached) for when, prompt, cached in self.found if begin <= when < end]
        return sum(cached for _, cached in inside) / max(1, sum(prompt for prompt, _ in inside))

    def worst_minute(self, begin, end, minute):
        steps = max(1, int((end - begin - minute) / STEP) + 1)
        return min(self.hit_rate(begin + i * STEP, begin + i * STEP + minute) for i in range(steps))


# --- what happens


def edit_all_the_time(fleet, load, arguments, ends):
    """A popular card of the store is edited while stored chats of it go on. The store's chats are beside the load."""
    connection = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=120)
    text = chats.card(0).partition("\n")[2]
    made = ask(connection, "/characters", {"name": "Edited", "description": text})["id"]
    talks = [ask(connection, "/chats", {"character": made})["id"] for _ in range(8)]
    begin = time.monotonic()
    for edit in range(arguments.edits):
        try:
            ask(connection, f"/characters/{made}", {"name": "Edited", "description": f"Edit {edit}. {text}"}, "PUT")
            if edit % 4 == 0:
                talks[edit // 4 % 8] = talks[edit // 4 % 8] if edit % 32 else ask(
                    connection, "/chats", {"character": made})["id"]
                answer = ask(connection, f"/chats/{talks[edit // 4 % 8]}/say",
                             {"text": random.Random(edit).choice(chats.SAID), "max_tokens": arguments.max_tokens})
                load.found.append((time.monotonic(), answer["prompt_tokens"], answer["cached_tokens"]))
        except (OSError, http.client.HTTPException):
            connection.close()
            load.failed += 1
        time.sleep(max(0.0, begin + (edit + 1) * (ends - begin) / arguments.edits - time.monotonic()))


def measure(arguments, event, moves):
    minute = arguments.minute
    fleet = Fleet(arguments, moves, (0, 1) if event == "join" else (0, 1, 2))
    with contextlib.ExitStack() as stack:
        stack.callback(fleet.close)
        load = Load(fleet.port, arguments)
        stack.callback(load.end)
        time.sleep(arguments.warm_up + 2 * minute)
        now = time.monotonic()
        before = load.hit_rate(now - 2 * minute, now)
        usual = load.worst_minute(now - 2 * minute, now, minute)
        end = now + 2 * minute
        asked = fleet.of_each(PROMPT_TOKENS)
        if event == "join":
            fleet.start(2)
        elif event == "leave":
            fleet.leave(2)
        elif event == "sudden":
            load.suddenly(arguments.characters // 4, 50)
        else:
            edit_all_the_time(fleet, load, arguments, end)
        time.sleep(max(0.0, end - time.monotonic()))
        worst = load.worst_minute(now, end, minute)
        loads = [tokens - asked.get(place, 0) for place, tokens in fleet.of_each(PROMPT_TOKENS).items()]
        return {"load_most_over_mean": max(loads) * len(loads) / max(1, sum(loads)), "before": before, "worst_minute_before": usual, "worst_minute": worst, "failed": load.failed,
                "requests": len(load.found), "moved_mib": fleet.total("kaiju_moved_in_bytes_total") / (1 << 20)}


def count_edits(arguments, pinned):
    """Prompt tokens that one server computes while 40 chats of a card go on and the card is edited all the time: chats
    keep the version that they began with, or all follow the newest one."""
    fleet = Fleet(arguments, False, (0,))
    with contextlib.ExitStack() as stack:
        stack.callback(fleet.close)
        connection = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=120)
        dice = random.Random(arguments.seed)
        name, _, text = chats.card(0).partition("\n")
        made = ask(connection, "/characters", {"name": name, "description": text})["id"]
        stored = [ask(connection, "/chats", {"character": made})["id"] for _ in range(40)]
        talks = [Talk(0, number) for number in range(40)]
        for edit in range(arguments.edits):
            newest = f"Edit {edit}. {text}"
            ask(connection, f"/characters/{made}", {"name": name, "description": newest}, "PUT")
            place = dice.randrange(40)
            if pinned:
                ask(connection, f"/chats/{stored[place]}/say",
                    {"text": dice.choice(chats.SAID), "max_tokens": arguments.max_tokens})
            else:
                talks[place].messages[0]["content"] = f"{name}\n{newest}"
                talks[place].say(connection, dice.choice(chats.SAID), arguments.max_tokens)
        return fleet.total("kaiju_tokens_prefilled_total")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", metavar="SERVER", help="the program kaiju-server")
    parser.add_argument("--model", metavar="FILE")
    parser.add_argument("--events", default=",".join(EVENTS), help="what happens, with commas between")
    parser.add_argument("--moves-only", action="store_true", help="not the same without moves, beside it")
    parser.add_argument("--json", action="store_true")
    for name, value, text in [
        ("cache-mib", 64, "KV of each server"), ("characters", 60, "chosen by Zipf's law"),
        ("chats", 60, "under way at once"), ("at-once", 6, "most requests in flight"), ("rate", 4, "messages a second"),
        ("max-tokens", 12, "of a reply"), ("minute", 60, "seconds of a minute"), ("warm-up", 120, "seconds before"),
        ("edits", 300, "of the popular card, in two minutes"),
        ("balance-factor", BALANCE_FACTOR, "HAProxy's hash-balance-factor; 0: none"), ("seed", 1, "of the traffic"),
    ]:
        parser.add_argument("--" + name, type=int, default=value, metavar="N", help=f"{text} ({value})")
    arguments = parser.parse_args()
    rows, counted = {}, {}
    try:
        for event in arguments.events.split(","):
            if event not in EVENTS:
                raise files.Refused(f"there is no event {event}: choose among {', '.join(EVENTS)}")
            for moves in (True,) if arguments.moves_only else (True, False):
                print(f"{event}, {'KV moves' if moves else 'without'} ...", file=sys.stderr)
                rows[f"{event}, {'KV moves' if moves else 'without'}"] = measure(arguments, event, moves)
        if "edits" in arguments.events and not arguments.moves_only:
            counted = {name: count_edits(arguments, pinned) for name, pinned in
                       (("chats keep their version", True), ("all follow the newest", False))}
    except files.Refused as refused:
        sys.exit(f"moves.py: {refused}")
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':<24}{'before':>9}{'its worst minute':>18}{'worst minute after':>20}{'load':>7}{'failed':>8}{'moved MiB':>11}")
    for name, row in rows.items():
        print(f"{name:<24}{100 * row['before']:>8.2f}%{100 * row['worst_minute_before']:>17.2f}%"
              f"{100 * row['worst_minute']:>19.2f}%{row['load_most_over_mean']:>7.2f}{row['failed']:>8}{row['moved_mib']:>11.1f}")
    print("load, after: prompt tokens of the busiest server, divided by the mean")
    for name, tokens in counted.items():
        print(f"{arguments.edits} edits and messages, {name}: {tokens:,.0f} prompt tokens computed")


if __name__ == "__main__":
    main()
