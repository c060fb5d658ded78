"""Models, the text that they read and write, and the devices of this machine."""

from __future__ import annotations

import ctypes as c
import operator
import reprlib
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _c
from ._c import Chat, Device, Property, Role, Status, TextProperty
from ._handle import Handle, Path, c_path, instance, utf8, whole
from ._library import call, check, filled, lib, text_of
from .bundled import Card, model_path
from .errors import InvalidArgument, Unsupported, WrongType
from .options import AnyOptions, bag

if TYPE_CHECKING:
    from .engine import Engine

_ROLES = {"card": Role.CARD, "user": Role.USER, "character": Role.CHARACTER, "system": Role.SYSTEM,
          "assistant": Role.CHARACTER}


class Message(NamedTuple):
    """A message of a chat. Roles: card, user, character (or assistant), system."""

    role: str
    content: str
    name: str = ""


AnyMessage = Union[Message, Tuple[str, str], Tuple[str, str, str], "dict[str, str]"]
Messages = Union[str, Sequence[AnyMessage]]


def messages_of(given: Any) -> List[Message]:
    """A text is the user's; others are Message, (role, content), (role, content, name) or a dict of these."""
    if isinstance(given, str):
        return [Message("user", given)]
    if isinstance(given, (Message, dict)):
        given = [given]
    if not isinstance(given, (list, tuple)):
        raise WrongType(f"a message is {given!r}; it must be a str or a list of messages")
    made = []
    for each in given:
        if isinstance(each, dict):
            unknown = set(each) - {"role", "content", "name"}
            if unknown or not {"role", "content"} <= set(each):
                raise InvalidArgument(f"a message is {each!r}; a dict has role, content and perhaps name")
            each = (each["role"], each["content"], each.get("name") or "")
        if isinstance(each, int):
            raise WrongType(f"a message is {each!r}: token ids go to generate(tokens) or submit(tokens), which add "
                            "nothing to them")
        if not isinstance(each, (tuple, list)) or len(each) not in (2, 3):
            raise WrongType(f"a message is {each!r}; it must be a pair (role, text), or (role, text, name)")
        if each[0] not in _ROLES:
            raise InvalidArgument(f"no role {each[0]!r}; there are {', '.join(_ROLES)}")
        made.append(Message(*each))
    return made


def _array_of(messages: Any) -> Any:
    """Messages as the library takes them."""
    made = messages_of(messages)
    array = (_c.Message * len(made))()
    for slot, message in zip(array, made):
        content = utf8(f"the text of role {message.role}", message.content)
        name = utf8("a speaker's name", message.name)
        slot.role, slot.content, slot.content_size = _ROLES[message.role], content, len(content)
        slot.name, slot.name_size = name, len(name)
    return array


class Placed(NamedTuple):
    """A prompt with a text that changes with every turn (kaiju_volatile)."""

    tokens: List[int]
    stable_tokens: int  # the first tokens, which do not depend on the text: what is behind is computed every turn
    stable_behind_history: int  # stable_tokens if the text stood behind the history (depth 1)


class DeviceInfo(NamedTuple):
    """kaiju_device_info; memory in bytes, 0: not known."""

    name: str  # "cpu", "cuda:0"
    backends: List[str]  # the fastest first; none: no backend computes on this device
    memory_total: int
    memory_free: int
    kind: int  # a Device
    description: str  # the product's name of a GPU


class Runtime(Handle):
    """The devices of this machine."""

    _kind = "runtime"
    _of_process = False

    def __init__(self) -> None:
        super().__init__()
        call(lib.kaiju_runtime_create, self._out)

    def devices(self) -> List[DeviceInfo]:
        return [self.device_info(i) for i in range(self.device_count())]

    def device_count(self) -> int:
        return int(lib.kaiju_runtime_device_count(self._handle))

    def device_info(self, index: int) -> DeviceInfo:
        info = _c.DeviceInfo()
        status = lib.kaiju_runtime_device_info(self._handle, whole("index", index), c.byref(info))
        check(status, f"there is no device {index}")
        backends = [name for name in text_of(info.backends).split(",") if name]
        kind = Device(info.kind) if info.kind in list(Device) else info.kind
        return DeviceInfo(text_of(info.name), backends, info.memory_total, info.memory_free, kind,
                          text_of(info.description))


