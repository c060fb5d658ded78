"""A machine's engine step by step: the check of model.py's times to the first token, with the same measured steps.

Messages arrive as a Poisson process. A step computes waiting prompts in order of arrival, at most step_tokens of all
rows and one slot for each message, and gives every stream a token; its length is the model's for so many streams and
prompt tokens. A message's first token comes at the end of the step that ends its prompt.
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


def first_tokens(machine, traffic, rate, messages=20000, seed=1, computed=None):
    """Seconds to the first token of so many messages, in rising order; the first tenth of the run is left out."""
    _, prompt, _ = model.lengths(traffic)
    coming = arrivals(traffic, rate, random.Random(seed), computed)
    arrival = next(coming)
    waiting, times, ends = collections.deque(), [], collections.Counter()
    now, step, streams = 0.0, 0, 0
    while len(times) < messages:
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
        streams += len(done) - ends.pop(step, 0)
        ends[step + round(traffic["reply_tokens"])] += len(done)
        times.extend(now - came for came in done)
    return sorted(times[messages // 10 :])


def percentiles_ms(machine, traffic, rate, messages=20000, seed=1, computed=None, rest=(0.0,)):
    """`rest`: seconds of a request besides its steps, of which one is drawn for each message."""
    dice = random.Random(seed)
    times = sorted(time + dice.choice(rest) for time in first_tokens(machine, traffic, rate, messages, seed, computed))
    return {f"p{part:g}_ms": times[int(part / 100 * len(times))] * 1e3 for part in (50, 90, 99)}
