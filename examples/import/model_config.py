"""What the importer knows of a model: its dimensions and choices, and which tensors it therefore has."""

import dataclasses

SILU_GATED = "silu_gated"  # down(silu(gate(x)) * up(x))
RELU_SQUARED = "relu_squared"  # down(relu(up(x)) ** 2)


@dataclasses.dataclass(frozen=True)
class Rope:
    """Rotary position embedding of pairs (i, i + head_dim / 2)."""

    base: float
    scaling: str = "none"  # none, linear, llama3, yarn, factors
    factor: float = 1.0  # linear, llama3, yarn: how many times the context was extended
    original_context: int = 0  # llama3, yarn: the context before that
    low_frequency: float = 1.0  # llama3: wavelengths beyond original_context / low_frequency are scaled
    high_frequency: float = 4.0  # llama3: those below original_context / high_frequency are not
    beta_fast: float = 32.0  # yarn: turns within original_context above which nothing is scaled
    beta_slow: float = 1.0  # yarn: turns below which everything is scaled
    truncate: bool = True  # yarn: the bounds of the two are rounded to whole channels
    attention_factor: float | None = None  # yarn: what cosine and sine are multiplied by; None: 0.1 ln(factor) + 1
    factors: tuple[float, ...] = ()  # factors: what each frequency is divided by (GGUF's rope_freqs)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    family: str
    name: str
    vocab_size: int
    layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    context: int
    norm_eps: float
    rope: Rope
    rotates: tuple[bool, ...]  # of each layer, whether it has RoPE
    windows: tuple[int | None, ...]  # of each layer, how many tokens it sees (itself included); None: all
    activation: str = SILU_GATED
    tied: bool = False  # the embedding is the output matrix too
    qkv_bias: bool = False
    o_bias: bool = False
    ffn_bias: bool = False
    head_norms: bool = False  # RMS norm of each head of q and k before RoPE

    @property
    def q_width(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.n_kv_heads * self.head_dim

    @property
    def gated(self) -> bool:
        return self.activation == SILU_GATED

    def layer_matrices(self, layer: int) -> dict[str, tuple[int, int]]:
        """Names of a layer's matrices and their [out, in]."""
        p, d = f"layers.{layer}.", self.d_model
        found = {
            p + "attn.q": (self.q_width, d),
            p + "attn.k": (self.kv_width, d),
            p + "attn.v": (self.kv_width, d),
            p + "attn.o": (d, self.q_width),
        }
        if self.gated:
            found[p + "ffn.gate"] = (self.d_ff, d)
        return found | {p + "ffn.up": (self.d_ff, d), p + "ffn.down": (d, self.d_ff)}

    def has_bias(self, matrix: str) -> bool:
        kind = matrix.rsplit(".", 1)[-1]
        return {"q": self.qkv_bias, "k": self.qkv_bias, "v": self.qkv_bias, "o": self.o_bias}.get(kind, self.ffn_bias)

    def matrices(self) -> dict[str, tuple[int, int]]:
        found = {"embed": (self.vocab_size, self.d_model)}
        if not self.tied:
            found["output"] = (self.vocab_size, self.d_model)
        for layer in range(self.layers):
            found |= self.layer_matrices(layer)
        return found

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the model and its shape: the canonical names that Source.rows takes."""
        found: dict[str, tuple[int, ...]] = {"final.norm_gain": (self.d_model,)}
        for name, shape in self.matrices().items():
            found[name + ".weight"] = shape
            if "." in name and self.has_bias(name):
                found[name + ".bias"] = shape[:1]
        for layer in range(self.layers):
            p = f"layers.{layer}."
            found |= {p + "attn.norm_gain": (self.d_model,), p + "ffn.norm_gain": (self.d_model,)}
            if self.head_norms:
                found |= {p + "attn.q_norm_gain": (self.head_dim,), p + "attn.k_norm_gain": (self.head_dim,)}
        return found
