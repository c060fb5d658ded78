"""kaiju from Python through ctypes alone: no compiled glue, the C header is all it knows.

    import kaiju
    engine = kaiju.Engine(kaiju.Model("model.safetensors"), threads=2)
    with engine.session() as session:
        print(session.reply([("card", "Wren\nWren is a robot gardener."), ("user", "hello!")], temperature=0))

    talk = kaiju.Conversation(engine, engine.model.chat([("card", "Wren\nWren is a robot gardener.")], 0))
    first = talk.say(engine.model.chat([("user", "hello!")]), temperature=1, seed=7)
    print(engine.finish(first)[0])
    print(engine.finish(talk.swipe(temperature=1, seed=7))[0])

Options are keywords, named as in kaiju.h after the scope: max_tokens is KAIJU_GENERATE_MAX_TOKENS. Model and Engine, requests, save and restore each read
their own. What C takes repeatedly, stop and stop_token, is one value or a list.

The shared library is found through $KAIJU_LIBRARY, in a build of this source tree, or where the system looks for libraries.
"""

import ctypes as c
import glob
import operator
import os
import threading

MODEL_VOCABULARY, MODEL_CONTEXT, MODEL_LABELS = 1, 2, 3
ROLES = {"card": 1, "user": 2, "character": 3}
ASK_FOR_REPLY, CLOSE_LAST = 1, 2
INPUT, REPLY = 1, 2  # parts of a turn
TOKEN, DONE, FAILED, SUSPENDED, RESUMED = 1, 5, 6, 7, 8  # kinds of events
STOP, LENGTH, CANCELLED, DEADLINE = 1, 2, 3, 4  # reasons why a request is done
_BUILDS = ("chat", "release", "cuda", "tests", "dev")  # folders of build/, the first that has the library; a sanitizer's cannot be loaded
_KINDS = {"i": "an int of 64 bits", "f": "a float", "s": "a str"}


class Error(Exception):
    pass


class _Message(c.Structure):
    _fields_ = [("role", c.c_int32), ("reserved", c.c_int32), ("content", c.c_char_p), ("content_size", c.c_size_t)]


class _OptionInfo(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("help", c.c_char_p), ("type", c.c_int32), ("repeatable", c.c_int32),
                ("minimum", c.c_double), ("maximum", c.c_double), ("standard", c.c_double)]


class Event(c.Structure):
    """kaiju_event. From Engine.poll it also has `said`, its text, `ids`, its token and the alternatives that logprobs asks for, `logprobs`, their
    log-probabilities, and `judged`, the classifier's scores; their C pointers are only good there. The last event of a request, from Engine.finish and
    Session.generate, has in `ids`, `logprobs` and `judged` those of all its tokens, a list for each."""
    _fields_ = [("request", c.c_uint64), ("user_data", c.c_void_p), ("kind", c.c_int32), ("reason", c.c_int32), ("status", c.c_int32), ("reserved", c.c_int32),
                ("tokens", c.c_void_p), ("token_count", c.c_size_t), ("values", c.c_void_p), ("value_count", c.c_size_t), ("text", c.c_void_p),
                ("text_size", c.c_size_t), ("prompt_tokens", c.c_int32), ("cached_tokens", c.c_int32), ("generated_tokens", c.c_int32),
                ("reserved2", c.c_int32), ("wait_nanoseconds", c.c_int64), ("prefill_nanoseconds", c.c_int64), ("decode_nanoseconds", c.c_int64),
                ("scores", c.c_void_p), ("score_count", c.c_size_t)]


class ConversationInfo(c.Structure):
    """kaiju_conversation_info."""
    _fields_ = [("struct_size", c.c_size_t)] + [(name, c.c_uint64) for name in ("turns", "turns_dropped", "replies", "reply", "tokens")]


def _load():
    build = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
    found = [os.environ["KAIJU_LIBRARY"]] if "KAIJU_LIBRARY" in os.environ else [path for name in _BUILDS for path in sorted(glob.glob(os.path.join(build, name, "libkaiju.so*")))]
    try:
        library = c.CDLL(found[0] if found else "libkaiju.so.0")
    except OSError as error:
        raise Error(f"cannot load the kaiju library: {error}; build or install it, or name it in KAIJU_LIBRARY") from None
    library.kaiju_error_message.restype = c.c_char_p
    library.kaiju_model_number.restype = library.kaiju_engine_now.restype = c.c_int64
    library.kaiju_engine_poll.restype = library.kaiju_engine_pending.restype = c.c_size_t
    for name in ("error", "options", "model", "engine", "session", "conversation"):
        getattr(library, f"kaiju_{name}_destroy").argtypes = [c.c_void_p]
    return library


