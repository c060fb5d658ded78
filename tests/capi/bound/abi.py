"""What a binding generator reads in kaiju.h, by cffi: its layouts and signatures are those of capi/kaiju.abi, and a
program made of it alone gets replies.

    abi.py LIBRARY CHECKPOINT [--update]

--update writes capi/kaiju.abi anew: what was there for users of a released version must not change.
"""

import pathlib
import re
import subprocess
import sys

try:
    import cffi
except ImportError:
    print("skipped: cffi is missing (python3-cffi)")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[3]
BASELINE = ROOT / "capi" / "kaiju.abi"


def declarations():
    """The header as cffi takes it: preprocessed, without the system's headers and our marks."""
    text = (ROOT / "capi" / "kaiju.h").read_text()
    text = re.sub(r"^#include <.*>$", "", text, flags=re.M)
    command = ["gcc", "-E", "-P", "-x", "c", "-", "-D__attribute__(x)="]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def interface(ffi, library):
    """Every name of the header with what a compiled program relies on, a line each."""
    lines = []
    types, structs, _ = ffi.list_types()
    for name in types:
        kind = ffi.typeof(name)
        if kind.kind != "struct":
            lines.append(f"type {name}: {kind.cname}")
        elif kind.fields is not None:
            lines.append(f"struct {name}: {ffi.sizeof(name)} bytes")
            for field, of in kind.fields:
                lines.append(f"struct {name}.{field}: {of.type.cname} at {of.offset}")
    for name in structs:
        if name not in types:
            lines.append(f"struct {name}")
    for name in dir(library):
        value = getattr(library, name)
        lines.append(f"value {name}: {value}" if isinstance(value, int) else f"function {name}: {ffi.typeof(value).cname}")
    return sorted(lines)


def compare(found):
    known = BASELINE.read_text().splitlines()
    gone = sorted(set(known) - set(found))
    new = sorted(set(found) - set(known))
    for line in gone:
        print("gone or changed:", line)
    for line in new:
        print("new:", line)
    if gone or new:
        print(f"run {pathlib.Path(__file__).name} with --update if that is meant, and say so in CHANGELOG.md")
    assert not gone and not new


def two_streams(ffi, library, checkpoint):
    error = ffi.new("kaiju_error **")

    def must(status):
        if status != library.KAIJU_OK:
            message = ffi.string(library.kaiju_error_message(error[0])).decode()
            library.kaiju_error_destroy(error[0])
            raise AssertionError(message)

    model, engine, options = ffi.new("kaiju_model **"), ffi.new("kaiju_engine **"), ffi.new("kaiju_options **")
    must(library.kaiju_model_load(ffi.NULL, checkpoint.encode(), ffi.NULL, ffi.NULL, ffi.NULL, model, error))
    must(library.kaiju_engine_create(model[0], ffi.NULL, engine, error))
    must(library.kaiju_options_create(options))
    must(library.kaiju_options_set_int(options[0], library.KAIJU_GENERATE_MAX_TOKENS, 12, error))
    must(library.kaiju_options_set_int(options[0], library.KAIJU_GENERATE_STOP_TOKEN, -1, error))
    prompt = ffi.new("int32_t[]", [1, 20, 30])
    sessions = [ffi.new("kaiju_session **") for _ in range(2)]
    replies = {}
    for session in sessions:
        request = ffi.new("kaiju_request *")
        must(library.kaiju_session_create(engine[0], session, error))
        must(library.kaiju_engine_submit(engine[0], session[0], prompt, 3, options[0], ffi.NULL, request, error))
        replies[request[0]] = []
    events, count, done = ffi.new("kaiju_event[8]"), ffi.new("size_t *"), 0
    while library.kaiju_engine_pending(engine[0]) > 0:
        must(library.kaiju_engine_step(engine[0], error))
        must(library.kaiju_engine_poll(engine[0], events, ffi.sizeof("kaiju_event"), 8, count, error))
        for event in events[0 : count[0]]:
            if event.kind == library.KAIJU_EVENT_TOKEN:
                replies[event.request].append(event.tokens[0])
            done += event.kind == library.KAIJU_EVENT_DONE
    assert done == 2
    first, second = replies.values()
    assert first == second and len(first) == 12
    for session in sessions:
        library.kaiju_session_destroy(session[0])
    library.kaiju_options_destroy(options[0])
    library.kaiju_engine_destroy(engine[0])
    library.kaiju_model_destroy(model[0])


def main():
    ffi = cffi.FFI()
    ffi.cdef(declarations())
    library = ffi.dlopen(sys.argv[1])
    found = interface(ffi, library)
    if "--update" in sys.argv:
        BASELINE.write_text("\n".join(found) + "\n")
    compare(found)
    two_streams(ffi, library, sys.argv[2])
    print(f"{len(found)} lines as in {BASELINE.name}, two streams of 12 tokens")


main()
