"""Copies in a benchmark against those in its control, and the verdict (idea 2).

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
from itertools import compress
from math import comb
from typing import Literal

import numpy as np

from jaxcontam.replication.judges import Judged, Judgement, Labels, agreement, is_copy
from jaxcontam.replication.overlap import ALPHA, LEVEL, ReplicationVerdict
from jaxcontam.reports.report import ResultRow
from jaxcontam.stats.paired import sign_flip_test
from jaxcontam.stats.proportions import rate_interval, rate_test
from jaxcontam.stats.relabelling import relabellings

COPIES_SHARE = 0.1
"""A silent reference copies less than this share of what the model copies of the
benchmark: a test of that at a level of 0.05 rejects."""

# A field of fewer values is a flag or a class.
_FEWEST_SOURCES = 3
_N_DRAWS = 9999
# Rates whose difference is smaller are the same but for rounding.
_SAME = 1e-12
_RULE_EXACT, _RULE_NEAR = 1, 2
# Instances that the paper's rule was made for.
_PAPER_K = 10
FALSE_NEAR = 0.082
"""Share of completions that the local judge calls near-exact by mistake, at most: upper
end of the exact 95 % interval of 4 among the 123 of GPT-4 that people call no copy, by
constants chosen on other partitions; that of GPT-3.5, 2 among 137, is lower
(`python -m eval.replication --recorded DIR`)."""

ReplicationReason = Literal[
    "no control",
    "weak",
    "no reference",
    "reference copies it",
    "reference may share it",
    "reference reads less",
    "reference too close",
]
"""Why copies are no more than `suspected`; the page has each in words."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCopies:
    """Copies by a model that has seen neither side, and how the model exceeds them.

    Attributes:
        p_value: As `JudgeResult.p_control`; decides nothing.
        p_share: Its rate in the benchmark is a tenth of the model's, or more
            (`share_p`), by instances, or by sources of which one is copied.
        p_excess: Chance alone makes the model exceed it by so much more in the
            benchmark than in the control: exact sign flips of the instances, or whole
            sources, in which the two models differ.
        p_closer: Chance alone makes the model's completions of the control, which
            neither has seen, closer to the truth; likewise.
    """

    n_instances: int
    n_copies: int
    n_control: int
    control_copies: int
    n_refused: int = 0
    p_value: float
    p_share: float
    p_excess: float
    p_closer: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JudgeResult(ResultRow):
    """Counts of completions that are exact or near-exact copies of the reference.

    Attributes:
        n_short: Exact copies of one or two words, which enter the rate and do not
            decide.
        n_follows: Instances that follow from their first piece: in no count.
        n_repeats: Texts that stand before, or in the control as well: in no count.
        fewest_near: So many near-exact ones, or one exact one, are the paper's rule.
        n_needed: Copies from which p_control is at most 0.001; None without a control,
            with sources, or where all would be too few.
        n_groups: Sources of both sides together; 0 without a field of sources.
        n_shared: Those of them that stand on both sides.
        p_control: One-sided p-value of the rate beside the control's, by Fisher's exact
            test, or by exchanges of sources; None without a control.
        p_control_floor: Smallest p_control of so many instances, or sources.
        reason: None for another verdict than `suspected`.
        agreement: Share of instances that humans judged alike; None without labels.
        agreement_of_always_no: Agreement of a judge that never finds a copy.
        verdict: None where nothing was judged, or nothing of a control, or the control
            is too small for any number of copies to exceed it at 0.05.
    """

    n_instances: int
    n_exact: int
    n_short: int = 0
    n_follows: int = 0
    n_repeats: int = 0
    n_near: int
    fewest_near: int
    meets_rule: bool
    n_unparsed: int = 0
    n_refused: int = 0
    rate: float | None
    rate_low: float | None
    rate_high: float | None
    n_control: int = 0
    n_control_unparsed: int = 0
    n_control_refused: int = 0
    n_control_follows: int = 0
    n_control_repeats: int = 0
    control_copies: int = 0
    n_needed: int | None = None
    group_field: str | None = None
    n_groups: int = 0
    n_shared: int = 0
    p_control: float | None = None
    p_control_barnard: float | None = None
    p_control_floor: float | None = None
    reference: ReferenceCopies | None = None
    reason: ReplicationReason | None = None
    agreement: float | None = None
    f1: float | None = None
    agreement_of_always_no: float | None = None
    prompt_version: str | None
    judge_version: str
    verdict: ReplicationVerdict | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about instances before a model is asked: one value each, or nothing.

    Exact copies of a short second piece do not decide. Instances whose second piece
    follows from the first, or whose text repeats another, are left out, copies or not.
    """

    is_short: Sequence[bool] = ()
    follows: Sequence[bool] = ()
    repeats: Sequence[bool] = ()
    groups: Sequence[str] = ()

    def counted(self, labels: Labels) -> list[Judgement | None]:
        """Labels that count: None where an instance is left out."""
        masks = (self.follows, self.repeats)
        left_out = {i for mask in masks for i, is_out in enumerate(mask) if is_out}
        return [None if i in left_out else label for i, label in enumerate(labels)]


NO_FACTS = Facts()


def judge_result(
    judged: Judged,
    *,
    method: str,
    benchmark: str,
    fingerprint: str,
    judge_version: str,
    prompt_version: str | None,
    primary: bool = False,
    facts: Facts = NO_FACTS,
    control: Judged | None = None,
    control_facts: Facts = NO_FACTS,
    reference: tuple[Judged, Judged, Sequence[float]] | None = None,
    group_field: str | None = None,
    humans: Labels | None = None,
    warnings: tuple[str, ...] = (),
    seed: int = 0,
) -> JudgeResult:
    """Count copies, compare their rate with a control's and a reference's, and decide.

    As many copies as the paper's rule asks for are `suspected`, unless a control shows
    that they are not significantly more at a level of 0.05. `contaminated` needs 0.001,
    and a reference model that has seen neither: it copies less than a tenth of what the
    model copies of the benchmark (p <= 0.05), it writes as close to the control as the
    model does (p > 0.05), and the model's excess over it is significant at 0.001.

    Control and reference are judged by the same judge; `reference` holds its labels of
    the partition and of the control, and how much closer to the truth than its own the
    model's completion of each instance of the control is (see `closeness`).

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, algorithm 2; they have no control.
    """
    labels = facts.counted(judged.labels)
    found = [label for label in labels if label is not None]
    n_exact, n_near = found.count("exact"), found.count("near")
    n_short = sum(label == "exact" for label in compress(labels, facts.is_short))
    rate, low, high = rate_interval(n_exact + n_near, len(found))
    # Enough copies for the paper's rule. It calls the partition contaminated then; here
    # that is no verdict, for a clean model copies what is common.
    needed = fewest_near(len(found))
    is_many = n_exact - n_short >= _RULE_EXACT or n_near >= needed
    beside = control or Judged(labels=())
    of_control = control_facts.counted(beside.labels)
    controls = [x for x in of_control if x is not None]
    sides = (
        Side(copies=_copies(labels), groups=facts.groups),
        Side(copies=_copies(of_control), groups=control_facts.groups),
    )
    tested = beside_control(*sides, seed=seed)
    compared = None
    if reference is not None and control is not None:
        whole, other, closer = reference
        compared = beside_reference(
            dataclasses.replace(sides[0], reference=_copies(whole.labels)),
            dataclasses.replace(sides[1], reference=_copies(other.labels)),
            closer=closer,
            n_refused=whole.n_refused + other.n_refused,
            seed=seed,
        )
    people = [None] * len(labels) if humans is None else humans
    same = agreement(judged.labels, people)
    verdict: ReplicationVerdict | None = None
    reason: ReplicationReason | None = None
    is_large_enough = tested is None or tested.p_floor <= ALPHA
    if found and (control is None or controls) and (is_large_enough or not is_many):
        verdict = "no evidence"
        if is_many and (tested is None or tested.p_value <= ALPHA):
            reason = why_no_more(tested, compared)
            verdict = "contaminated" if reason is None else "suspected"
    return JudgeResult(
        benchmark=benchmark,
        fingerprint=fingerprint,
        method=method,
        primary=primary,
        n_instances=len(found),
        n_exact=n_exact,
        n_short=n_short,
        n_follows=sum(facts.follows),
        n_repeats=sum(facts.repeats),
        n_near=n_near,
        fewest_near=needed,
        meets_rule=is_many,
        n_unparsed=judged.n_unparsed,
        n_refused=judged.n_refused,
        rate=rate,
        rate_low=low,
        rate_high=high,
        n_control=len(controls),
        n_control_unparsed=beside.n_unparsed,
        n_control_refused=beside.n_refused,
        n_control_follows=sum(control_facts.follows),
        n_control_repeats=sum(control_facts.repeats),
        control_copies=sum(x != "no" for x in controls),
        n_needed=tested.n_needed if tested else None,
        group_field=group_field,
        n_groups=tested.n_groups if tested else 0,
        n_shared=tested.n_shared if tested else 0,
        p_control=tested.p_value if tested else None,
        p_control_barnard=tested.barnard if tested else None,
        p_control_floor=tested.p_floor if tested else None,
        reference=compared,
        reason=reason,
        agreement=same.accuracy,
        f1=same.f1,
        agreement_of_always_no=same.always_no,
        prompt_version=prompt_version,
        judge_version=judge_version,
        verdict=verdict,
        warnings=(
            *warnings,
            *_lost_words("", judged),
            *_lost_words("of the control, ", beside),
        ),
    )


def fewest_near(n_judged: int) -> int:
    """Near-exact copies that are enough for the paper's rule: two of at most ten.

    With more completions, the smallest number that the judge's mistakes alone reach in
    at most 5 % of partitions, if a share of `FALSE_NEAR` is mistaken: eight of fifty,
    where five would be reached in 39 % of partitions and two in 92 %. Two of ten are in
    20 %: the paper's rule without a control is no proof.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, algorithm 2; they have ten instances.
    """
    from scipy.stats import binom

    fewest = _RULE_NEAR
    if n_judged > _PAPER_K:
        while binom.sf(fewest - 1, n_judged, FALSE_NEAR) > ALPHA:
            fewest += 1
    return fewest


def _copies(labels: Labels) -> list[bool | None]:
    return [None if label is None else is_copy(label) for label in labels]


def _lost_words(which: str, judged: Judged) -> list[str]:
    lost = {
        "answers of the judge contain none of the requested words": judged.n_unparsed,
        "requests were refused": judged.n_refused,
    }
    n_all = len(judged.labels)
    return [f"{which}{n} of {n_all} {words}" for words, n in lost.items() if n]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Side:
    """The benchmark, or its control: one value an instance, or nothing.

    True for a copy by the model, or by the reference; None where it does not count.
    """

    copies: Sequence[bool | None]
    reference: Sequence[bool | None] = ()
    groups: Sequence[str] = ()

    def counting(self, *, both: bool = False) -> "Side":
        """The instances that count, of the model or of both models."""
        pairs = zip(self.copies, self.reference if both else self.copies, strict=True)
        kept = [None not in pair for pair in pairs]
        return Side(
            copies=[*compress(self.copies, kept)],
            reference=[*compress(self.reference, kept)],
            groups=[*compress(self.groups, kept)],
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MoreCopies:
    """One-sided test that the benchmark's rate of copies is no larger.

    `p_floor` is its p-value if all of the benchmark were copies and none of the
    control; `barnard` is None for sources, and for samples too large for it.
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
    own, theirs = benchmark.counting(), control.counting()
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
    sizes = np.unique(classes_C[classes_C > 0])
    whole = [np.flatnonzero(classes_C == size) for size in sizes]
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
    """Exact test of Fisher, or Mantel and Haenszel, of (size, copies, on this side)."""
    # Whole numbers of choices, so that nothing rounds before the quotient.
    ways = np.ones(1, object)
    for size, copies, n in tables:
        ways_n = [comb(copies, i) * comb(size - copies, n - i) for i in range(n + 1)]
        ways = np.convolve(ways, np.array(ways_n, object))
    return int(ways[found:].sum()) / int(ways.sum())


