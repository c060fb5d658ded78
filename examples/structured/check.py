#!/usr/bin/env python3
"""Counts how many structured replies are valid: N replies over the schemas below, each checked with jsonschema.

    python3 examples/structured/check.py [--model FILE] [--count N] [--threads N] [--max-tokens N] [--seed N]
                                         [--backend NAME]

Needs the packages kaiju, llguidance and jsonschema[format]. A reply that ends by itself must be valid; one that
max_tokens cut off counts as cut off. Prints the counts and a digest of the tokens of all replies, which is the same on
every backend, and exits with 1 if a reply that ended by itself is not valid.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import sys
import time

import jsonschema

import kaiju
from kaiju.structured import Structured


def text(most=12, **more):
    return {"type": "string", "maxLength": most, **more}


def whole(low, high):
    return {"type": "integer", "minimum": low, "maximum": high}


def one_of(*values):
    return {"enum": list(values)}


def array(items, most=3, **more):
    return {"type": "array", "items": items, "maxItems": most, **more}


def record(optional=(), **properties):
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


FLAG = {"type": "boolean"}
NOTHING = {"type": "null"}
POINT = record(x=whole(-99, 99), y=whole(-99, 99))
PERSON = record(name=text(), age=whole(0, 120))

# All sizes are bounded, so that max_tokens suffices for every reply. The formats date, time and date-time are not among
# them: llguidance knows no calendar (0299-02-29 passes), and lets the fraction of a second be of any length.
SCHEMAS = [
    FLAG,
    NOTHING,
    text(20),
    text(10, minLength=3),
    whole(0, 9),
    whole(-1000, 1000),
    whole(1, 1),
    one_of("red", "green", "blue"),
    one_of(1, 2.5, "three", None, True, [4], {"five": 6}),
    {"const": "exactly this"},
    {"const": {"a": [1, 2, {"b": None}]}},
    {"type": ["string", "null"], "maxLength": 8},
    {"type": ["integer", "boolean"], "minimum": 0, "maximum": 50},
    {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
    {"type": "string", "pattern": "^(yes|no|maybe)$"},
    {"type": "string", "pattern": "^[0-9a-f]{8}$"},
    {"type": "string", "pattern": "^[A-Z][a-z]{1,9}( [A-Z][a-z]{1,9})?$"},
    {"type": "string", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$"},
    {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
    {"type": "string", "pattern": "^v[0-9]{1,2}(\\.[0-9]{1,2}){2}(-beta)?$"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100},
    {"type": "integer", "exclusiveMinimum": 10, "exclusiveMaximum": 20},
    array(whole(0, 9)),
    array(text(6), 4, minItems=1),
    array(FLAG, 5, minItems=5),
    array(one_of("sword", "shield", "potion"), 4),
    array(array(whole(0, 1), 3, minItems=3), 3, minItems=3),
    array(POINT, 3),
    {"type": "array", "prefixItems": [text(5), whole(0, 5), FLAG], "items": False, "minItems": 3, "maxItems": 3},
    POINT,
    PERSON,
    record(),
    record(("nickname",), name=text(), nickname=text()),
    record(("a", "b", "c"), a=whole(0, 9), b=FLAG, c=NOTHING),
    record(name=text(16), hit_points=whole(1, 500), weapons=array(one_of("axe", "bow", "staff"))),
    record(title=text(20), year=whole(1900, 2100), tags=array(text(8), 3)),
    record(person=PERSON, friends=array(PERSON, 2)),
    record(position=POINT, velocity=POINT, mass=whole(1, 1000)),
    record(city=text(), country=one_of("FR", "DE", "JP", "BR"), visited=FLAG),
    record(question=text(24), answers=array(text(12), 3, minItems=2), correct=whole(0, 2)),
    record(action=one_of("move", "attack", "wait"), target={"anyOf": [POINT, NOTHING]}),
    record(mood=one_of("happy", "sad", "angry"), reason=text(30)),
    record(level1=record(level2=record(level3=record(value=whole(0, 99))))),
    record(items=array(record(id=whole(1, 99), name=text(8), price=whole(0, 9999)), 3, minItems=1)),
    record(**{"key with spaces": text(5), "ключ": whole(0, 9), "quote\"d": FLAG}),
    {"anyOf": [whole(0, 9), text(5), POINT]},
    {"anyOf": [record(kind={"const": "circle"}, radius=whole(1, 50)),
               record(kind={"const": "square"}, side=whole(1, 50))]},
    {"$defs": {"colour": one_of("red", "blue")}, **record(front={"$ref": "#/$defs/colour"},
                                                          back={"$ref": "#/$defs/colour"})},
    {"$defs": {"pair": array(whole(0, 9), 2, minItems=2)}, **array({"$ref": "#/$defs/pair"}, 3)},
    {"allOf": [record(name=text(8), age=whole(0, 99)), {"properties": {"age": {"minimum": 18}}}]},
    record(name=text(10, pattern="^[a-z]+$"), code={"type": "string", "pattern": "^[A-Z]{2}[0-9]{2}$"}),
    record(table=text(6, pattern="^[A-F][1-9]$"), guests=whole(1, 12), vegetarian=FLAG),
    record(temperature=whole(-40, 50), unit=one_of("C", "F"), readings=array(whole(-40, 50), 5, minItems=2)),
    record(("error",), ok=FLAG, error=record(code=whole(100, 599), message=text(20))),
]

ASKED = [
    "Tell me about yourself.", "Describe a robot.", "What did you do today?", "Invent a hero.", "What is in the box?",
    "Give me an example.", "Answer in JSON, please.", "Where are we going?",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a checkpoint; without it, the bundled model")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=16, help="replies at once")
    parser.add_argument("--max-tokens", type=int, default=600)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="auto", help="cuda, or amx, avx512, avxvnni, avx2, i8mm, neon, portable for a kind of CPU")
    arguments = parser.parse_args()

    model = kaiju.Model(arguments.model)
    engine = model.engine(max_running=arguments.threads, cache_bytes=256 << 20, backend=arguments.backend)
    begin = time.monotonic()
    structured = Structured(model)
    print(f"{model.name}: {model.vocabulary} tokens, read in {time.monotonic() - begin:.1f} s; "
          f"{len(SCHEMAS)} schemas")
    kind = jsonschema.Draft202012Validator
    validators = [kind(schema, format_checker=kind.FORMAT_CHECKER) for schema in SCHEMAS]

    def one(i):
        which = i % len(SCHEMAS)
        with engine.session() as session:
            reply = structured.reply(session, ASKED[i // len(SCHEMAS) % len(ASKED)], schema=SCHEMAS[which],
                                     temperature=arguments.temperature, seed=arguments.seed + i,
                                     max_tokens=arguments.max_tokens)
        if reply.reason != kaiju.Reason.STOP_TOKEN:
            return "cut off", which, reply
        try:
            validators[which].validate(json.loads(reply))
        except (ValueError, jsonschema.ValidationError) as error:
            return f"not valid: {str(error).splitlines()[0]}", which, reply
        return "valid", which, reply

    begin, tokens, counts, shown, digest = time.monotonic(), 0, collections.Counter(), 0, hashlib.sha256()
    with concurrent.futures.ThreadPoolExecutor(arguments.threads) as pool:
        for outcome, which, reply in pool.map(one, range(arguments.count)):
            counts[outcome.split(":")[0]] += 1
            tokens += reply.generated_tokens
            digest.update(json.dumps(list(reply.tokens)).encode())
            if outcome != "valid" and shown < 20:
                shown += 1
                print(f"schema {which}, {outcome}: {str(reply)[:200]!r}")
    seconds = time.monotonic() - begin
    print(f"{arguments.count} replies: {counts['valid']} valid, {counts['not valid']} not valid, "
          f"{counts['cut off']} cut off at {arguments.max_tokens} tokens; {tokens} tokens in {seconds:.1f} s, "
          f"{tokens / seconds:.0f} tokens/s")
    print(f"tokens of all replies: sha256 {digest.hexdigest()[:32]}")
    return 1 if counts["not valid"] else 0


if __name__ == "__main__":
    sys.exit(main())
