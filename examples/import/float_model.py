"""The forward pass of a source's model in float32, layer by layer: the reference that a checkpoint is compared with.

Weights are read a block of rows at a time, once for all sequences of a call, so memory is that of the activations."""

from collections.abc import Callable, Iterator

import numpy as np

from model_config import GELU_GATED, ModelConfig, Rope
from refused import Refused
from rope import frequencies, score_scale
from sources.source import Source

BLOCK = 1 << 24  # weights in memory at a time
_QUERIES = 256  # attention scores of so many tokens in memory at a time

# (layer, what, values): "k" after norm and RoPE and "v", [tokens, n_kv_heads, head_dim]; "q" likewise with n_heads;
# "x", the residual after the layer, [tokens, d_model]. Tokens are those of all sequences, one sequence after the other.
Observer = Callable[[int, str, np.ndarray], None]


def rms_norm(x: np.ndarray, eps: float, gain: np.ndarray) -> np.ndarray:
    mean = np.einsum("...i,...i->...", x, x, dtype=np.float32)[..., None] / np.float32(x.shape[-1])
    return x / np.sqrt(mean + np.float32(eps)) * gain


def silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x * np.float32(0.5) * (1 + np.tanh(np.float32(0.7978845608) * x * (1 + np.float32(0.044715) * x * x)))


