"""The case study's incidents and the model's ablations, priced by the model: machines and dollars of computing alone.

What lost users cost cannot be computed from steps. Where the study gives a sum, it is shown beside.
"""

import copy
import math

import model

PER_MIB = 2**20


def changed(value, **changes):
    out = copy.deepcopy(value)
    for name, new in changes.items():
        at = out
        *path, last = name.split("__")
        for part in path:
            at = at[part]
        at[last] = new
    return out


def machines_for(machine, traffic, cards):
    """(machines, limit): the larger of what time and what memory asks for. `cards`: all that the fleet holds, once."""
    alone = changed(traffic, characters_per_machine=0)
    unbounded = changed(machine, kv__memory_bytes=1e18)
    rate, limit = model.capacity(unbounded, alone)
    by_time = traffic["messages_per_second"] * traffic["balance"] / rate
    kv = machine["kv"]
    conversations = traffic["messages_per_second"] * traffic["every_seconds"] * traffic["balance"]
    by_memory = (
        conversations * model.conversation_bytes(machine, traffic)
        + cards * (traffic["card_tokens"] * kv["bytes_per_token"] + kv["window_bytes"])
    ) / kv["memory_bytes"]
    return (math.ceil(by_time), limit) if by_time >= by_memory else (math.ceil(by_memory), "memory")


def models(machine):
    """Machines whose model lacks one of the things that make its KV small. Reads grow too; prefill's attention would
    take longer besides, which is not counted."""
    kv, shape = machine["kv"], machine["shape"]
    slot, window = shape["slot_bytes_per_token"], machine["kv"]["window_tokens"]
    layers = shape["global_layers"] + shape["window_layers"]
    window_of_a_slot = kv["window_bytes"] / shape["window_slots"]
    read = machine["decode"]["context"] * kv["read_bytes_per_token"] + window * kv["window_read_bytes_per_token"]

    def with_kv(**changes):
        return changed(machine, decode__read_bytes=read, **{f"kv__{name}": value for name, value in changes.items()})

    def times(factor):
        return with_kv(
            **{
                name: kv[name] * factor
                for name in ("bytes_per_token", "window_bytes", "read_bytes_per_token", "window_read_bytes_per_token")
            }
        )

    return [
        ("as it is", machine),
        (f"keys and values of {shape['heads']} heads (MHA) for one (MQA)", times(shape["heads"])),
        ("KV of 16 bits for 8", times(2)),
        (
            "KV sharing off: a slot for each layer",
            with_kv(
                bytes_per_token=slot * shape["global_layers"], window_bytes=window_of_a_slot * shape["window_layers"]
            ),
        ),
        (
            "windows off: all layers global, sharing as it is",
            with_kv(
                bytes_per_token=slot * (shape["global_slots"] + shape["window_slots"]),
                window_bytes=0,
                read_bytes_per_token=slot * layers,
                window_read_bytes_per_token=0,
            ),
        ),
        (
            "windows and sharing off",
            with_kv(
                bytes_per_token=slot * layers,
                window_bytes=0,
                read_bytes_per_token=slot * layers,
                window_read_bytes_per_token=0,
            ),
        ),
        ("64 MiB of KV a conversation, card included", with_kv(bytes_per_token=0, window_bytes=64 * PER_MIB)),
        ("1 MiB of KV a conversation, card included", with_kv(bytes_per_token=0, window_bytes=PER_MIB)),
    ]


def ablations(machine, traffic, round_robin_hit_rate):
    """Rows: name, machines, limit, dollars an hour of talk at the peak."""
    cards = traffic["characters_per_machine"] * model.fleet(machine, traffic)["needed"]
    cases = [(name, other, traffic, 0 if "included" in name else cards) for name, other in models(machine)]
    cases.append(("affinity lost: round robin", machine, changed(traffic, hit_rate=round_robin_hit_rate), cards))
    cases.append(
        (
            "no pre-gate: 1% more messages",
            machine,
            changed(traffic, messages_per_second=traffic["messages_per_second"] * 1.01),
            cards,
        )
    )
    rows = []
    for name, other, messages, held in cases:
        machines, limit = machines_for(other, messages, held)
        hour = machines * machine["price_per_hour"]
        rows.append(
            {
                "name": name,
                "machines": machines,
                "limit": limit,
                "dollars_an_hour_of_talk": hour
                / (traffic["messages_per_second"] * 3600)
                * traffic["messages_per_hour"],
            }
        )
    return rows


def incidents(machine, traffic, round_robin_hit_rate):
    """Rows: name, how it is computed, dollars here, dollars in the study (None: it gives none)."""
    base = model.fleet(machine, traffic)
    second, message = traffic["messages_per_second"], base["dollars_a_message"]
    lost = changed(traffic, hit_rate=round_robin_hit_rate)
    more = model.fleet(machine, lost)["machines"] - base["machines"]
    served = model.capacity(machine, lost)[0] / base["rate_of_a_machine"]
    gpu_second = machine["price_per_hour"] / 3600
    _, prompt, _ = model.lengths(traffic)
    edit = 100_000 * prompt * model.prefill_s(machine) * gpu_second
    pinned = base["machines"] * traffic["card_tokens"] * model.prefill_s(machine) * gpu_second
    return [
        (
            "persona drift, 8 minutes until the flag is back",
            f"{second * 480 / 1e6:.1f} M replies written for nothing",
            second * 480 * message,
            None,
        ),
        (
            "wrong refusals, 10% for 12 minutes",
            f"{second * 72 / 1e6:.2f} M replies written for nothing",
            second * 72 * message,
            60000,
        ),
        (
            "calibration drift, a character x 50",
            "cannot happen here: scales are in the checkpoint. The price of one machine drained for 4 hours",
            4 * machine["price_per_hour"],
            20000,
        ),
        (
            "affinity lost for 15 minutes, machines added",
            f"{more:,} more machines for a quarter of an hour",
            more * machine["price_per_hour"] / 4,
            5450,
        ),
        (
            "affinity lost for 15 minutes, none added",
            f"{100 * served:.0f}% of the messages are answered in time; "
            f"{(1 - served) * second * 900 / 1e6:.0f} M are not",
            0.0,
            None,
        ),
        (
            "an edit of a card with 100,000 users, not pinned",
            f"{prompt:,.0f} tokens of each user's prompt again",
            edit,
            None,
        ),
        ("the same, 300 edits a day", "a day", 300 * edit, None),
        (
            "the same, versions pinned to sittings",
            f"the card once on each of {base['machines']} machines, an edit",
            pinned,
            None,
        ),
        ("no pre-gate, a day", "1% more machines", 0.01 * base["dollars_an_hour"] * 24, None),
    ]
