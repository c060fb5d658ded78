"""Conversations: the turns of a chat, with other replies to the newest turn, edits, undo and forks."""

from __future__ import annotations

import ctypes as c
from typing import Any, Callable, List, Optional, Sequence, Union

from . import _c
from ._c import Chat, Part
from ._handle import instance, whole
from ._library import call, check, filled, lib
from ._saved import Saved
from .engine import Engine, Request
from .errors import Error, InvalidArgument
from .events import Reply
from .model import Message, Messages, head_messages, messages_of
from .options import AnyOptions, Options
from .stream import Stream

Said = Union[Messages, Sequence[int]]  # tokens go as they are


def _is_tokens(said: Any) -> bool:
    return isinstance(said, (list, tuple)) and all(isinstance(each, int) for each in said)


class Conversation(Saved):
    """The turns of one chat and their KV. The head (a card or a system message) stays whatever is dropped when the chat
    outgrows the context.

    What is said is a text, or messages; a list of token ids goes as it is, and has to end with what starts a reply
    (Model.chat_format)."""

    _kind = "conversation"

    def __init__(self, engine: Engine, *, card: Any = None, system: Optional[str] = None,
                 greeting: Optional[str] = None, head: Optional[Sequence[int]] = None,
                 _make: Optional[Callable[[Any], None]] = None):
        super().__init__()
        self.engine = instance(Engine, "engine", engine)
        self._request: Optional[Request] = None  # the newest
        if head is not None and (card is not None or system is not None):
            raise InvalidArgument("give a head of tokens, or a card or a system message")
        if greeting is None:
            greeting = getattr(card, "greeting", None)
        model = engine.model
        messages: Optional[List[Message]] = None  # that the head is of
        if head is None and _make is None:
            messages = head_messages(card, system, None)
            if model.chats:
                head = model.chat_format(messages, 0 if messages else Chat.BEGIN)
            else:
                if messages:
                    model.chat_format(messages, 0)  # says why it cannot
                begin = model.chat_symbol("begin")
                head = [] if begin is None else [begin]
        given = model._tokens(head or [])
        if _make is None:
            engine._check()
        with engine._lock:
            (_make or (lambda out: call(lib.kaiju_conversation_create, engine._handle, *given, out)))(
                self._out)
        if greeting and _make is None:
            self._greet(greeting, messages, list(head or []))

    def __repr__(self) -> str:
        try:
            return f"Conversation({self.describe().turns} turns)"
        except Error:
            return "Conversation(closed)"

    def _greet(self, greeting: str, messages: Optional[List[Message]], head: List[int]) -> None:
        """The greeting's turn is what it adds to the head, without the close, which every turn gets."""
        model = self.engine.model
        turn = model.tokenize(greeting)
        if messages is not None and model.chats:
            whole_head = model.chat_format(messages + [Message("character", greeting)],
                                           0 if messages else Chat.BEGIN)
            close = model.chat_format([], Chat.CLOSE)
            if whole_head[: len(head)] == head and (not close or whole_head[-len(close):] == close):
                turn = whole_head[len(head): len(whole_head) - len(close)]
        self.append([], turn)

    # -- replies --
    def say(self, said: Said, on_text: Optional[Callable[[str], Any]] = None, *, options: AnyOptions = None,
            **values: Any) -> Reply:
        """kaiju_conversation_say: a new turn, and its reply. on_text(text) is told of its parts as they come."""
        return self.stream(said, options=options, **values).reply(on_text)

    def swipe(self, on_text: Optional[Callable[[str], Any]] = None, *, options: AnyOptions = None,
              **values: Any) -> Reply:
        """kaiju_conversation_swipe: another reply to the newest turn. Greedy replies are all alike: give a
        temperature."""
        return self.stream_swipe(options=options, **values).reply(on_text)

    def stream(self, said: Said, *, options: AnyOptions = None, **values: Any) -> Stream:
        """say, part by part: for text in talk.stream("Hello!"), or async for."""
        tokens = self._input(said)
        return self._stream(options, values, lambda read: self._say(tokens, read, None, True))

    def stream_swipe(self, *, options: AnyOptions = None, **values: Any) -> Stream:
        """swipe, part by part."""
        return self._stream(options, values, lambda read: self._swipe(read, None, True))

    def submit(self, said: Said, *, user_data: Any = None, options: AnyOptions = None,
               **values: Any) -> Request:
        """say, for a loop of your own: takes a text as say does, and its events come from Engine.poll."""
        tokens = self._input(said)
        self._idle()
        with self.engine._request_options(options, values) as read:
            return self._say(tokens, read, user_data, False)

    def submit_swipe(self, *, user_data: Any = None, options: AnyOptions = None, **values: Any) -> Request:
        """swipe, for a loop of your own."""
        self._idle()
        with self.engine._request_options(options, values) as read:
            return self._swipe(read, user_data, False)

    def _stream(self, options: AnyOptions, values: Any, submit: Callable[[Options], Request]) -> Stream:
        read = self.engine._unguided_options(options, values)
        return Stream(self.engine, self._before, lambda: submit(read), self.engine.model.chats)

    def _say(self, tokens: Sequence[int], read: Options, user_data: Any, followed: bool) -> Request:
        given = self.engine.model._tokens(tokens)
        self._request = self.engine._submit(self, read, user_data, followed, lib.kaiju_conversation_say, self._handle,
                                            *given)
        return self._request

    def _swipe(self, read: Options, user_data: Any, followed: bool) -> Request:
        self._request = self.engine._submit(self, read, user_data, followed, lib.kaiju_conversation_swipe, self._handle)
        return self._request

    def _before(self) -> Optional[Request]:
        self._check()
        return self._request

    def _idle(self) -> None:
        before = self._before()
        if before is not None:
            before._settle()

    def _input(self, said: Said) -> List[int]:
        model = self.engine.model
        if _is_tokens(said):
            return list(said)  # type: ignore[arg-type]
        messages = messages_of(said)
        if not model.chats and [message.role for message in messages] == ["user"]:
            return model.tokenize(messages[0].content)
        return model.chat_format(messages, Chat.REPLY)

    def _reply(self, reply: Union[str, Sequence[int]]) -> List[int]:
        return self.engine.model.tokenize(reply) if isinstance(reply, str) else list(reply)

    def prefetch(self, *, at: int = 0, user_data: Any = None, **values: Any) -> int:
        """kaiju_conversation_prefetch: Session.prefetch for the conversation's next turn."""
        self._idle()
        return self.engine._prefetch(lib.kaiju_conversation_prefetch, self._handle, at, user_data, values)

    # -- turns --
    def choose(self, reply: int) -> None:
        """kaiju_conversation_choose: which of the newest turn's replies is the one, from 0."""
        self._call(lib.kaiju_conversation_choose, whole("reply", reply))

    def append(self, said: Said, reply: Union[str, Sequence[int]]) -> None:
        """kaiju_conversation_append: a turn that is not computed. A greeting says nothing: append([], "Welcome!")."""
        model = self.engine.model
        given = model._tokens(self._input(said) if said else [])
        self._call(lib.kaiju_conversation_append, *given, *model._tokens(self._reply(reply)))

    def edit(self, turn: int, said: Union[Said, str], part: int = Part.INPUT) -> None:
        """kaiju_conversation_edit: another input takes the turn's replies and all later turns away; another reply
        (Part.REPLY) leaves them."""
        which = whole("turn", turn), whole("part", part, 31)
        tokens = self._reply(said) if part == Part.REPLY else self._input(said)  # type: ignore[arg-type]
        self._call(lib.kaiju_conversation_edit, *which, *self.engine.model._tokens(tokens))

    def undo(self) -> None:
        """kaiju_conversation_undo: removes the newest turn."""
        self._call(lib.kaiju_conversation_undo)

    def fork(self, turns: Optional[int] = None) -> "Conversation":
        """kaiju_conversation_fork: a conversation with the first `turns` turns, or all, sharing their KV."""
        self._idle()
        count = int(self.describe().turns) if turns is None else whole("turns", turns)
        return Conversation(self.engine,
                            _make=lambda out: call(lib.kaiju_conversation_fork, self._handle, count, out))

    def describe(self) -> _c.ConversationInfo:
        """kaiju_conversation_describe."""
        self._check()
        info = _c.ConversationInfo()
        with self.engine._lock:
            check(lib.kaiju_conversation_describe(self._handle, c.byref(info)), "the conversation has no description")
        return info

    def turn(self, turn: int, part: int = Part.REPLY) -> List[int]:
        """kaiju_conversation_turn: the tokens of a part of a turn."""
        which = whole("turn", turn), whole("part", part, 31)
        self._check()
        with self.engine._lock:
            return filled(lambda *buffer: call(lib.kaiju_conversation_turn, self._handle, *which, *buffer))

    def text(self, turn: int, part: int = Part.REPLY) -> str:
        """The same as text, without control symbols."""
        return self.engine.model.detokenize(self.turn(turn, part))

    def tokens(self) -> List[int]:
        """kaiju_conversation_tokens: all that the next turn continues."""
        self._check()
        with self.engine._lock:
            return filled(lambda *buffer: call(lib.kaiju_conversation_tokens, self._handle, *buffer))

    def _call(self, function: Any, *arguments: Any) -> None:
        self._idle()
        with self.engine._lock:
            call(function, self._handle, *arguments)


__all__ = ["Conversation"]
