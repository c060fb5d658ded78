"""kaiju from Python through ctypes alone: no compiled glue, the C header is all it knows.

    import kaiju
    engine = kaiju.Engine(kaiju.Model("model.safetensors"), threads=2)
    with engine.session() as session:
        print(session.reply([("card", "Wren\nWren is a robot gardener."), ("user", "hello!")], temperature=0))

    talk = kaiju.Conversation(engine, engine.model.chat([("card", "Wren\nWren is a robot gardener.")], 0))
    first = talk.say(engine.model.chat([("user", "hello!")]), temperature=1, seed=7)
    print(engine.finish(first)[0])
    print(engine.finish(talk.swipe(temperature=1, seed=7))[0])

Options are keywords, named as in kaiju.h after the scope: max_tokens is KAIJU_GENERATE_MAX_TOKENS. Model and Engine,
requests, save and restore each read their own. What C takes repeatedly, stop and stop_token, is one value or a list.

A Model, Engine, Session or Conversation owns a handle of the library: close it, use it in a with statement or let it
go. It cannot be copied or pickled. After fork() (os.fork, multiprocessing's "fork") a child may use its parent's Models
and make Engines of its own; its parent's Engines, and what was made of them, refuse there all but close.

The shared library is found through $KAIJU_LIBRARY, in a build of this source tree, or where the system looks for
libraries.
"""

import ctypes as c
import glob
import operator
import os
import threading
import time

MODEL_VOCABULARY, MODEL_CONTEXT, MODEL_LABELS = 1, 2, 3
ROLES = {"card": 1, "user": 2, "character": 3, "system": 4}
ASK_FOR_REPLY, CLOSE_LAST, BEGIN, LEAVE_OPEN, AFTER_STOP = 1, 2, 4, 8, 16
INPUT, REPLY = 1, 2  # parts of a turn
TOKEN, DONE, FAILED, SUSPENDED, RESUMED = 1, 5, 6, 7, 8  # kinds of events
STOP, LENGTH, CANCELLED, DEADLINE = 1, 2, 3, 4  # reasons why a request is done
# Folders of build/, the first that has the library; a sanitizer's cannot be loaded.
_BUILDS = ("chat", "release", "cuda", "tests", "dev")
_KINDS = {"i": "an int of 64 bits", "f": "a float", "s": "a str"}
_PATHS = ("tier_file", "products_file")  # options that take what os.fsencode does
_BUSY = 5  # KAIJU_BUSY


class Error(Exception):
    pass


class _Message(c.Structure):
    _fields_ = [("role", c.c_int32), ("reserved", c.c_int32), ("content", c.c_char_p), ("content_size", c.c_size_t),
                ("name", c.c_char_p), ("name_size", c.c_size_t)]


class _OptionInfo(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("help", c.c_char_p), ("type", c.c_int32),
                ("repeatable", c.c_int32), ("minimum", c.c_double), ("maximum", c.c_double), ("standard", c.c_double)]


class Event(c.Structure):
    """kaiju_event. From Engine.poll it also has `said`, its text, `ids`, its token and the alternatives that logprobs
    asks for, `logprobs`, their log-probabilities, and `judged`, the classifier's scores; its C pointers are NULL. The
    last event of a request, from Engine.finish and Session.generate, has in `ids`, `logprobs` and `judged` those of all
    its tokens, a list for each."""
    _fields_ = [("request", c.c_uint64), ("user_data", c.c_void_p), ("kind", c.c_int32), ("reason", c.c_int32),
                ("status", c.c_int32), ("reserved", c.c_int32), ("tokens", c.c_void_p), ("token_count", c.c_size_t),
                ("values", c.c_void_p), ("value_count", c.c_size_t), ("text", c.c_void_p), ("text_size", c.c_size_t),
                ("prompt_tokens", c.c_int32), ("cached_tokens", c.c_int32), ("generated_tokens", c.c_int32),
                ("reserved2", c.c_int32), ("wait_nanoseconds", c.c_int64), ("prefill_nanoseconds", c.c_int64),
                ("decode_nanoseconds", c.c_int64), ("scores", c.c_void_p), ("score_count", c.c_size_t)]
    _told = False  # to an on_text


