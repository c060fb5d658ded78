"""Streams: a reply's text as it comes, in a for loop or in an async for loop."""

from __future__ import annotations

from typing import Any, AsyncIterator, Callable, Generator, Iterator, List, Optional

from ._c import Kind
from .engine import Engine, Request
from .errors import Cancelled, InvalidArgument
from .events import Event, Reply


class Stream:
    """The text of one reply: iterate over it, plainly or with async for; await it or call reply() for the whole reply.

    The request is submitted when the first text is asked for. It is cancelled when the stream is closed or let go, as
    by leaving the loop, when the loop's task is cancelled, and by any exception."""

    def __init__(self, engine: Engine, before: Callable[[], Optional[Request]], submit: Callable[[], Request],
                 strip: bool):
        self._engine, self._before, self._submit = engine, before, submit
        self._strip = strip  # a space before the first word
        self._request: Optional[Request] = None
        self._taken: List[Event] = []
        self._text: List[str] = []
        self._reply: Optional[Reply] = None
        self._closed = False

    # -- what the request is doing --
    @property
    def request(self) -> Optional[Request]:
        """None before the first text is asked for."""
        return self._request

    def cancel(self) -> None:
        """Ends the reply soon; the loop gets what is there and stops."""
        if self._request is None:
            self._closed = True
        elif not self._request.done:
            self._request.cancel()

    def suspend(self) -> None:
        self._started().suspend()

    def resume(self) -> None:
        self._started().resume()

    def _started(self) -> Request:
        if self._request is None:
            raise InvalidArgument("the stream has not begun: ask it for its first text")
        return self._request

    def close(self) -> None:
        """Cancels the request, if it has not ended. Takes no lock."""
        if not self.__dict__.get("_closed", True):
            self._closed = True
            if self._request is not None and not self._request.done:
                self._request._abandon()

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def aclose(self) -> None:
        self.close()

    # -- text --
    def _next(self) -> Optional[str]:
        """The next text that is there already."""
        assert self._request is not None
        while self._request._events:
            event = self._request._events.popleft()
            if event.kind == Kind.FAILED:
                self._closed = True
                raise event.error  # type: ignore[misc]
            if event.kind == Kind.TOKEN:
                self._taken.append(event)
            text = event.text
            if self._strip and text:
                text, self._strip = text[text.startswith(" "):], False
            if text:
                self._text.append(text)
            if event.kind == Kind.DONE:
                self._closed = True
                self._reply = Reply._of("".join(self._text), self._taken, event)
            if text:
                return text
        return None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            if self._request is None and not self._closed:
                self._begin()
            while self._request is not None and self._reply is None:
                text = self._next()
                if text:
                    return text
                if self._closed:
                    break
                request = self._request
                self._engine._run(lambda: bool(request._events), request)
        except BaseException:
            self._give_up()
            raise
        raise StopIteration

    def _begin(self) -> None:
        before = self._before()
        if before is not None:
            before._settle()
        self._request = self._submit()

    def _give_up(self) -> None:
        self.close()
        if self._request is not None:
            self._request._settle()

    def reply(self, on_text: Optional[Callable[[str], Any]] = None) -> Reply:
        """The whole reply. on_text(text) is told of its parts as they come; if it returns something true, the reply
        ends there (Cancelled), and what it raises ends the request and is raised."""
        if on_text is None:
            self._whole()
        try:
            for text in self:
                if on_text is not None and on_text(text):
                    raise Cancelled("on_text stopped the reply")
        except BaseException:
            self._give_up()
            raise
        return self._finished()

    def _whole(self) -> None:
        """Sleeps until the end, rather than for each token."""
        try:
            if self._request is None and not self._closed:
                self._begin()
            if self._request is not None and not self._closed:
                request = self._request
                self._engine._run(lambda: request.done, request)
        except BaseException:
            self._give_up()
            raise

    def _finished(self) -> Reply:
        if self._reply is None:
            raise Cancelled("the stream was closed before its reply ended")
        return self._reply

    # -- asyncio --
    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        try:
            if self._request is None and not self._closed:
                before = self._before()
                if before is not None:
                    await before._settle_in_loop()
                self._request = self._submit()
            while self._request is not None and self._reply is None:
                text = self._next()
                if text:
                    return text
                if self._closed:
                    break
                await self._request._news()
        except BaseException:
            self.close()
            if self._request is not None and not self._request.done:
                self._step_on(self._request)
            raise
        raise StopAsyncIteration

    def _step_on(self, request: Request) -> None:
        """The engine goes on to the end of a request that was cancelled, though nobody waits."""
        engine = self._engine
        with engine._lock:
            if not request.done and not engine._failure and not engine.closed:
                engine._in_loops.add(request)
                engine._start_thread()

    async def _all(self) -> Reply:
        async for _ in self:
            pass
        return self._finished()

    def __await__(self) -> Generator[Any, None, Reply]:
        return self._all().__await__()


__all__ = ["Stream"]
