"""A machine's engine step by step: the check of model.py's times to the first token, with the same measured steps.

Messages arrive as a Poisson process. A step computes waiting prompts in order of arrival, at most step_tokens of all
rows and one slot for each message, and gives every stream a token; its length is the model's for so many streams and
prompt tokens. A message's first token comes at the end of the step that ends its prompt, the others a step each.
"""

import collections
import random

import model


def arrivals(traffic, rate, dice, computed=None):
    """(time, tokens to compute) of one message after another. Tokens are drawn from the list `computed`. Without one,
    messages that are found cost their own tokens, the others the whole prompt, in the proportion that gives the hit
    rate."""
    _, prompt, mean = model.lengths(traffic)
    own = traffic["user_tokens"]
    missing = min(1.0, (mean - own) / max(1e-9, prompt - own))
    now = 0.0
    while True:
        now += dice.expovariate(rate)
        if computed:
            yield now, dice.choice(computed)
        else:
            yield now, prompt if dice.random() < missing else own


def played(machine, traffic, rate, messages=20000, seed=1, computed=None):
    """Seconds to the first token of so many messages, and seconds a token of their replies, in two lists; the first tenth
    of the run is left out. A machine with nothing to do begins with a message at once."""
    _, prompt, _ = model.lengths(traffic)
    later_tokens = max(1, round(traffic["reply_tokens"]) - 1)
    coming = arrivals(traffic, rate, random.Random(seed), computed)
    arrival = next(coming)
    waiting, ends = collections.deque(), collections.defaultdict(list)
    first_tokens, reply_tokens = [], []
    now, step, streams = 0.0, 0, 0
    while len(reply_tokens) < messages:
        if not waiting and streams == 0:
            now = max(now, arrival[0])
        while arrival[0] <= now:
            waiting.append(list(arrival))
            arrival = next(coming)
        rows, done = machine["step_tokens"] - streams, []
        tokens = 0
        while waiting and rows > 0 and streams + len(done) < machine["slots"]:
            taken = min(rows, waiting[0][1])
            waiting[0][1] -= taken
            rows -= taken
            tokens += taken
            if waiting[0][1] <= 1e-9:
                done.append(waiting.popleft()[0])
        now += model.decode_s(machine, streams, prompt) + (model.prompt_s(machine, streams, tokens) if tokens else 0)
        step += 1
        ended = ends.pop(step, [])
        reply_tokens.extend((now - begun) / later_tokens for begun in ended)
        first_tokens.extend(now - came for came in done)
        streams += len(done) - len(ended)
        ends[step + later_tokens].extend([now] * len(done))
    return first_tokens[messages // 10 :], reply_tokens[messages // 10 :]


def figures(machine, traffic, rate, messages=20000):
    """Percentiles of the time to the first token, and a reply's tokens a second."""
    first_tokens, reply_tokens = played(machine, traffic, rate, messages)
    times = sorted(first_tokens)
    found = {f"p{part}_ms": times[int(part / 100 * len(times))] * 1e3 for part in (50, 90, 99)}
    return found | {"tokens_per_second": len(reply_tokens) / sum(reply_tokens)}
