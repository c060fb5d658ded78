"""Sessions: a token history that begins itself, and the replies to what is said in it."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

from . import _c
from ._c import Chat
from ._handle import instance, whole
from ._library import call, lib
from ._saved import Saved
from .engine import Engine, Request
from .errors import Error, InvalidArgument
from .events import Reply
from .model import Message, Messages, head_messages, messages_of
from .options import AnyOptions, Options, option_describe, option_find
from .stream import Stream


class Session(Saved):
    """A token history; its KV stays in the cache from turn to turn.

    `reply` and `stream` take text and put around it what the model's chat format has: the beginning of the sequence,
    the card or system message and the greeting that the session was created with, and what closes the reply before.
    `generate` and `submit` take tokens, and add nothing."""

    _kind = "session"

    def __init__(self, engine: Engine, *, card: Any = None, system: Optional[str] = None,
                 greeting: Optional[str] = None, _make: Optional[Callable[[Any], None]] = None):
        super().__init__()
        self.engine = instance(Engine, "engine", engine)
        if greeting is None:
            greeting = getattr(card, "greeting", None)
        self._head: List[Message] = head_messages(card, system, greeting)
        if self._head:
            engine.model.chat_format(self._head, 0)  # refused here rather than at the first reply
        self._request: Optional[Request] = None  # the newest
        self._known: Optional[Request] = None  # whose end says how the history ends
        if _make is None:
            engine._check()
        with engine._lock:
            (_make or (lambda out: call(lib.kaiju_session_create, engine._handle, out)))(self._out)

    def __repr__(self) -> str:
        try:
            return f"Session({len(self)} tokens)"
        except Error:
            return "Session(closed)"

    # -- text --
    def reply(self, messages: Messages, on_text: Optional[Callable[[str], Any]] = None, *,
              options: AnyOptions = None, **values: Any) -> Reply:
        """The reply to a text of the user's, or to several messages. A str with more to it: see Reply.

        on_text(text) is told of its parts as they come, and may end it by returning something true."""
        return self.stream(messages, options=options, **values).reply(on_text)

    def stream(self, messages: Messages, *, options: AnyOptions = None, **values: Any) -> Stream:
        """The same, part by part: for text in session.stream("Hello!"), or async for."""
        said = messages_of(messages)
        read = self.engine._unguided_options(options, values)

        def submit() -> Request:
            tokens = self.prompt(said)
            self._limit(read, len(tokens))
            return self._submit(tokens, read, None, True)

        return Stream(self.engine, self._before, submit, self.engine.model.chats)

    def prompt(self, messages: Messages) -> List[int]:
        """The tokens with which `reply` would continue the history: what a chat format needs before, between and after
        the messages. A model without one gets its begin symbol and the text."""
        said, model, history = messages_of(messages), self.engine.model, self.tokens()
        begins = not history
        if not model.chats:
            if self._head or [message.role for message in said] != ["user"]:
                model.chat_format(said)  # says why it cannot
            begin = model.chat_symbol("begin")
            return ([begin] if begins and begin is not None else []) + model.tokenize(said[0].content)
        if not said:
            raise InvalidArgument("there are no messages to reply to")
        flags = Chat.OPEN if said[-1].role in ("character", "assistant") else Chat.REPLY
        if begins:
            said = self._head + said
            if said[0].role not in ("card", "system"):
                flags |= Chat.BEGIN
        else:
            flags |= self._ending(history)
        return model.chat_format(said, flags)

    def _ending(self, history: List[int]) -> int:
        """What the next message needs first: how the reply before ended, told by the history."""
        done = self._known._done if self._known else None
        if done is not None and done.generated_tokens == 0:
            return 0  # a prompt that was only computed
        return Chat.AFTER_STOP if self.engine.model.is_stop_token(history[-1]) else Chat.CLOSE

    def _limit(self, read: Options, count: int) -> None:
        """max_tokens that nobody gave is reduced to the room that is left in the context."""
        if read.get("max_tokens") is None:
            room = self.engine.model.context - len(self.tokens()) - count
            standard = int(option_describe(option_find("generate.max_tokens")).standard)
            if 0 < room < standard:
                read.set("max_tokens", room)

    # -- tokens --
    def generate(self, tokens: Sequence[int], on_text: Optional[Callable[[str], Any]] = None, *,
                 options: AnyOptions = None, **values: Any) -> Reply:
        """Appends tokens to the history, as they are, and returns the reply. Without any, the history goes on."""
        return self.stream_tokens(tokens, options=options, **values).reply(on_text)

    def stream_tokens(self, tokens: Sequence[int], *, options: AnyOptions = None, **values: Any) -> Stream:
        """The same, part by part."""
        self.engine.model._tokens(tokens)
        given = list(tokens)
        read = self.engine._unguided_options(options, values)
        return Stream(self.engine, self._before, lambda: self._submit(given, read, None, True), False)

    def submit(self, tokens: Sequence[int], *, user_data: Any = None, options: AnyOptions = None,
               **values: Any) -> Request:
        """kaiju_engine_submit, for a loop of your own: its events come from Engine.poll. `prompt` makes the tokens of a
        text."""
        before = self._before()
        if before is not None:
            before._settle()
        with self.engine._request_options(options, values) as read:
            return self._submit(list(tokens), read, user_data, False)

    def _submit(self, tokens: List[int], read: Options, user_data: Any, followed: bool) -> Request:
        engine = self.engine
        given = engine.model._tokens(tokens)
        self._request = self._known = engine._submit(self, read, user_data, followed, lib.kaiju_engine_submit,
                                                     engine._handle, self._handle, *given)
        return self._request

    def _before(self) -> Optional[Request]:
        self._check()
        return self._request

    def _idle(self) -> None:
        before = self._before()
        if before is not None:
            before._settle()

    def prefetch(self, *, at: int = 0, user_data: Any = None, **values: Any) -> int:
        """kaiju_session_prefetch: brings the session up from host memory and the file before its next request. at: a time
        of Engine.now, or 0 for at once. Engine.poll has a PREFETCHED event with the returned id."""
        self._idle()
        return self.engine._prefetch(lib.kaiju_session_prefetch, self._handle, at, user_data, values)

    # -- the history --
    def tokens(self) -> List[int]:
        """kaiju_session_tokens: the history. While a request is unfinished, it is the one before that request."""
        self._check()
        with self.engine._lock:
            count = lib.kaiju_session_tokens(self._handle, None, 0)
            buffer = (_c.I32 * count)()
            return list(buffer[: lib.kaiju_session_tokens(self._handle, buffer, count)])

    def __len__(self) -> int:
        self._check()
        return int(lib.kaiju_session_tokens(self._handle, None, 0))

    def __bool__(self) -> bool:
        return True

    def fork(self, length: Optional[int] = None) -> "Session":
        """kaiju_session_fork: a session with the first `length` tokens of this one, or all; both share the KV."""
        self._idle()
        count = len(self) if length is None else whole("length", length)
        made = Session(self.engine, _make=lambda out: call(lib.kaiju_session_fork, self._handle, count, out))
        made._head = list(self._head)
        made._known = self._known if count == len(self) else None
        return made

    def truncate(self, length: int) -> None:
        """kaiju_session_truncate: keeps the first `length` tokens."""
        self._idle()
        count = whole("length", length)
        with self.engine._lock:
            call(lib.kaiju_session_truncate, self._handle, count)
        self._known = None


__all__ = ["Session"]
