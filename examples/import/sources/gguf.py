"""A model in a GGUF file. The file's own names, types and orders stay in here."""

from typing import Any

import numpy as np

import families
import stored_tokenizer
from refused import Refused, shown
from sources.gguf_file import Place, read_header
from sources.source import File, Source


class GgufSource(Source):
    def __init__(self, path: str):
        self.path, where = path, shown(path)
        self._metadata, self._places = read_header(path)
        self._file = File(path)
        shapes = {name: place.shape for name, place in self._places.items()}
        self.config = families.from_gguf(self._metadata, shapes, self._rope_factors(), where)
        self._check_tensors(where)
        template = self._metadata.get("tokenizer.chat_template")
        self.chat_template = template if isinstance(template, str) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return GgufSource, (self.path,)  # each process opens the file itself

    def _rope_factors(self) -> tuple[float, ...]:
        name = "rope_freqs.weight"
        if name not in self._places:
            return ()
        place = self._places[name]
        if len(place.shape) != 1 or place.shape[0] > 1 << 15:
            raise Refused(f"{shown(self.path)}: tensor {name} has the shape {place.shape}; it must be a vector")
        factors = self._floats(place, 0, place.shape[0])
        if not (np.isfinite(factors).all() and (factors > 1e-6).all() and (factors < 1e6).all()):
            raise Refused(
                f"{shown(self.path)}: tensor {name} has factors that are no positive numbers; the file is damaged"
            )
        return tuple(float(str(factor)) for factor in factors)

    def _check_tensors(self, where: str) -> None:
        config, needed = self.config, {families.gguf_name(name): shape for name, shape in self.shapes.items()}
        for name, shape in needed.items():
            if name not in self._places:
                raise Refused(f"{where} lacks the tensor {name}; fetch the file again, or convert the model anew")
            if self._places[name].shape != shape:
                raise Refused(
                    f"{where}: tensor {name} has the shape {list(self._places[name].shape)}, but the metadata says "
                    f"{list(shape)}; the file contradicts itself"
                )
        for name in self._places:
            if name not in needed and not families.ignored_in_gguf(name):
                raise Refused(
                    f"{where}: the tensor {shown(name)} is not known in models of the architecture "
                    f"{config.family!r}; kaiju would compute something else than the model does"
                )
        for rope in {layer.rope for layer in config.each if layer.rope and layer.rope.factors}:
            if len(rope.factors) != config.head_dim // 2:
                raise Refused(
                    f"{where}: tensor rope_freqs.weight has {len(rope.factors)} factors, but heads have "
                    f"{config.head_dim // 2} pairs"
                )
        self.left_out = []

    def stored_as(self, name: str) -> str:
        return self._places[families.gguf_name(name)].type.name

    def tokenizer(self) -> stored_tokenizer.StoredTokenizer | None:
        if "tokenizer.ggml.model" not in self._metadata:
            return None
        return stored_tokenizer.from_gguf(self._metadata, self.config.vocab_size, shown(self.path))

    def _floats(self, place: Place, first: int, count: int) -> np.ndarray:
        """Of a matrix `count` rows, of a vector all of it."""
        if len(place.shape) == 1:
            raw = self._file.read(place.offset, place.bytes)
            return place.type.floats(raw.reshape(-1, place.type.bytes)).reshape(-1)[first : first + count]
        raw = self._file.read(place.offset + first * place.row_bytes, count * place.row_bytes)
        with np.errstate(invalid="ignore", over="ignore"):  # of damaged scales; Source.rows refuses what comes of them
            return place.type.floats(raw.reshape(-1, place.type.bytes)).reshape(count, place.shape[1])

    def unchecked_rows(self, name: str, first: int, count: int) -> np.ndarray:
        place = self._places[families.gguf_name(name)]
        turned = name.rsplit(".", 2)[-2] in ("q", "k") and self.config.family in families.INTERLEAVED_IN_GGUF
        if not turned:
            return self._floats(place, first, count)
        size = self.config.head_dim
        begin, end = first // size * size, -(-(first + count) // size) * size
        heads = self._floats(place, begin, end - begin)
        pairs = heads.reshape(-1, size // 2, 2, *heads.shape[1:])
        return pairs.swapaxes(1, 2).reshape(heads.shape)[first - begin : first - begin + count]
