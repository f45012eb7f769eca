"""From strata to pairs: every example as the prefix of others of its stratum.

Within a stratum examples stand in the order of their ids, so nothing in the plan
depends on the order under test. Nor does a `Seam`, which leaves of each pair what lies
around its boundary. Shapes follow an example's number of continuations: all others of
its stratum, or, for direction, what its place in a run needs, which is the same
whichever runs are reversed.

Dimension key
    K  strata
    S  examples of the largest stratum
    N  examples
    G  groups: an example and what is scored after it
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from jaxcontam.data.encoding import Encoded, ids_before
from jaxcontam.errors import InputError
from jaxcontam.scoring.seam import WHOLE, Seam
from jaxcontam.stats.orders import cut_to_budget


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PairGroup:
    """One prefix, the tokenizer's prefix id first, and what is scored after it.

    `others` are the examples of the continuations.
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
class GroupSizes:
    """Sizes that the cost of groups depends on; (G,) int64."""

    prefix: np.ndarray
    longest: np.ndarray
    n_continuations: np.ndarray
    n_targets: np.ndarray


# Without slots, which leave no place for a cached property.
@dataclasses.dataclass(frozen=True, eq=False)
class PairPlan:
    """Pairs of one test; their ids are laid out when they are first asked for.

    Attributes:
        members: For each stratum its example indices in published order.
        cut: (N,) ids removed from each example in all.
        start: Ids before each prefix.
        most: For each stratum the ids to which its examples are cut, or None.
        before: (K, S) last ids of each example that are read before others; 0 in
            padding.
        scored: (K, S) first ids of each that are scored; 0 in padding.
        wanted: (K, S, S) bool, whether [k, i, j] is scored: j after i.
    """

    members: tuple[np.ndarray, ...]
    cut: np.ndarray
    encoded: Encoded
    start: np.ndarray
    most: tuple[int | None, ...]
    before: np.ndarray
    scored: np.ndarray
    wanted: np.ndarray

    @property
    def n_pairs(self) -> int:
        """Pairs that are scored."""
        return int(np.count_nonzero(self.wanted))

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        return int((self.wanted.sum(axis=1) * self.scored).sum())

    @property
    def sizes(self) -> GroupSizes:
        """Sizes of `groups`, on which their cost depends."""
        there_KS = self.scored > 0
        targets_KSS = self.wanted * self.scored[:, None]
        return GroupSizes(
            prefix=(len(self.start) + self.before)[there_KS],
            longest=targets_KSS.max(axis=2, initial=0)[there_KS],
            n_continuations=self.wanted.sum(axis=2)[there_KS],
            n_targets=targets_KSS.sum(axis=2)[there_KS],
        )

    @property
    def has_repeats(self) -> bool:
        """True if two examples have the same ids before others."""
        ids = {
            own[len(own) - n :].tobytes()
            for members, before in zip(self._ids(), self.before.tolist(), strict=True)
            for own, n in zip(members, before, strict=False)
        }
        return len(ids) < sum(map(len, self.members))

    @property
    def n_distinct(self) -> int:
        """Examples that differ in what is scored of them."""
        return len(
            {
                own[:n].tobytes()
                for ids, scored in zip(self._ids(), self.scored.tolist(), strict=True)
                for own, n in zip(ids, scored, strict=False)
            }
        )

    @functools.cached_property
    def groups(self) -> tuple[PairGroup, ...]:
        """One a stratum and example."""
        groups = []
        for k, ids in enumerate(self._ids()):
            members = self.members[k].tolist()
            before, scored = self.before[k].tolist(), self.scored[k].tolist()
            contents = [(len(own), own.tobytes()) for own in ids]
            by_content = sorted(range(len(ids)), key=contents.__getitem__)
            for place in by_content:
                others = [other for other in by_content if self.wanted[k, place, other]]
                last = ids[place][len(ids[place]) - before[place] :]
                groups.append(
                    PairGroup(
                        prefix=np.concatenate([self.start, last]),
                        continuations=tuple(ids[j][: scored[j]] for j in others),
                        example=members[place],
                        others=tuple(members[other] for other in others),
                    )
                )
        return tuple(groups)

    def _ids(self) -> Iterator[list[np.ndarray]]:
        """Ids of the examples of each stratum, cut."""
        for members, most in zip(self.members, self.most, strict=True):
            yield [self.encoded.cut(i, most) for i in members.tolist()]

    def matrices(self, logprobs: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
        """Pair matrices in published order, (K, S, S) float64, from scores of groups.

        `logprobs` has an array for each group and continuation, nats an id. 0 on
        diagonals and padding, NaN where a pair was not scored.
        """
        largest = max(map(len, self.members))
        pairs_KSS = np.zeros((len(self.members), largest, largest))
        at = {}
        for k, members in enumerate(self.members):
            n = len(members)
            pairs_KSS[k, :n, :n] = np.where(np.eye(n, dtype=bool), 0.0, np.nan)
            at |= {example: (k, i) for i, example in enumerate(members.tolist())}
        for group, scores in zip(self.groups, logprobs, strict=True):
            k, i = at[group.example]
            for other, own in zip(group.others, scores, strict=True):
                pairs_KSS[k, i, at[other][1]] = own.sum(dtype=np.float64)
        return pairs_KSS


def plan_pairs(
    strata: Sequence[np.ndarray],
    encoded: Encoded,
    *,
    prefix_id: int | None,
    context: int,
    wanted_KSS: np.ndarray | None = None,
    seam: Seam = WHOLE,
) -> PairPlan:
    """Lay out ordered pairs of each stratum: all, or those that are wanted.

    A stratum with two examples that do not fit the context together is cut, each
    example to the same largest length that fits. `wanted_KSS` is true where [k, i, j]
    is to be scored, at least one pair of each example, none with itself.
    """
    sizes_K = np.array([len(members) for members in strata], np.int64)
    there_KS = np.arange(sizes_K.max(initial=0)) < sizes_K[:, None]
    lengths_KS = np.zeros(there_KS.shape, np.int64)
    cut_N = encoded.n_cut_ids.copy()
    most: list[int | None] = [None] * len(strata)
    if len(strata):
        lengths_KS[there_KS] = encoded.lengths[np.concatenate(strata)]
    n_before, n_scored = _seam_ids(encoded, seam)
    # Whichever of the two longest comes first.
    longest_K2 = np.sort(lengths_KS, axis=1)[:, -2:]
    first_K2, then_K2 = longest_K2[:, ::-1], longest_K2
    fits_K2 = np.minimum(first_K2, n_before) + np.minimum(then_K2, n_scored)
    for k in np.flatnonzero(fits_K2.max(axis=1, initial=0) > context - 1).tolist():
        length = cut_to_budget(longest_K2[k], context - 1)
        assert length is not None
        if length <= len(encoded.separator):
            raise InputError(
                f"no two examples fit the model's context of {context} tokens",
                hint="use a model with a longer context",
            )
        most[k] = length
        too_long = np.maximum(encoded.lengths[strata[k]] - length, 0)
        cut_N[strata[k]] += too_long.astype(np.int32)
        lengths_KS[k] = np.minimum(lengths_KS[k], length)
    others_SS = ~np.eye(there_KS.shape[1], dtype=bool)
    all_KSS = there_KS[:, :, None] & there_KS[:, None] & others_SS
    return PairPlan(
        members=tuple(strata),
        cut=cut_N,
        encoded=encoded,
        start=ids_before(prefix_id, encoded.ids),
        most=tuple(most),
        before=np.minimum(lengths_KS, n_before),
        scored=np.minimum(lengths_KS, n_scored),
        wanted=all_KSS if wanted_KSS is None else wanted_KSS,
    )


def _seam_ids(encoded: Encoded, seam: Seam) -> tuple[int, int]:
    """Ids of an example that are read before others, and those that are scored."""
    n_before = n_scored = int(encoded.lengths.max(initial=0))
    if seam.context_tokens:
        shared = _n_shared(tuple(ids[::-1] for ids in encoded.ids))
        n_before = shared + encoded.token_size * seam.context_tokens
    if seam.score_tokens:
        n_scored = _n_shared(encoded.ids) + encoded.token_size * seam.score_tokens
    return n_before, n_scored


def _n_shared(texts: Sequence[np.ndarray]) -> int:
    """Ids with which all texts begin."""
    shared = texts[0] if texts else np.zeros(0, np.int32)
    for ids in texts:
        if not len(shared):
            break
        n = min(len(ids), len(shared))
        differs = np.flatnonzero(ids[:n] != shared[:n])
        shared = shared[: differs[0] if len(differs) else n]
    return len(shared)
