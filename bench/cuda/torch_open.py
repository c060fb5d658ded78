"""Shapes of open models in PyTorch, bf16, random weights: the speeds that those of kaiju-bench step on the same shapes are compared with.

    python3 bench/cuda/torch_open.py SHAPE [--prompts 8192] [--streams 1,16,64] [--contexts 1024,4096] [--seconds 0.3] [--layers N]
    python3 bench/cuda/torch_open.py SHAPE --config     prints the shape as a config for kaiju-make

SHAPE: llama-8b (Llama 3.1 8B) or gemma-12b (Gemma 3 12B). q, k and v are one product, and so are gate and up. Everything but products and attention
is compiled (--layers 1 fills the cache of compiled code quickly); products are cuBLAS. Attention is the fastest of what scaled_dot_product_attention offers (FlashAttention, cuDNN, memory-efficient) and of
the ways to give it grouped heads, tried for each shape; prompts in sliding windows take FlexAttention. Steps run as CUDA graphs, over static KV memory.
"""
import argparse
import json
import time
import warnings

import torch
import torch._dynamo
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

torch._dynamo.config.recompile_limit = 64

SHAPES = {
    "llama-8b": dict(vocab=128256, width=4096, heads=32, kv_heads=8, head=128, ff=14336, layers=32, window=0, gemma=False),
    "gemma-12b": dict(vocab=262208, width=3840, heads=16, kv_heads=8, head=256, ff=15360, layers=48, window=1024, gemma=True),
}
GLOBAL_EVERY = 6  # of a shape with windows
CONTEXT = 16384
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)


def is_global(shape, layer):
    return shape["window"] == 0 or layer % GLOBAL_EVERY == GLOBAL_EVERY - 1


def config(name, shape):
    """The config of kaiju-make: version 2 of the arithmetic, as the importer makes it of such a model."""
    layers = []
    for i in range(shape["layers"]):
        layer = {"kind": "global", "kv_slot": i, "rope": int(shape["window"] > 0)}
        if not is_global(shape, i):
            layer = {"kind": "sliding", "window": shape["window"], "kv_slot": i, "rope": 0}
        layers.append(layer)
    structure = {"activations": "token_scales", "hadamard": 64, "ffn": "gated_gelu" if shape["gemma"] else "gated_silu", "residual": "f32",
                 "output": "embedding" if shape["gemma"] else "own", "biases": "none", "norms_after": shape["gemma"], "norm_gains": True,
                 "head_norms": shape["gemma"], "value_norms": False, "static_kv": False, "wide_logits": True, "logit_cap": 0, "score_scale": 0}
    return {"name": name, "vocab_size": shape["vocab"], "d_model": shape["width"], "n_heads": shape["heads"], "n_kv_heads": shape["kv_heads"],
            "head_dim": shape["head"], "d_ff": shape["ff"], "context": CONTEXT, "norm_eps": 1e-6 if shape["gemma"] else 1e-5, "layers": layers,
            "structure": structure}


def weight(out, into):
    return torch.empty(out, into, device="cuda", dtype=torch.bfloat16).normal_(0, into**-0.5)


def rotate(x, cos, sin):
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(torch.bfloat16)


@torch.compile(dynamic=False)
def split_heads(qkv, cos, sin, gains, heads: int, kv_heads: int, head: int):
    rows = qkv.shape[0]
    x = qkv.view(rows, heads + 2 * kv_heads, head)
    q, k, v = x[:, :heads], x[:, heads : heads + kv_heads], x[:, heads + kv_heads :]
    if gains is not None:
        q, k = F.rms_norm(q, (head,), gains[0]), F.rms_norm(k, (head,), gains[1])
    return rotate(q, cos[:, None], sin[:, None]), rotate(k, cos[:, None], sin[:, None]), v.contiguous()


@torch.compile(dynamic=False)
def gate(both, is_gelu: bool):
    g, u = both.chunk(2, dim=-1)
    return (F.gelu(g, approximate="tanh") if is_gelu else F.silu(g)) * u


