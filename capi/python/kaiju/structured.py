"""Structured replies: replies that follow a JSON schema, a regular expression or a Lark grammar, by llguidance.

    from kaiju.structured import Structured

    structured = Structured(model)  # reads the vocabulary once, for all engines of the model
    robot = structured.json(session, "Describe a robot.", schema={
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "wheels": {"type": "integer", "minimum": 0}},
        "required": ["name", "wheels"],
        "additionalProperties": False,
    })
    date = structured.reply(session, "Which day?", regex=r"\\d{4}-\\d{2}-\\d{2}")
    mood = structured.json(talk, "How are you?", schema={"enum": ["well", "tired"]})  # a turn of a Conversation
    other = structured.json(talk, None, schema={"enum": ["well", "tired"]}, temperature=1.0)  # a swipe

A reply that ends by itself (reason STOP_TOKEN) follows its grammar. One that max_tokens or a deadline cuts off is a
beginning of such a reply: bound the sizes in a schema, and leave room. A string that reaches maxLength ends there, also
in the middle of a word. Formats such as "date" are checked by their form alone. Needs the package llguidance: pip
install llguidance.
"""

from __future__ import annotations

import json as _json
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from ._c import Chat, Kind, Reason
from ._handle import instance
from .conversation import Conversation
from .engine import Engine, Request
from .errors import Error, InvalidArgument, LibraryMissing, NotFound, Unsupported, WrongType
from .events import Event, Reply
from .model import Messages, Model
from .options import AnyOptions, Options
from .session import Session

Schema = Union[str, Mapping[str, Any], bool]
Talk = Union[Session, Conversation]  # of a session the history goes on; of a conversation a turn is said


class Incomplete(Error):
    """The reply was cut off before it followed its grammar to the end; `reply` is what there is of it."""

    def __init__(self, message: str, reply: Reply):
        super().__init__(message)
        self.reply = reply


def vocabulary(model: Model) -> List[Optional[bytes]]:
    """The bytes of each token as they are within a text; None for control symbols and tokens that only pad."""
    return [model.token_bytes(token) or None for token in range(model.vocabulary)]


def stop_token(model: Model) -> int:
    """The token that ends a reply: the one with which the chat format closes it, else the first stop token."""
    closing = model.chat_format([], Chat.CLOSE)[:1] if model.chats else []
    for token in closing + list(model.stop_tokens):
        if model.detokenize_bytes([token]) == b"":
            return token
    raise Unsupported("the model has no control symbol that ends a reply, so a structured reply could not end")


class _Description:
    """A tokenizer as llguidance reads one. Control symbols are special, so no text of a grammar becomes one."""

    bos_token_id = None

    def __init__(self, texts: Sequence[Optional[bytes]], stop: int):
        self.eos_token_id = stop
        self.tokens = [text if text is not None else b"<control %d>" % token for token, text in enumerate(texts)]
        self.special_token_ids = [token for token, text in enumerate(texts) if text is None]
        self._ids = {text: token for token, text in reversed(list(enumerate(texts))) if text is not None}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: Union[str, bytes]) -> List[int]:
        """The longest token first. llguidance wants some tokens of a text, not the tokenizer's own."""
        data = text.encode() if isinstance(text, str) else text
        tokens, at = [], 0
        while at < len(data):
            for size in range(min(self._longest, len(data) - at), 0, -1):
                token = self._ids.get(data[at:at + size])
                if token is not None:
                    tokens.append(token)
                    break
            else:
                size = 1  # a byte that no token has
            at += size
        return tokens


