"""The preset `small` in PyTorch, bf16, random weights: the speeds that those of kaiju-bench step are compared with.

    python3 bench/cuda/torch_bf16.py [--json FILE] [--rows decode,prefill,after,attention] [--layers 49]

Same dimensions, same layer pattern, same sharing of KV, static KV memory, attention over the same keys. What is compiled: everything but the matrix
products and attention, which are cuBLAS and FlashAttention (FlexAttention for a prompt's sliding windows); decode steps and prompts run as CUDA graphs. First the
model is checked against itself: what a prompt as a whole predicts, its last token must predict when it comes alone.

Row `attention`: one layer's attention alone, the fastest of what scaled_dot_product_attention offers (FlashAttention, cuDNN, memory-efficient) and of the
ways to give it 40 heads on one KV head; operations are 4 a visible key, row and channel.
"""
import argparse
import json
import time
import warnings

import torch
import torch._dynamo
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

torch._dynamo.config.recompile_limit = 64  # a shape each of `heads`, none of them left uncompiled

WIDTH, HEADS, HEAD, FF, VOCAB, WINDOW = 5120, 40, 128, 20480, 65536, 1024


class Layer:
    pass


def make_layers(count):
    """Every seventh layer is global; sliding ones share KV by threes within a run, global ones by twos, the last three together."""
    kinds = ["g" if i % 7 == 6 else "s" for i in range(count)]
    last_group = max(kinds.count("g") // 2, 1) - 1
    layers, slots, run, seen, group_slot = [], 0, 0, 0, []
    for kind in kinds:
        layer = Layer()
        layer.is_global = kind == "g"
        layer.owns = False
        if layer.is_global:
            run = 0
            group = min(seen // 2, last_group)
            seen += 1
            if group == len(group_slot):
                group_slot.append(slots)
                slots += 1
                layer.owns = True
            layer.slot = group_slot[group]
        else:
            if run % 3 == 0:
                layer.slot, slots, layer.owns = slots, slots + 1, True
            else:
                layer.slot = layers[-1].slot
            run += 1
        layers.append(layer)
    return layers, slots


def weight(out, into):
    return torch.empty(out, into, device="cuda", dtype=torch.bfloat16).normal_(0, into**-0.5)


def rotate(x, cos, sin):
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(torch.bfloat16)


def norm(x):
    return F.rms_norm(x, (WIDTH,))


@torch.compile(dynamic=False)
def heads(qkv, cos, sin, owns: bool):
    rows = qkv.shape[0]
    q = rotate(qkv[:, : HEADS * HEAD].view(rows, HEADS, HEAD), cos[:, None], sin[:, None])
    if not owns:
        return q, None, None
    return q, rotate(qkv[:, HEADS * HEAD : (HEADS + 1) * HEAD], cos, sin), qkv[:, (HEADS + 1) * HEAD :].contiguous()


@torch.compile(dynamic=False)
def squared_relu(h):
    return F.relu(h).square()


@torch.compile(dynamic=False)
def add_norm(x, y):
    x = x + y
    return x, norm(x)


compiled_flex = torch.compile(flex_attention, dynamic=False)


class Model:
    def __init__(self, layers):
        torch.manual_seed(1)
        self.layers, self.slots = make_layers(layers)
        self.embed = weight(VOCAB, WIDTH)
        for layer in self.layers:
            layer.qkv = weight((HEADS + (2 if layer.owns else 0)) * HEAD, WIDTH)
            layer.o = weight(WIDTH, WIDTH)
            layer.up = weight(FF, WIDTH)
            layer.down = weight(WIDTH, FF)
        self.frequencies = 1.0 / 10000 ** (torch.arange(0, HEAD // 2, device="cuda", dtype=torch.float32) * 2 / HEAD)

    def angles(self, positions):
        turns = positions[:, None].float() * self.frequencies
        return turns.cos(), turns.sin()

    def forward(self, tokens, positions, attend, last):
        """`attend(layer, q, k, v)`: stores k and v of a layer that owns its slot, and attends. `last`: the rows whose logits are wanted."""
        cos, sin = self.angles(positions)
        x = F.embedding(tokens, self.embed)
        a = norm(x)
        for layer in self.layers:
            q, k, v = heads(a @ layer.qkv.t(), cos, sin, layer.owns)
            x, a = add_norm(x, attend(layer, q, k, v) @ layer.o.t())
            x, a = add_norm(x, squared_relu(a @ layer.up.t()) @ layer.down.t())
        return a[last] @ self.embed.t()


class Decode:
    """Streams that each bring one token at a position of their own cache; all at the same position, so that no mask is needed."""

    def __init__(self, model, streams, context):
        self.model, self.streams = model, streams
        self.k, self.v = [], []
        for slot in range(model.slots):
            is_global = next(layer.is_global for layer in model.layers if layer.slot == slot)
            shape = (streams, context + 1 if is_global else min(WINDOW, context + 1), HEAD)
            self.k.append(torch.empty(shape, device="cuda", dtype=torch.bfloat16).normal_())
            self.v.append(torch.empty(shape, device="cuda", dtype=torch.bfloat16).normal_())
        self.tokens = torch.randint(0, VOCAB, (streams,), device="cuda")
        self.positions = torch.full((streams,), context, device="cuda")
        self.rows = torch.arange(streams, device="cuda")

    def attend(self, layer, q, k, v):
        keys, values = self.k[layer.slot], self.v[layer.slot]
        if layer.owns:
            keys[:, -1], values[:, -1] = k, v
        # The 40 heads of a stream as 40 queries of one head: keys and values are read once.
        return F.scaled_dot_product_attention(q[:, None], keys[:, None], values[:, None])[:, 0].reshape(self.streams, HEADS * HEAD)

    def step(self):
        return self.model.forward(self.tokens, self.positions, self.attend, slice(None)).argmax(dim=-1)


class Prompt:
    """`count` tokens of one sequence after `known` others."""

    def __init__(self, model, known, count):
        self.model, self.known, self.count = model, known, count
        length = known + count
        self.k = torch.empty(model.slots, length, HEAD, device="cuda", dtype=torch.bfloat16).normal_()
        self.v = torch.empty_like(self.k).normal_()
        self.tokens = torch.randint(0, VOCAB, (count,), device="cuda")
        self.positions = torch.arange(known, length, device="cuda")
        self.mask = create_block_mask(lambda b, h, i, j: (j <= i + known) & (j > i + known - WINDOW), None, None, count, length, device="cuda") if length > WINDOW and known == 0 else None
        self.from_window = max(0, known - WINDOW + 1)

    def attend(self, layer, q, k, v):
        keys, values = self.k[layer.slot], self.v[layer.slot]
        if layer.owns:
            keys[self.known :], values[self.known :] = k, v
        q = q.transpose(0, 1)[None]
        if layer.is_global or self.mask is None:
            first = 0 if layer.is_global or self.known == 0 else self.from_window  # a window a little too wide for all but the first row
            keys, values = keys[first:].expand(1, HEADS, -1, HEAD), values[first:].expand(1, HEADS, -1, HEAD)
            if self.known == 0:
                out = F.scaled_dot_product_attention(q, keys, values, is_causal=True)
            else:
                out = F.scaled_dot_product_attention(q, keys, values, attn_mask=causal_lower_right(self.count, keys.shape[2]))
        else:
            out = compiled_flex(q, keys[None, None], values[None, None], block_mask=self.mask, enable_gqa=True)
        return out[0].transpose(0, 1).reshape(self.count, HEADS * HEAD)

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
        out = step()
    return graph, out


def best_ms(work, seconds):
    work()
    torch.cuda.synchronize()
    best, start = 1e9, time.perf_counter()
    while best == 1e9 or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        work()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - before)
    return 1e3 * best


def best_us(work, seconds):
    """Of one of several that follow one another, so that the host's share does not count."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    count = max(1, min(8, int(20 / best_ms(work, 0))))
    best, until = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < until:
        start.record()
        for _ in range(count):
            work()
        end.record()
        end.synchronize()
        best = min(best, 1e3 * start.elapsed_time(end) / count)
    return best


@torch.no_grad()
def check(model):
    """A prompt's last token alone, over the keys and values of the others, must give what the whole prompt gives."""
    whole = Prompt(model, 0, 512)
    logits = model.forward(whole.tokens, whole.positions, whole.attend, slice(-1, None))
    alone = Decode(model, 1, 511)
    for slot in range(model.slots):
        alone.k[slot][0].copy_(whole.k[slot])
        alone.v[slot][0].copy_(whole.v[slot])
        alone.k[slot][0, -1] = 0
        alone.v[slot][0, -1] = 0
    alone.tokens.copy_(whole.tokens[-1:])
    again = model.forward(alone.tokens, alone.positions, alone.attend, slice(None))
    assert torch.isfinite(logits).all() and torch.isfinite(again).all(), "not finite"
    difference = ((logits - again).float().norm() / logits.float().norm()).item()
    same = logits.argmax().item() == again.argmax().item()
    print(f"check: prompt of 512 against its last token alone: greedy token {'the same' if same else 'DIFFERS'}, logits differ by {difference:.4f} of their norm", flush=True)
    assert same or difference < 0.05


def attention_forms(q, k, v, causal):
    """(name, call) of each way to attend with q [sequences, rows, heads, HEAD] over k and v [sequences, keys, HEAD]; each gives q's shape."""
    k, v = k[:, None], v[:, None]
    by_head = q.transpose(1, 2)
    shape = (q.shape[0], HEADS, -1, -1)
    yield "one KV head expanded", lambda: F.scaled_dot_product_attention(by_head, k.expand(shape), v.expand(shape), is_causal=causal).transpose(1, 2)
    yield "enable_gqa", lambda: F.scaled_dot_product_attention(by_head, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)
    if causal:
        yield "KV copied for every head", lambda: F.scaled_dot_product_attention(by_head, k.repeat(1, HEADS, 1, 1), v.repeat(1, HEADS, 1, 1), is_causal=True).transpose(1, 2)
    if q.shape[1] == 1:
        yield "heads as rows", lambda: F.scaled_dot_product_attention(q, k, v)


def attention_last_rows(q, k, v):
    """What every sequence's last row must get, in float."""
    scores = torch.einsum("shd,skd->shk", q[:, -1].float(), k.float()) * HEAD**-0.5
    return torch.einsum("shk,skd->shd", scores.softmax(dim=-1), v.float())


@torch.no_grad()
def time_attention(sequences, keys, rows, seconds):
    """(us, by what) of the fastest form that gives the right answer: the last `rows` rows of each sequence, causal."""
    torch.cuda.empty_cache()
    q = torch.randn(sequences, rows, HEADS, HEAD, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(sequences, keys, HEAD, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    expected = attention_last_rows(q[:2], k[:2], v[:2])
    best = (float("inf"), "none")
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        for name, work in attention_forms(q, k, v, rows > 1):
            what = f"{backend.name.split('_')[0].lower()}, {name}"
            try:
                with sdpa_kernel(backend), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    graph, out = recorded(work)
                graph.replay()
                if (out[:2, -1].float() - expected).abs().max() > 0.02:
                    print(f"  {what}: wrong", flush=True)
                    continue
                microseconds = best_us(graph.replay, seconds)
            except Exception as error:  # most do not take every form
                print(f"  {what}: {str(error).splitlines()[0][:100]}", flush=True)
                continue
            print(f"  {what}: {microseconds:.1f} us", flush=True)
            best = min(best, (microseconds, what))
    return best


@torch.no_grad()
def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--json")
    arguments.add_argument("--layers", type=int, default=49)
    arguments.add_argument("--seconds", type=float, default=0.4)
    arguments.add_argument("--rows", default="decode,prefill,after,attention")
    options = arguments.parse_args()
    if not 0.001 <= options.seconds <= 60:  # nor NaN
        arguments.error("argument --seconds: give a number from 0.001 to 60")
    rows = options.rows.split(",")
    if rows != ["attention"]:
        model = Model(options.layers)
        check(model)
    lines = []

    def write():
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "layers": options.layers, "lines": lines}, file, indent=1)

    def line(name, tokens, work):
        try:
            ms = best_ms(work, options.seconds)
        except Exception as error:
            print(f"{name:40} failed: {error}", flush=True)
            return
        lines.append({"what": name, "ms": ms, "tokens_per_second": 1e3 * tokens / ms})
        print(f"{name:40} {ms:9.3f} ms {1e3 * tokens / ms:10.1f} tokens/s", flush=True)
        write()

    for row in rows:
        torch.cuda.empty_cache()
        if row == "decode":
            for streams in (1, 64, 256):
                work = Decode(model, streams, 4096)
                graph, _ = recorded(work.step)
                line(f"decode, {streams} streams, context 4096", streams, graph.replay)
                del graph, work
        elif row == "prefill":
            work = Prompt(model, 0, 8192)
            graph, _ = recorded(work.step)
            line("prefill, 8192 tokens", 8192, graph.replay)
            del graph, work
        elif row == "after":
            work = Prompt(model, 16384, 100)
            graph, _ = recorded(work.step)
            line("first token, 100 tokens after 16384", 100, graph.replay)
            del graph, work
        elif row == "attention":
            for sequences, keys, count in ((1, 32768, 32768), (256, 4096, 1), (2, 131072, 1)):
                name = f"attention, causal {keys}" if count > 1 else f"attention, decode, {keys} keys x {sequences}"
                us, what = time_attention(sequences, keys, count, options.seconds / 4)
                visible = sequences * (count * (count + 1) // 2 if count > 1 else keys)
                tops, terabytes = 4e-6 * visible * HEADS * HEAD / us, 4e-6 * sequences * keys * HEAD / us
                lines.append({"what": name, "us": us, "by": what, "tops": tops, "terabytes_per_second": terabytes})
                print(f"{name:40} {us:9.1f} us {f'{tops:9.1f} TOP/s' if count > 1 else f'{terabytes:9.2f} TB/s'}  {what}", flush=True)
                write()


main()
