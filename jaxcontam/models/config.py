"""Shape of a decoder: everything that differs between model families, as data."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Scaling of rotary frequencies for contexts longer than the first training's.

    Attributes:
        kind: `linear` (all frequencies), `llama3` and `yarn` (low ones only), or `each`
            (one factor per pair; in config.json `longrope`).
        factor: Frequencies are divided by it; 1 for `each`.
        low_factor: Pairs of at most this many turns in `first_context` are scaled.
        high_factor: Pairs of at least as many are kept; those between are interpolated,
            by turns in `llama3`, by their number in `yarn`.
        whole_pairs: `yarn`: the two limits are rounded outwards to whole pairs.
        factors: `each`: factor of every pair up to `first_context`, fastest first.
        long_factors: `each`: the same for a decoder of a longer context.
        longest: `each`: longest context that `long_factors` are made for.
    """

    kind: Literal["linear", "llama3", "yarn", "each"]
    factor: float
    low_factor: float = 1.0
    high_factor: float = 4.0
    whole_pairs: bool = True
    first_context: int = 8192
    factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    longest: int = 0
    magnitude: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """Attention whose keys and values are made of a narrow vector of each position.

    A head's first dimensions are rotated; those of its key are the same in all heads. A
    `query_rank` of None makes queries of the stream itself.
    """

    d_values: int
    rank: int
    query_rank: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeltaShape:
    """Layers with a gated delta rule; its convolution sees `window` tokens."""

    n_keys: int
    n_values: int
    d_keys: int
    d_values: int
    window: int

    def __post_init__(self) -> None:
        if self.n_values % self.n_keys:
            raise ValueError(
                f"heads of keys must divide those of values, got {self.n_keys} and "
                f"{self.n_values}"
            )

    @property
    def d_mixed(self) -> int:
        """Width of all queries, keys and values."""
        return 2 * self.n_keys * self.d_keys + self.n_values * self.d_values

    @property
    def d_state(self) -> int:
        """Numbers in the states of all heads."""
        return self.n_values * self.d_keys * self.d_values


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LocalShape:
    """Heads of the layers with a window, where they are not those of the others."""

    n_kv_heads: int
    head_dim: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GateClip:
    """Largest gate, and size of the largest value that it multiplies."""

    limit: float
    slope: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """Mixture of experts in the feed-forward layers.

    Attributes:
        n: Experts of a block, each of width `d_ff`.
        n_used: Experts per token, those of the highest scores.
        scores: A `softmax` over all, or of each one its `sigmoid`.
        has_preference: A learned number is added to each score, for the choice alone.
        group_best: A group's score is the sum of its best scores, this many.
        normalised: Divide the weights of the chosen by their sum.
        d_shared: Width of a shared expert that all tokens use; 0 is none.
        biased: The router and the experts' two products have biases.
    """

    n: int
    n_used: int
    scores: Literal["softmax", "sigmoid"] = "softmax"
    has_preference: bool = False
    n_groups: int = 1
    n_groups_used: int = 1
    group_best: int = 1
    normalised: bool
    scale: float = 1.0
    d_shared: int = 0
    shared_gated: bool = True
    biased: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.n_used <= self.n:
            raise ValueError(
                f"experts that a token takes must be 1 to {self.n}, got {self.n_used}"
            )
        if self.n % self.n_groups or not 0 < self.n_groups_used <= self.n_groups:
            raise ValueError(
                f"groups must divide {self.n} experts and those used be among them, "
                f"got {self.n_groups_used} of {self.n_groups}"
            )
        size = self.n // self.n_groups
        if self.n_used > self.n_groups_used * size or self.group_best > size:
            raise ValueError(
                f"{self.n_groups_used} groups of {size} experts must hold the "
                f"{self.n_used} of a token and the {self.group_best} of a group's score"
            )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder-only transformer.

    Attributes:
        d_ff: Width of the feed-forward layer, or of each of its experts.
        context: Most tokens that one forward pass reads.
        local_rope_theta: Base in layers with a window; None: that of all.
        rotated_layers: For each layer whether it rotates. Empty: all do.
        rotary_dim: Rotated dimensions at the start of a head; None is all.
        rotary_pairs: A dimension of each half of the head, or neighbours.
        norm: `rms` (scale only) or `layer` (scale and bias).
        norm_weights: Norms have a scale, and layer norms a bias.
        norm_offset: Added to the scale of every norm. A scale near 1 that is stored as
            its distance from 1 keeps more bits.
        query_key_norm: Of each `head`, or of all heads of a position as a `whole`.
        pre_norms: Attention and the feed-forward layer read a normalised stream.
        post_norms: After attention and the feed-forward layer, before they are added.
        parallel: Attention and feed-forward both read the block's input.
        shared_norm: They read it after the same norm; parallel blocks alone.
        gated: Multiply the activation by a second projection.
        experts: None is one dense feed-forward layer per block.
        n_dense: Blocks at the start that have a dense layer in place of experts.
        latent: Keys and values are made of a narrow vector; None: of the stream.
        delta: Shape of the layers of `delta_layers`, of which each layer says whether
            it is one; None and empty where all have attention.
        local: Heads of layers with a window, all of whose dimensions are rotated at
            `local_rope_theta`; None: as in the others.
        value_norm: Values are normalised head by head, without a scale.
        values_are_keys: Values are keys before their norm, in layers without a window.
        n_reusing: Layers at the end that make no keys and values: they attend to those
            of the last layer before them that has a window or has none, as they do.
        attention_gate: A gate of every mixed value, made of the stream.
        qkv_bias: Biases of the query, key and value projections, and of that gate.
        qkv_clip: Queries, keys and values are cut to this size; None leaves them.
        windows: For each layer the tokens that a position sees, itself included;
            None is all before it. Empty: no layer has a window.
        attention_sinks: Each head has a score of its own for attending to nothing.
        attention_scale: Factor of the attention scores; None is head_dim^-1/2.
        attention_softcap: Attention scores x become cap * tanh(x / cap).
        logit_softcap: Logits likewise.
        embedding_scale: Factor of the embedded tokens.
        d_layer_input: Width of an input that each layer has of each token; 0 is none.
        layer_scaled: A number of each layer, which is not trained, multiplies the
            stream after it.
        residual_scale: Factor of what a block adds, unless blocks are parallel.
        logit_scale: Factor of the logits, before the soft cap.
    """

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    context: int
    positions: Literal["rotary", "learned"]
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    local_rope_theta: float | None = None
    rotated_layers: tuple[bool, ...] = ()
    rotary_dim: int | None = None
    rotary_pairs: Literal["halves", "neighbours"] = "halves"
    norm: Literal["rms", "layer"]
    norm_eps: float
    norm_weights: bool = True
    norm_offset: float = 0.0
    query_key_norm: Literal["head", "whole"] | None = None
    pre_norms: bool = True
    post_norms: bool = False
    parallel: bool = False
    shared_norm: bool = False
    activation: Literal["silu", "gelu", "gelu_tanh", "relu"]
    gated: bool
    gate_clip: GateClip | None = None
    experts: ExpertShape | None = None
    n_dense: int = 0
    d_dense: int = 0
    latent: LatentShape | None = None
    delta: DeltaShape | None = None
    delta_layers: tuple[bool, ...] = ()
    local: LocalShape | None = None
    value_norm: bool = False
    values_are_keys: bool = False
    n_reusing: int = 0
    d_reusing: int = 0
    attention_gate: bool = False
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qkv_clip: float | None = None
    windows: tuple[int | None, ...] = ()
    attention_sinks: bool = False
    attention_scale: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embedding_scale: float = 1.0
    d_layer_input: int = 0
    layer_scaled: bool = False
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    tied: bool
    head_bias: bool = False

    def __post_init__(self) -> None:
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads must divide n_heads, got {self.n_kv_heads} "
                f"and {self.n_heads}"
            )
        if self.positions == "rotary" and self.n_rotated % 2:
            raise ValueError(f"rotated dimensions must be even, got {self.n_rotated}")
        if not 0 < self.n_rotated <= self.head_dim:
            raise ValueError(
                f"rotated dimensions must be 1 to {self.head_dim}, got {self.n_rotated}"
            )
        for name in ("windows", "rotated_layers", "delta_layers"):
            if (given := getattr(self, name)) and len(given) != self.n_layers:
                raise ValueError(
                    f"{name} must name {self.n_layers} layers, got {len(given)}"
                )
        if any(self.delta_layers) != (self.delta is not None):
            raise ValueError("delta must be the shape of layers with that rule")
        if self.delta is not None and (self.n_dense or self.latent or self.windows):
            raise ValueError("a delta rule must be without dense blocks and windows")
        if self.rotated_layers and self.local_rope_theta is not None:
            raise ValueError("rotated_layers must have one base, got two")
        if any(window is not None and window < 1 for window in self.windows):
            raise ValueError(f"windows must be at least 1, got {self.windows}")
        if self.n_dense and (self.experts is None or self.n_dense >= self.n_layers):
            raise ValueError(
                "dense blocks must come before blocks with experts, "
                f"got {self.n_dense} of {self.n_layers}"
            )
        if self.latent is not None and self.n_kv_heads != self.n_heads:
            raise ValueError(
                f"n_kv_heads must be n_heads = {self.n_heads} where keys are made of a "
                f"narrow vector, got {self.n_kv_heads}"
            )
        if self.local is not None and (
            None not in self.windows or self.local_rope_theta is None
        ):
            raise ValueError("local must be of windows in some layers, with a rotation")
        if self.n_reusing:
            first = self.n_layers - self.n_reusing
            kinds = [bool(size) for size in self.windows]
            if self.local is None or not set(kinds[first:]) <= set(kinds[:first]):
                raise ValueError("layers must reuse keys of layers like themselves")
        if self.gate_clip is not None and not self.gated:
            raise ValueError("gate_clip must be of a gated layer")
        if self.parallel and self.residual_scale != 1.0:
            raise ValueError("residual_scale must be of blocks that are not parallel")
        if self.parallel and not self.pre_norms:
            raise ValueError("parallel blocks must have norms before them")
        if self.shared_norm and not self.parallel:
            raise ValueError("shared_norm must be of parallel blocks")
        for name in ("attention_softcap", "logit_softcap"):
            cap = getattr(self, name)
            if cap is not None and cap <= 0:
                raise ValueError(f"{name} must be positive, got {cap}")

    @property
    def d_values(self) -> int:
        """Width of a head's values."""
        return self.head_dim if self.latent is None else self.latent.d_values

    @property
    def n_rotated(self) -> int:
        """Dimensions of a head that are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim


def at_context(config: DecoderConfig, context: int) -> DecoderConfig:
    """The same decoder with another context.

    A shorter one only cuts texts. Where rotary factors depend on the context (`each`),
    one above the first training's turns all texts by the long factors, short ones too.
    """
    scaling = config.rope_scaling
    longest = config.context
    if scaling is not None and scaling.kind == "each":
        longest = max(longest, scaling.longest)
    if not 2 <= context <= longest:
        raise ValueError(f"context must be 2 to {longest}, got {context}")
    return dataclasses.replace(config, context=context)


def llama_shape(
    *,
    vocab_size: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    d_ff: int,
    context: int,
) -> DecoderConfig:
    """A LLaMA-shaped decoder with tied embeddings, as the trainer makes."""
    gpt2 = gpt2_shape(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        context=context,
    )
    return dataclasses.replace(
        gpt2,
        d_ff=d_ff,
        positions="rotary",
        norm="rms",
        activation="silu",
        gated=True,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
    )


def gpt2_shape(
    *, vocab_size: int, d_model: int, n_layers: int, n_heads: int, context: int
) -> DecoderConfig:
    """A GPT-2-shaped decoder."""
    return DecoderConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=d_model // n_heads,
        d_ff=4 * d_model,
        context=context,
        positions="learned",
        norm="layer",
        norm_eps=1e-5,
        activation="gelu_tanh",
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied=True,
    )
