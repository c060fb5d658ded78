"""Engines, and who steps one: any number of threads and asyncio loops may wait for replies of one engine.

One thread at a time leads: it alone calls step, poll and wait of C, until what it waits for is there. Events go to the
requests that they are of; other threads sleep until theirs came or nobody leads. Streams of asyncio are stepped by a
thread that lives while there are any."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes as c
import os
import threading
import time
from collections import deque
from typing import (TYPE_CHECKING, Any, Callable, Deque, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from . import _c
from ._c import Kind, ShareOf, Status
from ._handle import Handle, Path, c_path, instance, nanoseconds, whole
from ._library import call, check, filled, lib, text_of
from .cache_events import CacheEvent
from .calibration import Calibration
from .errors import Busy, Error, InvalidArgument, WrongType, error_of
from .events import Event
from .model import Model
from .options import REQUEST, AnyOptions, Options, bag
from .records import Replayed

if TYPE_CHECKING:
    from .conversation import Conversation
    from .prefix import Prefix
    from .session import Session

_NAP = 100_000_000  # nanoseconds: how long a leader without work sleeps before it looks for signals


class Request:
    """A request of an engine. Its events go to whoever follows it (a stream or a reply); those of a request that nobody
    follows are what Engine.poll returns."""

    __slots__ = ("engine", "id", "user_data", "_events", "_done", "_followed", "_abandoned", "_listener", "_in_loop",
                 "_suspended_by", "_has_deadline", "_owner", "_hook", "__weakref__")

    def __init__(self, engine: "Engine", user_data: Any, followed: bool, has_deadline: bool, owner: Any):
        self.engine, self.id, self.user_data = engine, 0, user_data
        self._events: Deque[Event] = deque()  # not taken by the follower yet
        self._done: Optional[Event] = None  # the last event
        self._followed, self._abandoned = followed, False
        self._listener: Optional[Tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]] = None
        self._in_loop = False  # followed by asyncio
        self._suspended_by: Optional[int] = None  # the thread
        self._has_deadline = has_deadline
        self._hook: Any = None  # the callback that C calls until it has ended
        self._owner = owner  # its session or conversation, which would cancel it if it were let go

    def __repr__(self) -> str:
        return f"Request({self.id}, {'done' if self._done else 'pending'})"

    def __int__(self) -> int:
        return self.id

    __index__ = __int__

    @property
    def done(self) -> bool:
        """Becomes true when poll has taken its last event, and so have Request.wait, Request.events and other threads'
        replies. Steps alone never make it true: a loop of your own calls Engine.poll after each step."""
        return self._done is not None

    def cancel(self) -> None:
        """kaiju_engine_cancel: takes effect at the next step."""
        self.engine.cancel(self)

    def suspend(self) -> None:
        """kaiju_engine_suspend: takes effect at the next step."""
        self.engine.suspend(self)

    def resume(self) -> None:
        """kaiju_engine_resume: takes effect at the next step."""
        self.engine.resume(self)

    def events(self) -> Iterator[Event]:
        """Its events as they come, the last one too, stepping the engine."""
        self._follow()
        while True:
            self.engine._run(lambda: bool(self._events))
            event = self._events.popleft()
            yield event
            if event.last:
                return

    def wait(self) -> Event:
        """Steps the engine until the request has ended, and returns its last event. Its events stay."""
        self._follow()
        self.engine._run(lambda: self._done is not None, self)
        assert self._done is not None
        return self._done

    def _follow(self) -> None:
        engine = self.engine
        engine._check()
        with engine._lock:
            if not self._followed:
                self._followed = True
                mine = [event for event in engine._arrived if event.request == self.id]
                self._events.extend(mine)
                for event in mine:
                    engine._arrived.remove(event)

    def _deliver(self, event: Event) -> None:
        """Under the engine's lock; a second time after an exception in between."""
        place = self._events if self._followed else self.engine._arrived
        if not self._abandoned and not (place and place[-1] is event):
            place.append(event)
        if event.last:
            self._done, self._owner = event, None
            self.engine._requests.pop(self.id, None)
            self.engine._in_loops.discard(self)
        if self._listener:
            self.engine._told.append(self._listener)
            self._listener = None

    def _abandon(self) -> None:
        """Nobody wants its events any more: cancels it. Takes no lock, so that a finaliser may call it."""
        self._abandoned = True
        self._events.clear()
        self._owner = None
        if self._done is None and self.id:
            try:
                lib.kaiju_engine_cancel(self.engine._handle, self.id)
            except Error:
                pass  # the engine was closed, and its requests with it; or this is a child of fork(), which has none

    def _settle(self) -> None:
        """Waits for the end of a request that was abandoned: its session is free then."""
        if self._abandoned and self._done is None:
            try:
                self.engine._run(lambda: self._done is not None)
            except Error:
                pass  # as above

    async def _settle_in_loop(self) -> None:
        while self._abandoned and self._done is None:
            await self._news(True)

    async def _news(self, last: bool = False) -> None:
        """Sleeps until there are events, or the last one, without holding a thread."""
        engine, loop = self.engine, asyncio.get_running_loop()
        engine._check()
        with engine._lock:
            if self._done is not None or (self._events and not last):
                return
            if engine._failure:
                raise error_of(*engine._failure)
            future = loop.create_future()
            self._listener = (loop, future)
            self._in_loop = True
            engine._in_loops.add(self)
            engine._start_thread()
        try:
            await future
        finally:
            future.cancel()


