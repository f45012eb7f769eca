"""Parts of a decoder's shape."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Scaling of rotary frequencies for contexts longer than the first training's.

    Attributes:
        kind: `linear` (all frequencies), `llama3` and `yarn` (low ones only), or `each`
            (one factor per pair; in config.json `longrope`).
        factor: Frequencies are divided by it; 1 for `each`.
        low_factor: `llama3`, `yarn`: pairs of at most this many turns in
            `first_context` are scaled.
        high_factor: `llama3`, `yarn`: pairs of at least as many are kept; those between
            are interpolated, by turns in `llama3`, by their number in `yarn`.
        whole_pairs: `yarn`: the two limits are rounded outwards to whole pairs.
        first_context: Context of the first training.
        factors: `each`: factor of every pair up to `first_context`, the highest
            frequency first.
        long_factors: `each`: the same for a decoder of a longer context, whatever the
            length of a text.
        longest: `each`: longest context that `long_factors` are made for.
        magnitude: Factor of cosines and sines.
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

    A head's first dimensions are rotated; those of its key are the same in all heads.

    Attributes:
        d_values: Width of a head's values.
        rank: Width of the vector of keys and values.
        query_rank: Width of that of queries; None makes them of the stream itself.
    """

    d_values: int
    rank: int
    query_rank: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeltaShape:
    """Layers with a gated delta rule in place of attention: see `GatedDelta`.

    Attributes:
        n_keys: Heads of queries and keys.
        n_values: Heads of values; a multiple of `n_keys`.
        window: Tokens that the convolution before the rule sees.
    """

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
    """Cut gate of a feed-forward layer: see `clipped_gate`.

    Attributes:
        limit: Largest gate, and size of the largest value that it multiplies.
        slope: Factor of the gate within its sigmoid.
    """

    limit: float
    slope: float
