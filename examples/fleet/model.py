"""The model of a fleet: from measured steps of one machine to machines, dollars and times to the first token.

model.js has the same formulas for the page; tests/fleet/javascript.py compares the two. Times are in seconds unless a
name says ms; a machine's and a traffic's fields are those of h200.json and case_study.json.
"""

import math

HOURS_PER_MONTH = 730
LONGEST_STEP_S = 2.0


def between(xs, ys, x):
    """ys at x: linear between the xs, the last slope beyond them, the first value before them."""
    if x <= xs[0]:
        return ys[0]
    i = 1
    while i < len(xs) - 1 and x > xs[i]:
        i += 1
    return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1])


def kept_between(xs, ys, x):
    """The same, but the last value beyond the xs."""
    return between(xs, ys, min(x, xs[-1]))


def decode_s(machine, streams, context):
    """Of a step that gives each stream a token. It was measured at one context; KV beyond that is read besides. A
    service's steps take longer than a benchmark's, by a factor that the machine's file has with its source."""
    decode, kv = machine["decode"], machine["kv"]
    window = kv["window_tokens"] * kv["window_read_bytes_per_token"]
    read = context * kv["read_bytes_per_token"] + window
    measured = decode.get("read_bytes", decode["context"] * kv["read_bytes_per_token"] + window)
    more = streams * (read - measured) / kv["read_bytes_per_second"]
    return machine["service_factor"] * (between(decode["streams"], decode["ms"], streams) / 1e3 + more)


def prompt_s(machine, streams, tokens):
    """What prompt tokens add to a step of so many streams."""
    prompts = machine["prompts"]
    at = [between(prompts["tokens"], row, min(tokens, prompts["tokens"][-1])) for row in prompts["extra_ms"]]
    beyond = max(0.0, tokens - prompts["tokens"][-1]) * prompts["ms_per_token"]
    return machine["service_factor"] * (kept_between(prompts["streams"], at, streams) + beyond) / 1e3


def prefill_s(machine):
    """Of one token of a long prompt."""
    return machine["service_factor"] * machine["prompts"]["ms_per_token"] / 1e3


def lengths(traffic):
    """Tokens of a mean history, of a mean prompt, and of those that are computed for a message."""
    history = traffic["turns"] * (traffic["user_tokens"] + traffic["reply_tokens"]) / 2
    prompt = traffic["card_tokens"] + history + traffic["user_tokens"]
    return history, prompt, max(traffic["user_tokens"], prompt * (1 - traffic["hit_rate"]))


def steady(machine, traffic, rate):
    """The step that one machine repeats at `rate` messages a second, or None when it never catches up.

    In a step of t seconds rate * t messages arrive (Poisson), and by Little's law (1961) rate * reply_tokens * t
    streams decode. t is the least fixed point, reached from below.
    """
    _, prompt, computed = lengths(traffic)
    t = 0.0
    for _ in range(2000):
        streams = rate * traffic["reply_tokens"] * t
        some = 1 - math.exp(-rate * t)  # share of steps with a prompt
        prompts = 0.0 if some <= 0 else some * prompt_s(machine, streams, rate * computed * t / some)
        new = decode_s(machine, streams, prompt) + prompts
        if new > LONGEST_STEP_S:
            return None
        if abs(new - t) <= 1e-12 + 1e-9 * t:
            break
        t = new
    return {"step_s": t, "streams": rate * traffic["reply_tokens"] * t}


def first_token(machine, traffic, rate, state):
    """The distribution of the time to the first token, as P(it is later than x), and the prompt queue's use.

    A message waits for the rest of the step under way (uniform, as arrivals are Poisson), then for prompts before it,
    then for its own. Prompts are an M/G/1 queue: the mean wait is Pollaczek and Khinchine's, rate E[s^2] / 2(1 - use)
    (Kleinrock, Queueing Systems 1, 1975, section 5.6), and the wait of those who wait is taken as exponential
    (Kingman's heavy traffic, 1962). A prompt of n tokens takes n times a prefill token's time, longer by what decode
    leaves of the time when every slot is taken: a machine that has fallen behind must be able to catch up.
    """
    _, prompt, computed = lengths(traffic)
    decode = rate * traffic["reply_tokens"] * decode_s(machine, machine["slots"], prompt) / machine["slots"]
    if decode >= 1:
        return None, 1.0
    per_token = prefill_s(machine) / (1 - decode)
    short, whole = traffic["user_tokens"] * per_token, prompt * per_token
    missing = min(1.0, (computed - traffic["user_tokens"]) / max(1e-9, prompt - traffic["user_tokens"]))
    use = rate * (missing * whole + (1 - missing) * short)
    if use >= 1:
        return None, use
    wait = rate * (missing * whole**2 + (1 - missing) * short**2) / (2 * (1 - use))
    those_who_wait = wait / max(use, 1e-12)
    step = state["step_s"]

    def waits_longer(y):
        """P(a uniform part of a step and the queue's wait together > y)."""
        if y <= 0:
            return 1.0
        rest = max(0.0, 1 - y / step)
        if those_who_wait <= 0:
            return rest
        e = those_who_wait / step
        queued = (
            (rest + e * (1 - math.exp(-y / those_who_wait)))
            if y < step
            else (e * (math.exp(-(y - step) / those_who_wait) - math.exp(-y / those_who_wait)))
        )
        return (1 - use) * rest + use * queued

    def later(x):
        return (1 - missing) * waits_longer(x - step) + missing * waits_longer(x - max(step, whole))

    return later, use