@torch.compile(dynamic=False)
def add_norm(x, y, post_gain, gain):
    if post_gain is not None:
        y = F.rms_norm(y, y.shape[-1:], post_gain)
    x = x + y
    return x, F.rms_norm(x, x.shape[-1:], gain)


compiled_flex = torch.compile(flex_attention, dynamic=False)


class Model:
    def __init__(self, shape):
        torch.manual_seed(1)
        self.shape = shape
        width, q, kv = shape["width"], shape["heads"] * shape["head"], shape["kv_heads"] * shape["head"]
        self.embed = weight(shape["vocab"], width)
        self.output = self.embed if shape["gemma"] else weight(shape["vocab"], width)
        self.gain = torch.ones(width, device="cuda", dtype=torch.bfloat16)
        self.head_gains = [torch.ones(shape["head"], device="cuda", dtype=torch.bfloat16)] * 2 if shape["gemma"] else None
        self.layers = [(weight(q + 2 * kv, width), weight(width, q), weight(2 * shape["ff"], width), weight(width, shape["ff"]))
                       for _ in range(shape["layers"])]
        half = shape["head"] // 2
        self.frequencies = 1.0 / 10000 ** (torch.arange(0, half, device="cuda", dtype=torch.float32) / half)

    def forward(self, tokens, positions, attend, last):
        shape, turns = self.shape, positions[:, None].float() * self.frequencies
        cos, sin = turns.cos(), turns.sin()
        x = F.embedding(tokens, self.embed)
        post = self.gain if shape["gemma"] else None
        a = F.rms_norm(x, x.shape[-1:], self.gain)
        for i, (qkv, o, gate_up, down) in enumerate(self.layers):
            q, k, v = split_heads(a @ qkv.t(), cos, sin, self.head_gains, shape["heads"], shape["kv_heads"], shape["head"])
            x, a = add_norm(x, attend(i, q, k, v) @ o.t(), post, self.gain)
            x, a = add_norm(x, gate(a @ gate_up.t(), shape["gemma"]) @ down.t(), post, self.gain)
        return a[last] @ self.output.t()


def fastest(forms):
    """The (name, call) of the forms that takes least, of those that run at all. As graphs: few rows would else be timed by the host's launches."""
    best = (float("inf"), None, None)
    for name, call in forms:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                graph = recorded(call)
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                for _ in range(5):
                    graph.replay()
                end.record()
                end.synchronize()
        except Exception:  # most backends do not take every form
            continue
        best = min(best, (start.elapsed_time(end) / 5, name, call), key=lambda form: form[0])
    return best


def with_backend(backend, q, k, v, **options):
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, **options)


class Decode:
    """Streams that each bring one token at a position of their own cache; all at the same position, so that no mask is needed."""

    def __init__(self, model, streams, context):
        shape = self.shape = model.shape
        self.model, self.streams = model, streams
        self.k, self.v, self.form = [], [], {}
        for i in range(shape["layers"]):
            keys = context + 1 if is_global(shape, i) else min(shape["window"], context + 1)
            size = (streams, shape["kv_heads"], keys, shape["head"])
            self.k.append(torch.empty(size, device="cuda", dtype=torch.bfloat16).normal_())
            self.v.append(torch.empty(size, device="cuda", dtype=torch.bfloat16).normal_())
        self.tokens = torch.randint(0, shape["vocab"], (streams,), device="cuda")
        self.positions = torch.full((streams,), context, device="cuda")
        q = torch.randn(streams, shape["heads"], shape["head"], device="cuda", dtype=torch.bfloat16)
        for i in range(shape["layers"]):
            if (keys := self.k[i].shape[2]) not in self.form:
                made = [(f"{backend.name.split('_')[0].lower()}, {name}", (backend, name)) for backend in BACKENDS for name in ("heads as rows", "enable_gqa")]
                ms, name, _ = fastest([(name, lambda form=form, i=i: self.run(form, i, q)) for name, form in made])
                self.form[keys] = dict(made)[name]
                print(f"  decode, {streams} x {keys} keys: {1e3 * ms:.1f} us by {name}", flush=True)

    def run(self, form, i, q):
        backend, name = form
        shape, keys, values = self.shape, self.k[i], self.v[i]
        if name == "heads as rows":
            rows = q.view(self.streams, shape["kv_heads"], -1, shape["head"])
            return with_backend(backend, rows, keys, values).reshape(self.streams, -1)
        return with_backend(backend, q[:, :, None], keys, values, enable_gqa=True).reshape(self.streams, -1)

    def attend(self, i, q, k, v):
        self.k[i][:, :, -1], self.v[i][:, :, -1] = k, v
        return self.run(self.form[self.k[i].shape[2]], i, q)

    def step(self):
        return self.model.forward(self.tokens, self.positions, self.attend, slice(None)).argmax(dim=-1)


