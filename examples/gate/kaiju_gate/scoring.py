"""The engine: what a model's classifier says of messages, and what the model replies. Many requests run at once."""

from __future__ import annotations

import concurrent.futures
import os
from typing import Any, Callable, Mapping, Sequence, TypeVar

from .progress import Progress
from .sets import Blocked, Item
from .wrong import Wrong

try:
    import kaiju
except ImportError as error:  # LibraryMissing says itself what to do
    raise Wrong(str(error)) from None

IN_FLIGHT = 64  # requests of one engine
Scores = dict[str, dict[str, float]]  # probability of each label, by the id of what was scored
T = TypeVar("T", Item, Blocked)
R = TypeVar("R")


def load(path: str, threads: int) -> kaiju.Engine:
    try:
        model = kaiju.Model(path)
        if not model.labels:
            raise Wrong(
                f"{path} has no classifier, so it scores nothing; export it with a head, as the bundled model has"
            )
        return model.engine(threads=threads or len(os.sched_getaffinity(0)))
    except kaiju.Error as error:
        raise Wrong(f"{path} cannot be loaded: {error}") from None


def _each(engine: kaiju.Engine, items: Sequence[T], what: str, ask: Callable[[kaiju.Session, T], R]) -> list[R]:
    """ask(a new session, item) of every item, in order, IN_FLIGHT at a time."""

    def one(item: T) -> R:
        try:
            with engine.session() as session:
                return ask(session, item)
        except kaiju.Error as error:
            raise Wrong(f"{item.id}: {error}") from None

    found = []
    pool = concurrent.futures.ThreadPoolExecutor(IN_FLIGHT)
    try:
        with Progress(what, len(items)) as progress:
            for result in pool.map(one, items):
                found.append(result)
                progress.add()
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def score(engine: kaiju.Engine, items: Sequence[T]) -> Scores:
    """What the classifier says of each item, where the reply would begin."""
    labels = engine.model.labels

    def ask(session: kaiju.Session, item: T) -> dict[str, float]:
        done = session.reply(list(item.messages), max_tokens=0, scores=1).done
        return dict(zip(labels, done.scores[::3]))  # largest, mean and longest run of every label

    return dict(zip((item.id for item in items), _each(engine, items, "scoring", ask)))


def replies(engine: kaiju.Engine, items: Sequence[Item], what: str, options: Mapping[str, Any]) -> list[kaiju.Reply]:
    return _each(engine, items, what, lambda session, item: session.reply(list(item.messages), **options))
