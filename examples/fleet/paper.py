"""kaiju-fleet's formulas beside a fleet on loopback: steps of this machine are measured, then the fleet, under a load that
comes by itself (Poisson) and under one that fills every slot.

paper.py KAIJU_SERVER KAIJU_BENCH MODEL [--json]

Wants a quiet machine of six cores or more, and HAProxy, unless --no-router says that the client chooses the servers.
Each load is played in turns with the others, a part of it at a time, for a machine that others share gets slower and faster.
Takes five minutes.
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
import zlib

import chats
import continuing
import files
import model
import stepped
from fleet import Router, Server

TURNS = 6  # of a sitting; the chat then begins anew
CONTEXT = 384  # of the timed steps: near that of the load's prompts
SLOTS = 32  # more than a steady server has streams at 60%: waiting for a slot would make p99 a matter of a few percent of speed
CLIENTS = 4  # processes that ask each server: one would be slower than the server
AT_ONCE = (1, 2, 4, 8, 16, 32)
PROMPTS = (16, 64, 256)
REQUESTS = 300  # to see what one takes besides its steps
COLD_REQUESTS = 60  # to see what prompts cost a server
PARTS = (0.3, 0.6)  # of the messages that the busiest server takes with every slot taken
ROUNDS = 8  # in which the loads are played in turns
CACHE_MIB = 512  # room for all chats: none loses its KV while another load is played, to have it computed in a burst after
PIECE = 0.5  # seconds: how long a time is looked at to see how steady a server is


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
    kv |= {"read_bytes_per_token": 0, "read_bytes_per_second": 1e9, "memory_bytes": CACHE_MIB << 20}  # contexts are those of the steps
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
    """A part of the chats, which are asked about at random, each one request at a time. Half of the chats fill every slot,
    the others come by themselves: a chat that changed its server between loads would have its KV computed again."""

    def __init__(self, part, arguments):
        self.arguments, self.dice = arguments, random.Random(arguments.seed + part)
        own = chats.Traffic(arguments.characters, arguments.chats, 0, seed=arguments.seed).chats[part :: CLIENTS * arguments.servers]
        self.filling, self.coming = own[::2], own[1::2]
        self.turns, self.lock, self.told, self.number = collections.Counter(), threading.Lock(), [], part << 32

    def one(self, where, own):
        with self.lock:
            chat = self.dice.choice([chat for chat in own if not chat.lock.locked()])
            chat.lock.acquire()
            said, self.number = self.dice.choice(chats.SAID), self.number + 1
            number = self.number
        try:
            if self.turns[chat.number] % TURNS == 0:
                del chat.messages[1:]
            self.turns[chat.number] += 1
            chat.messages.append({"role": "user", "content": said})
            text, told = ask(where(chat), self.body(chat, number))
            chat.messages.append({"role": "assistant", "content": text})
            self.told.append(told)
        finally:
            chat.lock.release()

    def body(self, chat, number):
        return {"prompt_cache_key": f"character-{chat.character}", "messages": chat.messages, "seed": number, "stream": True,
                "max_tokens": self.arguments.max_tokens, "ignore_eos": True, "return_token_ids": True,
                "stream_options": {"include_usage": True}}  # fmt: skip

    def loaded(self, where, seconds, rate):
        """Asks the servers that `where` gives for chats, for so long, `rate` times a second (Poisson), or with every slot
        taken. What was sent in the first quarter does not count. Returns what counts."""
        due, begun, own = queue.Queue(), time.monotonic(), self.coming if rate else self.filling
        ending = begun + seconds

        def work():
            while due.get() is not None if rate else time.monotonic() < ending:
                self.one(where, own)

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


def loads(phases, arguments):
    """What is told of each phase (where, seconds, rate or None) by clients in processes of their own, CLIENTS for each
    server. A phase begins when all have ended the one before."""
    context = multiprocessing.get_context("fork")
    count, pipes = CLIENTS * arguments.servers, []
    together = context.Barrier(count)

    def play(part, pipe):
        client, told = Client(part, arguments), []
        for where, seconds, rate in phases:
            together.wait(timeout=300)
            told.append(client.loaded(where, seconds, rate and rate / count))
        pipe.send(told)

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


def asked_alone(server, count, card):
    """Requests one after the other, with card(number), to a server that does nothing else."""
    told = []
    for number in range(count):
        body = {"messages": [{"role": "system", "content": card(number)}, {"role": "user", "content": chats.SAID[number % len(chats.SAID)]}],
                "seed": number, "max_tokens": 2, "ignore_eos": True, "stream": True, "return_token_ids": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        told.append(ask(f"http://{server.address}", body)[1])
    return told


def computed_tokens(told):
    return [one.prompt_tokens - one.cached_tokens for one in told]


def besides_steps(machine, told):
    """Seconds of requests that a machine had alone which no step explains, from the client to its first event: connections,
    HTTP, text to tokens."""
    steps = (model.decode_s(machine, 0, CONTEXT) + model.prompt_s(machine, 1, tokens) for tokens in computed_tokens(told))
    return [max(0.0, one.first - one.sent - step) for one, step in zip(told, steps)]


def served_prompts(machine, rest, told):
    """The machine whose prompts cost what they cost a server, by requests that it had alone with cards that it did not
    know. There a prompt follows other steps; timed again and again by itself, as kaiju-bench does, it is faster."""
    steps = sum(model.prompt_s(machine, 1, tokens) for tokens in computed_tokens(told))
    times = sum(besides_steps(machine, told)) + steps - len(told) * statistics.fmean(rest)
    prompts, longer = machine["prompts"], times / steps
    extra = [[longer * ms for ms in row] for row in prompts["extra_ms"]]
    return machine | {"prompts": prompts | {"extra_ms": extra, "ms_per_token": longer * prompts["ms_per_token"]}}


def traffic_of(told):
    """What the paper's formulas ask for, of a machine's requests: lengths and what caches found."""
    prompt = statistics.fmean(one.prompt_tokens for one in told)
    found = sum(one.cached_tokens for one in told) / sum(one.prompt_tokens for one in told)
    own = min(prompt * (1 - found), statistics.median(one.prompt_tokens - one.cached_tokens for one in told))
    return files.traffic(
        card_tokens=prompt - own, turns=0, user_tokens=max(1, own), hit_rate=found, p99_ms=1e9, p50_ms=1e9, tokens_per_second=0.5,
        reply_tokens=statistics.fmean(one.reply_tokens for one in told), every_seconds=1e-2,
    )  # fmt: skip


def seconds_a_token(told):
    """Of a reply after its first token, the mean."""
    return statistics.fmean((one.ended - one.first) / max(1, one.reply_tokens - 1) for one in told)


def by_server(told):
    return {name: [one for one in told if one.server == name] for name in sorted({one.server for one in told})}


def fitted(machine, told, seconds):
    """The machine with the service factor with which its simulated replies are as fast as those told, of one server."""
    traffic, rate, measured = traffic_of(told), len(told) / seconds, seconds_a_token(told)
    least, most = low, high = 0.25, 4.0
    for _ in range(12):
        middle = math.sqrt(low * high)
        slower = machine | {"service_factor": middle}
        state = model.steady(slower, traffic, rate)  # the simulation wants a machine that catches up
        late = state is None or state["streams"] > 2 * SLOTS
        late = late or statistics.fmean(stepped.played(slower, traffic, rate, 4000, computed=computed_tokens(told))[1]) > measured
        low, high = (low, middle) if late else (middle, high)
    if low == least or high == most:
        raise files.Refused(f"with no service factor from {least:g} to {most:g} are simulated replies as fast as measured ones: this machine is too busy")
    return machine | {"service_factor": low}


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def by_machine(machines, told, seconds, rest):
    """Rows of (what, paper, measured), each the mean of the machines, which have rates and hit rates of their own.
    `rest`: seconds of requests besides their steps."""
    median = 1e3 * statistics.median(rest)
    sums = collections.defaultdict(lambda: [0.0, 0.0])
    for name, mine in by_server(told).items():
        rate, traffic, machine = len(mine) / seconds, traffic_of(mine), machines[name]
        paper = model.one_machine(machine, traffic, rate)
        if "p50_ms" not in paper:
            return [(f"messages/s at {name}; for the paper too many", 0.0, rate)]
        first_tokens, tokens = stepped.played(machine, traffic, rate, computed=computed_tokens(mine))
        dice = random.Random(1)
        first_tokens = [1e3 * (first + dice.choice(rest)) for first in first_tokens]
        first = [1e3 * (one.first - one.sent) for one in mine]
        streams = rate * statistics.fmean(one.ended - one.first for one in mine)
        simulated_streams = rate * statistics.fmean(tokens) * statistics.fmean(one.reply_tokens - 1 for one in mine)
        rows = {
            "a reply, formula, tokens/s": (paper["tokens_per_second"], 1 / seconds_a_token(mine)),
            "a reply, steps, tokens/s": (1 / statistics.fmean(tokens), 1 / seconds_a_token(mine)),
            "streams, formula": (paper["streams"], streams),
            "streams, steps": (simulated_streams, streams),
            "first token p50, formula, ms": (median + paper["p50_ms"], percentile(first, 0.5)),
            "first token p50, steps, ms": (percentile(first_tokens, 0.5), percentile(first, 0.5)),
            "first token p99, formula, ms": (median + paper["p99_ms"], percentile(first, 0.99)),
            "first token p99, steps, ms": (percentile(first_tokens, 0.99), percentile(first, 0.99)),
        }
        for what, pair in rows.items():
            sums[what] = [old + new / len(machines) for old, new in zip(sums[what], pair)]
    return [(what, *pair) for what, pair in sums.items()]


def full(machine, told, seconds):
    """Messages a second of the fleet with every slot taken: the paper's largest rate for which there are slots."""
    paper = 0.0
    for mine in by_server(told).values():
        traffic = traffic_of(mine)
        low, high = 0.0, 1e4
        for _ in range(60):
            middle = (low + high) / 2
            state = model.steady(machine, traffic, middle)
            low, high = (middle, high) if state and state["streams"] <= SLOTS else (low, middle)
        paper += low
    return [("every slot taken, messages/s", paper, len(told) / seconds)]


