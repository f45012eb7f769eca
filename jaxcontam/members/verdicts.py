"""Verdict of a membership result, with the texts alone as the rival.

Words of rankings, which prove nothing; nothing is ever called clean.
"""

from collections.abc import Sequence

from jaxcontam.members.blind import Blind
from jaxcontam.members.result import BesideReference
from jaxcontam.reports.terms import CONTAMINATED_LEVEL, SUSPECTED_LEVEL, RankingVerdict

HIGHER: RankingVerdict = "members rank higher"
MAYBE: RankingVerdict = "may rank higher"
NO_DIFFERENCE: RankingVerdict = "no difference"
LOWER: RankingVerdict = "members rank lower"
INCONCLUSIVE: RankingVerdict = "inconclusive"
CONFOUNDED: RankingVerdict = "confounded"
"""The texts alone tell the labels apart, so that a score shows no memory."""

INCREMENT_LEVEL = 0.05
"""Level at which a score must add to the blind baselines to mean anything."""

HALF_LEVEL = 0.05
"""Level at which a reference must show less than half of what the score shows."""

BLIND_AUC = 0.55
"""A blind AUC that is surely above this one confounds whatever a score reaches."""

USEFUL_AUC = 0.6
"""An AUC that a `no difference` must have been able to rule out."""


def ranking_verdict(
    p_value: float,
    *,
    auc: float,
    auc_high: float,
    is_lower: bool = False,
    blind: Blind,
    unmet: Sequence[str],
    is_set: bool = False,
    constant: bool = False,
) -> RankingVerdict:
    """Verdict of the primary score, or of a set whose texts it ranks beside a pool.

    `confounded` where a blind AUC is surely above 0.55, or surely above 0.5 and, unless
    a set is asked, no lower than the score's; surely: at 95 %, corrected for the number
    of baselines. A set-level test finds the smallest difference in a large set.
    `members rank higher`, or the texts of a set do, needs a p-value of at most 0.001
    and what `conditions` asks. A score that is the same for every text shows nothing.

    `auc_high` is the upper end of the AUC's interval, for a set the largest over its
    scores and the held-out classifier; `is_lower` says that the AUC is surely below
    0.5. The p-value is corrected for several benchmarks.
    """
    if constant:
        return INCONCLUSIVE
    if blind.low is not None and blind.auc is not None:
        is_told = blind.above_chance and (is_set or blind.auc >= auc)
        if blind.low > BLIND_AUC or is_told:
            return CONFOUNDED
    if is_lower:
        return LOWER
    if p_value <= CONTAMINATED_LEVEL and not unmet:
        return HIGHER
    if p_value <= SUSPECTED_LEVEL:
        return MAYBE if auc > 0.5 else INCONCLUSIVE
    return INCONCLUSIVE if auc_high > USEFUL_AUC else NO_DIFFERENCE


def conditions(
    blind: Blind, increment_p: float | None, beside: BesideReference | None
) -> tuple[str, ...]:
    """List what `members rank higher` needs beside its p-value and has not.

    Labels that no baseline tells, since the p-value takes them for assigned by chance;
    a score that adds to the baselines; and a reference model that saw neither side, by
    which the score ranks better at 0.001 while it shows less than half of what the
    score shows, at 0.05. Where one side is a little easier to read, a reference that
    reads half of it is found out by the last.
    """
    if not blind.rows:
        return ("no blind baseline could be made: more texts",)
    found = []
    if blind.above_chance or (blind.low is not None and blind.low > BLIND_AUC):
        found.append(
            "a blind baseline tells the sides apart, so that labels were not assigned "
            "by chance: take texts of one kind and date on both sides"
        )
    if increment_p is None or increment_p > INCREMENT_LEVEL:
        found.append(
            "the score does not surely add to the blind baselines "
            f"({_needed(increment_p, INCREMENT_LEVEL)}): more texts"
        )
    if beside is None:
        return (
            *found,
            "no reference model that saw neither side was asked (membership "
            "--reference), so that the verdict is at most `may rank higher`: one side "
            "may be less fluent",
        )
    aucs = f"AUC {beside.reference_auc:.2f} beside {beside.score_auc:.2f}"
    if beside.p_value > CONTAMINATED_LEVEL:
        found.append(
            f"the reference model may rank as well as {beside.score} ({aucs}; "
            f"{_needed(beside.p_value, CONTAMINATED_LEVEL)}): more texts"
        )
    if beside.half_p_value > HALF_LEVEL:
        found.append(
            f"the reference model may show half of what {beside.score} shows ({aucs}; "
            f"{_needed(beside.half_p_value, HALF_LEVEL)}), as where one side is easier "
            "to read: more texts, of one kind on both sides"
        )
    return tuple(found)


def verdict_warnings(
    verdict: RankingVerdict, p_value: float, auc: float, unmet: Sequence[str]
) -> tuple[str, ...]:
    """Reasons why `may rank higher` is no more, or a word on a reversed ranking."""
    if verdict == LOWER:
        return (
            f"members rank lower than non-members (AUC {auc:.2f}): were the files, or "
            "the labels, swapped",
        )
    if verdict != MAYBE:
        return ()
    level = CONTAMINATED_LEVEL
    small = () if p_value <= level else (f"{_needed(p_value, level)}: more texts",)
    return (*small, *unmet)


def _needed(p_value: float | None, level: float) -> str:
    p = "no p-value" if p_value is None else f"p = {p_value:.2g}"
    return f"{p}, at most {level:g} is needed"
