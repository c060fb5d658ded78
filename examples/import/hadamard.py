"""The Walsh-Hadamard transform of version 2's arithmetic: unnormalised, in blocks of consecutive values."""

import functools

import numpy as np


@functools.lru_cache(maxsize=16)
def matrix(block: int) -> np.ndarray:
    """float32 [block, block] of 1 and -1; symmetric, and its square is `block` times the identity."""
    found = np.ones((1, 1), np.float32)
    while len(found) < block:
        found = np.block([[found, found], [found, -found]])
    return np.ascontiguousarray(found, np.float32)


def transform(x: np.ndarray, block: int) -> np.ndarray:
    """Of the last axis, in the order that the contract prescribes: (u, v) -> (u + v, u - v) for strides 1, 2, 4, ..."""
    y, stride = np.array(x, np.float32), 1
    while stride < block:
        pairs = y.reshape(*x.shape[:-1], -1, 2, stride)
        y = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], -2)
        stride *= 2
    return y.reshape(x.shape)