class ConversationInfo(c.Structure):
    """kaiju_conversation_info."""
    _fields_ = [("struct_size", c.c_size_t), ("turns", c.c_uint64), ("turns_dropped", c.c_uint64),
                ("replies", c.c_uint64), ("reply", c.c_uint64), ("tokens", c.c_uint64)]


def _load():
    named = os.environ.get("KAIJU_LIBRARY")  # empty is as if unset
    build = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
    built = [path for name in _BUILDS for path in sorted(glob.glob(os.path.join(build, name, "libkaiju.so*")))]
    path = named or (built[0] if built else "libkaiju.so.0")
    try:
        library = c.CDLL(path)
        library.kaiju_error_message.restype = c.c_char_p
        library.kaiju_model_number.restype = library.kaiju_engine_now.restype = c.c_int64
        library.kaiju_engine_poll.restype = library.kaiju_engine_pending.restype = c.c_size_t
        for name in ("error", "options", "model", "engine", "session", "conversation"):
            getattr(library, f"kaiju_{name}_destroy").argtypes = [c.c_void_p]
    except OSError as error:
        how = "build or install it, or name it in KAIJU_LIBRARY"
        raise Error(f"cannot load the kaiju library: {error}; {how}") from None
    except AttributeError as error:
        how = "name libkaiju.so in KAIJU_LIBRARY, or unset it"
        raise Error(f"{path} is not the kaiju library: {error}; {how}") from None
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


def _text(data):
    """A text of the library's. What is not UTF-8, such as a path in a message, is shown by its bytes."""
    return data.decode(errors="backslashreplace")


def _utf8(name, text):
    """A text as C takes it."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is {text!r}; it must be a str")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Error(f"{name} is {text!r}, which UTF-8 cannot write") from None


def _number(name, value, bits=64):
    """A whole number that C takes without a sign: ctypes cuts off what is beyond its bits."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be an int") from None
    if not 0 <= whole < 2**bits:
        raise Error(f"{name} is {whole}; it must be from 0 to {2**bits - 1}")
    return whole