def speeds(told):
    """Tokens that one server gave in each PIECE, with every slot taken; those of a reply come evenly."""
    begun = min(one.sent for one in told) + max(one.ended - one.sent for one in told)  # of replies before it nothing is told
    pieces = [0.0] * int((max(one.sent for one in told) - begun) / PIECE)
    for one in told:
        for number in range(len(pieces)):
            at = begun + number * PIECE
            part = max(0.0, min(one.ended, at + PIECE) - max(one.first, at)) / max(1e-9, one.ended - one.first)
            pieces[number] += part * (one.reply_tokens - 1)
    return pieces


def steadiness(phases):
    """How fast servers are with every slot taken in the slowest tenth of the time, and in the slowest piece of it, as parts
    of their medians. Queues of an unsteady machine, and so p99, are longer than a paper of steady steps says. None: the
    phases are too short to see it."""
    of = collections.defaultdict(list)
    for told in phases:
        for name, mine in by_server(told).items():
            of[name] += speeds(mine)
    parts = [speed / statistics.median(pieces) for pieces in of.values() for speed in pieces if statistics.median(pieces) > 0]
    return (percentile(parts, 0.1), min(parts)) if len(parts) >= 10 else None


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
    least = 4 * SLOTS * arguments.servers  # a client's threads each have a chat, and as many are of the other half
    if arguments.chats < least:
        raise files.Refused(f"--chats {arguments.chats}: {arguments.servers} servers want {least} or more")
    places, rest_of_them = processors_of(arguments)
    tell("timing steps of one core")
    os.sched_setaffinity(0, places[0])  # what is started from here on inherits it
    machine = measured_steps(arguments)
    servers = []
    for place in places:
        os.sched_setaffinity(0, place)
        servers.append(Server(arguments.server, arguments.model, "--max-running", str(SLOTS), "--cache-mib", str(CACHE_MIB)))
    os.sched_setaffinity(0, rest_of_them)
    router = None if arguments.no_router else Router([server.address for server in servers])
    rows = []
    try:
        tell("requests one after the other")
        alone = asked_alone(servers[0], REQUESTS, lambda number: chats.card(2))[10:]  # the first ones compute the card
        rest = besides_steps(machine, alone)
        machine["request_ms"] = 1e3 * statistics.median(rest)
        machine = served_prompts(machine, rest, asked_alone(servers[0], COLD_REQUESTS, lambda number: f"{number}. {chats.card(number)}"))

        def at_home(chat):
            return f"http://{servers[chat.number % len(servers)].address}"

        def routed(chat):
            return router.address if router else f"http://{servers[zlib.crc32(b'%d' % chat.character) % len(servers)].address}"

        seconds = arguments.seconds
        tell(f"what the fleet can do, for {seconds:.0f} s")
        taken = loads([(at_home, seconds / 2, None)] * 2, arguments)[-1]
        most = len(taken) / (0.75 * seconds / 2)
        # Characters are not equally popular: the busiest server's share decides.
        busiest = most / share_of_busiest(loads([(routed, seconds / 2, 0.5 * most)], arguments)[0], servers)
        each_round = [(at_home, None), (routed, 0.5 * most), *((routed, part * busiest) for part in PARTS)]
        tell(f"{most:.0f} messages a second at most; loads of all of that, half of it and {PARTS} of what the busiest takes, in turns for {len(each_round) * seconds:.0f} s")
        phases = loads([(where, seconds / ROUNDS, rate) for where, rate in each_round] * ROUNDS, arguments)
        taken, half, *parts = (sum(phases[i :: len(each_round)], []) for i in range(len(each_round)))
        machine["steadiness"] = steadiness(phases[:: len(each_round)])
        counted = 0.75 * seconds
        tell("the same loads on paper")
        machines = {name: fitted(machine, told, counted) for name, told in by_server(half).items()}
        machine["service_factor"] = statistics.fmean(one["service_factor"] for one in machines.values())
        rows += full(machine, taken, counted)
        for part, told in zip(PARTS, parts):
            rows += [(f"{100 * part:.0f}% at the busiest: {what}", *pair) for what, *pair in by_machine(machines, told, counted, rest)]
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
        ("chats", 600, int, "under way: half of them fill every slot, the others come by themselves"),
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
    print(f"load of this machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; service factor {machine['service_factor']:.2f}; {machine['request_ms']:.1f} ms of a request besides its steps; decode {', '.join(f'{ms:.2f}' for ms in machine['decode']['ms'])} ms for {AT_ONCE} streams; {machine['prompts']['ms_per_token']:.3f} ms a prompt token")
    if machine["steadiness"]:
        tenth, least = machine["steadiness"]
        print(f"with every slot taken a server is at {100 * tenth:.0f}% of its median speed, or slower, in a tenth of the time; {100 * least:.0f}% in the slowest {PIECE} s")
    print(f"{'':<52}{'paper':>10}{'measured':>10}{'paper / measured':>18}")
    for what, paper, measured in rows:
        print(f"{what:<52}{paper:>10.1f}{measured:>10.1f}{paper / measured:>18.2f}")


if __name__ == "__main__":
    main()