class FloatModel:
    """Subclasses change single operations: the methods without a name that begins with an underscore."""

    def __init__(self, source: Source, config: ModelConfig | None = None):
        self.source = source
        self.config = config or source.config
        self._kv: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # of the layers that ran last, by layer
        self._inputs = np.zeros(0, np.float32)  # of layers: [tokens, layers, width]

    # Operations

    def embed(self, ids: np.ndarray) -> np.ndarray:
        return self.source.gather("embed.weight", ids) * np.float32(self.config.embed_factor)

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        """x [tokens, in] times the matrix `name`, plus its bias."""
        y = self._product(x, name + ".weight")
        if self.config.has_bias(name):
            y += self.source.rows(name + ".bias")
        return y

    def attend(self, layer: int, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Of one sequence: q [tokens, n_heads, head_dim], k and v [tokens, n_kv_heads, head_dim]."""
        config, tokens = self.config, len(q)
        group, scale = config.n_heads // k.shape[1], np.float32(score_scale(config, layer))
        window, out = config.each[layer].window, np.empty_like(q)
        positions = np.arange(tokens)
        for first in range(0, tokens, _QUERIES):
            last = min(first + _QUERIES, tokens)
            begin = 0 if window is None else max(0, first - window + 1)
            hidden = positions[None, begin:last] > positions[first:last, None]
            if window is not None:
                hidden |= positions[None, begin:last] <= positions[first:last, None] - window
            for head in range(config.n_heads):
                scores = q[first:last, head] @ k[begin:last, head // group].T * scale
                scores[hidden] = -np.inf
                scores -= scores.max(1, keepdims=True)
                np.exp(scores, out=scores)
                scores /= scores.sum(1, keepdims=True)
                out[first:last, head] = scores @ v[begin:last, head // group]
        return out

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Of normed rows [tokens, d_model]: [tokens, vocab_size]."""
        y, cap = self._product(x, "embed.weight" if self.config.tied else "output.weight"), self.config.logit_cap
        return np.tanh(y / np.float32(cap)) * np.float32(cap) if cap else y

    # The forward pass

    def _product(self, x: np.ndarray, name: str) -> np.ndarray:
        out, width = self.source.shapes[name]
        y = np.empty((len(x), out), np.float32)
        step = max(1, BLOCK // width)
        for first in range(0, out, step):
            rows = self.source.rows(name, first, min(step, out - first))
            np.matmul(x, rows.T, out=y[:, first : first + len(rows)])
        return y

    @staticmethod
    def _rotated(x: np.ndarray, positions: np.ndarray, rope: Rope) -> np.ndarray:
        """x [tokens, heads, head_dim]"""
        half = x.shape[-1] // 2
        turns = positions[:, None] * np.array(frequencies(rope, x.shape[-1]), np.float64)
        cosine, sine = np.cos(turns).astype(np.float32)[:, None], np.sin(turns).astype(np.float32)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)

    def _keys_and_values(self, layer: int, y: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[tokens, n_kv_heads, head_dim] each, after norm and RoPE."""
        config, its, p = self.config, self.config.each[layer], f"layers.{layer}.attn."
        k = self.linear(y, p + "k").reshape(len(y), its.n_kv_heads, its.head_dim)
        v = k if its.values_from_keys else self.linear(y, p + "v").reshape(k.shape)
        if config.head_norms:
            k = rms_norm(k, config.norm_eps, self.source.rows(p + "k_norm_gain"))
        if config.value_norms:
            v = rms_norm(v, config.norm_eps, np.ones(1, np.float32))
        return self._rotated(k, positions, its.rope) if its.rope else k, v

    def _attention(self, layer: int, y: np.ndarray, lengths: list[int], observe: Observer) -> np.ndarray:
        config, its, p = self.config, self.config.each[layer], f"layers.{layer}.attn."
        q = self.linear(y, p + "q").reshape(len(y), config.n_heads, its.head_dim)
        if config.head_norms:
            q = rms_norm(q, config.norm_eps, self.source.rows(p + "q_norm_gain"))
        positions = np.concatenate([np.arange(length) for length in lengths])
        q = self._rotated(q, positions, its.rope) if its.rope else q
        observe(layer, "q", q)
        if its.kv_of is None:
            self._kv[layer] = self._keys_and_values(layer, y, positions)
            for what, values in zip("kv", self._kv[layer]):
                observe(layer, what, values)
        k, v = self._kv[config.slot(layer)]
        ends = np.cumsum(lengths)
        o = np.concatenate(
            [
                self.attend(layer, q[end - length : end], k[end - length : end], v[end - length : end])
                for length, end in zip(lengths, ends)
            ]
        )
        return self._normed_after(self.linear(o.reshape(len(y), -1), p + "o"), p)

    def _normed_after(self, y: np.ndarray, sublayer: str) -> np.ndarray:
        if not self.config.norms_after:
            return y
        return rms_norm(y, self.config.norm_eps, self.source.rows(sublayer + "post_norm_gain"))

    def _ffn(self, layer: int, y: np.ndarray) -> np.ndarray:
        p = f"layers.{layer}.ffn."
        up = self.linear(y, p + "up")
        if self.config.gated:
            gate = gelu if self.config.activation == GELU_GATED else silu
            h = gate(self.linear(y, p + "gate")) * up
        else:
            h = np.square(np.maximum(up, 0))
        return self._normed_after(self.linear(h, p + "down"), p)

    def read_inputs(self, ids: np.ndarray, x: np.ndarray) -> None:
        """The layers' own inputs, of token ids and their embeddings, for `layer`."""
        if not self.config.layer_inputs:
            return
        config, rows = self.config, ids[:, None] * self.config.layers + np.arange(self.config.layers)
        y = self.linear(x, "inputs.projection").reshape(len(ids), config.layers, config.layer_inputs)
        y = rms_norm(y, config.norm_eps, self.source.rows("inputs.norm_gain"))
        own = self.source.gather("inputs.embed.weight", rows.reshape(-1)).reshape(y.shape)
        self._inputs = (own + y) * np.float32(2**-0.5)

    def _input(self, layer: int, x: np.ndarray) -> np.ndarray:
        p, act = f"layers.{layer}.inputs.", gelu if self.config.activation == GELU_GATED else silu
        h = act(self.linear(x, p + "gate")) * self._inputs[:, layer]
        return rms_norm(self.linear(h, p + "out"), self.config.norm_eps, self.source.rows(p + "post_norm_gain"))

    def layer(self, layer: int, x: np.ndarray, lengths: list[int], observe: Observer) -> np.ndarray:
        """The residual after the layer, of the residual before it. The tokens are those of the last read_inputs."""
        gain, eps = self.source.rows, self.config.norm_eps
        x = x + self._attention(layer, rms_norm(x, eps, gain(f"layers.{layer}.attn.norm_gain")), lengths, observe)
        x = x + self._ffn(layer, rms_norm(x, eps, gain(f"layers.{layer}.ffn.norm_gain")))
        if self.config.layer_inputs:
            x = x + self._input(layer, x)
        x *= np.float32(self.config.each[layer].factor)
        if not np.isfinite(x).all():
            raise Refused(f"layer {layer} of the model gives values that are not finite; the weights are damaged")
        observe(layer, "x", x)
        return x

    def hidden(self, sequences: list[np.ndarray], observe: Observer = lambda layer, what, values: None) -> np.ndarray:
        """Final normed rows of all tokens, [tokens, d_model]. `sequences` are token ids, each one text."""
        ids, lengths = np.concatenate(sequences), [len(ids) for ids in sequences]
        x = self.embed(ids)
        with np.errstate(over="ignore", invalid="ignore"):
            self.read_inputs(ids, x)
            for layer in range(self.config.layers):
                x = self.layer(layer, x, lengths, observe)
        return rms_norm(x, self.config.norm_eps, self.source.rows("final.norm_gain"))

    def log_probs(self, hidden: np.ndarray, memory: int = 1 << 28) -> Iterator[np.ndarray]:
        """Log-probabilities of the next token, a block of tokens at a time, each float32 [some tokens, vocab_size]."""
        step = max(1, memory // (8 * self.config.vocab_size))
        for first in range(0, len(hidden), step):
            values = self.logits(hidden[first : first + step])
            values -= values.max(1, keepdims=True)
            values -= np.log(np.exp(values).sum(1, keepdims=True, dtype=np.float32))
            yield values
