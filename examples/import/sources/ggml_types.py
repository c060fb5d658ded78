"""The ways in which GGUF stores weights, and float32 of each: numpy forms of ggml's block formats (ggml-common.h)."""

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class GgmlType:
    name: str
    values: int  # in a block
    bytes: int  # of a block
    floats: Callable[[np.ndarray], np.ndarray]  # uint8 [blocks, bytes] -> float32 [blocks, values]


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at byte `at` of each block: float32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _f32(blocks: np.ndarray) -> np.ndarray:
    return blocks.view(np.float32)


def _f16(blocks: np.ndarray) -> np.ndarray:
    return blocks.view(np.float16).astype(np.float32)


def bf16_floats(blocks: np.ndarray) -> np.ndarray:
    """uint8 of bfloat16 -> float32: the upper half of the bits."""
    halves = blocks.view(np.uint16)
    return np.left_shift(halves, 16, dtype=np.uint32, casting="unsafe").view(np.float32)


def _nibbles(bytes_: np.ndarray) -> np.ndarray:
    """uint8 [n, 16] -> [n, 32]: the low halves, then the high ones."""
    return np.concatenate([bytes_ & 15, bytes_ >> 4], axis=1)


def _fifth_bits(bytes_: np.ndarray) -> np.ndarray:
    """uint8 [n, 4] -> [n, 32]: bit i as 16 or 0."""
    return np.unpackbits(bytes_, axis=1, bitorder="little") << 4


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    return blocks[:, 2:].view(np.int8) * _half(blocks, 0)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    return (_nibbles(blocks[:, 2:]).view(np.int8) - np.int8(8)) * _half(blocks, 0)


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    return _nibbles(blocks[:, 4:]) * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    fives = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return (fives.view(np.int8) - np.int8(16)) * _half(blocks, 0)


def _q5_1(blocks: np.ndarray) -> np.ndarray:
    fives = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return fives * _half(blocks, 0) + _half(blocks, 2)


def _spread(scales: np.ndarray, values: np.ndarray) -> np.ndarray:
    """float32 [n, groups] times uint8 or int8 [n, groups, values]."""
    return scales[:, :, None] * values


def _pieces(bytes_: np.ndarray, width: int, bits: int) -> np.ndarray:
    """uint8 [n, m] in runs of `width` bytes, each byte cut into pieces of `bits` bits, the lowest first:
    [n, m / width, 8 / bits, width]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return bytes_.reshape(len(bytes_), -1, 1, width) >> shifts & np.uint8(2**bits - 1)


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    n, scales = len(blocks), blocks[:, :16]
    values = _pieces(blocks[:, 16:80], 32, 2).reshape(n, 16, 16)
    found = _spread(_half(blocks, 80) * (scales & 15), values)
    found -= (_half(blocks, 82) * (scales >> 4))[:, :, None]
    return found.reshape(n, 256)


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    n, packed = len(blocks), blocks[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = np.concatenate([packed[:, 8:] >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
    scales = (low | high << 4).view(np.int8) - np.int8(32)
    values = _pieces(blocks[:, 32:96], 32, 2).reshape(n, 256)
    third = _pieces(blocks[:, :32], 32, 1).reshape(n, 256)  # 1: nothing is subtracted
    signed = (values | third << 2).view(np.int8) - np.int8(4)
    return _spread(_half(blocks, 108) * scales, signed.reshape(n, 16, 16)).reshape(n, 256)


def _six_bit_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [n, 12] -> scales and minima, uint8 [n, 8] each."""
    a, b, c = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    return (
        np.concatenate([a & 63, c & 15 | a >> 2 & 48], axis=1),
        np.concatenate([b & 63, c >> 4 | b >> 2 & 48], axis=1),
    )


def _scale_and_minimum(blocks: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Q4_K and Q5_K: [n, 8, 32] values with a scale and a minimum for each 32."""
    scales, minima = _six_bit_scales(blocks[:, 4:16])
    found = _spread(_half(blocks, 0) * scales, values)
    found -= (_half(blocks, 2) * minima)[:, :, None]
    return found.reshape(len(blocks), 256)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    return _scale_and_minimum(blocks, _pieces(blocks[:, 16:], 32, 4).reshape(-1, 8, 32))


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    low = _pieces(blocks[:, 48:], 32, 4).reshape(-1, 8, 32)
    high = _pieces(blocks[:, 16:48], 32, 1).reshape(-1, 8, 32)
    return _scale_and_minimum(blocks, low | high << 4)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    n = len(blocks)
    low = _pieces(blocks[:, :128], 64, 4).reshape(n, 256)
    high = _pieces(blocks[:, 128:192], 32, 2).reshape(n, 256)
    values = (low | high << 4).view(np.int8) - np.int8(32)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return _spread(scales, values.reshape(n, 16, 16)).reshape(n, 256)


TYPES = {
    0: GgmlType("F32", 1, 4, _f32),
    1: GgmlType("F16", 1, 2, _f16),
    2: GgmlType("Q4_0", 32, 18, _q4_0),
    3: GgmlType("Q4_1", 32, 20, _q4_1),
    6: GgmlType("Q5_0", 32, 22, _q5_0),
    7: GgmlType("Q5_1", 32, 24, _q5_1),
    8: GgmlType("Q8_0", 32, 34, _q8_0),
    10: GgmlType("Q2_K", 256, 84, _q2_k),
    11: GgmlType("Q3_K", 256, 110, _q3_k),
    12: GgmlType("Q4_K", 256, 144, _q4_k),
    13: GgmlType("Q5_K", 256, 176, _q5_k),
    14: GgmlType("Q6_K", 256, 210, _q6_k),
    30: GgmlType("BF16", 1, 2, bf16_floats),
}
REFUSED_TYPES = {
    4: "Q4_2",
    5: "Q4_3",
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
}
