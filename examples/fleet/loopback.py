"""Three kaiju-servers and HAProxy on loopback, and what their caches find: by character, in turn, and one big cache.

loopback.py SERVER [--model FILE] [--stay]
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import chats
import files
from fleet import BALANCE_FACTOR, PORTS, Peers, Router, free_ports

SERVERS = 3
ALONE = "one server with the memory of three"
VLLM = "vllm-router"
# Requests of a session stay at one server. The body's field session_params.session_id names it: here, the character.
SESSIONS = ("--kv-aware-session-affinity-ttl-secs", "3600")


def start_server(arguments, cache_mib, port=0, more=()):
    command = [
        arguments.server,
        "--port",
        str(port),
        "--threads",
        str(arguments.threads),
        "--store",
        "none",
        "--log",
        "none",
        "--cache-mib",
        str(cache_mib),
        *more,
    ]
    if arguments.model:
        command += ["--model", arguments.model]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    found = re.search(r":(\d+)$", process.stdout.readline().strip())
    if not found:
        raise files.Refused(f"{arguments.server} did not start")
    return process, int(found[1])


def telling(events, replay):
    """Options of a server that tells a router of its cache at one port, and at the other what was missed."""
    return ["--kv-events", f"tcp://127.0.0.1:{events}", "--kv-replay", f"tcp://127.0.0.1:{replay}", "--kv-private"]


def start_servers(arguments, count, told=None, moves=False):
    """Processes and ports of servers with the memory of SERVERS. `moves`: they bring KV from each other."""
    ports = free_ports(count)
    peers = Peers(ports) if moves else None
    processes = []
    try:
        for i, port in enumerate(ports):
            more = (peers.options(port) if moves else []) + (telling(*told[i]) if told else [])
            processes.append(start_server(arguments, arguments.cache_mib * SERVERS // count, port, more)[0])
    except files.Refused:
        stop(processes)
        raise
    return processes, ports


def start_vllm_router(arguments, ports, told, more):
    """vllm-router with kv_aware: it asks a server for a prompt's tokens, and sends the prompt to whichever holds most."""
    port, metrics = free_ports(2)
    servers = [f"http://127.0.0.1:{one}" for one in ports]
    command = [arguments.vllm_router, "--policy", "kv_aware", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(metrics), "--kv-event-block-size", "64", "--kv-event-model", "kaiju"]
    command += ["--log-level", "error", "--worker-urls", *servers]
    command += more
    for server, (events, replay) in zip(servers, told):
        command += ["--kv-event-source", f"{server}=tcp://127.0.0.1:{events}"]
        command += ["--kv-event-replay-source", f"{server}=tcp://127.0.0.1:{replay}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
            return process, port
        except OSError:
            time.sleep(0.05)
    stop([process])
    raise files.Refused("vllm-router did not start")


def number_of(port, name):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return float(re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)[1])


def restart_vllm_router(arguments, router, ports, told, more):
    """Kills the router, and returns it started again, its port, and the seconds until it was told of all caches."""
    snapshots = [number_of(port, "kaiju_kv_event_snapshots_total") for port in ports]
    router.kill()
    router.wait()
    begin = time.monotonic()
    router, port = start_vllm_router(arguments, ports, told, more)
    while any(number_of(one, "kaiju_kv_event_snapshots_total") == before for one, before in zip(ports, snapshots)):
        if time.monotonic() > begin + 60:
            raise files.Refused("vllm-router was not told of the caches")
        time.sleep(0.01)
    return router, port, time.monotonic() - begin


