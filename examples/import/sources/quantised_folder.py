"""A model in a Hugging Face folder whose matrices are int8 already (quantised.py says which schemes). Their bytes are
taken as they are. Weights of 2 and 4 bits (Gemma's) are packed in bytes, the first one in the lowest bits."""

import os
import re

import numpy as np

import families
import native
from model_config import STATIC_INT8
from refused import Refused, shown
from sources.huggingface import OF_THE_EYE, FolderSource, floats_of, read_json
from sources.safetensors import ITEM_BYTES, Place

_OF_A_MATRIX = re.compile(r"(.*)\.(weight_scale|weight_zero_point|(?:in|out)put_activation_scale|embedding_scale)")
_OF_THE_CACHE = re.compile(r"(.*\.layers\.\d+)\.self_attn(?:\..*)?\.([kv])_cache_scale")
_FLOATS = ("F32", "F16", "BF16")
_PARTS = {2: 4, 4: 2, 8: 1}  # weights in a byte


def open_folder(path: str) -> FolderSource:
    config = os.path.join(path, "config.json")
    quantised = os.path.isfile(config) and families.is_quantised(read_json(config))
    return QuantisedFolder(path) if quantised else FolderSource(path)


class QuantisedFolder(FolderSource):
    def _take_tensors(self, files: dict[str, Place], where: str) -> None:
        self._of_matrices: dict[str, dict[str, Place]] = {}  # by the stem of the matrix's name
        self._of_caches: dict[str, Place] = {}  # by layer and k or v
        rest = {}
        for name, place in files.items():
            if match := _OF_A_MATRIX.fullmatch(name):
                self._of_matrices.setdefault(match[1], {})[match[2]] = place
            elif match := _OF_THE_CACHE.fullmatch(name):
                self._of_caches[f"{match[1].rsplit('.', 1)[1]}.{match[2]}"] = place
            else:
                rest[name.removesuffix("embedding_quantized") + "weight" * name.endswith("embedding_quantized")] = place
        super()._take_tensors(rest, where)
        self._refuse_unknown(where)
        for name in self.config.matrices():
            self._check_zero_points(name, where)
        self._steps = self._static_steps(where) if self.config.stored == STATIC_INT8 else {}
        self._caches = self._cache_steps(where)

    def _its(self, matrix: str) -> dict[str, Place]:
        return self._of_matrices.get(self._called[matrix + ".weight"].removesuffix(".weight"), {})

    def _scales(self, matrix: str) -> Place | None:
        its = self._its(matrix)
        found = its.get("weight_scale") or its.get("embedding_scale")
        return self._by_layer(matrix + ".weight", found) if found else None

    def _row_scales(self, matrix: str, scales: Place, first: int, count: int) -> np.ndarray:
        """float32 [count, groups]. Of the layers' embeddings a token may have one scale for all layers."""
        each = self._places[matrix + ".weight"].shape[0] // scales.shape[0]
        begin, end = first // each, -(-(first + count) // each)
        found = np.repeat(floats_of(scales, begin, end - begin).reshape(end - begin, -1), each, 0)
        factor = np.float32(families.weight_factor(matrix, self.config))
        return found[first - begin * each :][:count] * factor

    def _bits(self, matrix: str) -> int:
        """Of one weight; 0 if they are floats."""
        place, width = self._places[matrix + ".weight"], self.config.matrices()[matrix][1]
        if place.type == "I8":
            return 8
        if place.type != "U8" or len(place.shape) != 2:
            return 0
        return {-(-width // 2): 4, -(-width // 4): 2}.get(place.shape[1], 0)

    def _check_place(self, name: str, shape: tuple[int, ...], where: str) -> None:
        matrix, place = name.removesuffix(".weight"), self._places[name]
        if matrix not in self.config.matrices() or place.type not in ("I8", "U8"):
            if native.is_static(name) and name.endswith(".weight"):
                raise Refused(
                    f"{where}: tensor {self._called[name]} is stored as {place.type}, but config.json says that the "
                    "matrices of layers are quantised; kaiju takes all of them or none"
                )
            return super()._check_place(name, shape, where)
        bits, scales = self._bits(matrix), self._scales(matrix)
        widened = (place.shape[0], place.shape[1] * _PARTS.get(bits, 1)) if len(place.shape) == 2 else ()
        if not bits or widened != (shape[0], -(-shape[1] // _PARTS[bits]) * _PARTS[bits]):
            raise Refused(
                f"{where}: tensor {self._called[name]} has the shape {list(place.shape)}, but config.json says "
                f"{list(shape)}; the files contradict each other"
            )
        if scales is None:
            raise Refused(f"{where} lacks the scales of {self._called[name]}; fetch the model again")
        groups = scales.shape[1] if len(scales.shape) == 2 else 1
        fits = scales.shape[:1] == shape[:1] or matrix == "inputs.embed" and scales.shape == (self.config.vocab_size, 1)
        if scales.type not in _FLOATS or not fits or not groups or shape[1] % groups:
            raise Refused(
                f"{where}: the scales of {self._called[name]} are {scales.type} of the shape {list(scales.shape)}; "
                f"kaiju reads one for each of its {shape[0]} rows"
            )
        if groups != 1 and matrix not in ("embed", "inputs.embed"):
            raise Refused(
                f"{where}: {self._called[name]} has {groups} scales in a row, which kaiju does not compute; use a "
                "model with scales by channel"
            )

    def _check_zero_points(self, matrix: str, where: str) -> None:
        place = self._its(matrix).get("weight_zero_point")
        if place and place.file.read(place.offset, int(np.prod(place.shape)) * ITEM_BYTES[place.type]).any():
            raise Refused(
                f"{where}: {self._called[matrix + '.weight']} is asymmetric (its zero points are not 0), which kaiju "
                "does not compute; use a model with symmetric weights"
            )

    def _refuse_unknown(self, where: str) -> None:
        """Scales of matrices that the model does not have."""
        known = {self._called[matrix + ".weight"].removesuffix(".weight") for matrix in self.config.matrices()}
        for stem in self._of_matrices.keys() - known:
            if not (OF_THE_EYE.match(stem) or families.ignored_in_huggingface(stem + ".weight", self.config)):
                raise Refused(f"{where} has scales of {shown(stem)}, which is not known in models of this type")

    @staticmethod
    def _scalar(place: Place | None, called: str, where: str) -> float:
        """0 if it is not there."""
        if place is None:
            return 0.0
        size = int(np.prod(place.shape))
        values = floats_of(place, 0, size) if place.type in _FLOATS and size else np.zeros(0, np.float32)
        if len(values) == 0 or (values != values[0]).any():
            raise Refused(
                f"{where}: {called} is {place.type} of the shape {list(place.shape)}; kaiju computes one constant scale"
            )
        return float(values[0])

    def _scale_of(self, matrix: str, which: str, where: str) -> float:
        name = which + "_activation_scale"
        called = self._called[matrix + ".weight"].removesuffix("weight") + name
        return self._scalar(self._its(matrix).get(name), called, where)

    def _static_steps(self, where: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for matrix in self.config.matrices():
            steps = {which: self._scale_of(matrix, which, where) for which in ("input", "output")}
            called = self._called[matrix + ".weight"]
            if not native.is_static(matrix):
                if steps["input"] or steps["output"]:
                    raise Refused(
                        f"{where}: {called} has activation scales; kaiju quantises the logits' input by token"
                    )
                continue
            for which, step in steps.items():
                if not native.LEAST_STEP <= step <= native.MOST_STEP:
                    raise Refused(
                        f"{where}: {called} has the {which}_activation_scale {step:g}; kaiju computes "
                        f"matrices of layers whose inputs and outputs are all quantised, with scales from {native.LEAST_STEP:g} to "
                        f"{native.MOST_STEP:g}"
                    )
            factor = families.weight_factor(matrix, self.config)
            found[native.matrix_name(matrix) + ".out_step"] = steps["output"] * factor
            site = native.site_name(matrix)
            if found.setdefault(site, steps["input"]) != steps["input"]:
                raise Refused(
                    f"{where}: {called} has another input_activation_scale than the matrices beside it; kaiju "
                    "quantises their common input once"
                )
        return found

    def _cache_steps(self, where: str) -> list[tuple[float, float]]:
        found = []
        for layer in self.config.own_kv:
            its = {which: self._of_caches.get(f"{layer}.{which}") for which in "kv"}
            found.append([self._scalar(its[which], f"layer {layer}'s {which}_cache_scale", where) for which in "kv"])
        if not any(map(any, found)):
            return []
        for layer, steps in enumerate(found):
            if not all(native.LEAST_STEP <= step <= native.MOST_STEP for step in steps):
                raise Refused(f"{where}: layer {layer} lacks scales of keys or values that other layers have")
        return [(k, v) for k, v in found]

    def static_steps(self) -> dict[str, float]:
        return self._steps

    def kv_steps(self) -> list[tuple[float, float]]:
        return self._caches

    def stored_as(self, name: str) -> str:
        matrix = name.removesuffix(".weight")
        bits = self._bits(matrix) if matrix in self.config.matrices() else 0
        return f"int{bits}" if bits else super().stored_as(name)

    def _integers(self, matrix: str, first: int, count: int) -> np.ndarray:
        place, bits = self._places[matrix + ".weight"], self._bits(matrix)
        width = place.shape[1]
        raw = place.file.read(place.offset + first * width, count * width).reshape(count, width)
        if bits == 8:
            return raw.view(np.int8)
        parts = [(raw >> shift & (1 << bits) - 1).astype(np.int8) - (1 << bits - 1) for shift in range(0, 8, bits)]
        return np.stack(parts, -1).reshape(count, -1)[:, : self.config.matrices()[matrix][1]].astype(np.int8)

    def int8_rows(self, name: str, first: int, count: int) -> tuple[np.ndarray, np.ndarray] | None:
        matrix = name.removesuffix(".weight")
        if matrix not in self.config.matrices() or not self._bits(matrix):
            return None
        scales = self._scales(matrix)
        if scales is None or len(scales.shape) == 2 and scales.shape[1] != 1:
            return None
        return self._integers(matrix, first, count), self._row_scales(matrix, scales, first, count).reshape(-1)

    def unchecked_rows(self, name: str, first: int, count: int) -> np.ndarray:
        matrix = name.removesuffix(".weight")
        if matrix not in self.config.matrices() or not self._bits(matrix):
            return super().unchecked_rows(name, first, count)
        integers, scales = self._integers(matrix, first, count), self._scales(matrix)
        by_group = self._row_scales(matrix, scales, first, count)[:, :, None]
        return (integers.reshape(count, by_group.shape[1], -1) * by_group).reshape(count, -1).astype(np.float32)
