"""kaiju-import as a person calls it: the file that it writes, what it says, what it leaves.

    python3 tests/import/importing.py SOURCE_FOLDER [FOLDER_OF_PROGRAMS]

With kaiju's programs, the engine too reads the file and computes nearly what the float model computes."""

import importlib.util
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

from promises import engine_log_probs, promise, root
import small_models
import native
from digest import digest_of
from int8_model import CheckpointTensors, Int8Model
from float_model import FloatModel
from quantise import floats
from sources import open_source

TYPES = {"I8": np.int8, "F32": np.float32, "I32": np.int32, "U64": np.uint64, "U8": np.uint8}


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-B", root / "examples/import/kaiju-import", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def check_file(path, version):
    """The rules of docs/checkpoint.md for bytes; returns the metadata and the tensors."""
    raw = open(path, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    about, at, found, lines = header.pop("__metadata__"), 8 + size, {}, []
    promise(
        sorted(about) == ["arithmetic", "config", "digest", "digests", "format", "format_version"],
        "six strings of metadata",
    )
    promise(about["format"] == "kaiju" and about["arithmetic"] == version, "format and version")
    promise(at % 64 == 0, "the data begins at a multiple of 64 bytes")
    digests, group = json.loads(about["digests"]), 0
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        promise(8 + size + first == at, f"{name} follows the tensor before it")
        its = 2 if name == "tokenizer" else 1 if (last - first) % 64 else 0
        promise(its >= group, f"{name} is in its group")
        data, at, group = raw[at : 8 + size + last], 8 + size + last, its
        promise(digest_of(data) == digests[name], f"{name} has its digest")
        found[name] = np.frombuffer(data, TYPES[tensor["dtype"]]).reshape(tensor["shape"])
        lines.append(f"{name} {tensor['dtype']} {','.join(map(str, tensor['shape']))} {digests[name]}\n")
    promise(at == len(raw), "nothing follows the last tensor")
    text = f"{version}\n{about['config']}\n" + "".join(sorted(lines, key=str.encode))
    promise(digest_of(text.encode()) == about["digest"], "the root digest")
    for name, tensor in found.items():
        if name.endswith(".weight"):
            promise(tensor.min() >= -127, f"{name} has no -128")
            sums = found[name.removesuffix("weight") + "row_sum"]
            promise(np.array_equal(tensor.sum(1, dtype=np.int32), sums), f"{name} has its row sums")
        if name.endswith((".scale", ".scalar", "_step")):
            promise(np.isfinite(tensor).all() and (tensor > 0).all(), f"{name} is positive")
    return about, found


def check_engine(path, case, ids, expected):
    """kaiju's programs accept the file, and the engine's logits are near the float model's log-probabilities."""
    if len(sys.argv) < 3 or not sys.argv[2]:
        return
    programs = pathlib.Path(sys.argv[2])
    inspected = subprocess.run([programs / "kaiju-inspect", path], capture_output=True, text=True)
    promise(inspected.returncode == 0, f"{case}: kaiju-inspect accepts it: {inspected.stderr}")
    found = engine_log_probs(programs, path, case, ids, expected.shape[1])
    kl = float((np.exp(expected) * (expected - found)).sum(1).mean())
    promise(-1e-4 < kl < 2e-2, f"{case}: the engine's KL against float is {kl:.1e}")


def check_model(folder, path, case, config):
    """The checkpoint's matrices are the source's, and it computes nearly what the float model computes."""
    source = open_source(folder)
    stored, block = CheckpointTensors(path), native.hadamard_block(source.config)
    balanced = source.config.norms_after  # then the other matrices have factors in them
    for name in ["embed"] if balanced else source.config.matrices():
        stem = native.matrix_name(name)
        its_block = 1 if name == "embed" and not source.config.tied else block
        rows = source.rows(name + ".weight")
        found = floats(stored.rows(stem + ".weight"), stored.rows(stem + ".scale"), its_block)[: len(rows)]
        promise(np.linalg.norm(found - rows) < 0.015 * np.linalg.norm(rows), f"{case}: {name} is near the source's")
    ids = np.random.RandomState(5).randint(0, config["vocab_size"], 80)
    model, int8 = FloatModel(source), Int8Model(path, source.config)
    expected = np.concatenate(list(model.log_probs(model.hidden([ids]))))
    found = np.concatenate(list(int8.log_probs(int8.hidden([ids]))))[:, : config["vocab_size"]]
    kl = float((np.exp(expected) * (expected - found)).sum(1).mean())
    promise(-1e-4 < kl < 2e-2, f"{case}: the KL against float is {kl:.1e}")
    check_engine(path, case, ids, expected)


def good_imports(folder):
    cases = ("llama biased, tied", "smollm3 windows", "mistral", "qwen2 yarn", "qwen3", "arcee", "gemma3", "gemma4", "gemma4 shared", "gemma4 inputs")
    for seed, case in enumerate(cases):
        config = small_models.config_of(case) | ({"vocab_size": 322} if case == "arcee" else {})
        small_models.write_folder(f"{folder}/{case}", config, small_models.weights_of(config, seed), "F16", shards=2)
        path = f"{folder}/{case}.safetensors"
        done = run(f"{folder}/{case}", "--out", path, "--processes", 1 + seed % 2)
        promise(done.returncode == 0, f"{case} is imported: {done.stderr}")
        about, tensors = check_file(path, native.ARITHMETIC)
        promise(
            about["digest"] in done.stdout and f"{os.path.getsize(path):,} bytes" in done.stdout,
            "digest and size are said",
        )
        promise(json.loads(about["config"])["structure"]["static_kv"] is False, "each token has scales")
        promise("KL" in done.stdout and "kaiju-chat" in done.stdout, "the error and how to run it are said")
        promise("zeros" in done.stdout or config["vocab_size"] % 16 == 0, "rows of zeros are said")
        promise(json.loads(tensors["tokenizer"].tobytes())["type"] == "byte_bpe", "the tokenizer is stored")
        promise(not [name for name in os.listdir(folder) if name.endswith(".tmp")], "no temporary file is left")
        check_model(f"{folder}/{case}", path, case, config)


def same_bytes(folder):
    """However many processes there are, and whatever kind of file holds the weights."""
    config = small_models.config_of("qwen2")
    tensors = small_models.weights_of(config, 1)
    small_models.write_folder(f"{folder}/same", config, tensors)
    with open(f"{folder}/same.gguf", "wb") as file:
        file.write(small_models.gguf_of(config, tensors, tokenizer=True).bytes())
    digests = set()
    for source, processes in (("same", 1), ("same", 3), ("same.gguf", 2)):
        done = run(
            f"{folder}/{source}",
            "--out",
            f"{folder}/same.safetensors",
            "--name",
            "one",
            "--processes",
            processes,
            "--no-check",
        )
        promise(done.returncode == 0, f"{source} is imported: {done.stderr}")
        promise("KL" not in done.stdout, "nothing is compared with --no-check")
        about, found = check_file(f"{folder}/same.safetensors", native.ARITHMETIC)
        digests.add(digest_of(b"".join(found[name].tobytes() for name in sorted(found) if name != "tokenizer")))
    promise(len(digests) == 1, "the same weights give the same bytes")


def constant_scales(folder):
    done = run(f"{folder}/same", "--out", f"{folder}/constant.safetensors", "--kv", "constant")
    promise(done.returncode == 0 and "saturates   " in done.stdout, "what saturates is said")
    about, _ = check_file(f"{folder}/constant.safetensors", native.ARITHMETIC)
    promise(json.loads(about["config"])["structure"]["static_kv"] is True, "keys and values have constant scales")
    check_model(f"{folder}/same", f"{folder}/constant.safetensors", "constant scales", small_models.config_of("qwen2"))


CHATML = """{% for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


def chat_formats(folder):
    """A template becomes a chat format, or the report says why not."""
    source, path = f"{folder}/same", f"{folder}/chat.safetensors"
    for template, word in (
        (CHATML, "no difference"),
        ("{{ messages[0]['content'] }}", "raw text"),
        ("{% nonsense", "Jinja"),
    ):
        with open(f"{source}/chat_template.jinja", "w") as file:
            file.write(template)
        done = run(source, "--out", path, "--no-check")
        if importlib.util.find_spec("jinja2") is None:
            promise(done.returncode == 1 and "--no-chat" in done.stderr, "jinja2 is asked for")
        else:
            promise(done.returncode == 0 and word in done.stdout, f"{template}: {done.stdout}{done.stderr}")
            about, _ = check_file(path, native.ARITHMETIC)
            promise(("chat_format" in json.loads(about["config"])) == (template is CHATML), "it is in the config")
    done = run(source, "--out", path, "--no-check", "--no-chat")
    promise(done.returncode == 0 and "chat_format" not in check_file(path, native.ARITHMETIC)[0]["config"], "--no-chat")
    os.unlink(f"{source}/chat_template.jinja")


def outputs(folder):
    """Outputs that cannot be written, and what they leave."""
    source = f"{folder}/same"
    before = sorted(os.listdir(source))
    for name, path, word in (
        ("a folder that is not there", f"{folder}/none/x", "is not there"),
        ("a folder", folder, "is a folder"),
        ("a file of the source", f"{source}/model.safetensors", "part of the source"),
        ("a device", "/dev/null", "no regular file"),
    ):
        done = run(source, "--out", path)
        promise(done.returncode == 1 and word in done.stderr and "Traceback" not in done.stderr, f"{name} is refused")
    promise(sorted(os.listdir(source)) == before, "the source is as it was")
    for arguments in ((source,), (source, "--out", f"{folder}/x", "--processes", "0")):
        promise(run(*arguments).returncode == 2, f"{arguments} is a wrong command line")
    target = f"{folder}/old.safetensors"
    with open(f"{folder}/real", "w") as file:
        file.write("old")
    os.chmod(f"{folder}/real", 0o640)
    os.symlink("real", target)
    broken = small_models.config_of("qwen2") | {"num_hidden_layers": 5}
    small_models.write_folder(f"{folder}/broken", broken, small_models.weights_of(small_models.config_of("qwen2"), 1))
    promise(
        run(f"{folder}/broken", "--out", target).returncode == 1 and open(target).read() == "old",
        "a failure leaves the old file",
    )
    promise(run(source, "--out", target, "--no-check").returncode == 0, "an old file is replaced")
    promise(os.path.islink(target) and os.stat(target).st_mode & 0o777 == 0o640, "the link and the permissions stay")
    check_file(target, native.ARITHMETIC)


def interruptions(folder):
    """A signal at any time ends the program without a half-written file."""
    config = small_models.config_of("llama") | {"vocab_size": 40000}
    small_models.write_folder(f"{folder}/large", config, small_models.weights_of(config, 1), tokenizer=False)
    for number, code in ((signal.SIGINT, 1), (signal.SIGTERM, 128 + signal.SIGTERM)):
        program = subprocess.Popen(
            [
                sys.executable,
                "-B",
                root / "examples/import/kaiju-import",
                f"{folder}/large",
                "--out",
                f"{folder}/out/never.safetensors",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        waited = time.monotonic() + 60
        while not os.listdir(f"{folder}/out") and program.poll() is None and time.monotonic() < waited:
            time.sleep(0.002)  # until it writes
        program.send_signal(number)
        _, error = program.communicate(timeout=60)
        ended = program.returncode
        promise(ended == code and "Traceback" not in error or ended == 0, f"signal {number} gives {ended}: {error}")
        for name in os.listdir(f"{folder}/out"):
            promise(ended == 0 and name == "never.safetensors", f"nothing is left after signal {number}, not {name}")
            os.unlink(f"{folder}/out/{name}")


with tempfile.TemporaryDirectory() as folder:
    os.mkdir(f"{folder}/out")
    good_imports(folder)
    same_bytes(folder)
    constant_scales(folder)
    chat_formats(folder)
    outputs(folder)
    interruptions(folder)
print("kaiju-import keeps its promises")