class Prompt:
    def __init__(self, model, count):
        shape = self.shape = model.shape
        self.model, self.count, self.form = model, count, None
        self.tokens = torch.randint(0, shape["vocab"], (count,), device="cuda")
        self.positions = torch.arange(count, device="cuda")
        window = shape["window"]
        self.mask = create_block_mask(lambda b, h, i, j: (j <= i) & (j > i - window), None, None, count, count, device="cuda") if window else None
        q, k, v = (torch.randn(count, shape[heads], shape["head"], device="cuda", dtype=torch.bfloat16) for heads in ("heads", "kv_heads", "kv_heads"))
        made = [(f"{backend.name.split('_')[0].lower()}, {name}", (backend, name)) for backend in BACKENDS for name in ("enable_gqa", "KV copied")]
        ms, name, _ = fastest([(name, lambda form=form: self.run(form, q, k, v)) for name, form in made])
        self.form = dict(made)[name]
        print(f"  prompt, {count} tokens, causal: {1e3 * ms:.1f} us by {name}", flush=True)

    def run(self, form, q, k, v):
        backend, name = form
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        if name == "KV copied":
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        return with_backend(backend, q, k, v, is_causal=True, enable_gqa=name == "enable_gqa")[0].transpose(0, 1).reshape(self.count, -1)

    def attend(self, i, q, k, v):
        if is_global(self.shape, i):
            return self.run(self.form, q, k, v)
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        return compiled_flex(q, k, v, block_mask=self.mask, enable_gqa=True)[0].transpose(0, 1).reshape(self.count, -1)

    def step(self):
        return self.model.forward(self.tokens, self.positions, self.attend, slice(-1, None)).argmax(dim=-1)


def recorded(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def best_ms(work, seconds):
    work()
    torch.cuda.synchronize()
    best, start = float("inf"), time.perf_counter()
    while best == float("inf") or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        work()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - before)
    return 1e3 * best


@torch.no_grad()
def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("shape", choices=SHAPES)
    arguments.add_argument("--config", action="store_true")
    arguments.add_argument("--prompts", default="8192")
    arguments.add_argument("--streams", default="1,16,64")
    arguments.add_argument("--contexts", default="1024,4096")
    arguments.add_argument("--seconds", type=float, default=0.3)
    arguments.add_argument("--layers", type=int, help="instead of the shape's")
    options = arguments.parse_args()
    shape = dict(SHAPES[options.shape])
    if options.layers is not None:
        shape["layers"] = options.layers
    if options.config:
        return print(json.dumps(config(options.shape, shape)))
    counts = {name: [int(text) for text in getattr(options, name).split(",") if text] for name in ("prompts", "streams", "contexts")}
    model = Model(shape)

    def line(what, tokens, work):
        try:
            ms = best_ms(recorded(work().step).replay, options.seconds)
        except Exception as error:
            return print(f"{what:36} failed: {str(error).splitlines()[0][:200]}", flush=True)
        print(f"{what:36} {ms:9.3f} ms {1e3 * tokens / ms:10.1f} tokens/s", flush=True)

    for context in counts["contexts"]:
        for streams in counts["streams"]:
            torch.cuda.empty_cache()
            line(f"decode, {streams} streams, context {context}", streams, lambda: Decode(model, streams, context))
    for tokens in counts["prompts"]:
        torch.cuda.empty_cache()
        line(f"prefill, {tokens} tokens", tokens, lambda: Prompt(model, tokens))


if __name__ == "__main__":
    main()
