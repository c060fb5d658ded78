"""The arithmetic of version 2 (docs/arithmetic-2.md) in numpy, to tell how far a checkpoint is from its float model.
Its sums and exponentials are numpy's, so its logits are near the engine's and not equal to them."""

import json
import struct

import numpy as np

import hadamard
import native
from checkpoint_file import TYPES
from float_model import FloatModel
from model_config import ModelConfig
from sources.source import File


class CheckpointTensors:
    """Reads a checkpoint that CheckpointFile wrote."""

    def __init__(self, path: str):
        self._file = File(path)
        size = struct.unpack("<Q", self._file.read(0, 8).tobytes())[0]
        self._begin, self._header = 8 + size, json.loads(self._file.read(8, size).tobytes())
        self.config = json.loads(self._header["__metadata__"]["config"])

    def rows(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        about = self._header[name]
        kind, shape = np.dtype(TYPES[about["dtype"]]), about["shape"]
        count = shape[0] - first if count is None else count
        row = kind.itemsize * int(np.prod(shape[1:]))
        raw = self._file.read(self._begin + about["data_offsets"][0] + first * row, count * row)
        return raw.view(kind).reshape(count, *shape[1:])


class _Tensors:
    """A checkpoint under the names that FloatModel uses; matrices as the floats that their bytes stand for, behind the
    transform where it is folded into them."""

    def __init__(self, path: str, config: ModelConfig):
        self.stored, self.shapes = CheckpointTensors(path), config.tensors()

    def rows(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        if not name.endswith(".weight"):
            return self.stored.rows(native.vector_name(name), first, count)
        stem = native.matrix_name(name.removesuffix(".weight"))
        weight = self.stored.rows(stem + ".weight", first, count)
        return weight * self.stored.rows(stem + ".scale", first, count)[:, None]

    def gather(self, name: str, ids: np.ndarray) -> np.ndarray:
        return np.concatenate([self.rows(name, int(row), 1) for row in ids])


def bf16(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32)
    return ((bits + (0x7FFF + (bits >> 16 & 1))) & np.uint32(0xFFFF0000)).view(np.float32)


def rounded(x: np.ndarray, largest: int = 127) -> np.ndarray:
    """Each row to -largest ... largest with a scale of its own, as floats."""
    peak = np.abs(x).max(-1, keepdims=True)
    peak[peak == 0] = 1
    return np.clip(np.rint(x * (np.float32(largest) / peak)), -largest, largest) * (peak / np.float32(largest))


def kept(x: np.ndarray) -> np.ndarray:
    """Rows of the KV cache, whose scales are bf16."""
    scale = bf16(np.abs(x).max(-1, keepdims=True) / np.float32(127))
    scale[scale == 0] = 1
    return np.clip(np.rint(x * (1 / scale)), -127, 127) * scale


def whole_steps(x: np.ndarray, step: np.float32) -> np.ndarray:
    """-128 to 127, as floats."""
    return np.clip(np.rint(x * (np.float32(1) / step)), -128, 127)


class Int8Model(FloatModel):
    def __init__(self, path: str, config: ModelConfig):
        super().__init__(_Tensors(path, config), config)  # type: ignore[arg-type]
        structure = self.source.stored.config["structure"]
        self._static, self._f32_rows = structure["activations"] == "static_scales", structure.get("f32_rows", False)
        self._block, self._static_kv = max(structure["hadamard"], 1), structure["static_kv"]
        self.k_clipped, self.v_clipped = [0.0] * config.layers, [0.0] * config.layers  # largest share of any text

    def _count_clipped(self, layer: int, k: np.ndarray, v: np.ndarray) -> None:
        for shares, values in ((self.k_clipped, k), (self.v_clipped, v)):
            shares[layer] = max(shares[layer], float((np.abs(values) > 127.5).mean()))

    def _as_written(self, x: np.ndarray, name: str) -> np.ndarray:
        """The inputs of some matrices are rounded to bf16 before."""
        is_rounded = not self._f32_rows and name.endswith((".o", ".down", ".inputs.out"))
        return bf16(np.ascontiguousarray(x)) if is_rounded else x

    def embed(self, ids: np.ndarray) -> np.ndarray:
        x = super().embed(ids)
        return hadamard.transform(x, self._block) if self.config.tied else x

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        if self._static:
            return self._static_linear(x, name)
        return super().linear(rounded(self._as_written(hadamard.transform(x, self._block), name)), name)

    def _step(self, name: str) -> np.float32:
        return np.float32(self.source.stored.rows(name)[0])

    def _static_linear(self, x: np.ndarray, name: str) -> np.ndarray:
        """Inputs and outputs have constant steps. Sums are exact up to a width of 1,024."""
        stem, step = native.matrix_name(name), self._step(native.site_name(name))
        sums = (
            whole_steps(self._as_written(x, name), step)
            @ self.source.stored.rows(stem + ".weight").astype(np.float32).T
        )
        factors = self.source.stored.rows(stem + ".scale").astype(np.float64) * np.float64(step)
        y, out_step = sums * factors.astype(np.float32), self._step(stem + ".out_step")
        if self.config.has_bias(name):
            y += self.source.rows(name + ".bias")
        return whole_steps(y, out_step) * out_step

    def attend(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        config, block, p = self.config, self._block, f"kv.{self.config.slot(layer)}."
        k_step, v_step = (self.source.stored.rows(p + step).reshape(k.shape[1:]) for step in ("k_step", "v_step"))
        group = config.n_heads // k.shape[1]
        k8, v8 = hadamard.transform(k / k_step, block), v / v_step
        if self._static_kv:
            self._count_clipped(layer, k8, v8)
            k8, v8 = np.clip(np.rint(k8), -127, 127), np.clip(np.rint(v8), -127, 127)
        else:
            k8, v8 = kept(k8), kept(v8)
        q8 = rounded(hadamard.transform(q * np.repeat(k_step, group, 0), block))
        return super().attend(layer, q8, k8 / np.float32(block), v8 * v_step)

    def logits(self, x: np.ndarray) -> np.ndarray:
        folded = hadamard.transform(x, self._block)
        return super().logits(rounded(folded, 32512))
