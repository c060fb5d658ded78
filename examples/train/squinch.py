"""Squinch in numpy: gradients in 6 bits a value, the block's share of its scale included. Character.AI named it and said: blocks of 8,
magnitudes log-uniform over a finite domain, levels of least expected log-error (../../docs/training.md). The rest is ours.

A block of 8 float32 becomes 48 bits: 8 bits of scale, and a sign and 4 bits of level for each value.

    scale   c = 0: the block is zero. 1 ... 254: S = 2^((c - 193) / 4), from 2^-48 to 2^15.25, the quarter octave nearest to the largest
            magnitude. 255: a value was not finite; all eight are decoded as NaN, so that no overflow goes unseen.
    level   k = 0 ... 15: the magnitude S * 2^(-k / 2). Of magnitudes that are log-uniform from S down, levels half an octave apart have
            the least expected log-error, an eighth of an octave; what is below the last one, S / 181, gets that.

Everything is decided on the bits of float32, so that numpy, PyTorch and CUDA give equal bytes. The bytes of n blocks lie in three planes:
levels (n words of 32 bits, value i in bits 4i ...), signs (n bytes, value i in bit i), scales (n bytes)."""
import numpy as np

BLOCK, BYTES = 8, 6  # values, and their bytes
ORIGIN, MOST, NOT_FINITE = 193, 254, 255
LAST = 15


def mantissas(eighths):
    """The first mantissas of float32 at which 1.m reaches 2^(i / 8)."""
    return [int(np.ceil((2.0 ** (i / 8) - 1) * 2 ** 23)) for i in eighths]


QUARTERS, BETWEEN = mantissas((2, 4, 6)), mantissas((1, 3, 5, 7))
QUARTER_BITS = [int(np.float32(2.0 ** (i / 4)).view(np.uint32)) & 0x7FFFFF for i in range(4)]


def quarter_octave(bits, thresholds):
    """floor(4 log2 |x|) of float32 bits without sign, or the nearest integer with thresholds between the quarters."""
    mantissa = bits & 0x7FFFFF
    return ((bits >> 23).astype(np.int32) - 127) * 4 + sum((mantissa >= t).astype(np.int32) for t in thresholds)


def encode(x):
    """float32 [8 n] -> uint8 [6 n]."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).reshape(-1, BLOCK)
    size = bits & 0x7FFFFFFF
    largest = size.max(1)
    scale = quarter_octave(largest, BETWEEN)
    code = np.clip(scale + ORIGIN, 0, MOST)
    level = np.clip((code[:, None] - ORIGIN - quarter_octave(size, QUARTERS)) >> 1, 0, LAST)
    code[largest >= 0x7F800000] = NOT_FINITE
    zero = code == 0
    level[zero] = 0
    sign = np.where(zero[:, None], 0, bits >> 31)
    words = (level.astype(np.uint32) << (4 * np.arange(BLOCK, dtype=np.uint32))).sum(1, dtype=np.uint32)
    signs = (sign.astype(np.uint8) << np.arange(BLOCK, dtype=np.uint8)).sum(1, dtype=np.uint8)
    return np.concatenate([words.view(np.uint8), signs, code.astype(np.uint8)])


def decode(data):
    """uint8 [6 n] -> float32 [8 n]."""
    n = len(data) // BYTES
    words, signs, code = np.ascontiguousarray(data[:4 * n]).view(np.uint32), data[4 * n:5 * n], data[5 * n:].astype(np.int32)[:, None]
    level = (words[:, None] >> (4 * np.arange(BLOCK, dtype=np.uint32)) & 15).astype(np.int32)
    quarters = code - ORIGIN - 2 * level
    bits = ((quarters >> 2) + 127) << 23 | np.array(QUARTER_BITS, np.int32)[quarters & 3]
    bits = np.where(code == 0, 0, np.where(code == NOT_FINITE, 0x7FC00000, bits)).astype(np.uint32)
    sign = (signs[:, None] >> np.arange(BLOCK, dtype=np.uint8) & 1).astype(np.uint32)
    return (bits | np.where(code == 0, 0, sign << 31)).astype(np.uint32).view(np.float32).reshape(-1)
