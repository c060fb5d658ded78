"""Quantises a model's matrices into a checkpoint, one matrix a task, in several processes."""

import concurrent.futures
import dataclasses
import multiprocessing
import os
import signal
from collections.abc import Callable

import numpy as np

try:
    from threadpoolctl import threadpool_limits
except ImportError:  # slower by far: the threads of every process wait for processors that others have

    def threadpool_limits(limits: int) -> None: ...


import native
from checkpoint_file import CheckpointFile, write_at
from digest import new_digest
from quantise import Quantised, int8_rows, quantise_rows
from refused import Refused
from sources import Source

_SIGNALS = {signal.SIGINT, signal.SIGTERM}
BLOCK = 1 << 17  # weights that are quantised at a time: what fits into a core's cache


@dataclasses.dataclass
class Done:
    """A matrix that has been written, and what of it the writer puts into the file."""

    name: str  # canonical
    digest: str
    scale: np.ndarray
    row_sum: np.ndarray
    error: float
    power: float
    lowered: int  # weights of -128 that became -127
    row_power: np.ndarray | None  # float64 [rows]: of q, k and v, the sum of squares of each row times the norm's gains


@dataclasses.dataclass
class Converted:
    lowered: int  # weights of -128, which a checkpoint does not hold, that became -127
    errors: dict[str, float]  # of each matrix, the relative error of what it stands for
    row_power: dict[str, np.ndarray]


_source: Source  # of a worker process
_file: int


def _start_worker(source: Source, temporary: str) -> None:
    global _source, _file
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends the work
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threadpool_limits(1)  # of numpy's products: there is a process for each processor
    _source, _file = source, os.open(temporary, os.O_WRONLY | os.O_CLOEXEC)


def _as_stored(name: str, first: int, count: int) -> Quantised | None:
    """Rows that the source has in int8."""
    found = _source.int8_rows(name + ".weight", first, count)
    if found is None:
        return None
    weight, scale = found
    return int8_rows(weight, scale, name + ".weight", first)


def _convert(name: str, block: int, offset: int) -> Done:
    """`offset` is where in the file its bytes begin."""
    rows, width = _source.config.matrices()[name]
    digest, scales, sums, powers, error, power, lowered = new_digest(), [], [], [], 0.0, 0.0, 0
    gains = _source.rows(name[:-1] + "norm_gain") if name.endswith((".q", ".k", ".v")) else None
    step = max(8, BLOCK // width)
    for first in range(0, rows, step):
        part = _source.unchecked_rows(name + ".weight", first, min(step, rows - first))
        if gains is not None:
            with np.errstate(invalid="ignore", over="ignore"):  # of damaged rows, which quantise_rows refuses
                powers.append(np.square(part * gains).sum(1, dtype=np.float64))
        found = _as_stored(name, first, len(part)) or quantise_rows(part, block, name + ".weight", first)
        lowered += found.lowered
        digest.update(found.weight.reshape(-1))
        write_at(_file, found.weight, offset + first * width)
        scales.append(found.scale)
        sums.append(found.row_sum)
        error += found.error
        power += found.power
    added = native.matrix_rows(name, _source.config) - rows
    if added:  # the file has zeros there already
        digest.update(bytes(added * width))
        scales.append(np.ones(added, np.float32))
        sums.append(np.zeros(added, np.int32))
    return Done(
        name,
        digest.hexdigest(),
        np.concatenate(scales),
        np.concatenate(sums),
        error,
        power,
        lowered,
        np.concatenate(powers) if powers else None,
    )


def convert_matrices(source: Source, out: CheckpointFile, processes: int, progress: Callable[[int], None]) -> Converted:
    """Writes every matrix. `progress` is told how many weights were done."""
    config, found = source.config, Converted(0, {}, {})
    largest_first = sorted(config.matrices().items(), key=lambda item: -item[1][0] * item[1][1])
    block = native.hadamard_block(config)
    context = multiprocessing.get_context("spawn" if os.name != "posix" else "fork")
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, _start_worker, (source, out.temporary))
    # Signals wait until all processes run: Python loses those that come while it forks.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        tasks = []
        for name, _ in largest_first:
            its_block = 1 if name == "inputs.embed" or (name == "embed" and not config.tied) else block
            tasks.append(pool.submit(_convert, name, its_block, out.offset(native.matrix_name(name) + ".weight")))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        for task in concurrent.futures.as_completed(tasks):
            done = task.result()
            stem = native.matrix_name(done.name)
            out.put_digest(stem + ".weight", done.digest)
            out.put(stem + ".scale", done.scale)
            out.put(stem + ".row_sum", done.row_sum)
            found.lowered += done.lowered
            found.errors[done.name] = (done.error / done.power) ** 0.5 if done.power else 0.0
            if done.row_power is not None:
                found.row_power[done.name] = done.row_power
            progress(int(np.prod(config.matrices()[done.name])))
    except concurrent.futures.process.BrokenProcessPool:
        raise Refused(
            "a process that quantised weights was ended, perhaps for lack of memory; try --processes 1"
        ) from None
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        pool.shutdown(cancel_futures=True)
    return found