def _is(kind, name, value):
    """A handle of another kind would be read as one of this."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is a {type(value).__name__}; it must be a {kind.__name__}")
    return value


def _path(path):
    """A path as C takes it: a str, bytes or os.PathLike, UTF-8 or not, that ends with a zero byte."""
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        raise Error(f"the path {path!r} cannot be written in the file system's encoding") from None
    if b"\0" in data:
        raise Error(f"the path {path!r} has a NUL in it, where C would take it to end: give a path without")
    return data


def _call(function, *arguments):
    error = c.c_void_p()
    try:
        if function(*arguments, c.byref(error)) != 0:
            raise Error(_text(_lib.kaiju_error_message(error)) if error else "kaiju: out of memory")
    finally:
        arguments = None  # an exception keeps this frame, and must not keep handles open
        if error:
            _lib.kaiju_error_destroy(error)


def _fill(call, kind=c.c_int32):
    """What `call(buffer, capacity, count)` writes, asked for its size first."""
    count = c.c_size_t()
    call(None, c.c_size_t(0), c.byref(count))
    buffer = (kind * count.value)()
    call(buffer, c.c_size_t(count.value), c.byref(count))
    return buffer


class _Pointer(c.c_void_p):
    """A C handle, destroyed when its last user lets go of it: a call of another thread is one."""

    def __init__(self, kind):
        super().__init__()
        self._destroy = getattr(_lib, f"kaiju_{kind}_destroy")

    def __del__(self):
        if self:
            pointer, self.value = c.c_void_p(self.value), None  # whoever still finds it in a cycle finds it closed
            self._destroy(pointer)


class _Handle:
    """Owns a C handle; `_kind` names its functions."""
    _kind = None
    _of_process = True  # whether it is its maker's alone: refused in a child of fork()
    _pointer = None  # until it is made, and once it is closed

    def __init__(self):
        self._process = os.getpid()
        self._pointer = _Pointer(self._kind)

    @property
    def _c(self):
        """The C handle, to be passed to C at once: who keeps it keeps it open."""
        pointer = self._pointer
        if not pointer:
            raise Error(f"the {self._kind} is closed")
        if self._of_process and self._process != os.getpid():
            raise Error(f"the {self._kind} belongs to process {self._process}, which created it and has forked since; "
                        f"this is process {os.getpid()}: create one here")
        return pointer

    def _check(self):
        """Before a lock is waited for, which a child of fork() may find held for ever."""
        self._c

    def close(self):
        """Gives it back to the library; where another thread is in a call with it, once that returns. What was made of
        it lives on."""
        self.__dict__.pop("_pointer", None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce_ex__(self, _):
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: it owns a handle of the kaiju library")


class _Options(_Handle):
    _kind = "options"
    _of_process = False

    def __init__(self, values):
        super().__init__()
        if _lib.kaiju_options_create(c.byref(self._pointer)) != 0:
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
                text = os.fsencode(value) if name in _PATHS else value.encode()
                function, arguments = _lib.kaiju_options_set_string, (text, c.c_size_t(len(text)))
            elif kind == "f":
                function, arguments = _lib.kaiju_options_set_float, (c.c_double(value),)
            else:
                whole = operator.index(value)
                # ctypes cuts off what is beyond; a seed may come without a sign.
                if not -2**63 <= whole < (2**64 if name == "seed" else 2**63):
                    raise OverflowError
                function, arguments = _lib.kaiju_options_set_int, (c.c_int64(whole),)
        except UnicodeEncodeError:
            raise Error(f"{name} is {value!r}, which UTF-8 cannot write") from None
        except (AttributeError, TypeError, OverflowError):
            raise TypeError(f"{name} is {value!r}; it must be {'a path' if name in _PATHS else _KINDS[kind]}") from None
        _call(function, self._c, c.c_int32(number), *arguments)


class Model(_Handle):
    _kind = "model"
    _of_process = False

    def __init__(self, path, **options):
        super().__init__()
        with _Options(options) as bag:
            _call(_lib.kaiju_model_load, None, _path(path), bag._c, None, None, c.byref(self._pointer))
        self.vocabulary = _lib.kaiju_model_number(self._c, c.c_int32(MODEL_VOCABULARY))
        self.context = _lib.kaiju_model_number(self._c, c.c_int32(MODEL_CONTEXT))
        labels = _lib.kaiju_model_number(self._c, c.c_int32(MODEL_LABELS))
        self.labels = [self._label(i) for i in range(labels)]  # of the classifier

    def _label(self, index):
        text, size = c.c_void_p(), c.c_size_t()
        if _lib.kaiju_model_label(self._c, c.c_size_t(index), c.byref(text), c.byref(size)) != 0:
            raise Error(f"no label {index}")
        return _text(c.string_at(text, size.value))

    def _ids(self, tokens):
        for i, token in enumerate(tokens):  # here, for ctypes cuts off what is beyond 32 bits
            if not 0 <= operator.index(token) < self.vocabulary:
                raise Error(f"token {i} is {token}; tokens are 0 to {self.vocabulary - 1}")
        return (c.c_int32 * len(tokens))(*tokens), c.c_size_t(len(tokens))

    def tokenize(self, text):
        data = _utf8("text", text)
        return list(_fill(lambda *buffer: _call(_lib.kaiju_tokenize, self._c, data, c.c_size_t(len(data)), *buffer)))

    def detokenize(self, tokens):
        data = _fill(lambda *buffer: _call(_lib.kaiju_detokenize, self._c, *self._ids(tokens), *buffer), c.c_ubyte)
        return bytes(data).decode(errors="replace")

    def chat(self, messages, flags=ASK_FOR_REPLY):
        """Token ids of [(role, text), ...] with roles card, user, character, and system for imported models.  A
        message may have the name of its speaker: (role, text, name)."""
        array = (_Message * len(messages))()
        for slot, message in zip(array, messages):
            if not isinstance(message, (tuple, list)) or len(message) not in (2, 3):
                raise TypeError(f"a message is {message!r}; it must be a pair (role, text), or (role, text, name)")
            role, text, *name = message
            if role not in ROLES:
                raise Error(f"no role {role!r}; there are {', '.join(ROLES)}")
            data = _utf8(f"the text of role {role}", text)
            slot.role, slot.content, slot.content_size = ROLES[role], data, len(data)
            if name:
                data = _utf8("a speaker's name", name[0])
                slot.name, slot.name_size = data, len(data)
        size, count = c.c_size_t(c.sizeof(_Message)), c.c_size_t(len(messages))
        flag_bits = c.c_int32(_number("flags", flags, 31))
        return list(_fill(lambda *buffer: _call(_lib.kaiju_chat_format, self._c, array, size, count, flag_bits,
                                                *buffer)))


class Engine(_Handle):
    _kind = "engine"

    def __init__(self, model, **options):
        super().__init__()
        self.model = _is(Model, "model", model)
        self._open = {}  # requests whose last event was not polled: whether a deadline ends them
        self._aside = {}  # of those: the thread that suspended them
        self._given_up = set()  # of those: nobody wants their events any more
        self._kept = {}  # events of requests that finish() was not asked about yet
        self._event = Event()  # what C wrote last, until it is in one of these lists
        self._lock = threading.RLock()  # of all these; never held while a step computes
        self._taking = threading.RLock()  # events are being taken: the C library's text of one lasts until the next
        with _Options(options) as bag:
            _call(_lib.kaiju_engine_create, model._c, bag._c, c.byref(self._pointer))

    def session(self):
        return Session(self)

    def restore(self, path, **options):
        """A new session of what Session.save wrote, with the same key if it had one."""
        with _Options(options) as bag:
            return Session(self, lambda out: _call(_lib.kaiju_session_restore_file, self._c, bag._c, _path(path), out))

    # -- the loop: requests are numbers, given by Session.submit, Conversation.say and swipe --
    def finish(self, request, on_text=None):
        """Steps until the request is done and returns (reply text, last Event). on_text gets text as it comes; what is
        true of its answers stops the reply, which is an Error then. The events of others are kept for their finish. An
        Error, too, is a request whose last event finish or poll took already, and one that this thread suspended once
        nothing else is left to compute: resume it and finish again. For a resume that another thread owes, and for a
        deadline, it waits.

        Any number of threads may be in finish, each with another request: they take turns to step.

        After an Error of a step, too, a request may be finished again. What on_text raises, and everything else but an
        Error, such as KeyboardInterrupt, cancels the request and is raised once that has ended: nothing of it is
        kept."""
        try:
            stopped = self._finish(request, on_text)
            with self._lock:
                events = self._kept.pop(request, [])
        except Error:
            raise
        except BaseException:
            self._give_up(request)
            raise
        if not events or events[-1].kind not in (DONE, FAILED):
            raise Error(f"request {request} is not pending: it is none of this engine's, or finish or poll took its "
                        "last event already")
        last = events[-1]
        if last.kind == FAILED:
            raise Error(last.said)
        if stopped:
            raise Error("on_text stopped the reply")
        for what in ("ids", "logprobs", "judged"):
            setattr(last, what, [getattr(event, what) for event in events if getattr(event, what)])
        return "".join(event.said for event in events), last

    def _finish(self, request, on_text):
        """Steps until all events of the request are kept; whether on_text stopped it."""
        stopped, seen = False, 0
        while True:
            pending = request in self._open  # asked before the events: the last one is told, too
            for event in self._kept.get(request, [])[seen:]:
                seen += 1
                if on_text and not stopped and self._stops(event, on_text):
                    stopped = True
                    self.cancel(request)
            if not pending:
                self._keep()
                return stopped
            stepped = self._step_or_busy()
            if not self._keep() and not _lib.kaiju_engine_wait(self._c, c.c_int64(10**7)) and stepped:
                if self._aside.get(request) == threading.get_ident() and not self._open.get(request):
                    raise Error(f"request {request} is suspended and nothing else is left to compute: resume or cancel "
                                "it, then finish it")

    def _stops(self, event, on_text):
        """Tells on_text what the event says, once; whether it stops the reply. What it raises ends the request."""
        if event._told or event.kind == FAILED or not event.said:
            return False
        event._told = True
        try:
            return bool(on_text(event.said))
        except BaseException:
            self._give_up(event.request)
            raise

    def step(self):
        """One step for all requests. An Error where another thread is in one: finish waits for that by itself."""
        _call(_lib.kaiju_engine_step, self._c)

    def _step_or_busy(self):
        """A step; False where another thread is in one, or it has to be tried again."""
        error = c.c_void_p()
        try:
            status = _lib.kaiju_engine_step(self._c, c.byref(error))
            if status not in (0, _BUSY):
                raise Error(_text(_lib.kaiju_error_message(error)) if error else "kaiju: out of memory")
            return status == 0
        finally:
            if error:
                _lib.kaiju_error_destroy(error)

    def poll(self):
        """The events that are here, oldest first. For hosts with a loop of their own: what it took, finish does not
        see."""
        self._take(lambda event: self.__dict__.setdefault("_polled", []))
        return self.__dict__.pop("_polled", [])

    def _keep(self):
        """Takes the events that are here for the finish of their requests; how many there were."""
        return self._take(lambda event: self._kept.setdefault(event.request, []))

    def _take(self, place):
        """Moves the events that are here to the lists that `place` says; how many there were. An exception, wherever it
        comes, loses none: the next call does again what it interrupted."""
        self._check()
        if self._taking._is_owned():
            raise Error("called by a signal handler or a __del__ that interrupted this thread while it took events of "
                        "the engine: note there what to do, and do it later")
        count = 0
        with self._taking, self._lock:
            while self._event.kind or self._poll_into(self._event):
                event = self._event
                event.said = _text(c.string_at(event.text, event.text_size)) if event.text_size else ""
                event.ids = list(c.cast(event.tokens, c.POINTER(c.c_int32))[:event.token_count])
                event.logprobs = list(c.cast(event.values, c.POINTER(c.c_float))[:event.value_count])
                event.judged = list(c.cast(event.scores, c.POINTER(c.c_float))[:event.score_count])
                events = place(event) if event.request not in self._given_up else []
                if not events or events[-1] is not event:
                    events.append(event)
                if event.kind in (DONE, FAILED):
                    self._open.pop(event.request, None)
                    self._aside.pop(event.request, None)
                self._event = Event()
                event.tokens = event.values = event.text = event.scores = None  # theirs until the next poll
                if event.kind in (DONE, FAILED):
                    self._given_up.discard(event.request)
                count += 1
        return count

    def _poll_into(self, event):
        return _lib.kaiju_engine_poll(self._c, c.byref(event), c.c_size_t(c.sizeof(Event)), c.c_size_t(1))

    def _give_up(self, request):
        """Ends a request while an exception is on its way that leaves nobody to finish it: its session is free again,
        and nothing of it is kept."""
        try:
            self._keep()  # what the exception interrupted there
            with self._lock:
                if request in self._open:
                    self._given_up.add(request)
                self._kept.pop(request, None)
            status = _BUSY
            while request in self._open and status == _BUSY:  # with a step of another thread's
                _lib.kaiju_engine_cancel(self._c, c.c_uint64(request))
                status = _lib.kaiju_engine_step(self._c, None)
                self._keep()
                if status == _BUSY:
                    time.sleep(0.001)
        except Error:
            pass  # the engine was closed, and its requests with it; or this is a child of fork(), which has none

    def pending(self):
        """Requests whose last event has not been polled."""
        return _lib.kaiju_engine_pending(self._c)

    def now(self):
        """The engine's clock in nanoseconds: a deadline is this and something more."""
        return _lib.kaiju_engine_now(self._c)

    def cancel(self, request):
        """Takes effect at the next step, like suspend and resume, whatever the request's state."""
        self._tell(_lib.kaiju_engine_cancel, request)

    def suspend(self, request):
        self._check()
        request = _number("request", request)
        with self._lock:
            if request in self._open:
                self._aside[request] = threading.get_ident()
        self._tell(_lib.kaiju_engine_suspend, request)

    def resume(self, request):
        self._aside.pop(request, None)
        self._tell(_lib.kaiju_engine_resume, request)

    def _submit(self, options, function, *arguments, request=None):
        """The number of the new request; `request`, a c_uint64, has it whatever happens."""
        self._check()
        request = c.c_uint64() if request is None else request
        try:
            with _Options(options) as bag, self._lock:
                try:
                    _call(function, *arguments, bag._c, None, c.byref(request))
                finally:
                    if request.value:
                        self._open[request.value] = bool(options.get("deadline"))
        except BaseException:
            if request.value:  # submitted, and nobody has been told of it
                self._open.setdefault(request.value, False)
                self._give_up(request.value)
            raise
        return request.value

    def _tell(self, function, request):
        if function(self._c, c.c_uint64(_number("request", request))) != 0:
            raise Error("the engine has stopped")


