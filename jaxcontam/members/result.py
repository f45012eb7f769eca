"""Result dataclasses of membership: rows of its `report.json`.

A missing number is None, and a warning says why.

Dimension key
    P  members
    Q  non-members
    R  thresholds
"""

import dataclasses
from typing import Literal

import numpy as np

from jaxcontam.reports.report import Report, ResultRow
from jaxcontam.reports.terms import RankingVerdict

N_PERMUTATIONS = 9_999
"""Random relabellings behind each p-value, which is at least 1 / (1 + this)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """Share of members found where few non-members are taken for members.

    `convention`: `le` (at most `fpr`) or `lt` (below it). `tpr`, its 95 % interval and
    the threshold are None where `fpr` times the number of non-members is below 1.
    """

    fpr: float
    convention: str
    tpr: float | None
    tpr_low: float | None
    tpr_high: float | None
    threshold: float | None
    expected_false: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BlindBaseline:
    """AUC of the labels without asking the model.

    `auc` is cross-validated; its 95 % interval (logit scale) takes DeLong's error times
    sqrt(2): each of two texts helps to judge the other one.
    """

    name: str
    auc: float
    auc_low: float
    auc_high: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BesideReference:
    """Gain of a score over a model that saw neither side.

    That model ranks texts by its mean log-probability, by that of the least likely
    fifth of the tokens, and by a held-out prediction from both: what is said here holds
    of each.

    Attributes:
        reference_auc: The largest of the three AUCs.
        p_value: Of the score ranking no better (one-sided, paired DeLong); the largest
            of three.
        half_p_value: Of the reference showing half or more of what the score has above
            0.5, likewise.
    """

    score: str
    score_auc: float
    reference_auc: float
    p_value: float
    half_p_value: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult(ResultRow):
    """Ranking of members above non-members by one score: a row of `results`.

    Attributes:
        n_members: Members that have a score, are no prefix, and stand once on both
            sides together; with documents, in one of them alone.
        n_clusters: Documents that the texts come from; None if each is its own.
        auc: Probability that a member outscores a non-member, ties counting half.
        auc_se: DeLong standard error; by documents (Obuchowski) where there are some.
        auc_low: Lower end of the 95 % interval (logit scale).
        p_value: By permutation of the labels, one-sided: (1 + #{>=}) / (B + 1).
        increment: AUC of the blind features with the score minus AUC without it, both
            cross-validated; None where there is no blind baseline.
        increment_p: One-sided p-value of the increment: the score adds nothing.
        difference: AUC minus that of the primary score; None for the primary score.
        difference_p: Two-sided.
        copies: Planted duplication count, in studies; else None.
    """

    setting: str = ""
    n_members: int
    n_nonmembers: int
    n_unscored: int = 0
    n_clusters: int | None = None
    auc: float
    auc_se: float
    auc_low: float
    auc_high: float
    operating_points: tuple[OperatingPoint, ...] = ()
    p_value: float | None = None
    increment: float | None = None
    increment_low: float | None = None
    increment_high: float | None = None
    increment_p: float | None = None
    beside_reference: BesideReference | None = None
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    difference_p: float | None = None
    p_adjusted: float | None = None
    verdict: RankingVerdict | None = None
    copies: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetResult(ResultRow):
    """Dataset inference: a whole set beside a validation set.

    Attributes:
        n_members: Texts of the suspected set that can be compared, as for a score.
        auc: Cross-fitted AUC of suspected against validation texts.
        p_value: By permutation of the labels with everything fitted anew.
        increment_p: One-sided p-value of the primary score: it adds nothing to the
            blind baselines; None where there is none.
    """

    method: str = "set_level"
    primary: bool = True
    n_members: int
    n_nonmembers: int
    features: tuple[str, ...]
    auc: float
    p_value: float
    n_permutations: int
    increment_p: float | None = None
    beside_reference: BesideReference | None = None
    p_adjusted: float | None = None
    verdict: RankingVerdict | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextThreshold:
    """A score's threshold at a wanted false-positive rate, from non-members.

    Attributes:
        threshold: Texts above it count as members; None if the pool is too small.
        fpr_low: Lower end of the 95 % interval of the rate that this threshold has on
            new non-members; None where documents of the pool have several texts.
        n_above: Texts above it, of those that have a p-value; None without it.
        n_discoveries: Texts with a Benjamini-Hochberg adjusted p-value at most `fpr`.
    """

    method: str
    fpr: float
    threshold: float | None
    fpr_low: float | None
    fpr_high: float | None
    n_pool: int
    n_above: int | None
    n_discoveries: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeenShare:
    """Share of the texts in question that was seen: `stats.conformal.share_seen`.

    Attributes:
        low: Share of these texts that was seen, at least, at 95 %; no upper end but 1,
            since seen texts may score as unseen ones do.
        beyond_reference: Whether these texts rank above the pool by more than a model
            that saw neither side explains; if not, they may only be easier to read.
    """

    method: str
    n_texts: int
    n_pool: int
    low: float
    estimate: float
    beyond_reference: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CodecShare:
    """Share of a side's texts that score lower after another of them: CoDeC's number.

    `n_texts` are distinct; the 95 % interval (Wilson) takes them for independent.
    """

    role: str
    n_texts: int
    share: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRate:
    """Share of a document's texts that look seen by the primary score.

    The 95 % interval (Wilson) takes texts for independent.

    Attributes:
        n_texts: Its texts; of a known one, those that can be compared.
        rate: `n_above` of `n_scored`, the contamination rate; None without a score.
        threshold: For a known document that of the other known ones.
    """

    document: str
    role: str
    n_texts: int
    n_scored: int
    n_above: int | None
    rate: float | None
    rate_low: float | None
    rate_high: float | None
    threshold: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRates:
    """The cut that tells texts of known documents apart, and what it says of each.

    Attributes:
        threshold: Texts that score at or above it count as seen.
        accuracy: Mean of the shares of seen and of unseen texts that it gets right, on
            the texts that it was chosen on; `held_out`: where each document is judged
            by the cut that all other known ones give.
        fpr_held_out: What a document that the model never saw may show.
        n_members: Documents, not texts.
    """

    method: str
    threshold: float
    accuracy: float
    accuracy_held_out: float
    tpr_held_out: float
    fpr_held_out: float
    n_members: int
    n_nonmembers: int
    rates: tuple[DocumentRate, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A share of tokens for Min-K%, chosen on one half and judged on the other."""

    held_out_aucs: dict[str, float]
    chosen: str
    auc: float
    auc_se: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MembershipStudy:
    """Settings and counts of a membership run: `study` of its report.

    `n_left_out` texts stand in a prefix, `n_unscored` have no token to score.
    """

    name: str
    fingerprint: str
    primary: str
    fprs: tuple[float, ...]
    convention: Literal["le", "lt"]
    n_texts: int
    n_left_out: int
    n_unscored: int
    tokens_scored: int
    cached_tokens: int
    sweep: Sweep | None = None
    seen: SeenShare | None = None
    codec: tuple[CodecShare, ...] = ()
    documents: DocumentRates | None = None
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextScores:
    """The scores of one text: a row of `texts.jsonl`.

    Attributes:
        left_out: Stands in a prefix, and takes part in no comparison.
        reference: `fluency_of` it under a model that saw none of the texts.
        p_adjusted: `p_value` after Benjamini-Hochberg, over the texts that have one.
        no_p_value: Why a text in question has none beside a pool.
    """

    id: int
    source: str
    role: str
    text: str
    n_tokens: int
    left_out: bool
    scores: dict[str, float | None]
    cluster: str | None = None
    reference: tuple[float | None, float | None] | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    no_p_value: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScorePicture:
    """Curve of one score on labelled texts, for its plots.

    Attributes:
        fpr: (R,) share of non-members at or above each threshold, ascending.
        tpr: (R,) share of members.
    """

    method: str
    auc: float
    fpr: np.ndarray
    tpr: np.ndarray
    members: np.ndarray
    nonmembers: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MembershipReport(Report):
    """A report of membership scores."""

    results: tuple[ScoreResult | SetResult, ...]
    blind: tuple[BlindBaseline, ...] = ()
    thresholds: tuple[TextThreshold, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of some texts.

    `values` (N, M) float64, higher = member, are NaN in the rows of texts without a
    scored token; `reference` (N, 2) is `fluency_of` each text under a model that saw
    none of them, NaN where it has no token of it or the text has no score.
    """

    names: tuple[str, ...]
    values: np.ndarray
    reference: np.ndarray | None = None

    def rows(self, chosen_N: np.ndarray) -> "Scores":
        """The scores of some of the texts."""
        reference = self.reference
        return Scores(
            self.names,
            self.values[chosen_N],
            None if reference is None else reference[chosen_N],
        )

    def among(self, chosen_N: np.ndarray) -> "Scores":
        """These scores as those of the chosen ones among N texts, NaN elsewhere."""

        def spread(rows_NR: np.ndarray) -> np.ndarray:
            whole = np.full((len(chosen_N), rows_NR.shape[1]), np.nan)
            whole[chosen_N] = rows_NR
            return whole

        reference = self.reference
        return Scores(
            self.names,
            spread(self.values),
            None if reference is None else spread(reference),
        )
