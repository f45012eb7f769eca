"""Labels of completions by judges, and the row that they give: idea 2 of the paper."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from jaxcontam.replication.control import (
    Side,
    beside_control,
    beside_reference,
    why_no_more,
)
from jaxcontam.replication.overlap import ALPHA
from jaxcontam.replication.result import (
    JudgeResult,
    ReplicationReason,
    ReplicationVerdict,
)
from jaxcontam.stats.proportions import rate_interval

Judgement = Literal["exact", "near", "no"]
"""An exact copy of the reference, a near-exact one, or none."""

Labels = Sequence[Judgement | None]
"""One per completion; None where nobody judged it."""

_FEWEST_EXACT, _FEWEST_NEAR = 1, 2
# Instances that the paper's rule was made for.
_PAPER_K = 10
# Share of completions that the local judge calls near-exact by mistake: upper end of
# the 95 % interval of 1 among 137 recorded ones (`python -m eval.replication`).
_FALSE_NEAR = 0.04
_WORDS: dict[str, Judgement] = {
    "exact": "exact",
    "exact match": "exact",
    "yes (exact match)": "exact",
    "e": "exact",
    "near": "near",
    "near-exact": "near",
    "near exact": "near",
    "near match": "near",
    "near-exact match": "near",
    "yes (near-exact match)": "near",
    "n-e": "near",
    "no": "no",
    "no match": "no",
    "inexact": "no",
    "inexact match": "no",
    "none": "no",
    "n": "no",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Labels by a judge; None where there is none, or no answer about it.

    `n_unparsed` answers are none of the words asked for; `n_refused` completions a
    server refused to make, or to judge.
    """

    labels: tuple[Judgement | None, ...]
    n_unparsed: int = 0
    n_refused: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How often a judge and humans call the same completions copies, exact or near.

    `kappa` is Cohen's; `always_no` the accuracy of a judge that never finds a copy.
    None where it is not defined: for n = 0, where neither found any (`f1`), where both
    used one word only (`kappa`).
    """

    n: int
    accuracy: float | None
    f1: float | None
    kappa: float | None
    always_no: float | None


def algorithm_2(n_exact: int, n_near: int, n_judged: int) -> bool:
    """True if these copies are enough for the paper's rule.

    One exact copy, or `fewest_near` near-exact ones. The paper calls the partition
    contaminated then; here that is no verdict, for a clean model copies what is common.
    """
    return n_exact >= _FEWEST_EXACT or n_near >= fewest_near(n_judged)


def fewest_near(n_judged: int) -> int:
    """Near-exact copies that are enough for the paper's rule: two of at most ten.

    With more completions, the smallest number that chance alone reaches no more often
    than two of ten, if 4 % are false: five of fifty, where two would be reached by
    chance in six of ten partitions.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, algorithm 2; they have ten instances.
    """
    from scipy.stats import binom

    accepted = binom.sf(_FEWEST_NEAR - 1, _PAPER_K, _FALSE_NEAR)
    fewest = _FEWEST_NEAR
    while binom.sf(fewest - 1, n_judged, _FALSE_NEAR) > accepted:
        fewest += 1
    return fewest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about instances before a model is asked: one value each, or nothing.

    Attributes:
        is_short: Whether the second piece is so short that a model which knows the
            answer meets it; exact copies of such do not decide.
        follows: Whether it follows from the first piece by rule; see
            `follows_from_first`. Such instances are left out, copies or not.
        repeats: Whether the text stands before, or on both sides; left out likewise.
    """

    is_short: Sequence[bool] = ()
    follows: Sequence[bool] = ()
    repeats: Sequence[bool] = ()
    groups: Sequence[str] = ()

    def counted(self, labels: Labels) -> list[Judgement | None]:
        """Labels that count: None where an instance is left out."""
        masks = [mask for mask in (self.follows, self.repeats) if mask]
        return [
            None if any(mask[i] for mask in masks) else label
            for i, label in enumerate(labels)
        ]


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
    `group_field` is the field that the sources of the facts come from; `humans` are
    labels to compare with.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, algorithm 2; they have no control.
    """
    labels = facts.counted(judged.labels)
    found = [label for label in labels if label is not None]
    n_exact, n_near = found.count("exact"), found.count("near")
    n_copies = n_exact + n_near
    n_short = 0
    if facts.is_short:
        pairs = zip(labels, facts.is_short, strict=True)
        n_short = sum(label == "exact" and short for label, short in pairs)
    rate, low, high = rate_interval(n_copies, len(found))
    is_many = algorithm_2(n_exact - n_short, n_near, len(found))
    of_control = control_facts.counted(control.labels) if control else []
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
    control_copies = sum(x != "no" for x in controls)
    same = agreement(judged.labels, humans) if humans is not None else None
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
        fewest_near=fewest_near(len(found)),
        meets_rule=is_many,
        n_unparsed=judged.n_unparsed,
        n_refused=judged.n_refused,
        rate=rate,
        rate_low=low,
        rate_high=high,
        n_control=len(controls),
        n_control_unparsed=control.n_unparsed if control else 0,
        n_control_refused=control.n_refused if control else 0,
        n_control_follows=sum(control_facts.follows),
        n_control_repeats=sum(control_facts.repeats),
        control_copies=control_copies,
        n_needed=tested.n_needed if tested else None,
        group_field=group_field,
        n_groups=tested.n_groups if tested else 0,
        n_shared=tested.n_shared if tested else 0,
        p_control=tested.p_value if tested else None,
        p_control_barnard=tested.barnard if tested else None,
        p_control_floor=tested.p_floor if tested else None,
        reference=compared,
        reason=reason,
        agreement=same.accuracy if same else None,
        f1=same.f1 if same else None,
        agreement_of_always_no=same.always_no if same else None,
        prompt_version=prompt_version,
        judge_version=judge_version,
        verdict=verdict,
        warnings=(*warnings, *_warnings(judged, control)),
    )


def _copies(labels: Labels) -> list[bool | None]:
    return [None if label is None else is_copy(label) for label in labels]


def judgement_of(word: str) -> Judgement | None:
    """Label that a person's word in a sheet means; None for any other word."""
    return _WORDS.get(" ".join(word.lower().split()).rstrip("."))