class Session(_Handle):
    _kind = "session"

    def __init__(self, engine, _made=None):
        super().__init__()
        self.engine = _is(Engine, "engine", engine)
        make = _made or (lambda out: _call(_lib.kaiju_session_create, engine._c, out))
        make(c.byref(self._pointer))

    def submit(self, tokens, **options):
        """Appends tokens to the history and generates; the request, for Engine.finish."""
        return self._submit(tokens, options)

    def generate(self, tokens, on_text=None, **options):
        """Appends tokens to the history and returns (reply text, last Event), as Engine.finish does. Whatever it
        raises, its request has ended."""
        request = c.c_uint64()
        try:
            return self.engine.finish(self._submit(tokens, options, request), on_text)
        except BaseException:
            self.engine._give_up(request.value)
            raise

    def _submit(self, tokens, options, request=None):
        ids = self.engine.model._ids(tokens)
        return self.engine._submit(options, _lib.kaiju_engine_submit, self.engine._c, self._c, *ids, request=request)

    def reply(self, messages, flags=ASK_FOR_REPLY, **options):
        """The reply's text. Pass ASK_FOR_REPLY | CLOSE_LAST if the last reply ended at its length limit, and
        ASK_FOR_REPLY | AFTER_STOP if it ended with a stop token and the model was imported."""
        return self.generate(self.engine.model.chat(messages, flags), **options)[0]

    def save(self, path, **options):
        """The history and its KV, for Engine.restore; between two steps, with no request unfinished."""
        with _Options(options) as bag:
            _call(_lib.kaiju_session_save_file, self._c, bag._c, _path(path))


