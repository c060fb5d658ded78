"""How examples/import reads and rounds weights: the types of GGUF and of safetensors, blocks of rows, int8.

    python3 tests/import/weights.py SOURCE_FOLDER"""

import hashlib
import tempfile

import numpy as np

from promises import promise
import small_models
import hadamard
from digest import digest_of
from model_config import Rope
from quantise import floats, quantise_rows
from rope import frequencies, turns_per_token
from sources import open_source
from sources.ggml_types import TYPES

# Of 1,000 blocks of random bytes: what the package gguf 0.19.0 makes of them.
OF_RANDOM_BLOCKS = {
    "F32": "4189928d89e894d3",
    "F16": "a32b32b2b24611f4",
    "BF16": "464d72942c8b285b",
    "Q4_0": "330385fc69dee7f8",
    "Q4_1": "b1c54037663cdde4",
    "Q5_0": "92dd2375724addb1",
    "Q5_1": "3d092d592edba531",
    "Q8_0": "ba0dcfac6a7274a4",
    "Q2_K": "f67a0773167c8d6b",
    "Q3_K": "0e812f415d56db3a",
    "Q4_K": "b9af7782d5e50e66",
    "Q5_K": "7ffe0d4c50320ecc",
    "Q6_K": "378eef8007b2f1f5",
}


def random_blocks(kind, count):
    """Blocks of random bytes whose scales are finite."""
    random = np.random.RandomState(7)
    blocks = random.randint(0, 256, (count, kind.bytes)).astype(np.uint8)
    halves = {
        "Q4_0": (0,),
        "Q4_1": (0, 2),
        "Q5_0": (0,),
        "Q5_1": (0, 2),
        "Q8_0": (0,),
        "Q2_K": (80, 82),
        "Q3_K": (108,),
        "Q4_K": (0, 2),
        "Q5_K": (0, 2),
        "Q6_K": (208,),
    }
    for at in halves.get(kind.name, ()):
        blocks[:, at : at + 2] = random.standard_normal(count).astype(np.float16)[:, None].view(np.uint8)
    return blocks


def simple_blocks(kind, count):
    values = np.random.RandomState(8).standard_normal(count).astype(np.float32)
    return np.frombuffer(small_models.BYTES[kind.name](values), np.uint8).reshape(count, kind.bytes)


def check_types():
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        dequantize = None
    for number, kind in TYPES.items():
        blocks = (random_blocks if kind.values > 1 else simple_blocks)(kind, 1000)
        found = kind.floats(blocks.reshape(-1, kind.bytes)) if kind.values > 1 else kind.floats(blocks)
        promise(found.dtype == np.float32 and found.size == 1000 * kind.values, f"{kind.name} becomes float32")
        if dequantize:
            theirs = dequantize(blocks, GGMLQuantizationType(number)).reshape(found.shape)
            promise(np.array_equal(found, theirs), f"{kind.name} has the values that the package gguf gives it")
        said = hashlib.sha256((found + np.float32(0)).tobytes()).hexdigest()[:16]
        promise(OF_RANDOM_BLOCKS.get(kind.name) == said, f"{kind.name} has the recorded values, not {said}")


def check_rows():
    """Rows are the same from every kind of file, whichever block of them is read."""
    for case in ("llama biased, tied", "smollm3", "qwen2", "qwen3", "arcee"):
        config = small_models.config_of(case)
        tensors = {
            name: np.frombuffer(small_models.bf16_bytes(array), "<u2")
            .astype(np.uint32)
            .__lshift__(16)
            .astype(np.uint32)
            .view(np.float32)
            .reshape(array.shape)
            for name, array in small_models.weights_of(config, 3).items()
        }  # bf16 holds them exactly
        with tempfile.TemporaryDirectory() as folder:
            sources = []
            for kind, shards in (("F32", 1), ("BF16", 3)):
                small_models.write_folder(f"{folder}/{kind}", config, tensors, kind, shards)
                sources.append(open_source(f"{folder}/{kind}"))
            for called, matrix in (
                ("f32", lambda name, array: (0, small_models.BYTES["F32"](array))),
                ("bf16", lambda name, array: (30, small_models.BYTES["BF16"](array))),
            ):
                with open(f"{folder}/{called}.gguf", "wb") as file:
                    file.write(small_models.gguf_of(config, tensors, matrix=matrix).bytes())
                sources.append(open_source(f"{folder}/{called}.gguf"))
            for name, shape in sources[0].shapes.items():
                whole = sources[0].rows(name)
                promise(whole.shape == shape, f"{case}: {name} has its shape")
                for source in sources[1:]:
                    promise(np.array_equal(source.rows(name), whole), f"{case}: {name} is the same in {source.path}")
                    parts = [source.rows(name, first, min(37, shape[0] - first)) for first in range(0, shape[0], 37)]
                    promise(np.array_equal(np.concatenate(parts), whole), f"{case}: {name} in blocks of 37 rows")
            some = np.array([5, 300, 5, 0])
            promise(
                np.array_equal(sources[2].gather("embed.weight", some), sources[0].rows("embed.weight")[some]),
                f"{case}: gathered rows are those rows",
            )