def is_copy(label: Judgement | None) -> bool:
    """True if a completion was called an exact or a near-exact copy."""
    return label in ("exact", "near")


def agreement(labels: Labels, others: Labels) -> Agreement:
    """Compare two judges; `others` are the ones to be found, such as humans' labels."""
    if len(labels) != len(others):
        raise ValueError(f"lengths must be equal, got {len(labels)} and {len(others)}")
    both = [
        (is_copy(a), is_copy(b))
        for a, b in zip(labels, others, strict=True)
        if a is not None and b is not None
    ]
    n = len(both)
    if not n:
        return Agreement(n=0, accuracy=None, f1=None, kappa=None, always_no=None)
    n_same = sum(a == b for a, b in both)
    n_judged, n_true = sum(a for a, _ in both), sum(b for _, b in both)
    n_hits = sum(a and b for a, b in both)
    accuracy = n_same / n
    by_chance = (n_judged * n_true + (n - n_judged) * (n - n_true)) / n**2
    n_named = n_judged + n_true
    return Agreement(
        n=n,
        accuracy=accuracy,
        f1=2 * n_hits / n_named if n_named else None,
        kappa=(accuracy - by_chance) / (1 - by_chance) if by_chance < 1 else None,
        always_no=(n - n_true) / n,
    )


def _warnings(judged: Judged, control: Judged | None) -> list[str]:
    warnings = []
    for which, one in (("", judged), ("of the control, ", control)):
        if one is None:
            continue
        n_all = len(one.labels)
        if one.n_unparsed:
            warnings.append(
                f"{which}{one.n_unparsed} of {n_all} answers of the judge say none of "
                "the words asked for"
            )
        if one.n_refused:
            warnings.append(f"{which}{one.n_refused} of {n_all} requests were refused")
    return warnings


ByPerson = tuple[tuple[Judgement | None, ...], ...]
"""(people, N) labels; None where a person gave none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Each person's labels of guided completions, and their source for reports."""

    labels: ByPerson
    source: str

    @property
    def consensus(self) -> tuple[Judgement | None, ...]:
        """Label that most people gave each instance, as `consensus` counts."""
        return consensus(self.labels)

    @property
    def notes(self) -> tuple[str, ...]:
        """How far people agree, and how many completions are left out; sentences."""
        notes = []
        if len(self.labels) == 2:
            both = agreement(*self.labels)
            if both.accuracy is not None:
                kappa = ""
                if both.kappa is not None:
                    kappa = f" (Cohen's kappa {both.kappa:.2f})"
                notes.append(
                    f"two people agree on {both.accuracy:.1%} of {both.n} completions, "
                    f"copy or not{kappa}"
                )
        n_open = sum(map(_is_disputed, zip(*self.labels, strict=True)))
        if n_open:
            notes.append(
                f"{n_open} of {len(self.labels[0])} completions are left out of "
                "people's labels, for one person calls them a copy and another does not"
            )
        return tuple(notes)


def consensus(people: ByPerson) -> tuple[Judgement | None, ...]:
    """Weakest label of each completion among those given.

    None where nobody gave one, or some call it a copy and others do not.
    """
    agreed: list[Judgement | None] = []
    for labels in zip(*people, strict=True):
        if _is_disputed(labels):
            agreed.append(None)
        else:
            agreed.append(
                next((x for x in ("no", "near", "exact") if x in labels), None)
            )
    return tuple(agreed)


def _is_disputed(labels: tuple[Judgement | None, ...]) -> bool:
    return "no" in labels and any(map(is_copy, labels))