def fewest_above(
    n: int, found_control: int, n_control: int, *, level: float
) -> int | None:
    """Fewest copies of n that are significantly more than a control's; None if none."""
    from scipy.stats import hypergeom

    for found in range(1, n + 1):
        # As `rate_test`, without Barnard's test, which takes longer.
        copies = found + found_control
        if hypergeom.sf(found - 1, n + n_control, copies, n) <= level:
            return found
    return None


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
    counts. `closer` is, for each instance of the control, how much closer to the truth
    the model's completion is.

    Source:
        Fisher 1935 for sign flips. Where two models guess equally well, each instance,
        or source, on which they differ could have been the other one's. So the test
        holds however easy the benchmark and its control are.
    """
    own, theirs = benchmark.counting(both=True), control.counting(both=True)
    n, n_control = len(own.copies), len(theirs.copies)
    if not n or not n_control:
        return None
    known = zip(closer, control.copies, control.reference, strict=True)
    counted = [value for value, *labels in known if None not in labels]
    guessed, met = (
        dataclasses.replace(side, copies=side.reference) for side in (own, theirs)
    )
    own_N, theirs_N = (
        np.array(side.copies, float) - np.array(side.reference, float)
        for side in (own, theirs)
    )
    excess_N = np.concatenate([own_N / n, -theirs_N / n_control])
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


def _sources_copied(side: Side) -> int:
    """Sources, or instances, of which something is copied."""
    if not side.groups:
        return sum(map(bool, side.copies))
    pairs = zip(side.groups, side.copies, strict=True)
    return len({group for group, copy in pairs if copy})


def _flipped(values_N: np.ndarray, groups: Sequence[str]) -> float:
    """p-value of sign flips of whole sources, or of instances."""
    if groups:
        _, codes_N = np.unique(groups, return_inverse=True)
        values_N = np.bincount(codes_N, values_N)
    return sign_flip_test(values_N, np.zeros(len(values_N))).p_value


def why_no_more(
    tested: MoreCopies | None, compared: ReferenceCopies | None
) -> ReplicationReason | None:
    """Reason why significant copies are `suspected` and no more, if there is one."""
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
    """Sentences about fields, but those `read` as texts or labels, of few sources."""
    if group_field is not None:
        return []
    records = [row for row in rows if row is not None]
    names = dict.fromkeys(name for row in records for name in row if name not in read)
    n_values = {name: len({str(row.get(name)) for row in records}) for name in names}
    return [
        f"the field {name} has {n} values in {len(records)} instances: if these are "
        f"sources, p against the control is too small; --fields document={name} "
        "corrects that"
        for name, n in n_values.items()
        if _FEWEST_SOURCES <= n <= len(records) / 2
    ]