class EngineInfo(NamedTuple):
    """kaiju_engine_info; it stays the same while the engine exists."""

    backend: str
    device: int  # for Runtime.device_info
    threads: int
    max_running: int
    step_tokens: int
    max_waiting: int
    max_sessions: int
    max_events: int
    context: int
    window: int  # tokens of the widest sliding window; 0: no layer has one
    kv_bytes_per_token: int
    window_kv_bytes_per_token: int
    cache_bytes: int


def _reader(data: Any) -> Any:
    """The callback that reads a saved session or conversation from bytes."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise WrongType(f"what was saved is a {type(data).__name__}; it must be bytes: a path goes to the method whose "
                        "name ends in _file")
    rest = memoryview(bytes(data))

    def read_some(into: int, size: int, _: Any) -> int:
        nonlocal rest
        part = rest[:size]
        c.memmove(into, part.tobytes(), len(part))
        rest = rest[len(part):]
        return len(part)

    return _c.READ(read_some)


def _tell(futures: List["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class Engine(Handle):
    """Computes replies with a model. Any number of threads and asyncio tasks may use one engine.

    Options: those of the scope "engine", clock, a callable that answers nanoseconds, and host_threads, a callable
    that runs parts of the work on threads of yours (Options.set)."""

    _kind = "engine"

    def __init__(self, model: Model, *, options: AnyOptions = None, **values: Any):
        super().__init__()
        self.model = instance(Model, "model", model)
        self._lock = threading.RLock()  # of what follows and of the calls with sessions; held for moments, not in steps
        self._requests: Dict[int, Request] = {}  # whose last event has not been taken
        self._prefetches: Dict[int, Any] = {}  # user_data of prefetches that have not ended
        self._box: Dict[str, List[Event]] = {}  # has the events for poll, which takes them out in one go
        self._event = _c.Event()  # what C wrote last, until it is delivered
        self._taking = threading.RLock()  # events are being taken: the C library's text of one lasts until the next
        self._leader: Optional[threading.Condition] = None  # of the thread that alone steps, polls and waits
        self._leading: Optional[int] = None  # that thread
        self._waiting: Dict[threading.Condition, Callable[[], bool]] = {}  # other threads, and what they wait for
        self._impatient = 0  # threads that want to be alone with the engine between two steps
        self._turn = threading.Condition(self._lock)  # of these
        self._in_loops: "set[Request]" = set()  # unfinished requests that asyncio waits for
        self._told: List[Tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]] = []  # to be woken
        self._thread: Optional[threading.Thread] = None  # steps for asyncio
        self._failure: Optional[Tuple[int, str]] = None  # that ended it
        with bag(("engine",), options, values) as read:
            self._options = read._clock, read._host_threads  # kept: C calls them
            call(lib.kaiju_engine_create, self.model._handle, read._handle, self._out)

    def __repr__(self) -> str:
        return "Engine(closed)" if self.closed else f"Engine({self.model!r})"

    # -- sessions and conversations --
    def session(self, *, card: Any = None, system: Optional[str] = None, greeting: Optional[str] = None) -> Session:
        """A Session. It begins with a card (a Card, or name and description) or a system message, if they are given."""
        from .session import Session

        return Session(self, card=card, system=system, greeting=greeting)

    def conversation(self, *, card: Any = None, system: Optional[str] = None, greeting: Optional[str] = None,
                     head: Optional[Sequence[int]] = None) -> Conversation:
        """A Conversation. It begins with a card or a system message, or with a head of tokens, if they are given."""
        from .conversation import Conversation

        return Conversation(self, card=card, system=system, greeting=greeting, head=head)

    def restore_file(self, path: Path, *, options: AnyOptions = None, **values: Any) -> Session:
        """kaiju_session_restore_file: a new Session of what Session.save_file wrote. Options: key, and those that say
        who may share KV."""
        from .session import Session

        where = c_path(path)
        with bag(("session",), options, values) as read, self._alone():
            return Session(self, _make=lambda out: call(lib.kaiju_session_restore_file, self._handle, read._handle,
                                                        where, out))

    def restore(self, data: bytes, *, options: AnyOptions = None, **values: Any) -> Session:
        """kaiju_session_restore: a new Session of the bytes that Session.save returned."""
        from .session import Session

        callback = _reader(data)
        pointer = c.cast(callback, c.c_void_p)
        with bag(("session",), options, values) as read, self._alone():
            return Session(self, _make=lambda out: call(lib.kaiju_session_restore, self._handle, read._handle, pointer,
                                                        None, out))

    def restore_conversation_file(self, path: Path, *, options: AnyOptions = None,
                                  **values: Any) -> Conversation:
        """kaiju_conversation_restore_file: a Conversation of what Conversation.save_file wrote."""
        from .conversation import Conversation

        where = c_path(path)
        with bag(("session",), options, values) as read, self._alone():
            return Conversation(self, _make=lambda out: call(lib.kaiju_conversation_restore_file, self._handle,
                                                             read._handle, where, out))

    def restore_conversation(self, data: bytes, *, options: AnyOptions = None, **values: Any) -> Conversation:
        """kaiju_conversation_restore: a Conversation of the bytes that Conversation.save returned."""
        from .conversation import Conversation

        callback = _reader(data)
        pointer = c.cast(callback, c.c_void_p)
        with bag(("session",), options, values) as read, self._alone():
            return Conversation(self, _make=lambda out: call(lib.kaiju_conversation_restore, self._handle,
                                                             read._handle, pointer, None, out))

    def prefix(self, tokens: Optional[Sequence[int]] = None, *, card: Any = None, system: Optional[str] = None,
               options: AnyOptions = None, **values: Any) -> Prefix:
        """A Prefix, of tokens, a card or a system message. Options: character or salt, and those of requests."""
        from .prefix import Prefix

        return Prefix(self, tokens, card=card, system=system, options=options, **values)

    # -- requests --
    def cancel(self, request: Any) -> None:
        """kaiju_engine_cancel: takes effect at the next step. Unknown and finished requests are ignored."""
        check(lib.kaiju_engine_cancel(self._handle, whole("request", request)), "the engine has stopped")

    def suspend(self, request: Any) -> None:
        """kaiju_engine_suspend: takes effect at the next step."""
        number = whole("request", request)
        check(lib.kaiju_engine_suspend(self._handle, number), "the engine has stopped")
        known = self._requests.get(number)
        if known:
            known._suspended_by = threading.get_ident()

    def resume(self, request: Any) -> None:
        """kaiju_engine_resume: takes effect at the next step."""
        number = whole("request", request)
        known = self._requests.get(number)
        if known:
            known._suspended_by = None
        check(lib.kaiju_engine_resume(self._handle, number), "the engine has stopped")

    def guide(self, request: Any, allowed: Optional[bytes] = None, bias: Optional[Mapping[int, float]] = None) -> None:
        """kaiju_engine_guide: what the next token of a request with guided=1 may be. `allowed` is a bitmask of 32-bit
        words, one bit for each token; None allows every token. `bias` is {token: bias}. kaiju.structured does this for
        JSON schemas and regular expressions."""
        made = _c.Guide()
        if allowed is not None:
            if len(allowed) == 0 or len(allowed) % 4 != 0:
                raise InvalidArgument(f"allowed has {len(allowed)} bytes; it must be 32-bit words, one bit for each "
                                      "token")
            made.allowed, made.allowed_words = c.cast(c.c_char_p(bytes(allowed)), c.c_void_p), len(allowed) // 4
        pairs = [(whole("a token", token, 31), float(value)) for token, value in (bias or {}).items()]
        tokens = (_c.I32 * len(pairs))(*[token for token, _ in pairs])
        values = (c.c_float * len(pairs))(*[value for _, value in pairs])
        made.bias_tokens, made.bias, made.bias_count = c.addressof(tokens), c.addressof(values), len(pairs)
        call(lib.kaiju_engine_guide, self._handle, whole("request", request), c.byref(made))

    def set_limit(self, tier: str, label: str, limit: Optional[float]) -> None:
        """kaiju_engine_set_limit: the probability of a label, from 0 to 1, that makes a verdict on replies with
        tier=`tier`; None: no limit. Replies under way follow."""
        call(lib.kaiju_engine_set_limit, self._handle, tier.encode(), label.encode(), 2.0 if limit is None else limit)

    def set_share(self, name: str, of: int = ShareOf.TENANT, cache_floor_bytes: int = 0, cache_ceiling_bytes: int = 0,
                  step_floor: float = 0.0, step_ceiling: float = 0.0) -> None:
        """kaiju_engine_set_share: what a tenant (the option tenant) or a character is promised of memory and of each
        step, and the most that it gets; 0: none."""
        share = _c.Share(cache_floor_bytes=whole("cache_floor_bytes", cache_floor_bytes, 63),
                         cache_ceiling_bytes=whole("cache_ceiling_bytes", cache_ceiling_bytes, 63),
                         step_floor=step_floor, step_ceiling=step_ceiling)
        call(lib.kaiju_engine_set_share, self._handle, whole("of", of), name.encode(), c.byref(share))

    def share_usage(self, name: str, of: int = ShareOf.TENANT) -> _c.ShareUsage:
        """kaiju_engine_share_usage: what a share has as of the last step."""
        made = _c.ShareUsage()
        check(lib.kaiju_engine_share_usage(self._handle, whole("of", of), name.encode(), c.byref(made)),
              f"there is no share of {name!r}: set_share makes one")
        return made

    def now(self) -> int:
        """kaiju_engine_now: the engine's clock in nanoseconds. A deadline is this and something more."""
        return int(lib.kaiju_engine_now(self._handle))

    def pending(self) -> int:
        """kaiju_engine_pending: requests whose last event was not taken from C."""
        return int(lib.kaiju_engine_pending(self._handle))

    def metrics(self) -> _c.Metrics:
        """kaiju_engine_metrics."""
        made = _c.Metrics()
        check(lib.kaiju_engine_metrics(self._handle, c.byref(made)), "the engine has no metrics")
        return made

    def describe(self) -> EngineInfo:
        """kaiju_engine_describe: what was chosen where the options left it open."""
        info = _c.EngineInfo()
        check(lib.kaiju_engine_describe(self._handle, c.byref(info)), "the engine has no description")
        values = {name: getattr(info, name) for name in EngineInfo._fields}
        return EngineInfo(**{**values, "backend": text_of(info.backend)})

    def set_head(self, path: Optional[Path] = None) -> None:
        """kaiju_engine_set_head: another classifier from a file, for replies under way too; None: the model's own."""
        with self._alone():
            call(lib.kaiju_engine_set_head, self._handle, None if path is None else c_path(path))

    def set_scales(self, path: Optional[Path] = None) -> None:
        """kaiju_engine_set_scales: other scales of keys and values from a file; None: the model's own. Busy while
        replies are under way; no other begins then until it has been called again."""
        with self._alone():
            call(lib.kaiju_engine_set_scales, self._handle, None if path is None else c_path(path))

    def update_weights(self, update: bytes) -> None:
        """kaiju_engine_update_weights: the next state of a training run, for replies under way too."""
        if not isinstance(update, (bytes, bytearray, memoryview)):
            raise WrongType(f"a weight update is a {type(update).__name__}; it must be bytes")
        data = bytes(update)
        with self._alone():
            call(lib.kaiju_engine_update_weights, self._handle, data, len(data))

    def calibrate(self, calibration: Calibration) -> bool:
        """kaiju_engine_calibrate: adds the newest block of a running request; False: there was none to add."""
        counted = c.c_int32()
        with self._alone():
            call(lib.kaiju_engine_calibrate, self._handle, instance(Calibration, "calibration", calibration)._handle,
                 c.byref(counted))
        return bool(counted.value)

    def poll_cache(self, most: int = 65536) -> List[CacheEvent]:
        """kaiju_engine_poll_cache: the cache events that wait, the oldest first; needs cache_events."""
        made, count = (_c.CacheEvent * whole("most", most))(), c.c_size_t()
        with self._alone():
            call(lib.kaiju_engine_poll_cache, self._handle, made, c.sizeof(_c.CacheEvent), most, c.byref(count))
            return [CacheEvent._of(event) for event in made[: count.value]]

    def cached_blocks(self) -> List[CacheEvent]:
        """kaiju_engine_cached_blocks: a STORED event for each block that is cached now, each after its parent; needs
        cache_events. Poll the events that wait first."""
        size, count = c.sizeof(_c.CacheEvent), c.c_size_t()
        with self._alone():
            call(lib.kaiju_engine_cached_blocks, self._handle, None, size, 0, c.byref(count))
            made = (_c.CacheEvent * count.value)()
            call(lib.kaiju_engine_cached_blocks, self._handle, made, size, count.value, c.byref(count))
            return [CacheEvent._of(event) for event in made]

    def scrub(self, most_bytes: int = 64 << 20) -> Tuple[int, bool]:
        """kaiju_engine_scrub: bytes of weights in memory that it looked at, and whether that ended a pass over all.
        BadModel if bits have changed."""
        looked, whole = c.c_size_t(), c.c_int32()
        with self._alone():
            call(lib.kaiju_engine_scrub, self._handle, most_bytes, c.byref(looked), c.byref(whole))
        return looked.value, bool(whole.value)

    def replay(self, record: bytes) -> Replayed:
        """kaiju_engine_replay: computes a recorded reply again and compares it; Busy while there are requests."""
        made = _c.Replayed()
        with self._alone():
            call(lib.kaiju_engine_replay, self._handle, record, len(record), c.byref(made))
        return Replayed._of(made)

    # -- a loop of your own --
    def step(self) -> None:
        """One step for all requests. Its events stay in the engine until poll takes them. Where another thread steps,
        it is that one's turn first."""
        with self._alone():
            call(lib.kaiju_engine_step, self._handle)

    def poll(self) -> List[Event]:
        """Events of the requests that were submitted and that nobody follows, the oldest first."""
        self._take()
        with self._lock:
            return self._box.pop("arrived", [])

    @property
    def _arrived(self) -> List[Event]:
        return self._box.setdefault("arrived", [])

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Sleeps until there is an event to poll or work to step (True), wake() was called, or `timeout` seconds are
        over. None: no end."""
        left = None if timeout is None else nanoseconds("timeout", timeout)
        end = None if left is None else time.monotonic_ns() + left
        if self._arrived:
            return True
        while True:
            nap = _NAP if end is None else max(min(end - time.monotonic_ns(), _NAP), 0)
            with self._alone():
                if lib.kaiju_engine_wait(self._handle, 0 if self._woke else nap):
                    return True
                if self._woke:
                    self._woke = False
                    return False
            if end is not None and time.monotonic_ns() >= end:
                return False

    _woke = False  # wake was called, and no wait has ended for it

    def wake(self) -> None:
        """kaiju_engine_wake: ends a wait of another thread, or the next one if there is none."""
        self._woke = True
        lib.kaiju_engine_wake(self._handle)

    def close(self) -> None:
        """As Handle.close; threads and tasks that wait for its replies get an error."""
        super().close()
        lock = self.__dict__.get("_lock")
        if lock is None or self._process != os.getpid():
            return
        if not lock._is_owned() and lock.acquire(timeout=1):
            try:
                for waiter in list(self._waiting):
                    waiter.notify()
            finally:
                lock.release()

    # -- submitting --
    def _submit(self, owner: Any, values: Options, user_data: Any, followed: bool, function: Any,
                *arguments: Any) -> Request:
        """Calls what ends with options, user_data, request and error."""
        self._check()
        if values._timeout is not None:
            values.set("deadline", max(self.now() + values._timeout, 1))
        request = Request(self, user_data, followed, bool(values.get("deadline")), owner)
        request._hook = values._hook
        number = c.c_uint64()
        try:
            with self._lock:
                try:
                    call(function, *arguments, values._handle, None, c.byref(number))
                finally:
                    if number.value:
                        request.id = number.value
                        self._requests[number.value] = request
        except BaseException:
            if number.value:  # submitted, and nobody has been told of it
                with self._lock:
                    request.id = number.value
                    if request._done is None:
                        self._requests[number.value] = request
                request._abandon()
                request._settle()
            raise
        return request

    def _prefetch(self, function: Any, handle: Any, at: int, user_data: Any, values: Dict[str, Any]) -> int:
        """Calls a function that prefetches; the id in its event."""
        self._check()
        number = c.c_uint64()
        with bag(("session",), None, values) as read, self._lock:
            call(function, handle, read._handle, whole("at", at, 63), None, c.byref(number))
            if user_data is not None:
                self._prefetches[number.value] = user_data
        return int(number.value)

    def _request_options(self, options: AnyOptions, values: Dict[str, Any]) -> Options:
        return bag(REQUEST, options, values)

    def _unguided_options(self, options: AnyOptions, values: Dict[str, Any]) -> Options:
        """Of a call that steps to the end of its request: a guided one would wait for guides for ever."""
        read = bag(REQUEST, options, values)
        if read.get("guided"):
            raise InvalidArgument("reply, say, swipe, stream and generate take no guided requests, for nobody could "
                                  "guide them: call submit and then Engine.guide, or use kaiju.structured")
        return read

    # -- who steps --
    def _run(self, ready: Callable[[], bool], request: Optional[Request] = None) -> None:
        """Returns when `ready`, which is asked under the lock. Steps meanwhile, if nobody else does."""
        self._check()
        if self._leading == threading.get_ident() or self._taking._is_owned():  # type: ignore[attr-defined]
            raise Busy("called by a signal handler, a callback or a __del__ that interrupted this thread while it "
                       "stepped the engine: note there what to do, and do it later")
        me = threading.Condition(self._lock)
        try:
            while True:
                with self._lock:
                    while True:
                        if ready():
                            return
                        self._check()  # closed by another thread
                        if self._leader is None and not self._impatient:
                            self._leading, self._leader = threading.get_ident(), me
                            break
                        self._waiting[me] = ready
                        me.wait()
                self._lead(ready, request)
                with self._lock:
                    if self._leader is me:
                        self._leader = self._leading = None
                        self._pass_on()
        finally:
            with self._lock:
                self._waiting.pop(me, None)
                if self._leader is me:
                    self._leader = self._leading = None
                self._pass_on()

    def _pass_on(self) -> None:
        """Under the lock: somebody who waits leads next, if nobody does."""
        if self._leader is None:
            if self._impatient:
                self._turn.notify()
            else:
                for waiter in self._waiting:
                    waiter.notify()
                    break

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Between two steps, with no other thread in step, poll or wait. An engine that is closed lets in, too: what
        was made of it lives on."""
        if not self.closed:
            self._check()
        if self._leading == threading.get_ident():
            raise Busy("called by a callback or a signal handler that interrupted this thread while it stepped the "
                       "engine: note there what to do, and do it later")
        me = threading.Condition(self._lock)
        try:
            with self._lock:
                self._impatient += 1
                try:
                    if self._leader is not None:
                        self._wake_leader()
                    while self._leader is not None:
                        self._turn.wait()
                    self._leading, self._leader = threading.get_ident(), me
                finally:
                    self._impatient -= 1
            yield
        finally:
            with self._lock:
                if self._leader is me:
                    self._leader = self._leading = None
                self._pass_on()

    def _wake_leader(self) -> None:
        try:
            lib.kaiju_engine_wake(self._handle)
        except Error:
            pass

    def _lead(self, ready: Callable[[], bool], request: Optional[Request]) -> None:
        """Steps until `ready`, or until a thread wants to be alone with the engine."""
        while True:
            stepped = self._step()
            count = self._take()
            with self._lock:
                if ready() or self._impatient:
                    return
                self._check()
            if count == 0 and not lib.kaiju_engine_wait(self._handle, _NAP) and stepped:
                if request and request._suspended_by == threading.get_ident() and not request._has_deadline:
                    raise Busy(f"request {request.id} is suspended by this thread, and nothing else is left to "
                               "compute: resume or cancel it, then wait for it")

    def _step(self) -> bool:
        """A step; False where it has to be tried again."""
        error = c.c_void_p()
        try:
            status = lib.kaiju_engine_step(self._handle, c.byref(error))
            if status not in (Status.OK, Status.BUSY):
                message = lib.kaiju_error_message(error).decode(errors="backslashreplace")
                raise error_of(status, message or "the engine has stopped")
            return bool(status == Status.OK)
        finally:
            if error:
                lib.kaiju_error_destroy(error)

    def _take(self) -> int:
        """Delivers the events that are there; how many there were. An exception, wherever it comes, loses none: the
        next call does again what it interrupted."""
        self._check()
        if self._taking._is_owned():  # type: ignore[attr-defined]
            raise Busy("called by a signal handler or a __del__ that interrupted this thread while it took events of "
                       "the engine: note there what to do, and do it later")
        count = 0
        with self._taking:
            with self._lock:
                while self._event.kind or self._poll_one(self._event):
                    raw = self._event
                    request = self._requests.get(raw.request)
                    event = raw.__dict__.get("made")
                    if event is None:
                        given = request.user_data if request else self._prefetches.pop(raw.request, None)
                        event = raw.made = Event(raw, given, self._record_of(raw))
                    if request:
                        request._deliver(event)
                    elif event.kind == Kind.PREFETCHED:
                        self._arrived.append(event)
                    self._event = _c.Event()
                    count += 1
                if count:
                    for waiter, ready in self._waiting.items():
                        if ready():
                            waiter.notify()
            self._wake_loops()
        return count

    def _poll_one(self, event: _c.Event) -> bool:
        count = c.c_size_t()
        call(lib.kaiju_engine_poll, self._handle, c.byref(event), c.sizeof(event), 1, c.byref(count))
        return bool(count.value)

    def _record_of(self, event: _c.Event) -> Optional[bytes]:
        """The record of the event that was polled last; None where it has none."""
        size = c.c_size_t()
        if event.kind != _c.Kind.DONE or lib.kaiju_engine_record(self._handle, event.request, None, 0, c.byref(size),
                                                                 None):
            return None
        return bytes(filled(lambda *buffer: call(lib.kaiju_engine_record, self._handle, event.request, *buffer),
                            c.c_ubyte))

    # -- asyncio --
    def _wake_loops(self) -> None:
        """One call into each loop for all of its streams that have news."""
        if not self._told:
            return
        with self._lock:
            told, self._told = self._told, []
        loops: "Dict[asyncio.AbstractEventLoop, List[asyncio.Future[None]]]" = {}
        for loop, future in told:
            loops.setdefault(loop, []).append(future)
        for loop, futures in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_tell, futures)

    def _start_thread(self) -> None:
        """Under the lock."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_for_loops, name="kaiju", daemon=True)
            self._thread.start()

    def _run_for_loops(self) -> None:
        me = threading.current_thread()

        def ready() -> bool:  # under the lock: a request that comes later starts another thread
            if self._thread is me and not self._in_loops:
                self._thread = None
            return self._thread is not me

        try:
            self._run(ready)
        except BaseException as error:
            with self._lock:
                if isinstance(error, Error):
                    self._failure = (error.status, str(error))
                else:
                    self._failure = (Status.INTERNAL, repr(error))
                for request in self._in_loops:
                    if request._listener:
                        self._told.append(request._listener)
                        request._listener = None
                self._in_loops.clear()
                self._thread = None
            self._wake_loops()


__all__ = ["Engine", "EngineInfo", "Request"]
