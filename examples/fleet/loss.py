"""Breaks a fleet on loopback while it works, and compares every answer with what one undisturbed server gives.

loss.py SERVER [--model FILE] [--kills N] [--only NAME ...]
"""

import argparse
import collections
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import files
import load
from fleet import Fleet, Server

AT_HAND = ("kills", "router", "drain", "slow")  # in the namespaces that this program has
ELSEWHERE = {"cut": "-rn", "disk": "-rm", "store": None}  # in namespaces of their own (namespaces.py)


class Trial:
    """A load on a fleet, and what happens to the fleet: `times`, at which the load's chats lose some of their KV."""

    def __init__(self, arguments, fleet):
        self.arguments, self.fleet, self.times = arguments, fleet, []
        self.dice = random.Random(arguments.seed)
        self.load = load.Load(
            fleet.router.address, arguments.chats, arguments.characters, seed=arguments.seed,
            stall_seconds=arguments.stall_seconds,
        )  # fmt: skip

    def __enter__(self):
        self.load.start()
        self.load.wait_for(self.arguments.requests_before)
        return self

    def __exit__(self, *_):
        self.load.stop()

    def happen(self, what, requests, seconds=0):
        """`what`, now; then the load goes on for so many requests and so long."""
        self.times.append(time.monotonic())
        what()
        self.load.wait_for(requests)
        time.sleep(max(0, self.times[-1] + seconds - time.monotonic()))

    def report(self):
        answers = self.load.answers
        alone = Server(self.arguments.server, self.arguments.model, "--cache-mib", "256")
        try:
            wrong = load.wrong(answers, alone.port)
        finally:
            alone.end()
        rates = load.by_turn_after(answers, self.times)
        waits = sorted(answer.ended - answer.begun for answer in answers)
        return {
            "times": len(self.times),
            "requests": len(answers) + len(self.load.failures),
            "not_answered": len(self.load.failures),
            "wrong": len(wrong),
            "errors_before_a_beginning": sum(len(answer.errors) - answer.resumed for answer in answers),
            "streams_continued": sum(answer.resumed > 0 for answer in answers),
            "continued": sum(answer.resumed for answer in answers),
            "hit_rate_before": rates[0],
            "hit_rates_by_turn_after": rates[1:],
            "seconds_p50": statistics.median(waits),
            "seconds_most": waits[-1],
            "errors": collections.Counter(error[:60] for answer in answers for error in answer.errors).most_common(8),
            "failures": self.load.failures[:3],
        }


def kills(arguments):
    """kill -9 of a server at random; it starts again at once, with empty caches."""
    with Fleet(arguments.server, arguments.model, arguments.check_timeout) as fleet:
        with Trial(arguments, fleet) as trial:
            for _ in range(arguments.kills):
                server = trial.dice.choice(fleet.servers)

                def kill(server=server):
                    server.kill()
                    server.start()

                trial.happen(kill, arguments.requests_between)
        return trial.report()


def router(arguments):
    """kill -9 of the router; it starts again at once."""
    seconds = []
    with Fleet(arguments.server, arguments.model, arguments.check_timeout) as fleet:

        def kill():
            fleet.router.kill()
            seconds.append(fleet.router.start())

        with Trial(arguments, fleet) as trial:
            for _ in range(arguments.router_kills):
                trial.happen(kill, arguments.requests_between)
        return {**trial.report(), "router_seconds_to_answer": max(seconds)}


def drain(arguments):
    """SIGTERM of a server, which finishes what it has begun; it starts again once it has ended. No client sees that."""
    with Fleet(arguments.server, arguments.model, arguments.check_timeout) as fleet:
        with Trial(arguments, fleet) as trial:
            for _ in range(arguments.drains):
                trial.happen(trial.dice.choice(fleet.servers).restart, arguments.requests_between)
        row = trial.report()
    return {**row, "broken": [f"clients saw {row['errors']}"] if row["errors"] else []}


def slow(arguments):
    """SIGSTOP of a server for some seconds; then SIGCONT."""
    with Fleet(arguments.server, arguments.model, arguments.check_timeout) as fleet:
        with Trial(arguments, fleet) as trial:
            for _ in range(arguments.stops):
                server = trial.dice.choice(fleet.servers)
                for how, seconds in ((signal.SIGSTOP, arguments.stop_seconds), (signal.SIGCONT, 0)):
                    trial.happen(lambda: server.process.send_signal(how), arguments.requests_between, seconds)
        return trial.report()