_lib = _load()


def _options():
    """{name: (number, kind, repeatable)} of all that the library knows."""
    known, info = {}, _OptionInfo(struct_size=c.sizeof(_OptionInfo))
    for number in range(100, 500):  # the four scopes
        if _lib.kaiju_option_describe(c.c_int32(number), c.byref(info)) == 0:
            known[info.name.decode().split(".")[1]] = number, chr(info.type), info.repeatable
    return known


_OPTIONS = _options()


def _call(function, *arguments):
    error = c.c_void_p()
    if function(*arguments, c.byref(error)) != 0:
        message = _lib.kaiju_error_message(error).decode() if error else "kaiju: out of memory"
        _lib.kaiju_error_destroy(error)
        raise Error(message)


def _fill(call, kind=c.c_int32):
    """What `call(buffer, capacity, count)` writes, asked for its size first."""
    count = c.c_size_t()
    call(None, c.c_size_t(0), c.byref(count))
    buffer = (kind * count.value)()
    call(buffer, c.c_size_t(count.value), c.byref(count))
    return buffer


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
            number, kind, repeatable = _OPTIONS[name]
            for one in value if repeatable and isinstance(value, (list, tuple)) else [value]:
                self._set(name, one, number, kind)

    def _set(self, name, value, number, kind):
        try:
            if kind == "s":
                text = value.encode()
                function, arguments = _lib.kaiju_options_set_string, (text, c.c_size_t(len(text)))
            elif kind == "f":
                function, arguments = _lib.kaiju_options_set_float, (c.c_double(value),)
            else:
                whole = operator.index(value)
                if not -2**63 <= whole < (2**64 if name == "seed" else 2**63):  # ctypes cuts off what is beyond; a seed may come without a sign
                    raise OverflowError
                function, arguments = _lib.kaiju_options_set_int, (c.c_int64(whole),)
        except (AttributeError, TypeError, OverflowError):
            raise TypeError(f"{name} is {value!r}; it must be {_KINDS[kind]}") from None
        _call(function, self._handle, c.c_int32(number), *arguments)


class Model(_Handle):
    def __init__(self, path, **options):
        super().__init__("model")
        with _Options(options) as bag:
            _call(_lib.kaiju_model_load, None, os.fsencode(path), bag._handle, None, None, c.byref(self._handle))
        self.vocabulary = _lib.kaiju_model_number(self._handle, c.c_int32(MODEL_VOCABULARY))
        self.context = _lib.kaiju_model_number(self._handle, c.c_int32(MODEL_CONTEXT))
        self.labels = [self._label(i) for i in range(_lib.kaiju_model_number(self._handle, c.c_int32(MODEL_LABELS)))]  # of the classifier

    def _label(self, index):
        text, size = c.c_void_p(), c.c_size_t()
        if _lib.kaiju_model_label(self._handle, c.c_size_t(index), c.byref(text), c.byref(size)) != 0:
            raise Error(f"no label {index}")
        return c.string_at(text, size.value).decode()

    def _ids(self, tokens):
        for i, token in enumerate(tokens):  # here, for ctypes cuts off what is beyond 32 bits
            if not 0 <= operator.index(token) < self.vocabulary:
                raise Error(f"token {i} is {token}; tokens are 0 to {self.vocabulary - 1}")
        return (c.c_int32 * len(tokens))(*tokens), c.c_size_t(len(tokens))

    def tokenize(self, text):
        data = text.encode()
        return list(_fill(lambda *buffer: _call(_lib.kaiju_tokenize, self._handle, data, c.c_size_t(len(data)), *buffer)))

    def detokenize(self, tokens):
        return bytes(_fill(lambda *buffer: _call(_lib.kaiju_detokenize, self._handle, *self._ids(tokens), *buffer), c.c_ubyte)).decode(errors="replace")

    def chat(self, messages, flags=ASK_FOR_REPLY):
        """Token ids of [(role, text), ...] with roles card, user, character."""
        array = (_Message * len(messages))()
        for slot, (role, text) in zip(array, messages):
            if role not in ROLES:
                raise Error(f"no role {role!r}; there are {', '.join(ROLES)}")
            data = text.encode()
            slot.role, slot.content, slot.content_size = ROLES[role], data, len(data)
        return list(_fill(lambda *buffer: _call(_lib.kaiju_chat_format, self._handle, array, c.c_size_t(c.sizeof(_Message)), c.c_size_t(len(messages)),
                                                c.c_int32(flags), *buffer)))


