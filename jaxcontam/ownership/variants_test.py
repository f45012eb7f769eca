"""Published texts against rewrites of each."""

from typing import Literal

from jaxcontam.proof.result import DESIGNED, OrderResult
from jaxcontam.proof.versions import ScoredVersions, VersionMethod, VersionSet
from jaxcontam.reports.terms import Null, ProofWords

DECLARED: Null = "exchangeability of versions (declared)"
"""Null of rewrites that were made after publication: nothing vouches for it."""

ScoreUnit = Literal["token", "total"]
EFFECT_UNITS = {"token": "nats per token", "total": "nats per text"}
# A text of 50 tokens is then 150 times likelier than its rewrites, as a secret is in
# `canary`.
_LEAST_EFFECTS = {EFFECT_UNITS["token"]: 0.1, EFFECT_UNITS["total"]: 5.0}


def variants_result(
    texts: VersionSet,
    scored: ScoredVersions,
    *,
    randomised: bool,
    unit: ScoreUnit,
    n_left_out: int,
    seed: int,
) -> OrderResult:
    """Test that the model prefers the published versions, before verdicts are given.

    Null hypothesis: within each row every version was equally likely to be the
    published one. That holds by design where the owner drew it at random among
    versions that were all written before (`randomised`); otherwise a model may prefer
    one style to another without having seen either, so the result is `heuristic`.

    Versions differ in length, and a sum over tokens mostly ranks lengths; the mean a
    token is the default. The null holds for any score of the text alone.

    Source:
        The paired comparison of STAMP and of PaCoST (Zhang et al. 2024), with the
        exact law of the sum in place of a t-test.
    """
    warnings = []
    if n_left_out:
        warnings.append(f"{n_left_out} rows have no rewrite that differs from the text")
    if not randomised:
        warnings.append(
            "the published versions were not drawn at random: a model that never saw "
            "them may prefer their style, so the verdict is never more than suspected"
        )
    return OrderResult(
        benchmark=texts.name,
        fingerprint=texts.fingerprint,
        content_digest=texts.content_digest,
        order_provenance="declared",
        n_examples=len(texts.rows) + n_left_out,
        n_cut=0,
        method=METHOD.name,
        primary=True,
        null=DESIGNED if randomised else DECLARED,
        validity="exact" if randomised else "heuristic",
        n_strata=len(texts.rows),
        n_dropped=n_left_out,
        n_orders=max(map(len, texts.rows)) - 1,
        group_field=None,
        tokens_scored=scored.n_scored,
        cached_tokens=scored.n_cached,
        numbers=METHOD.analyse(scored.rows, seed),
        effect_unit=EFFECT_UNITS[unit],
        warnings=tuple(warnings),
    )


METHOD = VersionMethod(
    name="variants",
    command="variants",
    null=f"{DESIGNED}, or {DECLARED}",
    validity="exact if the published versions were drawn at random",
    least_effects=_LEAST_EFFECTS,
    cost="each version once",
    finds="texts that were seen in their published wording",
    source="as STAMP; PaCoST, Zhang et al. 2024",
    words=ProofWords(
        row="text",
        version="version",
        versions="versions",
        seen="published wording seen, other wordings not tested",
        unseen="that the published wording was seen",
        more="more texts or more rewrites are needed",
        meaning="A small p-value says that the model prefers the published wording to "
        "rewrites of it. If the published version was drawn at random among all "
        "versions, a model that never saw it does that by chance alone; if it was "
        "not, a taste for its style may be the whole reason.",
        silence="",
        assumed={
            DESIGNED: "that the published version of each text was drawn at random "
            "among all its versions, as was declared",
            DECLARED: "that a model which never saw the published versions finds no "
            "version likelier for its style: nothing vouches for that",
        },
        unchecked="since how the versions were made is their owner's word",
        chance="in each of {n_strata} texts the published version would be as likely "
        "as any of its rewrites (up to {n_orders}) to score best; the summed score "
        "would reach the observed one with probability {p}",
        null_caption="Sum of the published scores over each text, and what the same "
        "sum is when a random version stands in for the published one.",
        evidence_caption="Where the evidence lies: the score of each text, in the "
        "order of the file.",
        limits="versions",
    ),
)
