"""From orders to token sequences, each distinct one once.

The plan puts every stratum's orders in their random places, so whoever scores the
sequences cannot know which of them is the published one.

Dimension key
    K  strata
    M  orders per stratum, M = m + 1
    N  examples
"""

import dataclasses

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from jaxcontam.stats.orders import (
    OrderDesign,
    from_scoring_columns,
    to_scoring_columns,
)
from jaxcontam.stats.strata import cut_to_budget


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScoringPlan:
    """Sequences of one order test.

    Attributes:
        sequences: Distinct int32 id arrays, the prefix id first.
        index: (K, M) int64; the sequence of each order, in scoring columns.
        place: (K,) where the published order stands.
        cut: (N,) int32, ids removed from each example in all.
        examples: For each sequence, (example, end of its ids) pairs, to name the
            example of a token.
    """

    sequences: tuple[np.ndarray, ...]
    index: np.ndarray
    place: np.ndarray
    cut: np.ndarray
    examples: tuple[tuple[tuple[int, int], ...], ...]

    def matrix(self, loglik: np.ndarray) -> np.ndarray:
        """(K, m + 1) float64 from one number a sequence; the published order first."""
        return from_scoring_columns(loglik[self.index], self.place)

    def example_at(self, sequence: int, position: int) -> int:
        """The example that holds the id at `position` of a sequence."""
        for example, end in self.examples[sequence]:
            if position < end:
                return example
        raise IndexError(position)


def plan_orders(
    design: OrderDesign,
    encoded: Encoded,
    *,
    prefix_id: int | None,
    context: int,
    windowed: bool,
) -> ScoringPlan:
    """Lay out every order of every stratum as a sequence of ids.

    Args:
        design: Orders with the published one first.
        encoded: The benchmark's ids.
        prefix_id: Put before each sequence if the tokenizer has one.
        context: Tokens that the model reads at once.
        windowed: Leave long strata whole, to be scored in windows. Otherwise a
            stratum of more than context - 1 ids is cut, each example to the same
            largest length that fits.

    Raises:
        InputError: If not even one token of each example fits.
    """
    prefix = np.array([] if prefix_id is None else [prefix_id], np.int32)
    cut_N = encoded.n_cut_ids.copy()
    known: dict[bytes, int] = {}
    sequences, examples = [], []
    if not design.n_strata:
        index_KM = np.zeros((0, design.n_orders + 1), np.int64)
        return ScoringPlan((), index_KM, design.place, cut_N, ())
    emitted_KMS = to_scoring_columns(design.orders, design.place)
    index_KM = np.empty(emitted_KMS.shape[:2], np.int64)
    for k, orders_MS in enumerate(emitted_KMS):
        members = np.sort(orders_MS[0][orders_MS[0] >= 0])
        lengths = encoded.lengths[members]
        length = None if windowed else cut_to_budget(lengths, context - 1)
        if length is not None:
            if length <= len(encoded.separator):
                raise InputError(
                    f"no two examples fit the model's context of {context} tokens",
                    hint="use a model with a longer context",
                )
            cut_N[members] += np.maximum(lengths - length, 0).astype(np.int32)
        for j, order_S in enumerate(orders_MS):
            order = order_S[order_S >= 0].tolist()
            parts = [encoded.cut(i, length) for i in order]
            sequence = np.concatenate([prefix, *parts])
            key = sequence.tobytes()
            if key not in known:
                known[key] = len(sequences)
                sequences.append(sequence)
                ends = len(prefix) + np.cumsum([len(part) for part in parts])
                examples.append(tuple(zip(order, ends.tolist(), strict=True)))
            index_KM[k, j] = known[key]
    return ScoringPlan(tuple(sequences), index_KM, design.place, cut_N, tuple(examples))
