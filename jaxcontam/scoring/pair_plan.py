"""From strata to pairs: every example as the prefix of others of its stratum.

Within a stratum examples stand in the order of their ids, and each is scored after
each other one in the same shapes, so nothing in the plan depends on the order under
test.

Dimension key
    K  strata
    S  examples of the largest stratum
    N  examples
    Q  choices of how many tokens of each example count
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.encoding import Encoded
from jaxcontam.errors import InputError
from jaxcontam.stats.strata import cut_to_budget

ALL_TOKENS = -1
"""In place of a number of tokens: all of an example count."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairGroup:
    """One prefix and what is scored after it.

    Attributes:
        prefix: int32 ids, the tokenizer's prefix id first.
        continuations: int32 ids of each example that is scored after it.
        example: Index of the example that is the prefix.
        others: Index of the example of each continuation.
    """

    prefix: np.ndarray
    continuations: tuple[np.ndarray, ...]
    example: int
    others: tuple[int, ...]

    @property
    def n_targets(self) -> int:
        """Ids that are scored."""
        return sum(len(ids) for ids in self.continuations)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairPlan:
    """Pairs of one test.

    Attributes:
        groups: One a stratum and example.
        members: For each stratum its example indices in published order.
        cut: (N,) int32, ids removed from each example in all.
        n_shared: Ids at the start that all examples share; first tokens are counted
            after them.
    """

    groups: tuple[PairGroup, ...]
    members: tuple[np.ndarray, ...]
    cut: np.ndarray
    n_shared: int

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        return sum(group.n_targets for group in self.groups)

    def matrices(
        self, logprobs: Sequence[Sequence[np.ndarray]], first_tokens: Sequence[int]
    ) -> np.ndarray:
        """Pair matrices in published order from the scores of each group.

        Args:
            logprobs: For each group and continuation one float32 array, nats an id.
            first_tokens: Ids that count after the shared ones, or `ALL_TOKENS`.

        Returns:
            (Q, K, S, S) float64, summed in float64; 0 on diagonals and padding, NaN
            where a pair was not scored.
        """
        largest = max(len(members) for members in self.members)
        shape = (len(first_tokens), len(self.members), largest, largest)
        pairs_QKSS = np.zeros(shape)
        for k, members in enumerate(self.members):
            n = len(members)
            pairs_QKSS[:, k, :n, :n] = np.where(np.eye(n, dtype=bool), 0.0, np.nan)
        at = {
            int(example): (k, position)
            for k, members in enumerate(self.members)
            for position, example in enumerate(members)
        }
        for group, scores in zip(self.groups, logprobs, strict=True):
            k, i = at[group.example]
            for other, own in zip(group.others, scores, strict=True):
                _, j = at[other]
                for q, first in enumerate(first_tokens):
                    stop = None if first == ALL_TOKENS else self.n_shared + first
                    pairs_QKSS[q, k, i, j] = own[:stop].sum(dtype=np.float64)
        return pairs_QKSS


def plan_pairs(
    strata: Sequence[np.ndarray],
    encoded: Encoded,
    *,
    prefix_id: int | None,
    context: int,
    wanted: Sequence[np.ndarray] | None = None,
) -> PairPlan:
    """Lay out ordered pairs of each stratum: all, or those that are wanted.

    A stratum whose two longest examples do not fit the context together is cut, each
    example to the same largest length that fits: symmetric in the examples.

    Args:
        strata: Example indices of each stratum, in published order.
        encoded: The benchmark's ids.
        prefix_id: Put before each prefix if the tokenizer has one.
        context: Tokens that the model reads at once.
        wanted: (S, S) bool for each stratum, true where [i, j] is to be scored; None
            for all. At least one pair of each example.

    Raises:
        InputError: If not even one token of each example fits.
    """
    start = np.array([] if prefix_id is None else [prefix_id], np.int32)
    cut_N = encoded.n_cut_ids.copy()
    groups = []
    for k, members in enumerate(strata):
        lengths = encoded.lengths[members]
        length = cut_to_budget(np.sort(lengths)[-2:], context - 1)
        if length is not None:
            if length <= len(encoded.separator):
                raise InputError(
                    f"no two examples fit the model's context of {context} tokens",
                    hint="use a model with a longer context",
                )
            cut_N[members] += np.maximum(lengths - length, 0).astype(np.int32)
        ids = {int(i): encoded.cut(int(i), length) for i in members}
        by_content = sorted(ids, key=lambda i, ids=ids: (len(ids[i]), ids[i].tobytes()))
        place = {int(i): position for position, i in enumerate(members)}
        for example in by_content:
            others = tuple(
                i
                for i in by_content
                if i != example
                and (wanted is None or wanted[k][place[example], place[i]])
            )
            groups.append(
                PairGroup(
                    prefix=np.concatenate([start, ids[example]]),
                    continuations=tuple(ids[i] for i in others),
                    example=example,
                    others=others,
                )
            )
    return PairPlan(tuple(groups), tuple(strata), cut_N, _n_shared(encoded.ids))


def _n_shared(ids: Sequence[np.ndarray]) -> int:
    """Ids at the start that all examples share: those of a template."""
    shortest = min(len(own) for own in ids)
    first = ids[0][:shortest]
    for own in ids:
        differs = np.flatnonzero(own[: len(first)] != first)
        if len(differs):
            first = first[: int(differs[0])]
    return len(first)
