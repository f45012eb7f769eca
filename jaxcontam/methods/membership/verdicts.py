"""What a membership result allows to be said, with the texts alone as the rival.

Words of rankings, which prove nothing; nothing is ever called clean.
"""

from jaxcontam.methods.membership.blind import Blind
from jaxcontam.results.terms import RankingVerdict
from jaxcontam.verdict import CONTAMINATED_LEVEL, SUSPECTED_LEVEL

HIGHER: RankingVerdict = "members rank higher"
MAYBE: RankingVerdict = "may rank higher"
NO_DIFFERENCE: RankingVerdict = "no difference"
INCONCLUSIVE: RankingVerdict = "inconclusive"
CONFOUNDED: RankingVerdict = "confounded"
"""The texts alone tell the labels apart, so that a score shows no memory."""

INCREMENT_LEVEL = 0.05
"""Level at which a score must add to the blind baselines to mean anything."""

BLIND_AUC = 0.55
"""A blind AUC that is surely above this one confounds whatever a score reaches."""

USEFUL_AUC = 0.6
"""An AUC that a `no difference` must have been able to rule out."""


def score_verdict(
    p_value: float,
    *,
    auc: float,
    auc_high: float,
    blind: Blind | None,
    increment_p: float | None,
    constant: bool = False,
) -> RankingVerdict:
    """Verdict of the primary score.

    `confounded` where a blind AUC is surely above 0.55, or surely above 0.5 and no
    lower than the score's; surely: at 95 %, corrected for the number of baselines.
    `members rank higher` needs a score that adds to the blind baselines, a model that
    saw neither side among them, so that nothing goes beyond `may rank higher` without
    these, nor where a blind AUC is surely above 0.5: labels that go with the texts were
    not assigned by chance, which is what the p-value assumes. A score that is the same
    for every text shows nothing.

    Args:
        p_value: By permutation of the labels, corrected for several benchmarks.
        auc: AUC of the score.
        auc_high: Upper end of its interval.
        blind: Baselines of the same texts.
        increment_p: One-sided, of a score that adds nothing to them.
        constant: Whether the score is the same for every text.
    """
    if constant:
        return INCONCLUSIVE
    if blind is not None and blind.low is not None and blind.auc is not None:
        if blind.low > BLIND_AUC or (blind.above_chance and blind.auc >= auc):
            return CONFOUNDED
        adds = increment_p is not None and increment_p <= INCREMENT_LEVEL
        is_sound = blind.by_reference and not blind.above_chance
        if p_value <= CONTAMINATED_LEVEL and adds and is_sound:
            return HIGHER
    return _without_proof(p_value, auc_high)


def set_verdict(
    p_value: float, *, auc_high: float, blind: Blind | None, constant: bool = False
) -> RankingVerdict:
    """Verdict of a set-level test, whose two sets must be of one law.

    Stricter than for a score: any blind AUC that is surely above 0.5 confounds, since
    the test finds the smallest difference in a large set. `members rank higher`, here
    of the suspected texts, needs a model that saw neither set among them.

    Args:
        p_value: By permutation of the labels, corrected for several sets.
        auc_high: Upper end of the interval of the held-out AUC, or of the score that
            ranks best by itself: of both the larger.
        blind: Baselines that tell suspected from validation texts.
        constant: Whether every score is the same for every text.
    """
    if constant:
        return INCONCLUSIVE
    if blind is not None and blind.low is not None:
        if blind.above_chance or blind.low > BLIND_AUC:
            return CONFOUNDED
        if p_value <= CONTAMINATED_LEVEL and blind.by_reference:
            return HIGHER
    return _without_proof(p_value, auc_high)


def reference_warnings(
    verdict: RankingVerdict, p_value: float, blind: Blind | None
) -> tuple[str, ...]:
    """One sentence where only a reference model is missing from a stronger word."""
    if blind is None or not blind.rows or blind.by_reference:
        return ()
    if verdict != MAYBE or p_value > CONTAMINATED_LEVEL:
        return ()
    return (
        "no reference model that saw neither side was asked (membership --reference), "
        "so that the verdict is at most `may rank higher`: one side may be less fluent",
    )


def _without_proof(p_value: float, auc_high: float) -> RankingVerdict:
    if p_value <= SUSPECTED_LEVEL:
        return MAYBE
    return INCONCLUSIVE if auc_high > USEFUL_AUC else NO_DIFFERENCE