class Engine(_Handle):
    def __init__(self, model, **options):
        super().__init__("engine")
        self.model = model
        self._open = {}  # requests whose last event was not polled: whether a deadline ends them
        self._aside = {}  # of those: the thread that suspended them
        self._kept = {}  # events of requests that finish() was not asked about yet
        self._lock = threading.RLock()  # of these three; never held while a step computes
        with _Options(options) as bag:
            _call(_lib.kaiju_engine_create, model._handle, bag._handle, c.byref(self._handle))

    def session(self):
        return Session(self)

    def restore(self, path, **options):
        """A new session of what Session.save wrote, with the same key if it had one."""
        with _Options(options) as bag:
            return Session(self, lambda out: _call(_lib.kaiju_session_restore_file, self._handle, bag._handle, os.fsencode(path), out))

    # -- the loop: requests are numbers, given by Session.submit, Conversation.say and swipe --
    def finish(self, request, on_text=None):
        """Steps until the request is done and returns (reply text, last Event). on_text gets text as it comes; what is true of its answers stops the
        reply, which is an Error then. The events of others are kept for their finish. An Error, too, is a request whose last event finish or poll
        took already, and one that this thread suspended once nothing else is left to compute: resume it and finish again. For a resume that another
        thread owes, and for a deadline, it waits."""
        stopped = False
        while request in self._open:
            self.step()
            with self._lock:
                events = self.poll()
                for event in events:
                    self._kept.setdefault(event.request, []).append(event)
            for event in events:
                if on_text and event.request == request and event.kind != FAILED and event.said and not stopped and on_text(event.said):
                    stopped = True
                    self.cancel(request)
            if not events and not _lib.kaiju_engine_wait(self._handle, c.c_int64(10**7)):
                if self._aside.get(request) == threading.get_ident() and not self._open.get(request):
                    raise Error(f"request {request} is suspended and nothing else is left to compute: resume or cancel it, then finish it")
        with self._lock:
            events = self._kept.pop(request, [])
        if not events or events[-1].kind not in (DONE, FAILED):
            raise Error(f"request {request} is not pending: it is none of this engine's, or finish or poll took its last event already")
        last = events[-1]
        if last.kind == FAILED:
            raise Error(last.said)
        if stopped:
            raise Error("on_text stopped the reply")
        for what in ("ids", "logprobs", "judged"):
            setattr(last, what, [getattr(event, what) for event in events if getattr(event, what)])
        return "".join(event.said for event in events), last

    def step(self):
        _call(_lib.kaiju_engine_step, self._handle)

    def poll(self):
        """The events that are here, oldest first. For hosts with a loop of their own: what it took, finish does not see."""
        events = []
        with self._lock:
            while True:
                event = Event()
                if _lib.kaiju_engine_poll(self._handle, c.byref(event), c.c_size_t(c.sizeof(Event)), c.c_size_t(1)) == 0:
                    return events
                event.said = c.string_at(event.text, event.text_size).decode() if event.text_size else ""
                event.ids = list(c.cast(event.tokens, c.POINTER(c.c_int32))[:event.token_count])
                event.logprobs = list(c.cast(event.values, c.POINTER(c.c_float))[:event.value_count])
                event.judged = list(c.cast(event.scores, c.POINTER(c.c_float))[:event.score_count])
                if event.kind in (DONE, FAILED):
                    self._open.pop(event.request, None)
                    self._aside.pop(event.request, None)
                events.append(event)

    def pending(self):
        """Requests whose last event has not been polled."""
        return _lib.kaiju_engine_pending(self._handle)

    def now(self):
        """The engine's clock in nanoseconds: a deadline is this and something more."""
        return _lib.kaiju_engine_now(self._handle)

    def cancel(self, request):
        """Takes effect at the next step, like suspend and resume, whatever the request's state."""
        self._tell(_lib.kaiju_engine_cancel, request)

    def suspend(self, request):
        with self._lock:
            if request in self._open:
                self._aside[request] = threading.get_ident()
        self._tell(_lib.kaiju_engine_suspend, request)

    def resume(self, request):
        self._aside.pop(request, None)
        self._tell(_lib.kaiju_engine_resume, request)

    def _submit(self, options, function, *arguments):
        request = c.c_uint64()
        with _Options(options) as bag, self._lock:
            _call(function, *arguments, bag._handle, None, c.byref(request))
            self._open[request.value] = bool(options.get("deadline"))
        return request.value

    def _tell(self, function, request):
        if function(self._handle, c.c_uint64(request)) != 0:
            raise Error("the engine has stopped")


