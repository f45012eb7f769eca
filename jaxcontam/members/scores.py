"""Membership scores: `SCORES`, a row each."""

from collections.abc import Mapping

from jaxcontam.errors import InputError, unknown_name
from jaxcontam.members import text_scores, token_scores
from jaxcontam.members.score import ScoreMethod
from jaxcontam.reports.methods import MethodWords, joined_rows, words_of

SCORES: Mapping[str, ScoreMethod] = joined_rows(
    (
        token_scores.MIN_K,
        token_scores.MIN_K_PP,
        text_scores.LOSS,
        text_scores.ZLIB,
        token_scores.SURP,
        token_scores.GAP_K,
        token_scores.DC_PDD,
        text_scores.LOWERCASE,
        text_scores.NEIGHBOURHOOD,
        text_scores.REFERENCE,
        text_scores.RECALL,
        text_scores.CON_RECALL,
        text_scores.CODEC,
        text_scores.GRADIENT_NORM,
    ),
    ScoreMethod,
)
"""Scores that may follow `--scores`, those of other packages last."""

# A set of texts is judged by several scores together.
_SET_LEVEL = MethodWords(
    name="set_level",
    label="set_level",
    finds="a set of texts that as a whole is more familiar than the non-members, "
    "by the scores below together",
    source="Maini et al. 2024, arXiv:2406.06443; not as in the authors' code: "
    "scales come from both sides, all texts are held out once, and a permutation "
    "replaces the t-test",
)


def score_method(name: str) -> ScoreMethod:
    """Look up a membership score by name, such as `loss`, `min_k` or `min_k_10`.

    Min-K% and Min-K%++ take any share of tokens: a number of percent after the name.
    """
    if name in SCORES:
        return SCORES[name]
    kind, _, percent = name.rpartition("_")
    try:
        if kind in token_scores.AT_K and 0 < float(percent) <= 100:
            return token_scores.AT_K[kind](float(percent) / 100)
    except ValueError:
        pass
    raise unknown_name("score", name, SCORES)


def score_words(name: str) -> MethodWords | None:
    """What reports say of a score; None of one that a study has of its own."""
    if name == _SET_LEVEL.name:
        return _SET_LEVEL
    try:
        return words_of(score_method(name), name)
    except InputError:
        return None
