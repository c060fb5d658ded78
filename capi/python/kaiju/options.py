"""Options as keyword arguments, found by name in the library: a mistyped or misplaced one is refused and explained."""

from __future__ import annotations

import ctypes as c
import difflib
import operator
import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _c
from ._handle import Handle, c_path, nanoseconds, utf8, whole
from ._library import call, check, lib, text_of
from .errors import InvalidArgument, NotFound, WrongType

_TYPES = {"i": "an int of 64 bits", "f": "a float", "s": "a str"}
_PATHS = ("engine.tier_file", "engine.products_file")
_UNSIGNED = ("generate.seed",)  # may come with or without a sign
AnyOptions = Union["Options", Dict[str, Any], None]  # of a call
REQUEST = ("generate", "session")  # the scopes of a call that requests a reply
_WHERE = {
    "model": "Model(path, ...)",
    "engine": "Model.engine(...) or Engine(model, ...)",
    "generate": "a call that requests a reply, such as reply, stream, say or submit",
    "session": "a call that requests a reply, saves or restores",
}
# What is no option of the library's table, and has a setter of its own: the scope that reads it.
_OWN = {"logit_bias": "generate", "samplers": "generate", "timeout": "generate", "logits_hook": "generate",
        "clock": "engine", "host_threads": "engine"}


class Option(NamedTuple):
    """kaiju_option_info."""

    number: int
    name: str  # "generate.temperature"
    help: str
    type: str  # "i", "f" or "s"
    repeatable: bool
    minimum: float
    maximum: float
    standard: float


def option_find(name: str) -> int:
    """The number of the option with this whole name ("generate.temperature"); NotFound without one."""
    number = c.c_int32()
    status = lib.kaiju_option_find(utf8("an option's name", name) + b"\0", c.byref(number))
    check(status, f"no option is named {name!r}")
    return number.value


def option_describe(number: int) -> Option:
    """What the library says of an option; NotFound for an unknown number."""
    info = _c.OptionInfo()
    check(lib.kaiju_option_describe(number, c.byref(info)), f"no option has the number {number}")
    return Option(number, text_of(info.name), text_of(info.help), chr(info.type), bool(info.repeatable), info.minimum,
                  info.maximum, info.standard)


def option_list() -> List[Option]:
    """All options of the library."""
    found = []
    for first in _c.OPTION_SCOPES.values():
        for number in range(first, first + 100):
            try:
                found.append(option_describe(number))
            except NotFound:
                pass
    return found


def sampler_describe(sampler: int, value: int = 0) -> Option:
    """kaiju_sampler_describe: value number `value` of a Sampler, with a name like "top_k.k"."""
    info = _c.OptionInfo()
    status = lib.kaiju_sampler_describe(whole("sampler", sampler, 31), whole("value", value), c.byref(info))
    check(status, f"no sampler has the number {sampler} and a value {value}")
    return Option(int(sampler), text_of(info.name), text_of(info.help), chr(info.type), bool(info.repeatable),
                  info.minimum, info.maximum, info.standard)


_found: Dict[str, Option] = {}  # those that were used


def _named(name: str) -> Optional[Option]:
    if name not in _found:
        try:
            _found[name] = option_describe(option_find(name))
        except (NotFound, InvalidArgument):
            return None
    return _found[name]


def _refused(name: str, scopes: Tuple[str, ...]) -> InvalidArgument:
    """Why a name is no option here, and what was meant."""
    here = {option.name.split(".", 1)[1]: option.name for option in option_list()
            if option.name.split(".")[0] in scopes}
    here.update({own: own for own, scope in _OWN.items() if scope in scopes})
    short = name.split(".", 1)[-1]
    for scope in [scope for scope in _c.OPTION_SCOPES if scope not in scopes]:
        if _named(f"{scope}.{short}") or _OWN.get(short) == scope:
            return InvalidArgument(f"{short} is an option of the scope {scope!r}, which this call does not read: pass "
                                   f"it to {_WHERE[scope]}")
    elsewhere = {option.name.split(".", 1)[1]: option.name.split(".")[0] for option in option_list()}
    close = difflib.get_close_matches(short, {**elsewhere, **here}, 1, 0.7)
    if close and close[0] in here:
        return InvalidArgument(f"no option is named {name!r}; did you mean {close[0]!r}?")
    if close:
        return InvalidArgument(f"no option is named {name!r}; did you mean {close[0]!r}, which goes to "
                               f"{_WHERE[elsewhere[close[0]]]}?")
    return InvalidArgument(f"no option is named {name!r}; this call reads {', '.join(sorted(here))}")


