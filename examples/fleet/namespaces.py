"""Trials of loss.py that want namespaces of their own: the network to a server is cut, a disk fills up. And a store that
several servers have open, of which one is killed.

namespaces.py NAME ARGUMENTS     (loss.py starts it: unshare -rn for cut, unshare -rm for disk)

Ends with 77 where the kernel does not allow it.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types

import files
from fleet import Fleet, Server
from loss import Trial

REPLY = {"max_tokens": 16, "loop_guard": False}


def run(*command, check=True):
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if check and done.returncode:
        print(f"namespaces.py: {' '.join(command)}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(77)


class Host:
    """A network namespace, at the other end of a cable. The cable is cut by taking its far end down: what is sent
    is lost, and nothing answers."""

    def __init__(self, number):
        self.near, self.far, self.address = f"near{number}", f"far{number}", f"10.77.{number}.2"
        self.holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        self.inside = ["nsenter", "-t", str(self.holder.pid), "-n"]
        run("ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far, "netns", str(self.holder.pid))
        run("ip", "addr", "add", f"10.77.{number}.1/24", "dev", self.near)
        run("ip", "link", "set", self.near, "up")
        run(*self.inside, "ip", "addr", "add", f"{self.address}/24", "dev", self.far)
        run(*self.inside, "ip", "link", "set", "lo", "up")
        self.mend()

    def cut(self):
        run(*self.inside, "ip", "link", "set", self.far, "down")

    def mend(self):
        run(*self.inside, "ip", "link", "set", self.far, "up")


def cut(arguments):
    run("ip", "link", "set", "lo", "up")
    hosts = [Host(number) for number in (1, 2, 3)]
    servers = [Server(arguments.server, arguments.model, inside=host.inside, host=host.address, port=8080) for host in hosts]
    with Fleet(arguments.server, arguments.model, arguments.check_timeout, servers) as fleet:
        with Trial(arguments, fleet) as trial:
            for _ in range(arguments.cuts):
                host = trial.dice.choice(hosts)
                trial.happen(host.cut, arguments.requests_between, arguments.stop_seconds)
                trial.happen(host.mend, arguments.requests_between)
        row = trial.report()
    for host in hosts:
        host.holder.kill()
    return row


def asked(server, method, path, body=None):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def fill(folder):
    """Fills the disk to its last byte; returns the file that does."""
    name = os.path.join(folder, "filler")
    for size in (65536, 4096, 512, 1):
        try:
            with open(name, "ab", buffering=0) as file:
                while True:
                    file.write(bytes(size))
        except OSError:
            continue
    return name


def disk(arguments):
    """The store, the log and the folder of KV are on a disk that fills up, and is emptied again."""
    folder = tempfile.mkdtemp()
    run("mount", "-t", "tmpfs", "-o", "size=3m", "none", folder)
    server = Server(arguments.server, arguments.model, "--store", f"{folder}/store", "--kv", f"{folder}/kv", "--log", f"{folder}/log")
    broken, said = [], []
    try:
        chat = asked(server, "POST", "/chats", {"character": "wren"})[1]["id"]
        request = {"messages": [{"role": "user", "content": "Where do you live?"}], "seed": 1, **REPLY}
        before = asked(server, "POST", "/v1/chat/completions", request)[1]["choices"]
        said.append(asked(server, "POST", f"/chats/{chat}/say", {"text": "Hello!", "seed": 1, **REPLY})[1]["reply"])
        filler = fill(folder)
        refusals = []
        for _ in range(40):
            status, answer = asked(server, "POST", f"/chats/{chat}/say", {"text": "And now?", "seed": 2, **REPLY})
            said += [answer["reply"]] if status == 200 else []
            refusals += [(status, answer["error"]["message"])] if status != 200 else []
        if asked(server, "POST", "/v1/chat/completions", request)[1].get("choices") != before:
            broken.append("another reply on a full disk")
        if any(status < 500 for status, _ in refusals):
            broken.append(f"refused with {refusals[0]}")
        os.unlink(filler)
        status, answer = asked(server, "POST", f"/chats/{chat}/say", {"text": "And now?", "seed": 3, **REPLY})
        said += [answer["reply"]] if status == 200 else []
        if status != 200:
            broken.append(f"{status} {answer} after the disk had room again")
        kept = [turn["replies"][0] for turn in asked(server, "GET", f"/chats/{chat}")[1]["turns"] if turn.get("user")]
        if kept != said:
            broken.append(f"{len(said)} turns were answered, and {len(kept)} are kept")
    finally:
        server.end()
    words = f"{refusals[0][0]}: {refusals[0][1]}" if refusals else "nothing was refused"
    return {
        "refused": len(refusals), "answered": len(said), "wrong": 0, "not_answered": 0, "broken": broken,
        "said": f"{len(refusals)} messages refused on a full disk ({words}); {len(said)} turns answered and kept, before, on and after it",
    }  # fmt: skip


def conversation(servers, chats, turns, dice, kill):
    """Says `turns` things in each chat, at any server; what a dead server did not answer is said again at another one.
    Returns the replies, and how often that was."""
    replies, again = {}, 0
    for turn in range(turns):
        for number, chat in enumerate(chats):
            kill(turn * len(chats) + number)
            body = {"text": f"This is message {turn}. What do you like?", "seed": 1000 * number + turn, **REPLY}
            while True:
                server = dice.choice(servers)
                try:
                    status, answer = asked(server, "POST", f"/chats/{chat}/say", body)
                except (OSError, http.client.HTTPException):
                    again += 1
                    if len(stored(dice.choice(servers), chat)) == turn + 1:  # kept before the server died
                        break
                    continue
                if status != 200:
                    raise files.Refused(f"{status} {answer}")
                break
            replies[number, turn] = stored(dice.choice(servers), chat)[turn]
    return replies, again


def stored(server, chat):
    while True:
        try:
            turns = asked(server, "GET", f"/chats/{chat}")[1]["turns"]
            return [turn["replies"][0] for turn in turns if turn.get("user")]
        except (OSError, http.client.HTTPException):
            continue


def store(arguments):
    """Three servers have one store open, a file of SQLite. One is killed while it may be writing, and starts again."""
    import random
    import threading

    dice, turns, count = random.Random(arguments.seed), 4, max(2, arguments.store_kills)
    results = []
    for kills in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            rest = ("--store", f"{folder}/store", "--kv", "none")
            servers = [Server(arguments.server, arguments.model, *rest) for _ in range(3 if kills else 1)]
            chats = [asked(servers[0], "POST", "/chats", {"character": "wren"})[1]["id"] for _ in range(count)]
            at = set(dice.sample(range(turns * count), arguments.store_kills)) if kills else set()
            restarts = []

            def kill(step):
                if step not in at:
                    return
                server = dice.choice(servers)

                def later():
                    server.kill()
                    server.start()

                for one in restarts:
                    one.join()
                restarts.append(threading.Timer(dice.random() * 0.2, later))
                restarts[-1].start()

            results.append(conversation(servers, chats, turns, dice, kill))
            for one in restarts:
                one.join()
            for server in servers:
                server.end()
    (replies, again), (alone, _) = results
    wrong = sum(replies[key] != alone[key] for key in alone)
    return {
        "times": arguments.store_kills, "wrong": wrong, "not_answered": 0, "said_again": again,
        "said": f"{arguments.store_kills} times; {len(replies)} turns of {count} chats answered and kept, {again} said again elsewhere, {wrong} replies not as one server's",
    }  # fmt: skip


if __name__ == "__main__":
    if not shutil.which("unshare") or not shutil.which("ip"):
        sys.exit(77)
    given = types.SimpleNamespace(**json.loads(sys.argv[2]))
    try:
        print(json.dumps({"cut": cut, "disk": disk, "store": store}[sys.argv[1]](given)))
    except files.Refused as refused:
        sys.exit(f"namespaces.py: {refused}")