def stop(processes):
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tokens_computed(port):
    """Of one server, prompt tokens asked for and found, by its metrics."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return [
        sum(float(value) for value in re.findall(rf"^vllm:prefix_cache_{name}_total(?:{{[^}}]*}})? (\S+)$", text, re.M))
        for name in ("queries", "hits")
    ]


def measure(arguments, way, how, moves=False):
    """One way of routing, named by its port, with empty caches. `way` None: one server with the memory of all. `how`:
    HAProxy's balance factor, or more options of vllm-router. `moves`: servers bring KV from each other."""
    told = [free_ports(2) for _ in range(SERVERS)] if way == VLLM else None
    processes, ports = start_servers(arguments, 1 if way is None else SERVERS, told, moves)
    try:
        if way is None:
            port = ports[0]
        elif way == VLLM:
            router, port = start_vllm_router(arguments, ports, told, how)
            processes.insert(0, router)
        else:
            haproxy = Router([f"127.0.0.1:{one}" for one in ports], how)
            router = haproxy.process
            processes.insert(0, router)
            port = haproxy.ports[PORTS.index(way)]
        traffic = chats.Traffic(arguments.characters, arguments.chats, arguments.requests, seed=arguments.seed)
        begin = time.monotonic()
        counts = chats.run(port, traffic, arguments.at_once, arguments.max_tokens)
        seconds = time.monotonic() - begin
        loads = [tokens_computed(one)[0] for one in ports]
        restarted = {}
        if way == VLLM:
            processes[0], _, restarted["router_restart_seconds"] = restart_vllm_router(
                arguments, processes[0], ports, told, how
            )
    finally:
        stop(processes)
    return {
        **restarted,
        "requests": counts.requests,
        "prompt_tokens": counts.prompt,
        "token_hit_rate": counts.hit_rate(),
        "failed": counts.failed,
        "load_most_over_mean": max(loads) * len(loads) / max(1.0, sum(loads)),
        "seconds": seconds,
    }, counts.replies


def stay(arguments):
    processes, ports = start_servers(arguments, SERVERS, moves=True)
    try:
        router = Router([f"127.0.0.1:{port}" for port in ports], arguments.balance_factor)
        processes.insert(0, router.process)
        print(f"by character: {router.address}/v1  (Ctrl-C ends it)", flush=True)
        router.process.wait()
    except KeyboardInterrupt:
        pass
    finally:
        stop(processes)


def compare(arguments):
    factor = arguments.balance_factor
    bounded = f"by character, at most {factor}% of the mean load"
    ways = {  # the port or router, how it chooses, whether KV moves
        f"{bounded}; KV moves": (PORTS[0], factor, True),
        bounded: (PORTS[0], factor, False),
        "by character, whatever the load": (PORTS[0], 0, False),
        "in turn": (PORTS[1], 0, False),
    }
    if arguments.vllm_router:
        ways["vllm-router, by cached KV and load; KV moves"] = (VLLM, (), True)
        ways["vllm-router, by cached KV and load"] = (VLLM, (), False)
        ways["vllm-router, the same, characters as sessions"] = (VLLM, SESSIONS, False)
    ways[ALONE] = (None, 0, False)
    rows, replies = {}, {}
    for name, how in ways.items():
        print(f"{name} ...", file=sys.stderr)
        rows[name], replies[name] = measure(arguments, *how)
    alone = replies[ALONE]
    for name, row in rows.items():
        row["replies_as_one_server"] = sum(replies[name].get(number) == reply for number, reply in alone.items())
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':<56}{'found':>9}{'load':>8}{'failed':>8}{'replies as one server':>24}{'seconds':>9}")
    for name, row in rows.items():
        same = f"{row['replies_as_one_server']} of {row['requests']}"
        print(
            f"{name:<56}{100 * row['token_hit_rate']:>8.2f}%{row['load_most_over_mean']:>8.2f}{row['failed']:>8}"
            f"{same:>24}{row['seconds']:>9.0f}"
        )
    for row in rows.values():
        if "router_restart_seconds" in row:
            print(f"vllm-router, killed and started again, knew all caches after {row['router_restart_seconds']:.1f} s.")
    print("found: of all prompt tokens. load: prompt tokens of the busiest server, divided by the mean.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", metavar="SERVER", help="the program kaiju-server")
    parser.add_argument("--model", metavar="FILE")
    parser.add_argument("--stay", action="store_true", help="start the fleet and leave it running, without a load")
    parser.add_argument("--vllm-router", metavar="PROGRAM", help="measure this router, too")
    parser.add_argument("--json", action="store_true")
    for name, value, text in [
        ("threads", 1, "of each server"),
        ("cache-mib", 64, "KV of each server"),
        ("characters", 200, "chosen by Zipf's law"),
        ("chats", 300, "under way at once"),
        ("requests", 1800, "messages, swipes and edits"),
        ("at-once", 6, "requests in flight"),
        ("max-tokens", 16, "of a reply"),
        ("balance-factor", BALANCE_FACTOR, "HAProxy's hash-balance-factor; 0: none"),
        ("seed", 1, "the same seed sends the same"),
    ]:
        parser.add_argument("--" + name, type=int, default=value, metavar="N", help=f"{text} ({value})")
    arguments = parser.parse_args()
    try:
        (stay if arguments.stay else compare)(arguments)
    except files.Refused as refused:
        sys.exit(f"loopback.py: {refused}")


if __name__ == "__main__":
    main()
