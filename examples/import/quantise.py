"""Rows of floats as int8 with one scale a row, behind a block Hadamard transform that is folded into them.

The bytes are the same on every machine. The transform is a matrix product, whose sums a BLAS may add in any order; so
each row is first rounded to whole multiples of a power of two, of 18 bits, which makes those sums exact. That rounding
is at most 1/128 of the one to int8, and usually 1/1000."""

import dataclasses

import numpy as np

import hadamard
from native import MOST_SCALE
from refused import Refused

_BITS = 17  # of the magnitude before the transform; sums of 64 such numbers are exact in float32
_SAMPLED = 32  # of so many rows, the error of one is measured
_LEAST = 1e-18  # what a checkpoint's scales may be


@dataclasses.dataclass
class Quantised:
    weight: np.ndarray  # int8 [rows, in]
    scale: np.ndarray  # float32 [rows]: the value of weight 1
    row_sum: np.ndarray  # int32 [rows]
    error: float  # sum of squares of what rounding to int8 changed, of some rows, in the rows' own units
    power: float  # sum of squares of those rows
    lowered: int = 0  # weights of -128 that became -127


def quantise_rows(rows: np.ndarray, block: int, name: str, first: int = 0) -> Quantised:
    """`rows` is float32 [rows, in] and is overwritten; `block` divides `in` and is 1 for no transform. For messages:
    `name` is the matrix, and `first` the number of the first of the rows in it."""
    assert block <= 64 and rows.shape[1] % block == 0
    largest = np.maximum(rows.max(1), -rows.min(1))
    if not np.isfinite(largest).all():
        raise Refused(
            f"{name}: row {first + int(np.isfinite(largest).argmin())} has a value that is not finite; the file is "
            "damaged, fetch it again"
        )
    exponent = np.clip(np.frexp(largest)[1], -100, 127)  # 2^(exponent - 1) <= largest < 2^exponent
    rows *= np.ldexp(np.float32(1), _BITS - exponent)[:, None]
    np.rint(rows, out=rows)
    folded = rows if block == 1 else (rows.reshape(-1, block) @ hadamard.matrix(block)).reshape(rows.shape)
    peak = np.maximum(folded.max(1), -folded.min(1))
    scale = np.ldexp(peak.astype(np.float64) / (127 * block), exponent - _BITS).astype(np.float32)
    if (scale > MOST_SCALE).any():
        raise Refused(f"{name}: row {first + int(scale.argmax())} has weights beyond 1e5; the file is damaged")
    nothing = scale < _LEAST
    scale[nothing], peak[nothing] = 1.0, 1.0
    sampled = folded[::_SAMPLED].copy()
    factor = np.float32(127) / peak
    factor[nothing] = 0.0
    folded *= factor[:, None]
    np.rint(folded, out=folded)
    sums = folded @ np.ones(rows.shape[1], np.float32)  # exact: below 2^24
    units = np.ldexp(1.0, exponent[::_SAMPLED] - _BITS) / np.sqrt(block)
    step = (peak[::_SAMPLED] / np.float32(127))[:, None]
    error = np.square(sampled - folded[::_SAMPLED] * step).sum(1, dtype=np.float64) * units**2
    power = np.square(sampled).sum(1, dtype=np.float64) * units**2
    return Quantised(folded.astype(np.int8), scale, sums.astype(np.int32), float(error.sum()), float(power.sum()))


def int8_rows(weight: np.ndarray, scale: np.ndarray, name: str, first: int) -> Quantised:
    """Rows that are int8 already, int8 [rows, in] with float32 [rows]. Weights of -128, which no checkpoint holds,
    become -127: where a scale is the largest magnitude / 127.5, as compressed-tensors has it, the largest weight is -127.5
    steps and both are as near."""
    if not (np.isfinite(scale) & (scale >= 0) & (scale <= MOST_SCALE)).all():
        raise Refused(f"{name}: a scale from row {first} on is negative, not finite or beyond 1e3; the file is damaged")
    nothing, lowered = scale < _LEAST, int((weight == -128).sum())
    weight = np.where(nothing[:, None], np.int8(0), np.maximum(weight, -127)).astype(np.int8)
    return Quantised(
        weight,
        np.where(nothing, np.float32(1), scale).astype(np.float32),
        weight.sum(1, dtype=np.int32),
        0.0,
        0.0,
        lowered,
    )


def floats(weight: np.ndarray, scale: np.ndarray, block: int) -> np.ndarray:
    """What the int8 rows stand for, the transform undone: float32 [rows, in]."""
    return hadamard.transform(weight * scale[:, None], block)