class Conversation(_Handle):
    """The turns of one chat and their KV: the head stays whatever is cut when the chat outgrows the context. An input
    ends with what asks for a reply: Model.chat([("user", text)]). A request that is done is part of its turn by
    itself."""

    _kind = "conversation"

    def __init__(self, engine, head=(), _made=None):
        super().__init__()
        self.engine = _is(Engine, "engine", engine)
        make = _made or (lambda out: _call(_lib.kaiju_conversation_create, engine._c, *engine.model._ids(head), out))
        make(c.byref(self._pointer))

    def say(self, tokens, **options):
        """A new turn; the request, for Engine.finish."""
        return self.engine._submit(options, _lib.kaiju_conversation_say, self._c, *self.engine.model._ids(tokens))

    def swipe(self, **options):
        """Another reply to the newest turn, from the next stream of the seed; the request."""
        return self.engine._submit(options, _lib.kaiju_conversation_swipe, self._c)

    def choose(self, reply):
        """Which of the newest turn's replies is the one, from 0."""
        _call(_lib.kaiju_conversation_choose, self._c, c.c_size_t(_number("reply", reply)))

    def append(self, tokens, reply):
        """A turn that was computed elsewhere or not at all: a greeting has no input."""
        _call(_lib.kaiju_conversation_append, self._c, *self.engine.model._ids(tokens), *self.engine.model._ids(reply))

    def edit(self, turn, tokens, part=INPUT):
        """Another INPUT takes the turn's replies and all later turns away; another REPLY leaves them."""
        which = c.c_size_t(_number("turn", turn)), c.c_int32(_number("part", part, 31))
        _call(_lib.kaiju_conversation_edit, self._c, *which, *self.engine.model._ids(tokens))

    def undo(self):
        _call(_lib.kaiju_conversation_undo, self._c)

    def fork(self, turns):
        """The first `turns` turns again, sharing their KV."""
        count = c.c_size_t(_number("turns", turns))
        return Conversation(self.engine, _made=lambda out: _call(_lib.kaiju_conversation_fork, self._c, count, out))

    def turn(self, turn, part=REPLY):
        which = c.c_size_t(_number("turn", turn)), c.c_int32(_number("part", part, 31))
        return list(_fill(lambda *buffer: _call(_lib.kaiju_conversation_turn, self._c, *which, *buffer)))

    def tokens(self):
        """What the next turn goes on from."""
        return list(_fill(lambda *buffer: _call(_lib.kaiju_conversation_tokens, self._c, *buffer)))

    def info(self):
        info = ConversationInfo(struct_size=c.sizeof(ConversationInfo))
        if _lib.kaiju_conversation_describe(self._c, c.byref(info)) != 0:
            raise Error("no conversation")
        return info
