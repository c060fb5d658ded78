"""CUDA files of this folder as libraries, compiled by nvcc when they are first used and whenever they change."""
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile

import torch


def folder():
    return os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "kaiju-train")


@functools.cache
def load(name):
    """The ctypes library of NAME.cu for this machine's GPU."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".cu")
    architecture = "sm_%d%d" % torch.cuda.get_device_capability()
    with open(source, "rb") as f:
        digest = hashlib.sha256(architecture.encode() + f.read()).hexdigest()[:16]
    path = os.path.join(folder(), "%s-%s.so" % (name, digest))
    if not os.path.exists(path):
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        os.makedirs(folder(), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder()) as part:  # processes may compile it at the same time
            made = os.path.join(part, "made.so")
            subprocess.run([nvcc, "-O3", "-std=c++17", "-arch=" + architecture, "-shared", "-Xcompiler", "-fPIC", "-o", made, source], check=True)
            os.replace(made, path)
    return ctypes.CDLL(path)


def call(function, *args):
    """Calls a launcher of such a library on PyTorch's stream: tensors become their addresses."""
    given = [ctypes.c_void_p(a.data_ptr()) if torch.is_tensor(a) else ctypes.c_void_p(None) if a is None else ctypes.c_float(a) if isinstance(a, float) else ctypes.c_int64(a) for a in args]
    error = function(*given, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    if error:
        raise RuntimeError("%s: CUDA error %d" % (function.__name__, error))
