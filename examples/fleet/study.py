"""The published case study's numbers, computed again from each other, and what is wrong in them.

The case study is of the service that inspired kaiju. Character.AI published 20,000 messages a second, less than $0.01
an hour of conversation, 33 times and 13.5 times less, 95% of prompt tokens found, and a KV cache more than 20 times
smaller (2024). The rest are the study's estimates.
"""

DAY_S, YEAR_DAYS = 86400, 365
MESSAGES_PER_SECOND, USERS_A_DAY, DOLLARS_AN_HOUR = 20000, 100e6, 0.01
TOKENS_A_DAY, SESSIONS, TOKENS_A_MESSAGE = 20e9, 50000, 512
GPUS, GPU_DOLLARS = 3000, 2
MIB = 2**20


def fleet_dollars(hours=1.0):
    return GPUS * GPU_DOLLARS * hours


def message_dollars():
    return fleet_dollars() / (MESSAGES_PER_SECOND * 3600)


def kv_bytes(tokens=4096, heads=32, head_dim=128, bytes_each=2, layers=1):
    return tokens * 2 * heads * head_dim * bytes_each * layers


def rows():
    """(claim, computed again, verdict)"""
    year = USERS_A_DAY * YEAR_DAYS * DOLLARS_AN_HOUR
    messages_a_user = MESSAGES_PER_SECOND * DAY_S / USERS_A_DAY
    wrong_refusals = MESSAGES_PER_SECOND * 720 * 0.1
    return [
        (
            "$365 M a year",
            f"100 M users x 365 hours x $0.01 = ${year / 1e6:.0f} M",
            "follows, from a bound (less than $0.01) and not from a bill",
        ),
        (
            "$3.65 a user and year",
            f"365 hours x $0.01 = ${YEAR_DAYS * DOLLARS_AN_HOUR:.2f}",
            "the same bound once more",
        ),
        (
            "13.5 times cheaper: $4.75 B",
            f"$4.75 B / $365 M = {4.75e9 / year:.1f}; 13.5 x $365 M = ${13.5 * year / 1e9:.2f} B",
            "wrong: 13.5 and $4.75 B do not belong together, 13.0 and $4.75 B do",
        ),
        (
            "33 times cheaper than in 2022",
            f"33 x $0.01 = ${33 * DOLLARS_AN_HOUR:.2f} an hour then",
            "cannot be checked: nothing of 2022 is published",
        ),
        (
            "20,000 messages a second, 100 M users of an hour a day",
            f"{messages_a_user:.1f} messages a user and day; with one a minute it would be "
            f"{USERS_A_DAY * 60 / DAY_S:,.0f} a second",
            "contradict each other, unless an hour of talk has 17 messages",
        ),
        ("20 B tokens a day are 231 k a second", f"20 B / 86,400 = {TOKENS_A_DAY / DAY_S:,.0f}", "right"),
        (
            "20 B tokens a day, 20,000 messages a second, 512 tokens a message",
            f"{TOKENS_A_DAY / DAY_S / MESSAGES_PER_SECOND:.1f} tokens a message; with 512 it would be "
            f"{MESSAGES_PER_SECOND * TOKENS_A_MESSAGE * DAY_S / 1e9:,.0f} B a day",
            f"wrong by a factor of {MESSAGES_PER_SECOND * TOKENS_A_MESSAGE * DAY_S / TOKENS_A_DAY:.0f}",
        ),
        (
            "50,000 sessions at once",
            f"each sends every {SESSIONS / MESSAGES_PER_SECOND:.1f} s; with a message a minute "
            f"20,000 a second are {MESSAGES_PER_SECOND * 60 / 1e6:.1f} M sessions",
            "wrong, or no session reads its replies",
        ),
        (
            "250 to 500 messages a second that a pre-gate saves, 0.5 to 1%",
            f"0.5 to 1% of 20,000 are {MESSAGES_PER_SECOND * 0.005:.0f} to {MESSAGES_PER_SECOND * 0.01:.0f}",
            "50,000 sessions were taken for messages a second",
        ),
        (
            "3,000 GPUs at $2: $6,000 an hour",
            f"${fleet_dollars():,.0f}; ${message_dollars():.7f} a message, "
            f"${60 * message_dollars():.4f} an hour of 60 messages, ${fleet_dollars(8760) / 1e6:.1f} M a year",
            f"right, and {year / fleet_dollars(8760):.1f} times less than its $365 M a year",
        ),
        (
            "$0.001 a free message, $0.003 a paid one",
            f"{0.001 / message_dollars():.0f} and {0.003 / message_dollars():.0f} "
            f"times what its fleet costs; 60 of them are $0.06 an hour",
            "six times looser than less than $0.01 an hour",
        ),
        (
            "231 k tokens a second on 3,000 GPUs",
            f"{TOKENS_A_DAY / DAY_S / GPUS:.0f} tokens a second each; 20,000 messages of "
            f"512 are {MESSAGES_PER_SECOND * TOKENS_A_MESSAGE / GPUS:,.0f}",
            "one of the two is not this fleet's traffic",
        ),
        (
            "KV of 4k tokens: 64, 2 and 1 MB",
            f"{kv_bytes() / MIB:.0f}, {kv_bytes(heads=1) / MIB:.0f} and "
            f"{kv_bytes(heads=1, bytes_each=1) / MIB:.0f} MiB of one layer; 49 layers: "
            f"{kv_bytes(layers=49) / 2**30:.1f} GiB, {kv_bytes(heads=1, layers=49) / MIB:.0f} and "
            f"{kv_bytes(heads=1, bytes_each=1, layers=49) / MIB:.0f} MiB",
            "right for one layer, and taken for a model's",
        ),
        (
            "60% found; published: 95%",
            f"without caches prefill grows 1 / (1 - 0.6) = {1 / 0.4:.1f} times; with 95% found {1 / 0.05:.0f} times",
            "its 2.5 is of 60%; at the published 95% lost affinity costs 20 times the prefill",
        ),
        (
            "prompts of 4,000 to 16,000 tokens, a context of 4k",
            "only the shortest card fits, with no history",
            "contradict each other",
        ),
        (
            "lost affinity: $5,450 for 15 minutes",
            f"the whole fleet costs ${fleet_dollars(0.25):,.0f}; 1.5 times more work "
            f"at most ${1.5 * fleet_dollars(0.25):,.0f}",
            "more than any computing in it",
        ),
        (
            "wrong refusals: $60,000 for 12 minutes of 10%",
            f"{wrong_refusals / 1e6:.2f} M messages, ${60000 / wrong_refusals:.3f} each; the fleet costs "
            f"${fleet_dollars(0.2):,.0f}",
            f"{60000 / wrong_refusals / message_dollars():.0f} times a message's cost: goodwill, "
            "not computing, and no formula is given",
        ),
        ("43 minutes of downtime a month", f"0.1% of 30 days = {30 * 24 * 60 / 1000:.1f} minutes", "right: 99.9%"),
    ]