class Matcher:
    """Follows one reply through its grammar: mask() before each token, took(token) after it."""

    def __init__(self, structured: "Structured", grammar: str):
        self._matcher = structured._engine.LLMatcher(structured._tokenizer, grammar)
        self._bytes = (structured.model.vocabulary + 31) // 32 * 4  # llguidance adds a word where all are full
        self._check()

    def mask(self) -> bytes:
        """Which tokens may come next, as Engine.guide takes it."""
        mask: bytes = self._matcher.compute_bitmask()
        self._check()
        return mask[:self._bytes]

    def took(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    @property
    def complete(self) -> bool:
        """Whether the text so far may be the whole reply."""
        return bool(self._matcher.is_accepting())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidArgument(f"llguidance: {self._matcher.get_error().strip()}")


class Structured:
    """Replies of one model that follow a schema, a regex or a Lark grammar. Any number of threads may use it.

    `session` is a Session or a Conversation. Of a conversation, messages are what Conversation.say takes, and None asks
    for another reply to the newest turn, as Conversation.swipe does."""

    def __init__(self, model: Model):
        try:
            import llguidance
        except ImportError:
            raise LibraryMissing("structured replies need the package llguidance: pip install llguidance") from None
        self.model = instance(Model, "model", model)
        self.stop_token = stop_token(model)
        self._engine = llguidance
        description = llguidance.TokenizerWrapper(_Description(vocabulary(model), self.stop_token))
        self._tokenizer = llguidance.LLTokenizer(description, n_vocab=model.vocabulary, eos_token=self.stop_token)

    def grammar(self, *, schema: Optional[Schema] = None, regex: Optional[str] = None, lark: Optional[str] = None,
                whitespace: bool = False) -> str:
        """What llguidance makes of one of them. `whitespace`: JSON may have any white space between its tokens, and so
        no bound; else it is written as json.dumps does."""
        if sum(given is not None for given in (schema, regex, lark)) != 1:
            raise InvalidArgument("give one of schema=, regex= and lark=")
        matcher = self._engine.LLMatcher
        if schema is not None:
            text = schema if isinstance(schema, str) else _json.dumps(schema)
            try:
                made = matcher.grammar_from_json_schema(text, overrides={"whitespace_flexible": whitespace})
            except ValueError as error:
                raise InvalidArgument(f"the schema is not JSON: {error}") from None
        elif regex is not None:
            made = matcher.grammar_from_regex(regex)
        else:
            made = matcher.grammar_from_lark(lark)
        return str(made)

    def matcher(self, **grammar: Any) -> Matcher:
        """A Matcher for a loop of your own, which submits with guided=1 and stop_token=structured.stop_token."""
        return Matcher(self, self.grammar(**grammar))

    def stream(self, session: Talk, messages: Optional[Messages], *, schema: Optional[Schema] = None,
               regex: Optional[str] = None, lark: Optional[str] = None, whitespace: bool = False,
               options: AnyOptions = None, **values: Any) -> Iterator[str]:
        """The text of the reply, part by part."""
        matcher = self.matcher(schema=schema, regex=regex, lark=lark, whitespace=whitespace)
        return (event.text for event in self._events(session, messages, matcher, options, values) if event.text)

    def reply(self, session: Talk, messages: Optional[Messages], *, schema: Optional[Schema] = None,
              regex: Optional[str] = None, lark: Optional[str] = None, whitespace: bool = False,
              options: AnyOptions = None, **values: Any) -> Reply:
        """The whole reply, a str. Its reason says whether it is complete: Reason.STOP_TOKEN."""
        matcher = self.matcher(schema=schema, regex=regex, lark=lark, whitespace=whitespace)
        events = list(self._events(session, messages, matcher, options, values))
        tokens = [event for event in events if event.kind == Kind.TOKEN]
        return Reply._of("".join(event.text for event in events), tokens, events[-1])

    def json(self, session: Talk, messages: Optional[Messages], *, schema: Schema, options: AnyOptions = None,
             whitespace: bool = False, **values: Any) -> Any:
        """What the reply says, as Python's own types; Incomplete if it was cut off."""
        reply = self.reply(session, messages, schema=schema, whitespace=whitespace, options=options, **values)
        if reply.reason != Reason.STOP_TOKEN:
            raise Incomplete(f"the reply was cut off after {reply.generated_tokens} tokens: give it more max_tokens, "
                             "or bound the sizes in the schema", reply)
        return _json.loads(reply)

    def _events(self, session: Talk, messages: Optional[Messages], matcher: Matcher, options: AnyOptions,
                values: Dict[str, Any]) -> Iterator[Event]:
        if not isinstance(session, (Session, Conversation)):
            raise WrongType(f"session is a {type(session).__name__}; it must be a Session or a Conversation")
        if session.engine.model is not self.model:
            raise InvalidArgument("the session is of another model's engine: make a Structured of that model")
        if messages is None and not isinstance(session, Conversation):
            raise WrongType("messages is None, which asks a Conversation for another reply; a Session needs a text")
        return self._followed(session, messages, matcher, options, values)

    def _followed(self, session: Talk, messages: Optional[Messages], matcher: Matcher, options: AnyOptions,
                  values: Dict[str, Any]) -> Iterator[Event]:
        engine = session.engine
        with engine._request_options(options, {**values, "guided": 1, "stop_token": self.stop_token}) as read:
            request = self._submit(session, messages, read)
        try:
            engine.guide(request, matcher.mask())
            for event in request.events():
                if event.kind == Kind.FAILED:
                    raise event.error  # type: ignore[misc]
                if event.kind == Kind.TOKEN:
                    self._go_on(engine, request, matcher, event.tokens[0])
                yield event
        finally:
            if not request.done:
                request.cancel()
                request.wait()

    def _submit(self, session: Talk, messages: Optional[Messages], read: Options) -> Request:
        if isinstance(session, Conversation):
            return session.submit_swipe(options=read) if messages is None else session.submit(messages, options=read)
        tokens = session.prompt(messages)  # type: ignore[arg-type]
        session._limit(read, len(tokens))
        return session.submit(tokens, options=read)

    def _go_on(self, engine: Engine, request: Request, matcher: Matcher, token: int) -> None:
        if token == self.stop_token:
            return
        matcher.took(token)
        try:
            engine.guide(request, matcher.mask())
        except NotFound:
            pass  # that was its last token: max_tokens


__all__ = ["Incomplete", "Matcher", "Structured", "stop_token", "vocabulary"]
