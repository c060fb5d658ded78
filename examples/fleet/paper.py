"""kaiju-fleet's formulas beside a fleet on loopback: steps of this machine are measured, then the fleet, under a load that
comes by itself (Poisson) and under one that fills every slot.

paper.py KAIJU_SERVER KAIJU_BENCH MODEL [--json]

Wants a quiet machine of six cores or more, and HAProxy, unless --no-router says that the client chooses the servers.
Takes four minutes.
"""

import argparse
import collections
import dataclasses
import http.client
import json
import math
import multiprocessing
import os
import queue
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
import zlib

import chats
import continuing
import files
import model
import stepped
from fleet import Router, Server

TURNS = 6  # of a sitting; the chat then begins anew
CONTEXT = 384  # of the timed steps: near that of the load's prompts
SLOTS = 16
CLIENTS = 4  # processes that ask each server: one would be slower than the server
AT_ONCE = (1, 2, 4, 8, 16)
PROMPTS = (16, 64, 256)
REQUESTS = 300  # to see what one takes besides its steps
PARTS = (0.3, 0.6)  # of the messages that the busiest server takes with every slot taken


def milliseconds(arguments):
    """Of steps with one thread, by kaiju-bench: by kind and rows, the shorter of two measurements."""
    command = [arguments.bench, "step", arguments.model, "--threads", "1", "--json", "--seconds", str(arguments.step_seconds)]
    command += ["--streams", *map(str, AT_ONCE), "--beside", *map(str, PROMPTS), "--context", str(CONTEXT), "--prompts", "256"]
    of = {}
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise files.Refused(f"{arguments.bench} failed: {done.stderr[-300:]}")
        for line in json.loads(done.stdout)["lines"]:
            kind = line["operation"], line["rows"]
            of[kind] = min(of.get(kind, math.inf), line["microseconds"] / 1e3)
    return of


def measured_steps(arguments):
    """A machine as h200.json describes one: this machine's steps with one thread."""
    of = milliseconds(arguments)
    decode = [of["decode", streams] for streams in AT_ONCE]
    extra = [[of["mixed", n + tokens] - alone for tokens in PROMPTS] for n, alone in zip(AT_ONCE, decode)]
    kv = {"bytes_per_token": 256, "window_bytes": 524288, "window_tokens": 0, "window_read_bytes_per_token": 0}
    kv |= {"read_bytes_per_token": 0, "read_bytes_per_second": 1e9, "memory_bytes": 64 << 20}  # contexts are those of the steps
    return {
        "name": "one core of this machine, bundled model",
        "decode": {"context": CONTEXT, "streams": list(AT_ONCE), "ms": decode},
        "prompts": {"streams": list(AT_ONCE), "tokens": list(PROMPTS), "extra_ms": extra, "ms_per_token": of["prefill", 256] / 256},
        "service_factor": 1.0, "step_tokens": 256, "slots": SLOTS, "kv": kv,
        "price_per_hour": 0, "hours_between_failures": 1, "hours_to_repair": 0,
    }  # fmt: skip


@dataclasses.dataclass
class Told:
    server: str
    sent: float
    first: float
    ended: float
    prompt_tokens: int
    cached_tokens: int
    reply_tokens: int


