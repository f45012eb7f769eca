"""Copies in a benchmark against those in its control, and what else explains more.

Copies in a benchmark may exceed those in a control because its texts are easier to
guess, or because they come from few sources. A reference model that has seen neither
shows the first, an exchange of whole sources allows for the second.

Dimension key
    N  instances of both sides, the benchmark's first
    C  sources of both sides
    K  draws
"""

import dataclasses
from collections.abc import Mapping, Sequence
from math import comb

import numpy as np

from jaxcontam.replication.overlap import ALPHA, LEVEL
from jaxcontam.replication.result import ReferenceCopies, ReplicationReason
from jaxcontam.stats.paired import sign_flip_test
from jaxcontam.stats.proportions import rate_test
from jaxcontam.stats.relabelling import relabellings

COPIES_SHARE = 0.1
"""A silent reference copies less than this share of what the model copies of the
benchmark: a test of that at a level of 0.05 rejects."""

# A field of fewer values is a flag or a class.
_FEWEST_SOURCES = 3
_N_DRAWS = 9999
# Rates whose difference is smaller are the same but for rounding.
_SAME = 1e-12


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Side:
    """The benchmark, or its control: one value an instance.

    Attributes:
        copies: Whether the model's completion is a copy; None where it does not count.
        reference: The same of the reference's; empty without one.
    """

    copies: Sequence[bool | None]
    reference: Sequence[bool | None] = ()
    groups: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MoreCopies:
    """One-sided test that the benchmark's rate of copies is no larger.

    Attributes:
        p_floor: The same if all of the benchmark were copies and none of the control.
        barnard: Barnard's; None for sources, and for samples too large for it.
        n_needed: Copies from which p_value is at most 0.001; None for sources, or where
            all would be too few.
    """

    p_value: float
    p_floor: float
    barnard: float | None = None
    n_needed: int | None = None
    n_groups: int = 0
    n_shared: int = 0


def beside_control(benchmark: Side, control: Side, *, seed: int) -> MoreCopies | None:
    """Test that a copy is as likely in the benchmark as in its control.

    Null hypothesis: which side an instance belongs to is a matter of chance (Fisher's
    exact test). With sources: which of them stand on which side (whole sources change
    sides). Where one stands on both, instances may have been split, not sources: its
    own change sides within it, and whole sources with those of as many instances alone,
    since a split by chance leaves small ones whole on the smaller side. Both happen
    together, by 9,999 draws, so that the smallest p-value is 0.0001; where no whole
    source can change sides the p-value is exact. A clean model contradicts the null
    where the benchmark is easier to guess than its control.

    Returns:
        None if no instance of a side counts.
    """
    own, theirs = _counting(benchmark), _counting(control)
    n, n_control = len(own.copies), len(theirs.copies)
    if not n or not n_control:
        return None
    tested = more_copies(own, theirs, seed=seed)
    if tested.n_groups:
        return tested
    found, met = (sum(map(bool, side.copies)) for side in (own, theirs))
    return dataclasses.replace(
        tested,
        barnard=rate_test(found, n, met, n_control).barnard,
        n_needed=fewest_above(n, met, n_control, level=LEVEL),
    )


def more_copies(own: Side, theirs: Side, *, seed: int) -> MoreCopies:
    """`beside_control` of sides all of whose instances count, by p-values alone."""
    n = len(own.copies)
    groups = (*own.groups, *theirs.groups)
    copies_N = np.array([*own.copies, *theirs.copies], bool)
    is_own_N = np.arange(len(copies_N)) < n
    if not groups:
        groups = ["all"] * len(copies_N)
    names, codes_N = np.unique(groups, return_inverse=True)
    sizes_C = np.bincount(codes_N)
    on_own_C = np.bincount(codes_N, is_own_N).astype(int)
    is_shared_C = (on_own_C > 0) & (on_own_C < sizes_C)
    # What may change sides: with sources on both, those of as many instances.
    classes_C = np.where(is_shared_C, 0, sizes_C if is_shared_C.any() else 1)
    whole = [
        np.flatnonzero(classes_C == size)
        for size in np.unique(classes_C[classes_C > 0])
    ]
    movable = [one for one in whole if 0 < (on_own_C[one] > 0).sum() < len(one)]

    def p_of(copies_N: np.ndarray) -> float:
        found_C = np.bincount(codes_N, copies_N).astype(int)
        tables_C3 = np.stack([sizes_C, found_C, on_own_C], axis=1)
        if not movable:
            found = int(copies_N[is_own_N & is_shared_C[codes_N]].sum())
            return _within_groups(found, tables_C3[is_shared_C].tolist())
        found = int(copies_N[is_own_N].sum())
        return _by_draws(found, tables_C3, movable, is_shared_C, seed)

    return MoreCopies(
        p_value=p_of(copies_N),
        # All of the benchmark would be copies, and none of the control.
        p_floor=p_of(is_own_N),
        n_groups=len(names) if own.groups else 0,
        n_shared=int(is_shared_C.sum()) if own.groups else 0,
    )


