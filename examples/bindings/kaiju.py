"""kaiju from Python through ctypes alone: no compiled glue, the C header is all it knows.

    import kaiju
    engine = kaiju.Engine(kaiju.Model("model.safetensors"), threads=2)
    with engine.session() as session:
        print(session.reply([("card", "Wren\nWren is a robot gardener."), ("user", "hello!")], temperature=0))

The shared library is found through $KAIJU_LIBRARY, in a build of this source tree, or where the system looks for libraries.
"""

import ctypes as c
import glob
import os

MODEL_VOCABULARY, MODEL_CONTEXT = 1, 2
ROLES = {"card": 1, "user": 2, "character": 3}
ASK_FOR_REPLY, CLOSE_LAST = 1, 2
_OPTIONS = {  # name: (number, kind)
    "max_sessions": (200, "i"), "step_tokens": (202, "i"), "max_running": (203, "i"), "backend": (210, "s"), "threads": (211, "i"),
    "max_tokens": (300, "i"), "temperature": (301, "f"), "top_k": (302, "i"), "top_p": (303, "f"), "min_p": (304, "f"), "seed": (305, "i"),
    "repetition_penalty": (306, "f"), "stop": (308, "s"), "stream": (309, "i"), "priority": (311, "i"), "max_events": (206, "i"), "reserve_tokens": (207, "i"),
}
_TEXT = c.CFUNCTYPE(c.c_int32, c.POINTER(c.c_char), c.c_size_t, c.c_void_p)


class Error(Exception):
    pass


class _Message(c.Structure):
    _fields_ = [("role", c.c_int32), ("reserved", c.c_int32), ("content", c.c_char_p), ("content_size", c.c_size_t)]


class Event(c.Structure):
    """kaiju_event: counts and times of a finished request."""
    _fields_ = [("request", c.c_uint64), ("user_data", c.c_void_p), ("kind", c.c_int32), ("reason", c.c_int32), ("status", c.c_int32), ("reserved", c.c_int32),
                ("tokens", c.c_void_p), ("token_count", c.c_size_t), ("values", c.c_void_p), ("value_count", c.c_size_t), ("text", c.c_void_p),
                ("text_size", c.c_size_t), ("prompt_tokens", c.c_int32), ("cached_tokens", c.c_int32), ("generated_tokens", c.c_int32),
                ("reserved2", c.c_int32), ("wait_nanoseconds", c.c_int64), ("prefill_nanoseconds", c.c_int64), ("decode_nanoseconds", c.c_int64)]


def _load():
    tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    found = [os.environ["KAIJU_LIBRARY"]] if "KAIJU_LIBRARY" in os.environ else glob.glob(os.path.join(tree, "build", "**", "libkaiju.so*"), recursive=True)
    try:
        library = c.CDLL(sorted(found)[0] if found else "libkaiju.so.0")
    except OSError as error:
        raise Error(f"cannot load the kaiju library: {error}; build or install it, or name it in KAIJU_LIBRARY") from None
    library.kaiju_error_message.restype = c.c_char_p
    library.kaiju_model_number.restype = c.c_int64
    for name in ("error", "options", "model", "engine", "session"):
        getattr(library, f"kaiju_{name}_destroy").argtypes = [c.c_void_p]
    return library


_lib = _load()


def _call(function, *arguments):
    error = c.c_void_p()
    if function(*arguments, c.byref(error)) != 0:
        message = _lib.kaiju_error_message(error).decode() if error else "kaiju: out of memory"
        _lib.kaiju_error_destroy(error)
        raise Error(message)


class _Handle:
    """Owns a C handle; `kind` names its destroy function."""

    def __init__(self, kind):
        self._kind, self._handle = kind, c.c_void_p()

    def close(self):
        if self._handle:
            getattr(_lib, f"kaiju_{self._kind}_destroy")(self._handle)
            self._handle = c.c_void_p()

    __del__ = close

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Options(_Handle):
    def __init__(self, values):
        super().__init__("options")
        if _lib.kaiju_options_create(c.byref(self._handle)) != 0:
            raise Error("kaiju: out of memory")
        for name, value in values.items():
            if name not in _OPTIONS:
                raise Error(f"no option named {name}; there are {', '.join(_OPTIONS)}")
            number, kind = _OPTIONS[name]
            if kind == "s":
                text = value.encode()
                _call(_lib.kaiju_options_set_string, self._handle, c.c_int32(number), text, c.c_size_t(len(text)))
            elif kind == "f":
                _call(_lib.kaiju_options_set_float, self._handle, c.c_int32(number), c.c_double(value))
            else:
                _call(_lib.kaiju_options_set_int, self._handle, c.c_int32(number), c.c_int64(value))


class Model(_Handle):
    def __init__(self, path):
        super().__init__("model")
        _call(_lib.kaiju_model_load, None, os.fsencode(path), None, None, None, c.byref(self._handle))
        self.vocabulary = _lib.kaiju_model_number(self._handle, c.c_int32(MODEL_VOCABULARY))
        self.context = _lib.kaiju_model_number(self._handle, c.c_int32(MODEL_CONTEXT))

    def tokenize(self, text):
        data = text.encode()
        return self._fill(lambda buffer, capacity, count: _call(_lib.kaiju_tokenize, self._handle, data, c.c_size_t(len(data)), buffer, capacity, count))

    def chat(self, messages, flags=ASK_FOR_REPLY):
        """Token ids of [(role, text), ...] with roles card, user, character."""
        array = (_Message * len(messages))()
        for slot, (role, text) in zip(array, messages):
            if role not in ROLES:
                raise Error(f"no role {role!r}; there are {', '.join(ROLES)}")
            data = text.encode()
            slot.role, slot.content, slot.content_size = ROLES[role], data, len(data)
        return self._fill(lambda buffer, capacity, count: _call(_lib.kaiju_chat_format, self._handle, array, c.c_size_t(c.sizeof(_Message)),
                                                                c.c_size_t(len(messages)), c.c_int32(flags), buffer, capacity, count))

    def _fill(self, call):
        count = c.c_size_t()
        call(None, c.c_size_t(0), c.byref(count))
        buffer = (c.c_int32 * count.value)()
        call(buffer, c.c_size_t(count.value), c.byref(count))
        return list(buffer)


class Engine(_Handle):
    def __init__(self, model, **options):
        super().__init__("engine")
        self.model = model
        with _Options(options) as bag:
            _call(_lib.kaiju_engine_create, model._handle, bag._handle, c.byref(self._handle))

    def session(self):
        return Session(self)


class Session(_Handle):
    def __init__(self, engine):
        super().__init__("session")
        self.engine = engine
        _call(_lib.kaiju_session_create, engine._handle, c.byref(self._handle))

    def generate(self, tokens, on_text=None, **options):
        """Appends tokens to the history and returns (reply text, Event)."""
        pieces, done = [], Event()

        def take(text, size, _):
            piece = c.string_at(text, size).decode()
            pieces.append(piece)
            return int(bool(on_text and on_text(piece)))

        ids = (c.c_int32 * len(tokens))(*tokens)
        with _Options(options) as bag:
            _call(_lib.kaiju_generate, self.engine._handle, self._handle, ids, c.c_size_t(len(tokens)), bag._handle, _TEXT(take), None, c.byref(done),
                  c.c_size_t(c.sizeof(Event)))
        return "".join(pieces), done

    def reply(self, messages, flags=ASK_FOR_REPLY, **options):
        return self.generate(self.engine.model.chat(messages, flags), **options)[0]
