"""Persona dialogues of our own: a character card and a chat that asks for, uses and keeps to it.

    sample(seed, index) -> {"name", "card", "turns": [(role, text, weight class)], "far", "values"}

A deterministic function of (seed, index), all of it training side. Some cards are put together from kinds of facts
(persona_card.py), some are written scenes (persona_scenes.py), some take their sentences from many scenes (persona_guests.py).
In a quarter of the samples the facts asked for last appeared 1,100 to 3,000 tokens earlier. `python3 persona.py` shows samples,
`--check` proves separation, determinism and distances, and counts what noise lets through.
"""
import random

import persona_guests

FAR_SHARE = 0.25
SCENE_SHARE = 0.34
GUEST_SHARE = 0.28
TALKATIVE = ((0.35, 0.7), (0.6, 0.25), (1.0, 0.05))  # (share of the samples up to here, share of their acts that is small talk)


def new_random(seed, index):
    return random.Random(seed * 1000003 + index * 7919 + 12345)


def start(r, bank):
    """A talker with its card's facts drawn: general kinds, a written scene, or sentences of many scenes; half of the first two have a few of the third."""
    x, guests = r(), int(r() * 5) if r() < 0.5 else 0
    if x < SCENE_SHARE:
        return persona_guests.SceneHost(r, bank, guests)
    if x < SCENE_SHARE + GUEST_SHARE:
        return persona_guests.KindHost(r, bank, 3 + int(r() * 10))
    t = persona_guests.KindHost(r, bank, guests)
    x = r()
    t.draw_facts(int(2 + r() * 5) if x < 0.4 else int(5 + r() * 8) if x < 0.85 else int(12 + r() * 10))
    return t


def far_chat(t, real):
    """Facts first, then 1,230 to 2,770 tokens of other talk, then questions for those facts. Returns where the other talk lies
    and the targets: (whether the user told it, kind, field)."""
    r, targets = t.r, []
    for _ in range(int(r() * 5)):
        if r() < 0.75:
            k = t.tell(far=True)
            targets += [(True, k, f) for f in t.told_fields(k)]
        else:
            t.ask_fact()
    facts = sorted(t.facts, key=lambda k: r())
    for k in facts[:3 + int(r() * 6)]:
        if not targets or not any((k, f) in t.asked for f in t.card_fields(k)):
            t.kept.add(k)
            targets += [(False, k, f) for f in t.card_fields(k)]
    values = [(t.told if told else t.facts)[k][f] for told, k, f in targets]
    t.tokens, first = 0.0, len(t.turns)
    t.filler(1230 + r() * 1540, real, [v for v in values if len(v) > 2])
    last = len(t.turns)
    targets.sort(key=lambda c: r())
    for told, k, f in targets[:14]:
        (t.ask_told if told else t.ask_fact)(k, f)
        if r() < 0.15:
            t.small()
    return (first, last), values


def sample(seed, index, bank=None, real=None):
    """bank: words of the corpora; real: dialogues as flat lists of turns, used as filler. Both optional."""
    r = new_random(seed, index).random
    t = start(r, bank)
    x = r()
    t.talkative = next(share for limit, share in TALKATIVE if x < limit)
    far = r() < FAR_SHARE
    card = t.write_card()
    t.greet()
    where, values = far_chat(t, real) if far else (None, [])
    if not far:
        for _ in range(3 + int(r() * r() * 26)):
            t.act()
    if r() < 0.15:
        t.goodbye()
    return {"name": t.name, "card": card, "turns": t.turns, "far": where, "values": values, "facts": t.facts, "told": t.told}


if __name__ == "__main__":
    import persona_check
    persona_check.main()