def beside_reference(
    benchmark: Side,
    control: Side,
    *,
    closer: Sequence[float],
    n_refused: int,
    seed: int,
) -> ReferenceCopies | None:
    """Compare the model's copies with those of a model that has seen neither side.

    Instances of either model that do not count are left out; None if none of a side
    counts. `closer` says how much closer to the truth than the reference's the model's
    completion of each instance of the control is. `n_refused` requests to the reference
    were refused.

    Source:
        Fisher 1935 for sign flips. Where two models guess equally well, each instance,
        or source, on which they differ could have been the other one's. So the test
        holds however easy the benchmark and its control are.
    """
    own, theirs = _counting(benchmark, both=True), _counting(control, both=True)
    n, n_control = len(own.copies), len(theirs.copies)
    if not n or not n_control:
        return None
    labels = list(zip(control.copies, control.reference, strict=True))
    if len(closer) != len(labels):
        raise ValueError(
            "closer must have a value for each instance of the control, "
            f"{len(labels)}, got {len(closer)}"
        )
    counted = [x for x, pair in zip(closer, labels, strict=True) if None not in pair]
    guessed, met = (
        dataclasses.replace(side, copies=side.reference) for side in (own, theirs)
    )
    excess_N = np.concatenate(
        [
            (np.array(own.copies, float) - np.array(own.reference, float)) / n,
            (np.array(theirs.reference, float) - np.array(theirs.copies, float))
            / n_control,
        ]
    )
    return ReferenceCopies(
        n_instances=n,
        n_copies=sum(map(bool, guessed.copies)),
        n_control=n_control,
        control_copies=sum(map(bool, met.copies)),
        n_refused=n_refused,
        p_value=more_copies(guessed, met, seed=seed).p_value,
        p_share=share_p(
            _sources_copied(own), _sources_copied(guessed), share=COPIES_SHARE
        ),
        p_excess=_flipped(excess_N, (*own.groups, *theirs.groups)),
        p_closer=_flipped(np.array(counted), theirs.groups),
    )


def share_p(found: int, found_by_other: int, *, share: float) -> float:
    """One-sided p-value that another finds this share of what one finds, or more.

    Null hypothesis: the other's rate is at least the share of the first's. Exact for
    Poisson counts, given their sum; below its level where rates are large or both find
    the same items, and at most at it where they never do. Items are independent: near
    copies that no group names lift it above. A control's rates are not taken off: a
    weaker reader's guesses of an easy control would hide what it lacks.

    Source:
        Przyborowski and Wilenski 1940, "Homogeneity of results in testing samples from
        Poisson series".
    """
    from scipy.stats import binom

    p = binom.cdf(found_by_other, found + found_by_other, share / (1 + share))
    return float(p)


def fewest_above(
    n: int, found_control: int, n_control: int, *, level: float
) -> int | None:
    """Copies among n completions that are significantly more than a control's.

    The smallest number for which Fisher's p is at most the level; None if n are too
    few. `n_control` completions of the control were judged.
    """
    from scipy.stats import hypergeom

    for found in range(1, n + 1):
        # As `rate_test`, without Barnard's test, which takes longer.
        copies = found + found_control
        if hypergeom.sf(found - 1, n + n_control, copies, n) <= level:
            return found
    return None


def why_no_more(
    tested: MoreCopies | None, compared: ReferenceCopies | None
) -> ReplicationReason | None:
    """Why significant copies are `suspected` and no more; None: they are more."""
    if tested is None:
        return "no control"
    if tested.p_value > LEVEL:
        return "weak"
    if compared is None:
        return "no reference"
    # Written so that what is not known settles nothing.
    if not compared.p_share <= ALPHA:
        copies_it = compared.p_value <= ALPHA
        return "reference copies it" if copies_it else "reference may share it"
    if compared.p_closer <= ALPHA:
        return "reference reads less"
    return "reference too close" if compared.p_excess > LEVEL else None


