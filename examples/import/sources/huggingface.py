"""A model in a Hugging Face folder: config.json and safetensors files, one or several with an index."""

import dataclasses
import json
import os
import re
from typing import Any

import numpy as np

import families
import stored_tokenizer
from refused import Refused, shown
from sources.ggml_types import bf16_floats
from sources.safetensors import Place, read_header
from sources.source import Source

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
OF_THE_EYE = re.compile(
    r"(model\.)?(vision_tower|vision_model|visual|multi_modal_projector|embed_vision|audio_tower|embed_audio)\."
)


def read_json(path: str, largest: int = 1 << 26) -> Any:
    try:
        if os.path.getsize(path) > largest:
            raise Refused(f"{shown(path)} is larger than {largest} bytes")
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as problem:
        raise Refused(f"{shown(path)} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise Refused(f"{shown(path)} is no JSON: {shown(problem)}") from None


def _files(folder: str) -> dict[str, Place]:
    """Every tensor of the folder's safetensors files."""
    index = os.path.join(folder, _INDEX)
    if not os.path.isfile(index):
        single = os.path.join(folder, _SINGLE)
        if os.path.isfile(single):
            return read_header(single)
        for name in sorted(os.listdir(folder)):
            if re.fullmatch(r"pytorch_model.*\.bin|consolidated.*\.pth|.*\.pt", name):
                raise Refused(
                    f"{shown(folder)} has {shown(name)}, a PyTorch pickle, which may run code when it is read; "
                    "fetch the model's safetensors files, or a GGUF file"
                )
            if name.endswith(".gguf"):
                raise Refused(f"{shown(folder)} has no {_SINGLE}; to import {shown(name)}, name that file")
        raise Refused(f"{shown(folder)} has neither {_SINGLE} nor {_INDEX}; fetch the model's safetensors files")
    listed = read_json(index)
    shards = listed.get("weight_map") if isinstance(listed, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise Refused(f"{shown(index)} has no weight_map from tensors to files; fetch it again")
    found: dict[str, Place] = {}
    for shard in sorted(set(shards.values())):
        if os.path.basename(shard) != shard or shard in ("", ".", ".."):
            raise Refused(f"{shown(index)} names the file {shown(shard)}, which is not in the folder itself")
        path = os.path.join(folder, shard)
        if not os.path.isfile(path):
            raise Refused(
                f"{shown(index)} names the file {shown(shard)}, which is not there; fetch all files of the model"
            )
        places = read_header(path)
        for name, its_shard in shards.items():
            if its_shard == shard and name not in places:
                raise Refused(
                    f"{shown(path)} lacks the tensor {shown(name)}, which {_INDEX} says is in it; fetch it again"
                )
        for name, place in places.items():
            if shards.get(name) != shard:
                raise Refused(
                    f"{shown(path)} has the tensor {shown(name)}, which {_INDEX} does not say is in it; the files "
                    "are of different models or versions"
                )
            found[name] = place
    return found


def floats_of(place: Place, first: int, count: int) -> np.ndarray:
    """`count` rows of a matrix or elements of a vector, flat: float32."""
    width = place.shape[1] if len(place.shape) == 2 else 1
    item = 4 if place.type == "F32" else 2
    raw = place.file.read(place.offset + first * width * item, count * width * item)
    if place.type == "F32":
        return raw.view(np.float32)
    return bf16_floats(raw) if place.type == "BF16" else raw.view(np.float16).astype(np.float32)


class FolderSource(Source):
    def __init__(self, path: str):
        self.path, where = path, shown(path)
        config_path = os.path.join(path, "config.json")
        if not os.path.isfile(config_path):
            raise Refused(f"{where} has no config.json; name the folder of a Hugging Face model, or a GGUF file")
        name = os.path.basename(os.path.abspath(path))
        self.config = families.from_huggingface(read_json(config_path), shown(config_path), name)
        self._take_tensors(_files(path), where)
        if self.config.layer_factors:
            self._take_factors(where)
        self.chat_template = self._template()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def _take_tensors(self, files: dict[str, Place], where: str) -> None:
        self._places, self._called, left, self.left_out = {}, {}, dict(files), []
        for name, shape in self.shapes.items():
            plain = families.huggingface_name(name, self.config.family)
            called = [spelling for spelling in self._spellings(plain) if spelling in files]
            if not called:
                raise Refused(
                    f"{where} lacks the tensor {plain}; fetch the model again"
                    + (", or set tie_word_embeddings to true" if name == "output.weight" else "")
                )
            self._called[name] = called[0]
            self._places[name] = self._by_layer(name, left.pop(called[0]))
            self._check_place(name, shape, where)
        for name in left:
            if OF_THE_EYE.match(name):
                self.left_out.append(name)
            elif not families.ignored_in_huggingface(name, self.config):
                raise Refused(
                    f"{where}: the tensor {shown(name)} is not known in models of type {self.config.family!r} with "
                    "this config.json; kaiju would compute something else than the model does"
                )

    def _by_layer(self, name: str, place: Place) -> Place:
        """The layers' embeddings lie side by side in the file: a token's row is one row of each layer."""
        layers = self.config.layers
        if name != "inputs.embed.weight" or len(place.shape) != 2 or place.shape[1] % layers:
            return place
        return dataclasses.replace(place, shape=(place.shape[0] * layers, place.shape[1] // layers))

    def _check_place(self, name: str, shape: tuple[int, ...], where: str) -> None:
        place, called = self._places[name], self._called[name]
        if place.shape != shape:
            raise Refused(
                f"{where}: tensor {called} has the shape {list(place.shape)}, but config.json says "
                f"{list(shape)}; the files contradict each other"
            )
        if place.type not in ("F32", "F16", "BF16"):
            raise Refused(
                f"{where}: tensor {called} is stored as {place.type}; kaiju reads BF16, F16 and F32: use the "
                "model's unquantised folder, or a GGUF file"
            )

    def _take_factors(self, where: str) -> None:
        factors = [float(self.rows(f"layers.{layer}.factor")[0]) for layer in range(self.config.layers)]
        each = tuple(dataclasses.replace(its, factor=factor) for its, factor in zip(self.config.each, factors))
        self.config = dataclasses.replace(self.config, each=each)

    @staticmethod
    def _spellings(name: str) -> list[str]:
        plain = name.removeprefix("model.")
        return [name, "language_model." + name, "model.language_model." + plain, plain]

    def _template(self) -> str | None:
        path = os.path.join(self.path, "chat_template.jinja")
        if os.path.isfile(path) and os.path.getsize(path) <= 1 << 20:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        path = os.path.join(self.path, "tokenizer_config.json")
        template = read_json(path).get("chat_template") if os.path.isfile(path) else None
        return template if isinstance(template, str) else None

    def stored_as(self, name: str) -> str:
        return self._places[name].type

    def tokenizer(self) -> stored_tokenizer.StoredTokenizer | None:
        return stored_tokenizer.from_folder(self.path, self.config.vocab_size)

    def unchecked_rows(self, name: str, first: int, count: int) -> np.ndarray:
        place = self._places[name]
        floats = floats_of(place, first, count)
        if name.endswith("norm_gain"):
            floats = floats + np.float32(families.gain_offset(self.config.family))
        elif (factor := families.weight_factor(name.removesuffix(".weight"), self.config)) != 1:
            floats = floats * np.float32(factor)
        return floats.reshape(count, *place.shape[1:])