def check_rounding():
    random = np.random.RandomState(1)
    for block in (1, 16, 32, 64):
        rows = (random.standard_normal((40, 192)) * np.exp(3 * random.standard_normal((40, 1)))).astype(np.float32)
        rows[3], rows[4], rows[5] = 0, 1e-25, 1e-12
        rows[6, 7] = 1e4
        found = quantise_rows(rows.copy(), block, "matrix")
        promise(np.array_equal(found.row_sum, found.weight.sum(1, dtype=np.int32)), f"row sums, blocks of {block}")
        largest = np.abs(found.weight.astype(int)).max(1)
        promise((np.delete(largest, [3, 4]) == 127).all(), f"the largest weight of a row is 127, blocks of {block}")
        promise(
            (largest[3:5] == 0).all() and (found.scale[3:5] == 1).all(),
            "rows of zeros and of next to nothing are zeros",
        )
        exact = hadamard.transform(rows.astype(np.float32), block).astype(np.float64) / block
        far = np.abs(found.weight * found.scale[:, None].astype(np.float64) - exact) / found.scale[:, None]
        promise(
            np.delete(far, [3, 4], 0).max() < 0.51,
            f"a weight is at most half a step away, blocks of {block}: {far.max()}",
        )
        back = floats(found.weight, found.scale, block)
        sampled = rows[::32].astype(np.float64)
        error = np.square(back[::32] - sampled).sum() / np.square(sampled).sum()
        promise(abs(error / (found.error / found.power) - 1) < 0.02, "the error that is reported is the error")
    # The bytes do not depend on how a BLAS adds: here each sum is made in another order.
    rows = random.standard_normal((64, 256)).astype(np.float32)
    found = quantise_rows(rows.copy(), 64, "matrix")
    order = random.permutation(64)
    grid = np.ldexp(np.float32(1), 17 - np.frexp(np.abs(rows).max(1))[1])[:, None]
    whole = np.rint(rows * grid).reshape(-1, 64)[:, order].astype(np.float64) @ hadamard.matrix(64)[order].astype(
        np.float64
    )
    whole = whole.reshape(rows.shape).astype(np.float32)
    other = np.rint(whole * (np.float32(127) / np.abs(whole).max(1))[:, None])
    promise(np.array_equal(other, found.weight), "sums before rounding are exact")


def check_transform():
    x = np.random.RandomState(2).standard_normal((3, 128)).astype(np.float32)
    for block in (2, 16, 64, 128):
        by_matrix = (x.reshape(-1, block) @ hadamard.matrix(block)).reshape(x.shape)
        promise(
            np.abs(hadamard.transform(x, block) - by_matrix).max() < 1e-4, f"the transform of {block} is its matrix"
        )
        twice = hadamard.transform(hadamard.transform(x, block), block)
        promise(np.abs(twice / block - x).max() < 1e-5, f"the transform of {block} undoes itself")


def check_frequencies():
    plain = np.array(frequencies(Rope(10000.0), 128), float)
    promise(
        np.abs(plain * 10000.0 ** (np.arange(64) / 64) - 1).max() < 1e-14, "plain frequencies are powers of the base"
    )
    turns = turns_per_token(Rope(10000.0), 128)
    promise(abs(turns[0] - 2935890503282001226) <= 1, "channel 0 turns by one radian a token, to the last bit")
    linear = np.array(frequencies(Rope(10000.0, "linear", 4.0), 128), float)
    promise(np.abs(linear * 4 / plain - 1).max() < 1e-14, "linear scaling divides")
    llama3 = np.array(frequencies(Rope(5e5, "llama3", 8.0, 8192), 128), float) / np.array(
        frequencies(Rope(5e5), 128), float
    )
    promise(
        llama3[0] == 1 and abs(llama3[-1] - 1 / 8) < 1e-12 and (np.diff(llama3) <= 0).all(),
        "llama3 scaling keeps high frequencies and divides low ones",
    )


def check_digest():
    promise(digest_of(b"") == "99aa06d3014798d86001c324468d497f", "XXH3-128 of nothing")
    promise(
        digest_of(np.arange(1000, dtype=np.uint8)) == digest_of(bytes(range(256)) * 3 + bytes(range(232))),
        "XXH3-128 of an array is that of its bytes",
    )


check_types()
check_rows()
check_rounding()
check_transform()
check_frequencies()
check_digest()
print("weights keep their promises")