def independence_words(
    rows: Sequence[Mapping[str, object] | None],
    *,
    read: Sequence[str | None],
    group_field: str | None,
) -> list[str]:
    """Sentences about instances that may come from few sources; none if it is clear.

    `read` are fields that are texts or labels, which are no sources.
    """
    if group_field is not None:
        return []
    records = [row for row in rows if row is not None]
    names = dict.fromkeys(name for row in records for name in row if name not in read)
    n_values = {name: len({str(row.get(name)) for row in records}) for name in names}
    return [
        f"the field {name} has {n} values in {len(records)} instances: if they are "
        f"sources, p beside the control is too small; --group-field {name} allows for "
        "them"
        for name, n in n_values.items()
        if _FEWEST_SOURCES <= n <= len(records) / 2
    ]


def _counting(side: Side, *, both: bool = False) -> Side:
    """The instances that count, of the model or of both models."""
    labels = (
        list(zip(side.copies, side.reference, strict=True))
        if both
        else ([(copy,) for copy in side.copies])
    )
    kept = [i for i, one in enumerate(labels) if None not in one]

    def of(values: Sequence) -> list:
        return [values[i] for i in kept] if values else []

    return Side(
        copies=of(side.copies),
        reference=of(side.reference),
        groups=of(side.groups),
    )


def _sources_copied(side: Side) -> int:
    """Sources, or instances, of which something is copied."""
    if not side.groups:
        return sum(map(bool, side.copies))
    pairs = zip(side.groups, side.copies, strict=True)
    return len({group for group, copy in pairs if copy})


def _by_draws(
    found: int,
    tables_C3: np.ndarray,
    movable: Sequence[np.ndarray],
    is_shared_C: np.ndarray,
    seed: int,
) -> float:
    """P of rates as far apart, whole sources and instances of shared ones exchanged."""
    rng = np.random.default_rng([seed, 1])
    sizes_C, found_C, on_own_C = tables_C3.T
    n_all, found_all = sizes_C.sum(), found_C.sum()
    is_own_C = on_own_C == sizes_C
    # (K, 2): instances of this side, and the copies among them.
    counts_C2 = tables_C3[:, :2]
    stays_C = is_own_C & ~is_shared_C
    stays_C[np.concatenate(movable)] = False
    drawn_K2 = np.tile(counts_C2[stays_C].sum(axis=0), (_N_DRAWS, 1))
    for i, part in enumerate(movable):
        drawn = relabellings(is_own_C[part], None, n=_N_DRAWS, seed=seed + i)
        drawn_K2 += np.concatenate([one_KC @ counts_C2[part] for one_KC in drawn])
    for size, copies, n_own in tables_C3[is_shared_C]:
        within_K = rng.hypergeometric(copies, size - copies, n_own, _N_DRAWS)
        drawn_K2 += np.stack([np.full(_N_DRAWS, n_own), within_K], axis=1)

    def gap(n: np.ndarray, found: np.ndarray) -> np.ndarray:
        return found / n - (found_all - found) / (n_all - n)

    as_large_K = gap(*drawn_K2.T) >= gap(on_own_C.sum(), np.array(found)) - _SAME
    return (1 + int(as_large_K.sum())) / (1 + _N_DRAWS)


def _within_groups(found: int, tables: Sequence[tuple[int, int, int]]) -> float:
    """P of as many copies, exchanged within groups of (size, copies, on this side).

    Fisher's exact test for one group, that of Mantel and Haenszel for several.
    """
    # Whole numbers of choices, so that nothing rounds before the quotient.
    ways = np.ones(1, object)
    for size, copies, n in tables:
        ways_n = [comb(copies, i) * comb(size - copies, n - i) for i in range(n + 1)]
        ways = np.convolve(ways, np.array(ways_n, object))
    return int(ways[found:].sum()) / int(ways.sum())


def _flipped(values_N: np.ndarray, groups: Sequence[str]) -> float:
    """p-value of sign flips of whole sources, or of instances."""
    if groups:
        _, codes_N = np.unique(groups, return_inverse=True)
        values_N = np.bincount(codes_N, values_N)
    return sign_flip_test(values_N, np.zeros(len(values_N))).p_value