def elsewhere(name, arguments):
    """Runs a trial of namespaces.py in namespaces of its own."""
    command = [sys.executable, os.path.join(files.HERE, "namespaces.py"), name, json.dumps(vars(arguments))]
    if ELSEWHERE[name]:
        command = ["unshare", ELSEWHERE[name], "--kill-child", *command]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode == 77:
        return None
    if done.returncode:
        raise files.Refused(f"{name} ended with {done.returncode}: {done.stdout[-300:]}")
    return json.loads(done.stdout)


def broken_promises(name, row):
    """What of the promises did not hold."""
    wrongs = [f"{row['wrong']} wrong answers"] if row["wrong"] else []
    wrongs += [f"{row['not_answered']} not answered: {row['failures']}"] if row["not_answered"] else []
    wrongs += row.get("broken", [])
    before, after = row.get("hit_rate_before"), row.get("hit_rates_by_turn_after")
    if name == "kills" and row["times"] >= 20 and max(after[0], after[1]) < 0.9 * before:
        wrongs.append(f"found {before:.3f} before, and {after[0]:.3f} and {after[1]:.3f} in the first turns after")
    return wrongs


def shown(name, row):
    if "requests" not in row:
        return f"{name}: {row['said']}"
    line = (
        f"{name}: {row['times']} times; {row['requests']} requests, {row['not_answered']} not answered, {row['wrong']} wrong; "
        f"{row['streams_continued']} streams continued, {row['continued']} times; "
        f"{row['errors_before_a_beginning']} errors before a beginning; longest wait {row['seconds_most']:.1f} s"
    )
    if row.get("hit_rate_before") is not None:
        turns = ", ".join("-" if rate is None else f"{100 * rate:.1f}" for rate in row["hit_rates_by_turn_after"])
        line += f"; found {100 * row['hit_rate_before']:.1f}%, in turns 1, 2, ... after: {turns}"
    if "router_seconds_to_answer" in row:
        line += f"; the router answered again after {row['router_seconds_to_answer']:.2f} s"
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", metavar="SERVER", help="the program kaiju-server")
    parser.add_argument("--model", metavar="FILE")
    parser.add_argument("--only", nargs="+", choices=[*AT_HAND, *ELSEWHERE], metavar="NAME", help="kills, router, drain, slow, cut, disk, store")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check-timeout", default="3s", help="of HAProxy's health checks (3s)")
    for name, value, text in [
        ("chats", 40, "under way"),
        ("characters", 20, "chosen by Zipf's law"),
        ("kills", 50, "times that a server is killed"),
        ("router-kills", 10, "times that the router is killed"),
        ("drains", 10, "times that a server is ended in peace"),
        ("stops", 5, "times that a server is stopped, and goes on"),
        ("stop-seconds", 15, "that it is stopped, or cut off"),
        ("cuts", 5, "times that a server's network is cut, and mended"),
        ("store-kills", 10, "times that a server with the store open is killed"),
        ("requests-before", 400, "requests before anything happens"),
        ("requests-between", 120, "requests from one to the next"),
        ("stall-seconds", 8, "a stream that is silent for so long is continued elsewhere"),
        ("seed", 1, "of the load, and of what is broken"),
    ]:
        parser.add_argument("--" + name, type=int, default=value, metavar="N", help=f"{text} ({value})")
    arguments = parser.parse_args()
    rows, broken = {}, []
    try:
        for name in arguments.only or [*AT_HAND, *ELSEWHERE]:
            row = globals()[name](arguments) if name in AT_HAND else elsewhere(name, arguments)
            if row is None:
                print(f"{name}: skipped, as this machine gives no namespaces", file=sys.stderr)
                continue
            rows[name] = row
            broken += [f"{name}: {one}" for one in broken_promises(name, row)]
            if not arguments.json:
                print(shown(name, row), flush=True)
    except files.Refused as refused:
        sys.exit(f"loss.py: {refused}")
    if arguments.json:
        print(json.dumps(rows, indent=2))
    sys.exit("".join(f"broken: {one}\n" for one in broken) or 0)


if __name__ == "__main__":
    main()
