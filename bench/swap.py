"""What changing the checkpoint costs, and what it survives (docs/operations.md#changing-the-checkpoint):

    swap.py load  KAIJU_SERVER MODEL --times 10 [--rate 12]   # time to the first token between changes and in them
    swap.py kills KAIJU_SERVER MODEL [--times 100]               # kill -9 in a change, then a start
    swap.py swaps KAIJU_SERVER KAIJU_MAKE [--times 10000]        # memory after so many changes of a small model
"""

import argparse
import http.client
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ASK = [{"role": "user", "content": "What do you like about the garden?"}]


class Server:
    def __init__(self, program, model, folder, *arguments):
        self.process = subprocess.Popen([program, "--model", model, "--port", "0", "--log", "none", "--checkpoints", folder, *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)$", line.strip())
        if not found:
            sys.exit(f"the server does not start: {line}{self.process.stderr.read()}")
        self.port = int(found[1])
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def must(self, method, path, body=None):
        status, answer = self.ask(method, path, body)
        if status >= 300:
            sys.exit(f"{method} {path}: {status} {answer}")
        return answer

    def states(self):
        return {one["checkpoint"]: one["state"] for one in self.must("GET", "/checkpoints")["served"]}

    def wait_for(self, wanted):
        while not wanted(self.states()):
            time.sleep(0.02)

    def resident(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(60)


def first_token_seconds(server, number):
    """Of one request, from its first byte to the first text; None where it was lost."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    begin, first, done = time.monotonic(), None, False
    body = {"messages": [{"role": "user", "content": f"Number {number}: {ASK[0]['content']}"}], "max_tokens": 24, "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    for line in connection.getresponse():
        if first is None and b'"content":"' in line and b'"content":""' not in line:
            first = time.monotonic() - begin
        done |= line.startswith(b"data: [DONE]")
    connection.close()
    return first if done else None


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def load(options):
    """Requests come at random times, whether or not earlier ones have been answered."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(options.model, f"{folder}/next.safetensors")
        server = Server(options.server, options.model, folder, "--store", f"{folder}/store", "--threads", str(options.threads))
        found, threads = {}, []

        def request(number, phase):
            found.setdefault(phase, []).append(first_token_seconds(server, number))

        def offer(seconds, name):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                threads.append(threading.Thread(target=request, args=(len(threads), name)))
                threads[-1].start()
                time.sleep(random.expovariate(options.rate))

        offer(5, "first")
        for i in range(options.times):
            offer(options.seconds, "no change")  # in turn, for other programs' load changes too
            name = "model" if i % 2 else "next"
            changing = threading.Thread(target=server.must, args=("POST", "/checkpoints", {"checkpoint": name}))
            changing.start()
            while changing.is_alive() or server.states().get(name) != "candidate":
                offer(0.1, "loading and warming")
            for share in 10, 50, 100:
                server.must("PATCH", f"/checkpoints/{name}", {"share": share})
                offer(2, f"share {share}%")
            server.must("PATCH", f"/checkpoints/{name}", {"promote": True})
            while name not in server.states() or len(server.states()) > 1:
                offer(0.1, "the old one drains")
        for thread in threads:
            thread.join()
        server.end()
    during = [value for name, values in found.items() if name not in ("first", "no change") for value in values]
    for name, values in [*found.items(), ("in the change, all", during)]:
        lost = sum(value is None for value in values)
        values = [value for value in values if value is not None]
        print(f"{name}: {len(values)} requests, {lost} lost, first token p50 {quantile(values, 0.5) * 1000:.0f} ms, "
              f"p99 {quantile(values, 0.99) * 1000:.0f} ms")


def kills(options):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    ends = {"old": 0, "new": 0}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(options.model, f"{folder}/next.safetensors")
        arguments = options.server, options.model, folder, "--store", f"{folder}/store", "--threads", "1"
        server = Server(*arguments)
        chat = server.must("POST", "/chats", {"character": "wren"})["id"]
        current, turns = "model", 1
        for i in range(options.times):
            wanted = "next" if current == "model" else "model"

            def change(server=server, wanted=wanted):
                try:
                    server.ask("POST", "/checkpoints", {"checkpoint": wanted, "warm": i % 3, "promote": True})
                except (OSError, http.client.HTTPException):
                    pass  # killed

            changing = threading.Thread(target=change)
            changing.start()
            time.sleep(draw.uniform(0, 0.6))
            server.end(signal.SIGKILL)
            changing.join()
            server = Server(*arguments)
            now = server.must("GET", "/health")["checkpoint"]
            stored = pathlib.Path(folder, "current.json")
            said = json.loads(stored.read_text())["checkpoint"] if stored.exists() else "model"
            if now not in (current, wanted) or now != said:
                sys.exit(f"after kill {i}: {now} is served, {said} is stored; it was {current}, then {wanted}")
            ends["new" if now == wanted else "old"] += 1
            current = now
            server.must("POST", f"/chats/{chat}/say", {"text": "And then?", "max_tokens": 4})
            turns += 1
            found = len(server.must("GET", f"/chats/{chat}")["turns"])
            if found != turns:
                sys.exit(f"after kill {i}: the chat has {found} turns and not {turns}")
        server.end()
    print(f"{options.times} kills: {ends['old']} times the old one was served, {ends['new']} times the new one")


def swaps(options):
    config = {"name": "small", "vocab_size": 256, "d_model": 64, "n_heads": 1, "n_kv_heads": 1, "head_dim": 64, "d_ff": 64,
              "context": 256, "norm_eps": 1e-5, "layers": [{"kind": "global", "kv_slot": 0, "rope": 0}]}
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(config))
        for name in "first", "next":
            subprocess.run([options.model, "--config", f"{folder}/config.json", "--seed", str(len(name)), "--out",
                            f"{folder}/{name}.safetensors"], check=True, stdout=subprocess.DEVNULL)
        server = Server(options.server, f"{folder}/first.safetensors", folder, "--store", "none", "--threads", "1", "--cache-mib", "1")
        begin, names = time.monotonic(), ("next", "first")
        for i in range(options.times):
            server.must("POST", "/checkpoints", {"checkpoint": names[i % 2], "share": 100, "warm": 0})
            if i % 3 == 0:
                server.must("DELETE", f"/checkpoints/{names[i % 2]}")
                server.wait_for(lambda states: len(states) == 1)
                server.must("POST", "/checkpoints", {"checkpoint": names[i % 2], "warm": 0})
            server.must("PATCH", f"/checkpoints/{names[i % 2]}", {"promote": True})
            server.wait_for(lambda states: len(states) == 1)
            if i in (0, 99, 999) or (i + 1) % 1000 == 0:
                print(f"{i + 1} changes, {time.monotonic() - begin:.0f} s: {server.resident():.1f} MiB resident", flush=True)
        server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("load", "kills", "swaps"))
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("--times", type=int, default=100, help="changes, or kills")
    parser.add_argument("--rate", type=float, default=4, help="requests a second")
    parser.add_argument("--seconds", type=float, default=8, help="between two changes")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    {"load": load, "kills": kills, "swaps": swaps}[options.what](options)


if __name__ == "__main__":
    main()
