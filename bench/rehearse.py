#!/usr/bin/env python3
"""Rehearses the incidents of docs/operations.md. Each is brought about in a server of its own under traffic; a real
Prometheus with examples/server/alerts.yml has to notice it; the documented command is the way back. Chats that began
before are asked again all the time, and must get the same replies.

    rehearse.py KAIJU_SERVER MODEL --prometheus PROGRAM [--only NAME ...] [--before 12]

It takes about half an hour: Prometheus compares minutes. Needs what examples/gate/requirements.txt names.
"""

import argparse
import http.client
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINES = ["What do you grow in the garden?", "Tell me more of that.", "And when it rains?", "What are you afraid of?",
         "Do you sing in the evening?", "Who taught you that?", "I should go. What will you do now?"]
ODD = "0123456789 @#%&*()_+ =-[];',./ QWXZ " * 8


class Server:
    """A server, its traffic, and the chats that are asked again."""

    def __init__(self, program, model, folder, *arguments):
        self.command = [program, "--model", model, "--store", "none", "--threads", "1", "--log", "none", *arguments]
        self.model, self.folder, self.port, self.wrong, self.lost = model, folder, 0, 0, 0
        self.start()
        self.known = [self.continued(i) for i in range(4)]

    def start(self):
        self.process = subprocess.Popen([*self.command, "--port", str(self.port)], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        found = re.search(r":(\d+)$", self.process.stdout.readline().strip())
        if not found:
            sys.exit(f"the server does not start: {' '.join(self.command)}")
        self.port = int(found[1])

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    def must(self, method, path, body=None):
        status, answer = self.call(method, path, body)
        if status >= 300:
            sys.exit(f"{method} {path}: {status} {answer}")
        return answer

    def ask(self, messages, **fields):
        status, answer = self.call("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 24, **fields})
        return answer["choices"][0]["message"]["content"] if status == 200 else None

    def continued(self, number):
        """A chat's second reply; its first was told before."""
        messages = [{"role": "user", "content": f"I am {number}. {LINES[0]}"},
                    {"role": "assistant", "content": "Tomatoes, and a few blue ones."}, {"role": "user", "content": LINES[1]}]
        return self.ask(messages, seed=number, temperature=0.8)

    def check(self):
        for number, known in enumerate(self.known):
            self.wrong += self.continued(number) != known


class Incident:
    """What is brought about. `limit`: minutes until its alarm."""

    alarm, limit, servers, chats, replies_stay = "", 10, 1, 2, True

    def __init__(self, options, folder):
        self.options, self.folder, self.stopping, self.odd = options, folder, threading.Event(), False
        folder.mkdir()
        self.machines = [Server(options.server, options.model, folder, *self.arguments()) for _ in range(self.servers)]

    def arguments(self):
        return []

    def machine(self, character):
        return self.machines[hash(character) % self.servers]

    def body(self, character, history):
        return [{"role": "system", "content": f"Character {character}\nA gardener who lives by the river. " * 6}, *history]

    def talk(self, seed):
        """Chats of four turns, a few words apart, for ever."""
        chance = random.Random(seed)
        while not self.stopping.is_set():
            character, history = chance.randrange(1000000) if self.servers > 1 else chance.randrange(3), []
            for _ in range(4):
                history.append({"role": "user", "content": ODD if self.odd == "text" else chance.choice(LINES)})
                try:
                    reply = self.machine(character).ask(self.body(character, history), seed=chance.randrange(1 << 30),
                                                        temperature=0.8, **self.fields())
                except (OSError, http.client.HTTPException):
                    reply = None
                history.append({"role": "assistant", "content": reply or "Hm."})
                for machine in self.machines:
                    machine.lost += reply is None
                self.stopping.wait(chance.uniform(0.2, 1.8))

    def fields(self):
        return {}

    def curl(self, method, path, body=None):
        """The documented command, run by a shell."""
        data = f" -H 'content-type: application/json' -d '{json.dumps(body)}'" if body is not None else ""
        command = f"curl -sS --fail-with-body -X {method} localhost:{self.machines[0].port}{path}{data}"
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
        return command.replace(f":{self.machines[0].port}", ":8080").replace("-sS --fail-with-body ", "")

    def end(self):
        self.stopping.set()
        for machine in self.machines:
            machine.process.send_signal(signal.SIGKILL)
            machine.process.wait()


class Checkpoint(Incident):
    alarm, limit = "KaijuCandidate", 10

    def arguments(self):
        made = candidates().Checkpoint(self.options.model)
        getattr(candidates(), self.change)(made)
        made.write(str(self.folder / "new.safetensors"))
        return ["--checkpoints", str(self.folder)]

    def inject(self):
        self.machines[0].must("POST", "/checkpoints", {"checkpoint": "new", "share": 50})

    def back(self):
        return self.curl("DELETE", "/checkpoints/new")


class DamagedScale(Checkpoint):
    """A scale of the new checkpoint is damaged"""
    change = "damaged_scale"


class WorseCheckpoint(Checkpoint):
    """The new checkpoint is worse: its weights were rounded to four bits"""
    change = "coarse_weights"


class Drift(Incident):
    """What people write changes suddenly"""
    alarm, limit, chats = "KaijuCalibrationFrozen", 10, 8

    def arguments(self):
        return ["--scales", str(self.folder), "--scales-window", "16"]

    def inject(self):
        self.odd = "text"

    def back(self):
        self.odd = False
        return self.curl("POST", "/scales", {"collection": "reset"})


class Viral(Drift):
    """One character is suddenly asked for fifty times as often, with texts of another kind"""
    chats = 6  # two for each of three characters

    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.calm = threading.Event()

    def ask_often(self, seed):
        chance = random.Random(seed)
        while not self.calm.is_set() and not self.stopping.is_set():
            try:
                self.machines[0].ask(self.body(0, [{"role": "user", "content": ODD}]), seed=chance.randrange(1 << 30))
            except (OSError, http.client.HTTPException):
                pass  # the usual chats count what is lost
            self.stopping.wait(chance.uniform(0.2, 1.8))

    def inject(self):
        for seed in range(50 * self.chats // 3):
            threading.Thread(target=self.ask_often, args=(seed,), daemon=True).start()

    def back(self):
        self.calm.set()
        return self.curl("POST", "/scales", {"collection": "reset"})


class Format(Incident):
    """The prompt format changes: the time stands before everything else"""
    alarm, limit = "KaijuHitRate", 15

    def body(self, character, history):
        messages = super().body(character, history)
        if self.odd:
            messages[0] = {"role": "system", "content": f"It is {time.time():.6f}.\n{messages[0]['content']}"}
        return messages

    def inject(self):
        self.odd = True

    def back(self):
        self.odd = False
        return "(the client's format before)"


class StrictHead(Incident):
    """A new head refuses what is harmless"""
    alarm, limit = "KaijuRefusals", 5

    def arguments(self):
        head = self.folder / "strict.safetensors"
        program = pathlib.Path(self.options.server).parent / "kaiju-head"
        subprocess.run([program, self.options.model, "--out", head], check=True, stdout=subprocess.DEVNULL)
        made = candidates().Checkpoint(str(head))
        made.tensors["classifier.bias"] += 6
        made.write(str(head))
        return ["--heads", str(self.folder), "--limit", f"adult:{made.config['labels'][0]}=0.6"]

    def fields(self):
        return {"tier": "adult"}

    def inject(self):
        self.machines[0].must("POST", "/heads", {"head": "strict"})

    def back(self):
        return self.curl("POST", "/heads", {"head": "model"})


class FlippedBit(Incident):
    """A bit of a weight in memory flips"""
    alarm, limit, replies_stay = "KaijuMachineDamaged", 2, False

    def arguments(self):
        return ["--scrub-mib", "256"]

    def inject(self):
        process, model = self.machines[0].process.pid, str(pathlib.Path(self.options.model).resolve())
        maps = [line for line in pathlib.Path(f"/proc/{process}/maps").read_text().splitlines() if line.endswith(model)]
        places = [tuple(int(at, 16) for at in line.split()[0].split("-")) for line in maps]
        first, end = max(places, key=lambda place: place[1] - place[0])
        with open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:
            memory.seek((first + end) // 2)
            byte = memory.read(1)[0]
            memory.seek((first + end) // 2)
            memory.write(bytes([byte ^ 0x10]))

    def back(self):
        if self.machines[0].call("GET", "/health")[0] != 503:
            sys.exit("/health does not say that the machine is damaged")
        self.machines[0].process.send_signal(signal.SIGKILL)
        self.machines[0].process.wait()
        self.machines[0].start()
        return "kill -9 PID, and a start"


class LostAffinity(Incident):
    """The router sends the turns of a chat to any of three machines"""
    alarm, limit, servers = "KaijuHitRate", 15, 3

    def machine(self, character):
        return random.choice(self.machines) if self.odd else super().machine(character)

    def inject(self):
        self.odd = True

    def back(self):
        self.odd = False
        return "(the router's rule before)"


INCIDENTS = {"damaged-scale": DamagedScale, "worse-checkpoint": WorseCheckpoint, "drift": Drift, "viral": Viral, "format": Format,
             "strict-head": StrictHead, "flipped-bit": FlippedBit, "lost-affinity": LostAffinity}


def candidates():
    """The module tests/gate/candidates.py, which reads what it is given from the command line."""
    import importlib
    sys.argv, before = [sys.argv[0], str(ROOT), "none"], sys.argv
    try:
        if str(ROOT / "tests" / "gate") not in sys.path:
            sys.path.insert(0, str(ROOT / "tests" / "gate"))
        return importlib.import_module("candidates")
    finally:
        sys.argv = before


class Prometheus:
    def __init__(self, program, folder, incidents):
        targets = [{"targets": [f"127.0.0.1:{machine.port}"], "labels": {"instance": f"{name}-{i}"}}
                   for name, incident in incidents.items() for i, machine in enumerate(incident.machines)]
        config = {"global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
                  "rule_files": [str(ROOT / "examples" / "server" / "alerts.yml")],
                  "scrape_configs": [{"job_name": "kaiju", "static_configs": targets}]}
        file = folder / "prometheus.json"
        file.write_text(json.dumps(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen([program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
                                         f"--web.listen-address=127.0.0.1:{self.port}"],
                                        stdout=subprocess.DEVNULL, stderr=open(folder / "prometheus.log", "w"))

    def firing(self):
        """(alarm, incident) of all alarms."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/alerts", timeout=10) as answer:
            alerts = json.load(answer)["data"]["alerts"]
        return {(alert["labels"]["alertname"], alert["labels"]["instance"].rpartition("-")[0])
                for alert in alerts if alert["state"] == "firing"}

    def end(self):
        self.process.terminate()
        self.process.wait()


def say(words):
    print(f"{time.strftime('%H:%M:%S')} {words}", flush=True)


def wait(minutes, incidents, until=lambda: False):
    """Asks the known chats again meanwhile."""
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end and not until():
        for incident in incidents.values():
            for machine in incident.machines:
                if not incident.odd or incident.replies_stay:
                    machine.check()
        time.sleep(5)


def rehearse(options, folder):
    incidents = {name: INCIDENTS[name](options, folder / name) for name in options.only}
    prometheus = Prometheus(options.prometheus, folder, incidents)
    failed = []
    try:
        threads = [threading.Thread(target=incident.talk, args=(seed,), daemon=True)
                   for incident in incidents.values() for seed in range(incident.chats * incident.servers)]
        for thread in threads:
            thread.start()
        say(f"{len(incidents)} incidents; traffic for {options.before:g} minutes before them")
        wait(options.before, incidents)
        early = prometheus.firing()
        say(f"alarms before: {sorted(early) or 'none'}")
        failed += [f"{alarm} of {name} before anything happened" for alarm, name in early]
        begun, found, lost = {}, {}, {name: incident.machines[0].lost for name, incident in incidents.items()}
        for name, incident in incidents.items():
            incident.inject()
            incident.odd = incident.odd or not incident.replies_stay
            begun[name] = time.monotonic()
        say("all incidents are there")

        def look():
            firing = prometheus.firing()
            for name, incident in incidents.items():
                if name in found or (incident.alarm, name) not in firing:
                    continue
                found[name] = (time.monotonic() - begun[name]) / 60
                command = incident.back()
                incident.odd = False
                say(f"{name}: {incident.__doc__}: {incident.alarm} after {found[name]:.1f} minutes (limit {incident.limit}); back: {command}")
            return len(found) == len(incidents)

        wait(max(incident.limit for incident in incidents.values()) + 5, incidents, look)
        wait(1, incidents)
        for name, incident in incidents.items():
            wrong = sum(machine.wrong for machine in incident.machines)
            if name not in found:
                failed.append(f"{name}: no {incident.alarm}")
            elif found[name] > incident.limit:
                failed.append(f"{name}: found after {found[name]:.1f} minutes")
            if wrong:
                failed.append(f"{name}: {wrong} replies of chats from before differ")
            say(f"{name}: {wrong} replies of chats from before differ, {incident.machines[0].lost - lost[name]} requests had no reply")
    finally:
        prometheus.end()
        for incident in incidents.values():
            incident.end()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("--prometheus", required=True, help="the program; Debian's package prometheus has it")
    parser.add_argument("--only", nargs="+", choices=INCIDENTS, default=list(INCIDENTS), metavar="NAME")
    parser.add_argument("--before", type=float, default=12, metavar="MINUTES", help="of traffic before the incidents")
    options = parser.parse_args()
    options.model, options.server = (str(pathlib.Path(path).resolve()) for path in (options.model, options.server))
    with tempfile.TemporaryDirectory() as folder:
        failed = rehearse(options, pathlib.Path(folder))
    for what in failed:
        say(f"FAILED: {what}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