class Options(Handle):
    """A bag of options for several calls: kaiju.Options(temperature=0.7, max_tokens=60).

    Pass it as options=bag; keywords beside it go before it. Every call refuses options that it does not read."""

    _kind = "options"
    _of_process = False

    def __init__(self, **values: Any):
        super().__init__()
        check(lib.kaiju_options_create(self._out), "kaiju: out of memory")
        self._scopes: Tuple[str, ...] = tuple(_c.OPTION_SCOPES)
        self._clock: Any = None  # the callback that C calls
        self._hook: Any = None  # likewise
        self._host_threads: Any = None  # likewise
        self._timeout: Optional[int] = None  # nanoseconds, from the request's submission
        self._given: Dict[str, Any] = {}
        self.update(values)

    def update(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.set(name, value)

    def set(self, name: str, value: Any) -> None:
        """Sets an option by its name, with or without the scope: "temperature" or "generate.temperature". What C
        takes repeatedly is one value or a list, and replaces what was set before."""
        own = name.split(".", 1)[-1]
        if own in _OWN and _OWN[own] in self._scopes and (name == own or name == f"{_OWN[own]}.{own}"):
            getattr(self, f"_set_{own}")(value)
        else:
            option = self._find(name)
            if option.repeatable:
                check(lib.kaiju_options_clear(self._handle, option.number), f"cannot clear {name}")
            several = option.repeatable and isinstance(value, (list, tuple, set, frozenset))
            for one in value if several else [value]:
                self._set(own, one, option)
        self._given[own] = value

    def get(self, name: str, default: Any = None) -> Any:
        """What was set in this bag."""
        return self._given.get(name.split(".", 1)[-1], default)

    def clear(self, name: Optional[str] = None) -> None:
        """kaiju_options_clear: takes an option's values out of the bag; without a name all of them."""
        if name is None or name in ("clock", "timeout"):
            self._timeout = None if name != "clock" else self._timeout
            if name != "timeout":
                self._set_clock(None)
        if name is None:
            self._set_logits_hook(None)
            self._set_host_threads(None)
        if name in ("logit_bias", "samplers", "logits_hook", "host_threads"):
            getattr(self, f"_set_{name}")(None)
        elif name not in ("clock", "timeout"):
            number = 0 if name is None else self._find(name).number
            check(lib.kaiju_options_clear(self._handle, number), f"cannot clear {name}")
        self._given = {} if name is None else {key: value for key, value in self._given.items()
                                               if key != name.split(".", 1)[-1]}

    def copy(self) -> "Options":
        """kaiju_options_copy: another bag with the same values."""
        return self._copied(self._scopes)

    def _copied(self, scopes: Tuple[str, ...]) -> "Options":
        made = Options.__new__(Options)
        Handle.__init__(made)
        made._scopes, made._clock, made._timeout = scopes, self._clock, self._timeout
        made._hook, made._host_threads = self._hook, self._host_threads
        made._given = dict(self._given)
        check(lib.kaiju_options_copy(self._handle, made._out), "kaiju: out of memory")
        return made

    def __copy__(self) -> "Options":
        return self.copy()

    def _find(self, name: str) -> Option:
        scope, _, short = name.rpartition(".")
        if not scope or scope in self._scopes:
            for each in [scope] if scope else self._scopes:
                option = _named(f"{each}.{short}")
                if option:
                    return option
        raise _refused(name, self._scopes)

    def _set(self, name: str, value: Any, option: Option) -> None:
        try:
            if option.type == "s":
                data = c_path_or_bytes(value) if option.name in _PATHS else utf8(name, value)
                call(lib.kaiju_options_set_string, self._handle, option.number, data, len(data))
                return
            if option.type == "f":
                call(lib.kaiju_options_set_float, self._handle, option.number, float(_no_text(value)))
                return
            number = operator.index(value)
            if not -2**63 <= number < (2**64 if option.name in _UNSIGNED else 2**63):
                raise OverflowError
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InvalidArgument) and not isinstance(error, WrongType):
                raise
            kind = "a path" if option.name in _PATHS else _TYPES[option.type]
            raise WrongType(f"{name} is {value!r}; it must be {kind}") from None
        call(lib.kaiju_options_set_int, self._handle, option.number, number - 2**64 * (number >= 2**63))

    def _set_logit_bias(self, bias: Any) -> None:
        """{token: bias}, or an empty one for none."""
        try:
            pairs = [(operator.index(token), float(value)) for token, value in dict(bias or {}).items()]
        except (TypeError, ValueError):
            raise WrongType(f"logit_bias is {bias!r}; it must be a dict of token ids and floats") from None
        for token, _ in pairs:
            if not 0 <= token < 2**31:
                raise InvalidArgument(f"logit_bias has the token {token}; tokens are from 0 to the vocabulary's end")
        tokens = (_c.I32 * len(pairs))(*[token for token, _ in pairs])
        values = (c.c_float * len(pairs))(*[value for _, value in pairs])
        call(lib.kaiju_options_set_logit_bias, self._handle, tokens, values, len(pairs))

    def _set_samplers(self, samplers: Any) -> None:
        """An ordered list of what samples, in place of the options temperature, top_k and so on:
        [("temperature", 0.8), ("top_k", 40)], or the dict of these. Empty: none."""
        check(lib.kaiju_options_clear_samplers(self._handle), "the samplers cannot be cleared")
        pairs = list(samplers.items()) if isinstance(samplers, dict) else list(samplers or [])
        known = {each.name.lower(): each for each in _c.Sampler}
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or not pair:
                raise WrongType(f"samplers has {pair!r}; it must be a pair (name, value)")
            name, *values = pair
            if isinstance(name, str) and name not in known:
                close = difflib.get_close_matches(name, known, 1)
                raise InvalidArgument(f"no sampler is named {name!r}; "
                                      + (f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"))
            kind = known[name] if isinstance(name, str) else whole("sampler", name, 31)
            try:
                numbers = (c.c_double * len(values))(*[float(_no_text(value)) for value in values])
            except (TypeError, ValueError):
                raise WrongType(f"the sampler {name} has {values!r}; it must have a float") from None
            call(lib.kaiju_options_add_sampler, self._handle, kind, numbers, len(values))

    def _set_timeout(self, seconds: Any) -> None:
        """Seconds from the submission to the deadline."""
        self._timeout = None if seconds is None else nanoseconds("timeout", seconds)

    def _set_logits_hook(self, hook: Optional[Callable[[Any, List[int]], Any]]) -> None:
        """For experiments on the CPU: hook(logits, tokens) may change the row of logits, an array of floats, before a
        token is sampled; tokens are those of the session so far. It must not raise: what it raises is printed."""
        if hook is not None and not callable(hook):
            raise WrongType(f"logits_hook is {hook!r}; it must be a callable of logits and tokens")

        def change(logits: int, count: int, tokens: int, token_count: int, _: Any) -> None:
            hook((c.c_float * count).from_address(logits),  # type: ignore[misc]
                 list((_c.I32 * token_count).from_address(tokens)))

        self._hook = None if hook is None else _c.LOGITS(change)
        pointer = c.cast(self._hook, c.c_void_p) if self._hook else None
        check(lib.kaiju_options_set_logits_hook(self._handle, pointer, None), "the hook cannot be set")

    def _set_clock(self, clock: Optional[Callable[[], int]]) -> None:
        """A callable that answers nanoseconds, of a clock that never goes back."""
        if clock is not None and not callable(clock):
            raise WrongType(f"clock is {clock!r}; it must be a callable that returns nanoseconds")
        self._clock = None if clock is None else _c.CLOCK(lambda _: int(clock()))
        pointer = c.cast(self._clock, c.c_void_p) if self._clock else None
        check(lib.kaiju_options_set_clock(self._handle, pointer, None), "the clock cannot be set")

    def _set_host_threads(self, run: Optional[Callable[[int, Callable[[int], None]], Any]]) -> None:
        """run(parts, part) calls part(i) once for each i below parts, on any threads, and returns when all calls have:
        lambda parts, part: list(pool.map(part, range(parts))). It must not raise: what it raises is printed. Each step
        calls it some hundred times, so a pool of Python costs more than threads of the engine."""
        if run is not None and not callable(run):
            raise WrongType(f"host_threads is {run!r}; it must be a callable of parts and part")

        def share(_: Any, parts: int, part: Callable[[Any, int], None], work: Any) -> None:
            run(parts, lambda i: part(work, i))  # type: ignore[misc]

        self._host_threads = None if run is None else _c.HOST_THREADS(share)
        pointer = c.cast(self._host_threads, c.c_void_p) if self._host_threads else None
        check(lib.kaiju_options_set_host_threads(self._handle, pointer, None), "the host's threads cannot be set")


def _no_text(value: Any) -> Any:
    if isinstance(value, (str, bytes)):  # float() would read it
        raise TypeError
    return value


def c_path_or_bytes(value: Any) -> bytes:
    """A path as an option, which says itself what is wrong with a NUL."""
    try:
        return os.fsencode(value)
    except UnicodeEncodeError:
        return c_path(value)


def bag(scopes: Tuple[str, ...], options: Union[Options, Mapping[str, Any], None],
        values: Mapping[str, Any]) -> Options:
    """The options of one call: those of `options`, of which C refuses what the call does not read, and its keywords."""
    if isinstance(options, Options):
        made = options._copied(scopes)
    elif options is None or isinstance(options, dict):
        made = Options()
        made._scopes = scopes
        values = {**(options or {}), **values}
    else:
        raise WrongType(f"options is {options!r}; it must be an Options or a dict")
    made.update(values)
    return made


__all__ = ["Option", "Options", "bag", "option_describe", "option_find", "option_list", "sampler_describe"]