def quantile(later, part):
    """The x with P(later than x) = 1 - part."""
    low, high = 0.0, 1e-3
    while later(high) > 1 - part and high < 1e6:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if later(middle) > 1 - part:
            low = middle
        else:
            high = middle
    return high


def conversation_bytes(machine, traffic):
    history, _, _ = lengths(traffic)
    return history * machine["kv"]["bytes_per_token"] + machine["kv"]["window_bytes"]


def conversations_that_fit(machine, traffic):
    kv = machine["kv"]
    cards = traffic["characters_per_machine"] * (traffic["card_tokens"] * kv["bytes_per_token"] + kv["window_bytes"])
    return max(0.0, (kv["memory_bytes"] - cards) / conversation_bytes(machine, traffic))


def one_machine(machine, traffic, rate):
    """How one machine does at `rate` messages a second, and the first limit that does not hold ("" when all do)."""
    out = {"messages_per_second": rate, "conversations": rate * traffic["every_seconds"], "limit": ""}
    if out["conversations"] > conversations_that_fit(machine, traffic):
        out["limit"] = "memory"
    state = steady(machine, traffic, rate)
    later, use = first_token(machine, traffic, rate, state) if state else (None, 1.0)
    if later is None:
        out["limit"] = "arithmetic"
        return out
    out.update(
        step_ms=state["step_s"] * 1e3,
        streams=state["streams"],
        prompt_use=use,
        p50_ms=quantile(later, 0.5) * 1e3,
        p90_ms=quantile(later, 0.9) * 1e3,
        p99_ms=quantile(later, 0.99) * 1e3,
        tokens_per_second=1 / state["step_s"],
    )
    if out["limit"] == "":
        # Replies in flight are Poisson (M/G/infinity, Takacs 1962): three deviations above the mean have slots.
        if state["streams"] + 3 * math.sqrt(state["streams"]) > machine["slots"]:
            out["limit"] = "slots"
        elif out["tokens_per_second"] < traffic["tokens_per_second"]:
            out["limit"] = "speed of replies"
        elif out["p50_ms"] > traffic["p50_ms"]:
            out["limit"] = "first token, p50"
        elif out["p99_ms"] > traffic["p99_ms"]:
            out["limit"] = "first token, p99"
    return out


def capacity(machine, traffic):
    """Messages a second that one machine serves within all limits, and which limit the next would break."""
    low, high = 0.0, 1.0
    while one_machine(machine, traffic, high)["limit"] == "" and high < 1e6:
        low, high = high, high * 2
    for _ in range(50):
        middle = (low + high) / 2
        if one_machine(machine, traffic, middle)["limit"] == "":
            low = middle
        else:
            high = middle
    return low, one_machine(machine, traffic, high)["limit"]


def at_least(count, least, probability):
    """P(a binomial of `count` is at least `least`): the terms of no failure, one failure ... added up."""
    if least <= 0 or (probability >= 1 and least <= count):
        return 1.0
    log = count * math.log(probability)
    total = 0.0
    for failures in range(max(0, count - least + 1)):
        if failures > 0:
            log += math.log((count - failures + 1) / failures * (1 - probability) / probability)
        total += math.exp(log)
    return min(1.0, total)


def uptime(machine):
    return machine["hours_between_failures"] / (machine["hours_between_failures"] + machine["hours_to_repair"])


def fleet(machine, traffic):
    """Machines and dollars for a traffic. None where not even one message fits a machine."""
    rate, limit = capacity(machine, traffic)
    if rate <= 1e-9:
        return None
    needed = max(1, math.ceil(traffic["messages_per_second"] * traffic["balance"] / rate - 1e-9))
    # Enough of them after the loss of a share, and with single failures enough of the time.
    machines = math.ceil(needed / (1 - traffic["lost_share"]) - 1e-9)
    while at_least(machines, needed, uptime(machine)) < traffic["availability"]:
        machines += 1
    hour = machines * machine["price_per_hour"]
    message = hour / (traffic["messages_per_second"] * 3600)
    alone = one_machine(machine, traffic, traffic["messages_per_second"] * traffic["balance"] / machines)
    return {
        "rate_of_a_machine": rate,
        "limit": limit,
        "needed": needed,
        "machines": machines,
        "availability": at_least(machines, needed, uptime(machine)),
        "dollars_an_hour": hour,
        "dollars_a_month": hour * HOURS_PER_MONTH,
        "dollars_a_message": message,
        "dollars_a_message_mean": message * traffic["peak_over_mean"],
        "dollars_an_hour_of_talk": message * traffic["messages_per_hour"],
        "dollars_an_hour_of_talk_mean": message * traffic["messages_per_hour"] * traffic["peak_over_mean"],
        "busiest": alone,
    }


def with_lost(machine, traffic, machines, lost):
    """The busiest machine when so many are lost and the rest share their traffic."""
    left = machines - lost
    if left <= 0:
        return {"limit": "no machine is left"}
    return one_machine(machine, traffic, traffic["messages_per_second"] * traffic["balance"] / left)
