"""What the importer knows of a model: its dimensions and choices, and which tensors it therefore has."""

import dataclasses

SILU_GATED = "silu_gated"  # down(silu(gate(x)) * up(x))
GELU_GATED = "gelu_gated"  # down(gelu(gate(x)) * up(x)), the form of gelu with tanh
RELU_SQUARED = "relu_squared"  # down(relu(up(x)) ** 2)
# How the source keeps the matrices of layers.
FLOATS = "floats"  # which the importer quantises
INT8 = "int8"  # with a scale for each row; their inputs get one for each token
STATIC_INT8 = "static_int8"  # likewise, but inputs and outputs have constant scales


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
    rotated: float = 1.0  # the share of a head's pairs that turn: the first ones; the others stand still


@dataclasses.dataclass(frozen=True)
class Layer:
    """What the layers of a model may differ in."""

    head_dim: int
    n_kv_heads: int
    rope: Rope | None  # None: q and k are not rotated
    window: int | None = None  # how many tokens it sees, itself included; None: all
    values_from_keys: bool = False  # the values are the keys before norm and RoPE
    factor: float = 1.0  # multiplies the residual after the layer
    kv_of: int | None = None  # the earlier layer whose keys and values it reads; None: its own
    d_ff: int | None = None  # None: the model's


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    family: str
    name: str
    vocab_size: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    context: int
    norm_eps: float
    each: tuple[Layer, ...]
    activation: str = SILU_GATED
    tied: bool = False  # the embedding is the output matrix too
    qkv_bias: bool = False
    o_bias: bool = False
    ffn_bias: bool = False
    head_norms: bool = False  # RMS norm of each head of q and k before RoPE
    value_norms: bool = False  # RMS norm of each head of v, without a gain
    norms_after: bool = False  # RMS norm of what attention and feed-forward give, before it is added
    embed_factor: float = 1.0  # multiplies embeddings
    score_scale: float | None = None  # multiplies q · k; None: 1 / sqrt(head_dim)
    logit_cap: float = 0.0  # c of c · tanh(logit / c); 0: no cap
    stored: str = FLOATS
    layer_factors: bool = False  # each layer has a factor, which the source's tensors say
    layer_inputs: int = 0  # width of the input that each layer has of a token (per-layer embeddings); 0: none

    @property
    def layers(self) -> int:
        return len(self.each)

    def q_width(self, layer: int) -> int:
        return self.n_heads * self.each[layer].head_dim

    def kv_width(self, layer: int) -> int:
        return self.each[layer].n_kv_heads * self.each[layer].head_dim

    @property
    def own_kv(self) -> list[int]:
        """Layers that have keys and values of their own: their KV slots have these numbers."""
        return [number for number, layer in enumerate(self.each) if layer.kv_of is None]

    def slot(self, layer: int) -> int:
        kv_of = self.each[layer].kv_of
        return layer if kv_of is None else kv_of

    def ffn_width(self, layer: int) -> int:
        return self.each[layer].d_ff or self.d_ff

    @property
    def gated(self) -> bool:
        return self.activation != RELU_SQUARED

    def layer_matrices(self, layer: int) -> dict[str, tuple[int, int]]:
        """Names of a layer's matrices and their [out, in]."""
        p, d = f"layers.{layer}.", self.d_model
        found = {
            p + "attn.q": (self.q_width(layer), d),
            p + "attn.k": (self.kv_width(layer), d),
            p + "attn.v": (self.kv_width(layer), d),
            p + "attn.o": (d, self.q_width(layer)),
        }
        if self.each[layer].values_from_keys or self.each[layer].kv_of is not None:
            del found[p + "attn.v"]
        if self.each[layer].kv_of is not None:
            del found[p + "attn.k"]
        d_ff = self.ffn_width(layer)
        if self.gated:
            found[p + "ffn.gate"] = (d_ff, d)
        found |= {p + "ffn.up": (d_ff, d), p + "ffn.down": (d, d_ff)}
        if self.layer_inputs:
            found |= {p + "inputs.gate": (self.layer_inputs, d), p + "inputs.out": (d, self.layer_inputs)}
        return found

    def has_bias(self, matrix: str) -> bool:
        kind = matrix.rsplit(".", 1)[-1]
        return {"q": self.qkv_bias, "k": self.qkv_bias, "v": self.qkv_bias, "o": self.o_bias}.get(kind, self.ffn_bias)

    def matrices(self) -> dict[str, tuple[int, int]]:
        found = {"embed": (self.vocab_size, self.d_model)}
        if not self.tied:
            found["output"] = (self.vocab_size, self.d_model)
        if self.layer_inputs:  # row token * layers + layer of the one, layer * width + channel of the other
            found["inputs.embed"] = (self.vocab_size * self.layers, self.layer_inputs)
            found["inputs.projection"] = (self.layers * self.layer_inputs, self.d_model)
        for layer in range(self.layers):
            found |= self.layer_matrices(layer)
        return found

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the model and its shape: the canonical names that Source.rows takes."""
        found: dict[str, tuple[int, ...]] = {"final.norm_gain": (self.d_model,)}
        if self.layer_inputs:
            found["inputs.norm_gain"] = (self.layer_inputs,)
        for name, shape in self.matrices().items():
            found[name + ".weight"] = shape
            if "." in name and self.has_bias(name):
                found[name + ".bias"] = shape[:1]
        for layer in range(self.layers):
            p = f"layers.{layer}."
            found |= {p + "attn.norm_gain": (self.d_model,), p + "ffn.norm_gain": (self.d_model,)}
            if self.norms_after:
                found |= {p + "attn.post_norm_gain": (self.d_model,), p + "ffn.post_norm_gain": (self.d_model,)}
            if self.layer_inputs:
                found[p + "inputs.post_norm_gain"] = (self.d_model,)
            if self.head_norms:
                head_dim = self.each[layer].head_dim
                found[p + "attn.q_norm_gain"] = (head_dim,)
                if self.each[layer].kv_of is None:
                    found[p + "attn.k_norm_gain"] = (head_dim,)
            if self.layer_factors:
                found[p + "factor"] = (1,)
        return found