class Model(Handle):
    """A checkpoint; without a path, the bundled toy model. Immutable, and shared by any number of engines and
    threads.

    progress(done), with done from 0 to 1, is called while it loads; if it returns something true, or raises, the load
    stops. Options: those of the scope "model"."""

    _kind = "model"
    _of_process = False

    def __init__(self, path: Optional[Path] = None, *, runtime: Optional[Runtime] = None,
                 progress: Optional[Callable[[float], Any]] = None, options: AnyOptions = None, **values: Any):
        super().__init__()
        path = model_path() if path is None else path
        where = c_path(path)
        raised: List[BaseException] = []

        def tell(done: float, _: Any) -> int:
            try:
                return int(bool(progress(done)))  # type: ignore[misc]
            except BaseException as error:  # raised again outside of C
                raised.append(error)
                return 1

        callback = _c.PROGRESS(tell) if progress else None
        told = c.cast(callback, c.c_void_p) if callback else None
        runtime_handle = instance(Runtime, "runtime", runtime)._handle if runtime is not None else None
        with bag(("model",), options, values) as read:
            try:
                call(lib.kaiju_model_load, runtime_handle, where, read._handle, told, None,
                     self._out)
            except BaseException:
                if raised:
                    raise raised[0] from None
                raise
        self.path = path
        self.vocabulary = self.number(Property.VOCABULARY) or 0
        self.context = self.number(Property.CONTEXT) or 0
        self.labels = [self.label(i) for i in range(self.number(Property.LABELS) or 0)]  # of the classifier
        self.chats = self._chats()  # whether it has a chat format

    def __repr__(self) -> str:
        return "Model(closed)" if self.closed else f"Model({self.name!r}, vocabulary={self.vocabulary})"

    # -- facts --
    def memory_need(self, *, options: AnyOptions = None, **values: Any) -> _c.MemoryNeed:
        """kaiju_model_memory_need: what an engine with these options would take; nothing is taken."""
        need = _c.MemoryNeed()
        with bag(("engine",), options, values) as read:
            call(lib.kaiju_model_memory_need, self._handle, read._handle, c.byref(need))
        return need

    def number(self, which: int) -> Optional[int]:
        """kaiju_model_number: a Property; None where the model has none."""
        value = c.c_int64()
        status = lib.kaiju_model_number(self._handle, whole("which", which, 31), c.byref(value))
        if status == Status.NOT_FOUND:
            return None
        check(status, f"no property of models has the number {int(which)}")
        return value.value

    def text(self, which: int) -> str:
        """kaiju_model_text: a TextProperty."""
        text, size = c.c_void_p(), c.c_size_t()
        status = lib.kaiju_model_text(self._handle, int(which), c.byref(text), c.byref(size))
        check(status, f"the model has no text with the number {int(which)}")
        return text_of(c.string_at(text, size.value))

    def label(self, index: int) -> str:
        """kaiju_model_label: the name of one of the classifier's labels."""
        text, size = c.c_void_p(), c.c_size_t()
        status = lib.kaiju_model_label(self._handle, whole("index", index), c.byref(text), c.byref(size))
        check(status, f"the model has no label {index}")
        return text_of(c.string_at(text, size.value))

    @property
    def name(self) -> str:
        return self.text(TextProperty.NAME)

    @property
    def digest(self) -> str:
        """32 hexadecimal digits."""
        return self.text(TextProperty.DIGEST)

    @property
    def weight_bytes(self) -> int:
        return self.number(Property.WEIGHT_BYTES) or 0

    @property
    def parameters(self) -> int:
        return self.number(Property.PARAMETERS) or 0

    def chat_symbol(self, name: str) -> Optional[int]:
        """The token of begin, card, user, character, close, end or text; None where the model has no such symbol."""
        known = {which.name[5:].lower(): which for which in Property if which.name.startswith("CHAT_")}
        if name not in known:
            raise InvalidArgument(f"no chat symbol {name!r}; there are {', '.join(known)}")
        return self.number(known[name])

    def _chats(self) -> bool:
        try:
            self.chat_format([], Chat.BEGIN)
        except Unsupported:
            return False
        return True

    # -- text --
    def _tokens(self, tokens: Any) -> Tuple[Any, int]:
        if isinstance(tokens, (str, bytes)):
            raise WrongType(f"tokens is {reprlib.repr(tokens)}; it must be a list of token ids: model.tokenize(text) makes one, "
                            "and session.reply(text) takes text")
        try:
            tokens = [operator.index(token) for token in tokens]
        except TypeError:
            raise WrongType(f"tokens is {reprlib.repr(tokens)}; it must be a list of token ids") from None
        for i, token in enumerate(tokens):  # here, for ctypes cuts off what is beyond 32 bits
            if not 0 <= token < self.vocabulary:
                raise InvalidArgument(f"token {i} is {token}; tokens are 0 to {self.vocabulary - 1}")
        return (_c.I32 * len(tokens))(*tokens), len(tokens)

    def tokenize(self, text: str) -> List[int]:
        """kaiju_tokenize: no begin symbol, and no text becomes a control symbol."""
        data = utf8("text", text)
        return filled(lambda *buffer: call(lib.kaiju_tokenize, self._handle, data, len(data), *buffer))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """kaiju_detokenize; what is not whole UTF-8 becomes U+FFFD."""
        return self.detokenize_bytes(tokens).decode(errors="replace")

    def detokenize_bytes(self, tokens: Sequence[int]) -> bytes:
        given = self._tokens(tokens)
        return bytes(filled(lambda *buffer: call(lib.kaiju_detokenize, self._handle, *given, *buffer),
                            c.c_ubyte))

    def token_bytes(self, token: int) -> bytes:
        """kaiju_token_text: the bytes of one token, as a grammar engine wants them; none of a control symbol."""
        given, _ = self._tokens([token])
        return bytes(filled(lambda *buffer: call(lib.kaiju_token_text, self._handle, given[0], *buffer), c.c_ubyte))

    def chat_format(self, messages: Messages, flags: int = Chat.REPLY) -> List[int]:
        """kaiju_chat_format: the tokens of messages, with what the chat format puts around them. flags: Chat."""
        array = _array_of(messages)
        bits = whole("flags", flags, 31)
        return filled(lambda *buffer: call(lib.kaiju_chat_format, self._handle, array, c.sizeof(_c.Message),
                                           len(array), bits, *buffer))

    def chat_format_volatile(self, messages: Messages, text: str, depth: int = 1, flags: int = Chat.REPLY) -> Placed:
        """kaiju_chat_format_volatile: the same with a text that changes with every turn, and what that costs. depth:
        how many messages follow the text; 1: it stands behind the history, right before the newest message."""
        array = _array_of(messages)
        bits, data = whole("flags", flags, 31), utf8("text", text)
        placed = _c.Volatile(text=data, text_size=len(data), depth=whole("depth", depth, 31))
        tokens = filled(lambda *buffer: call(lib.kaiju_chat_format_volatile, self._handle, array, c.sizeof(_c.Message),
                                             len(array), bits, c.byref(placed), *buffer))
        return Placed(tokens, placed.stable_tokens, placed.stable_behind_history)

    def is_stop_token(self, token: int) -> bool:
        return token in self.stop_tokens

    @property
    def stop_tokens(self) -> List[int]:
        """kaiju_model_stop_tokens: the tokens that end a reply, unless the request names others."""
        buffer = (_c.I32 * lib.kaiju_model_stop_tokens(self._handle, None, 0))()
        return list(buffer[: lib.kaiju_model_stop_tokens(self._handle, buffer, len(buffer))])

    # -- engines --
    def engine(self, **options: Any) -> Engine:
        """An Engine for this model; options: those of the scope "engine"."""
        from .engine import Engine

        return Engine(self, **options)


