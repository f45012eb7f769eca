"""Result dataclasses of `jaxcontam replicate`: rows of its `report.json`.

A missing number is None, and a warning says why.
"""

import dataclasses
from typing import Literal

from jaxcontam.reports.report import Report
from jaxcontam.reports.row import ResultRow
from jaxcontam.reports.terms import Validity

ReplicationVerdict = Literal["contaminated", "suspected", "inconclusive", "no evidence"]

ReplicationReason = Literal[
    "no control",
    "weak",
    "no reference",
    "reference copies it",
    "reference may share it",
    "reference reads less",
    "reference too close",
]
"""Why copies are no more than `suspected`.

No control was given; the p-value beside it is too large; no reference model was asked;
it copies more of the benchmark than of the control, too; it may copy a tenth of what
the model copies; its completions of the control are further from the truth than the
model's; what the model copies and it does not may be chance.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OverlapResult(ResultRow):
    """Test if naming the partition makes completions more like the reference.

    Attributes:
        method: Measure and test, such as `rouge_l_sign_flip`.
        validity: `exact` for the sign-flip test, `asymptotic` for bootstraps.
        n_left_out: Instances whose guided or general prompt has no answer, or whose
            reference the measure cannot read.
        p_value: One-sided; None for fewer than two pairs.
        p_floor: Smallest p-value that so many pairs can give; None for bootstraps.
    """

    validity: Validity
    n_instances: int
    n_left_out: int = 0
    guided: float | None
    general: float | None
    p_value: float | None
    p_floor: float | None = None
    prompt_version: str | None
    verdict: ReplicationVerdict | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCopies:
    """Copies by a model that has seen neither side, and how the model exceeds them.

    Attributes:
        n_instances: Instances of the benchmark that count for both models.
        n_control: Instances of the control that count for both models.
        n_refused: Completions of both sides, or requests to the judge, that a server
            refused.
        p_value: That chance alone makes its rate exceed that of the control, by the
            test of `JudgeResult.p_control`; decides nothing.
        p_share: That its rate in the benchmark is a tenth of the model's, or more
            (`share_p`), by instances, or by sources of which one is copied.
        p_excess: That chance alone makes the model exceed it by so much more in the
            benchmark than in the control: exact sign flips of the instances, or whole
            sources, in which the two models differ.
        p_closer: That chance alone makes the model's completions of the control, which
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
    """How many completions are exact or near-exact copies of the reference.

    Attributes:
        method: `judge_local`, `judge_llm`, or `judge_human` for a sheet read back.
        n_short: Exact copies of references of one or two words, which enter the
            rate and do not decide.
        n_follows: Instances whose second piece follows from the first one by rule, such
            as counting; left out of every count.
        n_repeats: Instances whose text stands in the benchmark before, or in the
            control as well; left out likewise.
        fewest_near: So many near-exact ones, or one exact one, are the paper's rule.
        meets_rule: Whether the paper's rule is met, which knows no control.
        n_unparsed: Answers of a judge that are none of the words asked for.
        n_refused: Completions, or requests to the judge, that a server refused.
        rate: Share of exact or near-exact copies among those judged.
        n_control: Completions of a set that cannot have been seen that have a label; 0
            without such a set.
        n_needed: The smallest number of copies for which p_control is at most 0.001;
            None without a control, with sources, or where all would be too few.
        group_field: Field of the sources that `p_control` exchanges, or None.
        n_groups: Sources of both sides together; 0 without such a field.
        n_shared: Those of them that stand on both sides and exchange instances; the
            others then change sides whole with those of their size.
        p_control: That chance alone makes the rate exceed the control's, one-sided: by
            Fisher's exact test, or by exchanges of sources; None without a control.
        p_control_barnard: The same by Barnard's exact test; None with sources.
        p_control_floor: Smallest p_control of so many instances, or sources.
        reason: Why the verdict is `suspected` and no more; None for another one.
        agreement: Share of instances that humans judged alike, copy or not; None
            without human labels.
        f1: F1 of finding what humans call a copy; None without.
        agreement_of_always_no: What a judge that never finds one would reach.
        judge_version: Version of the judge: its constants, or the words of its prompt.
        verdict: Where the paper's rule is met: `suspected` without a control, or where
            p_control <= 0.05; `contaminated` where p_control <= 0.001 and the
            reference's p_share is at most 0.05, its p_closer above 0.05, and its
            p_excess at most 0.001. None
            where nothing was judged, where nothing of a control was, and where the
            control is too small for any number of copies to exceed it at 0.05.
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
class ComparisonResult(ResultRow):
    """Findings of a method that asks otherwise; never the row that decides.

    Attributes:
        n_instances: Instances that were asked about, or 1 for a split as a whole.
        rate: `n_found` over those answered; None where none was.
        chance: What the rate would be by guessing; None where nobody knows.
        n_control: Answers on instances that cannot have been seen, if there are some.
        p_control: That chance alone makes the rate exceed the control's, one-sided
            (Fisher's exact test), refusals counted as not found in the partition and
            as found in the control; None without a control.
        finding: In the method's own words, such as `suspicious`.
        setting: Its parameters, such as `alpha=0.05, xi=0.01, 20 samples at 0.8`.
    """

    n_instances: int
    n_found: int
    n_refused: int = 0
    rate: float | None
    rate_low: float | None
    rate_high: float | None
    chance: float | None = None
    n_control: int = 0
    n_control_found: int = 0
    n_control_refused: int = 0
    p_control: float | None = None
    finding: str
    setting: str
    verdict: ReplicationVerdict | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskedInstance:
    """Completions of one instance: a row of `texts.jsonl`, as a page shows it.

    Attributes:
        arm: `partition` or `control`, or one of both as the reference was asked.
        guided_refused: What a server said instead; or None.
        follows: Whether the second piece follows from the first one by rule.
        repeats: Whether the text stands before, or on both sides.
        judge_local: Label of the local judge: `exact`, `near` or `no`.
    """

    id: int
    arm: str
    first_piece: str
    second_piece: str
    guided: str | None = None
    guided_refused: str | None = None
    general: str | None = None
    follows: bool = False
    repeats: bool = False
    rouge_l_guided: float | None = None
    rouge_l_general: float | None = None
    judge_local: str | None = None
    judge_llm: str | None = None
    judge_human: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationReport(Report):
    """A report of completions."""

    results: tuple[OverlapResult | JudgeResult | ComparisonResult, ...]
