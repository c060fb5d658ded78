"""A fleet to break: kaiju-servers that keep their ports, HAProxy before them, and what may happen to both."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

import files

PORTS = ("KAIJU_BY_CHARACTER", "KAIJU_IN_TURN")  # of haproxy.cfg
BALANCE_FACTOR = 125  # its hash-balance-factor


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Peers:
    """Servers of one host that bring KV from each other: their ports, and a file with their key."""

    def __init__(self, ports):
        self.ports = ports
        self.key = tempfile.NamedTemporaryFile()
        self.key.write(os.urandom(32))
        self.key.flush()

    def options(self, port):
        """Of the server at this port."""
        others = (("--peer", f"http://127.0.0.1:{other}") for other in self.ports if other != port)
        return ["--peer-key", self.key.name, *(part for pair in others for part in pair)]


def find_haproxy():
    program = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not program:
        raise files.Refused("haproxy is missing: apt-get install haproxy")
    return program


class Server:
    """A kaiju-server at a port of its own, started again at the same one. `inside`: a command that runs another one,
    somewhere else."""

    def __init__(self, program, model=None, *arguments, inside=(), host="127.0.0.1", port=None):
        self.host, self.port = host, port or free_ports(1)[0]
        self.address = f"{host}:{self.port}"
        self.command = [*inside, program, "--port", str(self.port), "--address", host, "--threads", "1"]
        for option in ("--store", "--log"):
            self.command += [option, "none"] if option not in arguments else []
        self.command += ["--model", model] if model else []
        self.command += arguments
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline().strip()
        if not re.search(r":(\d+)$", line):
            raise files.Refused(f"{self.command[0]} did not start: {line}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def restart(self):
        """Lets it finish what it has begun."""
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.start()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


class Router:
    """HAProxy by character before three addresses, at a port of its own."""

    def __init__(self, addresses, balance_factor=0, check_timeout="3s"):
        self.ports = free_ports(len(PORTS))
        self.address = f"http://127.0.0.1:{self.ports[0]}"
        names = [f"KAIJU_SERVER_{i + 1}" for i in range(len(addresses))] + list(PORTS)
        self.environment = {
            **os.environ,
            "KAIJU_BALANCE_FACTOR": str(balance_factor),
            "KAIJU_CHECK_TIMEOUT": check_timeout,
            **dict(zip(names, [*addresses, *map(str, self.ports)])),
        }
        self.start()

    def start(self):
        """Returns the seconds until it answers."""
        begun = time.monotonic()
        command = [find_haproxy(), "-db", "-q", "-f", os.path.join(files.HERE, "haproxy.cfg")]
        self.process = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while time.monotonic() < begun + 20 and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.address}/health", timeout=2).read()
                return time.monotonic() - begun
            except OSError:
                time.sleep(0.01)
        self.kill()
        raise files.Refused("haproxy did not start")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Fleet:
    """The fleet of compose.yaml, on loopback: servers that bring KV from each other, and HAProxy. Or `servers` that do not,
    which are chosen by character whatever their load."""

    def __init__(self, program, model, check_timeout="3s", servers=None):
        factor = 0 if servers else BALANCE_FACTOR
        if not servers:
            self.peers = Peers(free_ports(3))
            more = ("--cache-mib", "64", "--warm", "50")
            servers = [Server(program, model, *more, *self.peers.options(port), port=port) for port in self.peers.ports]
        self.servers = servers
        self.router = Router([server.address for server in servers], factor, check_timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.router.kill()
        for server in self.servers:
            server.end()