def chat_turns_to_drop(turn_tokens: Sequence[int], card_tokens: int, reply_tokens: int, context: int) -> int:
    """kaiju_chat_turns_to_drop: how many of the oldest turns to drop so that card, turns and reply fit."""
    counts = [whole("a turn's tokens", count) for count in turn_tokens]
    return int(lib.kaiju_chat_turns_to_drop((c.c_size_t * len(counts))(*counts), len(counts),
                                            whole("card_tokens", card_tokens), whole("reply_tokens", reply_tokens),
                                            whole("context", context)))


def head_messages(card: Any, system: Optional[str], greeting: Optional[str]) -> List[Message]:
    """What a chat begins with. A card is a Card, (name, description) or a text "NAME\\nDESCRIPTION"."""
    if card is not None and system is not None:
        raise InvalidArgument("give a card or a system message, not both: an imported model gets a card as its system "
                              "message, and other models have cards alone")
    made = []
    if card is not None:
        if isinstance(card, Card):
            card = card.text
        elif isinstance(card, (tuple, list)) and len(card) == 2 and all(isinstance(part, str) for part in card):
            card = Card(*card).text
        if not isinstance(card, str):
            raise WrongType(f"the card is {card!r}; it must be a Card, (name, description) or 'NAME\\nDESCRIPTION'")
        if "\n" not in card:
            raise InvalidArgument(f"the card is {card!r}; it must have a line with the name, and a description after "
                                  "it: (name, description). The cards of the bundled model: kaiju.Card.bundled(NAME)")
        made.append(Message("card", card))
    if system is not None:
        made.append(Message("system", system))
    if greeting:
        made.append(Message("character", greeting))
    return made


__all__ = ["DeviceInfo", "Message", "Messages", "Model", "Runtime", "chat_turns_to_drop", "head_messages",
           "messages_of"]