def ask(address, body):
    """One stream, timed."""
    connection = http.client.HTTPConnection(address.split("//")[1], timeout=300)
    sent, first, usage = time.monotonic(), None, None
    text = []
    connection.request("POST", continuing.PATH, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise files.Refused(f"{answer.status} {answer.read()[:200]!r}")
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        for choice in event["choices"]:
            if choice.get("token_ids") and first is None:
                first = time.monotonic()
            text.append(choice["delta"].get("content") or "")
        usage = event.get("usage") or usage
    ended, server = time.monotonic(), answer.headers.get("x-kaiju-server", address)
    connection.close()
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return "".join(text), Told(server, sent, first or ended, ended, usage["prompt_tokens"], cached, usage["completion_tokens"])


class Client:
    """A part of the chats, which are asked about at random, each one request at a time."""

    def __init__(self, where, part, arguments):
        self.where, self.arguments, self.dice = where, arguments, random.Random(arguments.seed + part)
        self.chats = chats.Traffic(arguments.characters, arguments.chats, 0, seed=arguments.seed).chats[part :: CLIENTS * arguments.servers]
        self.turns, self.lock, self.told, self.number = collections.Counter(), threading.Lock(), [], part << 32

    def one(self):
        with self.lock:
            chat = self.dice.choice([chat for chat in self.chats if not chat.lock.locked()])
            chat.lock.acquire()
            said, self.number = self.dice.choice(chats.SAID), self.number + 1
            number = self.number
        try:
            if self.turns[chat.number] % TURNS == 0:
                del chat.messages[1:]
            self.turns[chat.number] += 1
            chat.messages.append({"role": "user", "content": said})
            text, told = ask(self.where(chat), self.body(chat, number))
            chat.messages.append({"role": "assistant", "content": text})
            self.told.append(told)
        finally:
            chat.lock.release()

    def body(self, chat, number):
        return {"prompt_cache_key": f"character-{chat.character}", "messages": chat.messages, "seed": number, "stream": True,
                "max_tokens": self.arguments.max_tokens, "ignore_eos": True, "return_token_ids": True,
                "stream_options": {"include_usage": True}}  # fmt: skip

    def loaded(self, seconds, rate):
        """Asks for so long, `rate` times a second (Poisson), or with every slot taken. What was sent in the first
        quarter does not count. Returns what counts."""
        due, begun = queue.Queue(), time.monotonic()
        ending = begun + seconds

        def work():
            while due.get() is not None if rate else time.monotonic() < ending:
                self.one()

        self.told = []
        threads = [threading.Thread(target=work) for _ in range((2 * SLOTS if rate else SLOTS) // CLIENTS)]
        for thread in threads:
            thread.start()
        at = begun
        while rate and (at := at + self.dice.expovariate(rate)) < ending:
            time.sleep(max(0, at - time.monotonic()))
            due.put(1)
        for thread in threads:
            due.put(None)
        for thread in threads:
            thread.join()
        return [told for told in self.told if begun + seconds / 4 <= told.sent <= ending]


def loads(where, phases, arguments):
    """What is told of each phase (seconds, rate or None) by clients in processes of their own, CLIENTS for each server."""
    context = multiprocessing.get_context("fork")

    def play(part, pipe):
        client = Client(where, part, arguments)
        pipe.send([client.loaded(seconds, rate and rate / count) for seconds, rate in phases])

    count, pipes = CLIENTS * arguments.servers, []
    for part in range(count):
        mine, its = context.Pipe()
        process = context.Process(target=play, args=(part, its))
        process.start()
        its.close()
        pipes.append((mine, process))
    parts = []
    for mine, process in pipes:
        try:
            parts.append(mine.recv())
        except EOFError as error:
            raise files.Refused("a client failed") from error
        process.join()
    return [sum((part[phase] for part in parts), []) for phase in range(len(phases))]


def running_and_steps(address):
    """When, requests with a first token that have not ended, and steps so far, by a server's metrics."""
    text = urllib.request.urlopen(f"http://{address}/metrics", timeout=30).read().decode()
    value = {line.split("{")[0]: float(line.split()[-1]) for line in text.splitlines() if not line.startswith("#")}
    return time.monotonic(), value["vllm:num_requests_running"], value["kaiju_steps_total"]


def ask_at_once(address, streams, max_tokens):
    body = {"messages": [{"role": "system", "content": chats.card(1)}, {"role": "user", "content": "Go on."}], "seed": 1,
            "max_tokens": max_tokens, "ignore_eos": True, "stream": True, "return_token_ids": True,
            "stream_options": {"include_usage": True}}  # fmt: skip
    threads = [threading.Thread(target=ask, args=(f"http://{address}", body)) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def service_factor(machine, servers):
    """How much longer a step takes in a fleet at work than in the benchmark: steps of servers that all have as many
    streams, by their own count while all streams ran. The median."""
    factors = []
    for streams in (1, *AT_ONCE):  # the first time computes the prompt
        processes = [multiprocessing.get_context("fork").Process(target=ask_at_once, args=(server.address, streams, 256)) for server in servers]
        for process in processes:
            process.start()
        seen = collections.defaultdict(list)
        while any(process.is_alive() for process in processes):
            for server in servers:
                when, running, steps = running_and_steps(server.address)
                if running == streams:
                    seen[server].append((when, steps))
            time.sleep(0.05)
        for of_server in seen.values():
            seconds, steps = (last - first for first, last in zip(of_server[0], of_server[-1]))
            if steps >= 64:
                factors.append(seconds / steps / model.decode_s(machine, streams, CONTEXT))
    if len(factors) < len(servers) * len(AT_ONCE) / 2:
        raise files.Refused("the streams seldom ran together: this machine is too busy")
    return statistics.median(factors)


def request_seconds(machine, server):
    """What requests take besides their steps, from this client to their first event: connections, HTTP, text to tokens. One
    after the other to a server that does nothing else."""
    rest = []
    for number in range(REQUESTS):
        body = {"messages": [{"role": "system", "content": chats.card(2)}, {"role": "user", "content": chats.SAID[number % len(chats.SAID)]}],
                "seed": number, "max_tokens": 2, "ignore_eos": True, "stream": True, "return_token_ids": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        told = ask(f"http://{server.address}", body)[1]
        steps = model.decode_s(machine, 1, CONTEXT) + model.prompt_s(machine, 1, told.prompt_tokens - told.cached_tokens)
        rest.append(max(0.0, told.first - told.sent - steps))
    return rest[10:]  # the first ones compute the card


def traffic_of(told):
    """What the paper's formulas ask for, of a machine's requests: lengths and what caches found."""
    prompt = statistics.fmean(one.prompt_tokens for one in told)
    found = sum(one.cached_tokens for one in told) / sum(one.prompt_tokens for one in told)
    own = min(prompt * (1 - found), statistics.median(one.prompt_tokens - one.cached_tokens for one in told))
    return files.traffic(
        card_tokens=prompt - own, turns=0, user_tokens=max(1, own), hit_rate=found, p99_ms=1e9, p50_ms=1e9, tokens_per_second=0.5,
        reply_tokens=statistics.fmean(one.reply_tokens for one in told), every_seconds=1e-2,
    )  # fmt: skip


def slower(machine, told, seconds):
    """How many times as long a token of a reply takes as in the paper, under a load: the mean of the machines."""
    factors = []
    for name in sorted({one.server for one in told}):
        mine = [one for one in told if one.server == name]
        paper = model.one_machine(machine, traffic_of(mine), len(mine) / seconds)
        if "tokens_per_second" in paper:
            factors.append(paper["tokens_per_second"] * statistics.fmean((one.ended - one.first) / max(1, one.reply_tokens - 1) for one in mine))
    if not factors:
        raise files.Refused("half of what the fleet can do is too much for the paper: this machine is too busy")
    return statistics.fmean(factors)


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def by_machine(machine, told, seconds, rest):
    """Rows of (what, paper, measured), each the mean of the machines, which have rates and hit rates of their own.
    `rest`: seconds of requests besides their steps."""
    median = 1e3 * statistics.median(rest)
    sums = collections.defaultdict(lambda: [0.0, 0.0])
    for name in (servers := sorted({one.server for one in told})):
        mine = [one for one in told if one.server == name]
        rate, traffic = len(mine) / seconds, traffic_of(mine)
        paper = model.one_machine(machine, traffic, rate)
        if "p50_ms" not in paper:
            return [(f"messages/s at {name}; for the paper too many", 0.0, rate)]
        computed = [one.prompt_tokens - one.cached_tokens for one in mine]
        steps = stepped.percentiles_ms(machine, traffic, rate, messages=20000, computed=computed, rest=rest)
        first = [1e3 * (one.first - one.sent) for one in mine]
        decode = [(one.ended - one.first) / max(1, one.reply_tokens - 1) for one in mine]
        rows = {
            "a reply, tokens/s": (paper["tokens_per_second"], 1 / statistics.fmean(decode)),
            "streams": (paper["streams"], rate * statistics.fmean(one.ended - one.first for one in mine)),
            "first token p50, formula, ms": (median + paper["p50_ms"], percentile(first, 0.5)),
            "first token p50, steps, ms": (steps["p50_ms"], percentile(first, 0.5)),
            "first token p99, formula, ms": (median + paper["p99_ms"], percentile(first, 0.99)),
            "first token p99, steps, ms": (steps["p99_ms"], percentile(first, 0.99)),
        }
        for what, pair in rows.items():
            sums[what] = [old + new / len(servers) for old, new in zip(sums[what], pair)]
    return [(what, *pair) for what, pair in sums.items()]


def full(machine, told, seconds):
    """Messages a second of the fleet with every slot taken: the paper's largest rate for which there are slots."""
    paper = 0.0
    for name in sorted({one.server for one in told}):
        traffic = traffic_of([one for one in told if one.server == name])
        low, high = 0.0, 1e4
        for _ in range(60):
            middle = (low + high) / 2
            state = model.steady(machine, traffic, middle)
            low, high = (middle, high) if state and state["streams"] <= SLOTS else (low, middle)
        paper += low
    return [("every slot taken, messages/s", paper, len(told) / seconds)]


def tell(what):
    print(f"paper.py: {what}", file=sys.stderr, flush=True)


def share_of_busiest(told, servers):
    return max(collections.Counter(one.server for one in told).values()) * len(servers) / len(told)


def processors_of(arguments):
    """Those of each server, and those of the clients; all may have all unless asked otherwise."""
    all_of_them, own, count = sorted(os.sched_getaffinity(0)), arguments.own_processors, arguments.servers
    if own == 0:
        return [all_of_them] * count, all_of_them
    if len(all_of_them) <= own * count:
        raise files.Refused(f"{count} servers with {own} processors each leave none of {len(all_of_them)} for the clients")
    return [all_of_them[i * own : (i + 1) * own] for i in range(count)], all_of_them[own * count :]


def compare(arguments):
    places, rest_of_them = processors_of(arguments)
    tell("timing steps of one core")
    os.sched_setaffinity(0, places[0])  # what is started from here on inherits it
    machine = measured_steps(arguments)
    servers = []
    for place in places:
        os.sched_setaffinity(0, place)
        servers.append(Server(arguments.server, arguments.model, "--max-running", str(SLOTS), "--cache-mib", "64"))
    os.sched_setaffinity(0, rest_of_them)
    router = None if arguments.no_router else Router([server.address for server in servers])
    rows = []
    try:
        tell("requests one after the other, then steps of all servers at once")
        rest = request_seconds(machine, servers[0])
        machine["request_ms"] = 1e3 * statistics.median(rest)
        machine["service_factor"] = service_factor(machine, servers)

        def at_home(chat):
            return f"http://{servers[chat.number % len(servers)].address}"

        def routed(chat):
            return router.address if router else f"http://{servers[zlib.crc32(b'%d' % chat.character) % len(servers)].address}"

        seconds = arguments.seconds
        tell(f"service factor {machine['service_factor']:.2f}, {machine['request_ms']:.1f} ms of a request besides its steps; every slot taken for {1.5 * seconds:.0f} s")
        taken = loads(at_home, [(seconds / 2, None), (seconds, None)], arguments)[-1]
        most = len(taken) / (0.75 * seconds)
        tell(f"{most:.0f} messages a second at most; half of that for {seconds:.0f} s")
        half = loads(routed, [(seconds, 0.5 * most)], arguments)[0]
        machine["service_factor"] *= slower(machine, half, 0.75 * seconds)
        rows += full(machine, taken, 0.75 * seconds)
        most /= share_of_busiest(half, servers)  # characters are not equally popular
        tell(f"service factor {machine['service_factor']:.2f} under that load; other parts for {len(PARTS) * seconds:.0f} s")
        for part, told in zip(PARTS, loads(routed, [(seconds, part * most) for part in PARTS], arguments)):
            rows += [(f"{100 * part:.0f}% at the busiest: {what}", *pair) for what, *pair in by_machine(machine, told, 0.75 * seconds, rest)]
    finally:
        if router:
            router.kill()
        for server in servers:
            server.end()
    return machine, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("server", "bench", "model"):
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("--no-router", action="store_true", help="the client hashes characters itself, without HAProxy")
    parser.add_argument("--json", action="store_true")
    for name, value, kind, text in [
        ("seconds", 40.0, float, "of each load"),
        ("step-seconds", 1.0, float, "of each timed step"),
        ("servers", 3, int, "with one thread each"),
        ("characters", 200, int, "chosen by Zipf's law"),
        ("chats", 600, int, "under way"),
        ("max-tokens", 24, int, "of a reply"),
        ("own-processors", 0, int, "that each server has for itself; 0: servers and clients share all"),
        ("seed", 1, int, "of the load"),
    ]:
        parser.add_argument("--" + name, type=kind, default=value, metavar="N", help=f"{text} ({value:g})")
    arguments = parser.parse_args()
    try:
        machine, rows = compare(arguments)
    except files.Refused as refused:
        sys.exit(f"paper.py: {refused}")
    if arguments.json:
        print(json.dumps({"cores": os.cpu_count(), "load_average": os.getloadavg(), "machine": machine, "rows": rows}, indent=2))
        return
    print(f"load of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; service factor {machine['service_factor']:.2f}; {machine['request_ms']:.1f} ms of a request besides its steps; decode {machine['decode']['ms']} ms for {AT_ONCE} streams")
    print(f"{'':<52}{'paper':>10}{'measured':>10}{'paper / measured':>18}")
    for what, paper, measured in rows:
        print(f"{what:<52}{paper:>10.1f}{measured:>10.1f}{paper / measured:>18.2f}")


if __name__ == "__main__":
    main()