class Session(_Handle):
    def __init__(self, engine, _made=None):
        super().__init__("session")
        self.engine = engine
        make = _made or (lambda out: _call(_lib.kaiju_session_create, engine._handle, out))
        make(c.byref(self._handle))

    def submit(self, tokens, **options):
        """Appends tokens to the history and generates; the request, for Engine.finish."""
        return self.engine._submit(options, _lib.kaiju_engine_submit, self.engine._handle, self._handle, *self.engine.model._ids(tokens))

    def generate(self, tokens, on_text=None, **options):
        """Appends tokens to the history and returns (reply text, last Event), as Engine.finish does."""
        return self.engine.finish(self.submit(tokens, **options), on_text)

    def reply(self, messages, flags=ASK_FOR_REPLY, **options):
        return self.generate(self.engine.model.chat(messages, flags), **options)[0]

    def save(self, path, **options):
        """The history and its KV, for Engine.restore; between two steps, with no request unfinished."""
        with _Options(options) as bag:
            _call(_lib.kaiju_session_save_file, self._handle, bag._handle, os.fsencode(path))


class Conversation(_Handle):
    """The turns of one chat and their KV: the head stays whatever is cut when the chat outgrows the context. An input ends with what asks for a
    reply: Model.chat([("user", text)]). A request that is done is part of its turn by itself."""

    def __init__(self, engine, head=(), _made=None):
        super().__init__("conversation")
        self.engine = engine
        make = _made or (lambda out: _call(_lib.kaiju_conversation_create, engine._handle, *engine.model._ids(head), out))
        make(c.byref(self._handle))

    def say(self, tokens, **options):
        """A new turn; the request, for Engine.finish."""
        return self.engine._submit(options, _lib.kaiju_conversation_say, self._handle, *self.engine.model._ids(tokens))

    def swipe(self, **options):
        """Another reply to the newest turn, from the next stream of the seed; the request."""
        return self.engine._submit(options, _lib.kaiju_conversation_swipe, self._handle)

    def choose(self, reply):
        """Which of the newest turn's replies is the one, from 0."""
        _call(_lib.kaiju_conversation_choose, self._handle, c.c_size_t(reply))

    def append(self, tokens, reply):
        """A turn that was computed elsewhere or not at all: a greeting has no input."""
        _call(_lib.kaiju_conversation_append, self._handle, *self.engine.model._ids(tokens), *self.engine.model._ids(reply))

    def edit(self, turn, tokens, part=INPUT):
        """Another INPUT takes the turn's replies and all later turns away; another REPLY leaves them."""
        _call(_lib.kaiju_conversation_edit, self._handle, c.c_size_t(turn), c.c_int32(part), *self.engine.model._ids(tokens))

    def undo(self):
        _call(_lib.kaiju_conversation_undo, self._handle)

    def fork(self, turns):
        """The first `turns` turns again, sharing their KV."""
        return Conversation(self.engine, _made=lambda out: _call(_lib.kaiju_conversation_fork, self._handle, c.c_size_t(turns), out))

    def turn(self, turn, part=REPLY):
        return list(_fill(lambda *buffer: _call(_lib.kaiju_conversation_turn, self._handle, c.c_size_t(turn), c.c_int32(part), *buffer)))

    def tokens(self):
        """What the next turn goes on from."""
        return list(_fill(lambda *buffer: _call(_lib.kaiju_conversation_tokens, self._handle, *buffer)))

    def info(self):
        info = ConversationInfo(struct_size=c.sizeof(ConversationInfo))
        if _lib.kaiju_conversation_describe(self._handle, c.byref(info)) != 0:
            raise Error("no conversation")
        return info
