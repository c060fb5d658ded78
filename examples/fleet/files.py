"""Reads the files of machines and of traffic, and refuses what the model cannot use, by name."""

import json
import os

HERE = os.path.dirname(os.path.realpath(__file__))
CHART = ("/usr/share/javascript/chart.js/chart.min.js", "/usr/share/javascript/chart.js/Chart.min.js")

# The numbers of a traffic file: least, most, and what --help says.
TRAFFIC = {
    "messages_per_second": (1e-3, 1e9, "at the peak, of the whole fleet"),
    "peak_over_mean": (1, 100, "the peak's rate divided by the day's mean"),
    "every_seconds": (1e-2, 1e6, "from a conversation's message to its next"),
    "messages_per_hour": (1e-3, 1e6, "messages of an hour of conversation"),
    "card_tokens": (0, 1e6, "length of a character's card"),
    "user_tokens": (1, 1e6, "length of a message"),
    "reply_tokens": (1, 1e6, "length of a reply"),
    "turns": (0, 1e6, "messages of a conversation at its end; its history is half as long on average"),
    "hit_rate": (0, 1, "share of prompt tokens that caches find"),
    "characters_per_machine": (0, 1e9, "cards that a machine holds"),
    "balance": (1, 1e4, "the busiest machine's load divided by the mean"),
    "p50_ms": (0.1, 1e9, "limit for the first token, half of the messages"),
    "p99_ms": (0.1, 1e9, "limit for the first token, 99 of 100 messages"),
    "tokens_per_second": (0.5, 1e4, "least speed of a reply"),
    "lost_share": (0, 0.9, "share of the machines whose loss all limits survive"),
    "availability": (0, 0.999999999, "share of the time that enough machines are up"),
}

MACHINE = {
    "service_factor": 1e-3,
    "step_tokens": 1,
    "slots": 1,
    "price_per_hour": 0,
    "hours_between_failures": 1e-3,
    "hours_to_repair": 0,
}
KV = (
    "bytes_per_token",
    "window_bytes",
    "window_tokens",
    "read_bytes_per_token",
    "window_read_bytes_per_token",
    "read_bytes_per_second",
    "memory_bytes",
)


class Refused(Exception):
    pass


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise Refused(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Refused(f"{path}: an object is expected")
    return value


def is_number(value, least=0.0, most=1e300):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most


def rising(values):
    return (
        isinstance(values, list)
        and len(values) >= 2
        and all(is_number(value) for value in values)
        and all(a < b for a, b in zip(values, values[1:]))
    )


def check_machine(machine, path):
    def want(good, what):
        if not good:
            raise Refused(f"{path}: {what}")

    for name, least in MACHINE.items():
        want(is_number(machine.get(name), least), f"{name} must be a number of at least {least:g}")
    decode, prompts, kv = (machine.get(part) for part in ("decode", "prompts", "kv"))
    want(all(isinstance(part, dict) for part in (decode, prompts, kv)), "decode, prompts and kv must be objects")
    want(rising(decode.get("streams")), "decode.streams must be rising numbers, two at least")
    want(is_number(decode.get("context"), 0), "decode.context must be a number")
    ms = decode.get("ms")
    want(
        isinstance(ms, list) and len(ms) == len(decode["streams"]) and all(is_number(value, 1e-9) for value in ms),
        "decode.ms must have a time for each of decode.streams",
    )
    want(
        rising(prompts.get("streams")) and rising(prompts.get("tokens")),
        "prompts.streams and prompts.tokens must be rising numbers, two at least",
    )
    rows = prompts.get("extra_ms")
    want(
        isinstance(rows, list)
        and len(rows) == len(prompts["streams"])
        and all(
            isinstance(row, list) and len(row) == len(prompts["tokens"]) and all(map(is_number, row)) for row in rows
        ),
        "prompts.extra_ms must have a row for each of prompts.streams, with a time for each of prompts.tokens",
    )
    want(is_number(prompts.get("ms_per_token"), 1e-9), "prompts.ms_per_token must be a number above 0")
    for name in KV:
        want(is_number(kv.get(name)), f"kv.{name} must be a number")
    want(kv["read_bytes_per_second"] > 0 and kv["memory_bytes"] > 0, "kv's speed and memory must be above 0")
    return machine


def check_traffic(traffic, path):
    for name, (least, most, _) in TRAFFIC.items():
        if not is_number(traffic.get(name), least, most):
            raise Refused(f"{path}: {name} must be a number from {least:g} to {most:g}")
    return traffic


def machine(path=None):
    path = path or os.path.join(HERE, "h200.json")
    return check_machine(read(path), path)


def traffic(path=None, **changes):
    """The case study's, with the fields of a file in place of its own, and `changes` in place of both."""
    usual = os.path.join(HERE, "case_study.json")
    value = read(usual)
    if path:
        value = {**{name: value[name] for name in TRAFFIC}, "name": os.path.basename(path), **read(path)}
    value.update(changes)
    return check_traffic(value, path or "traffic")
