"""Overlap of completions with their references, by a measure, and its tests.

Dimension key
    N  instances
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from jaxcontam.replication.instances import Instance
from jaxcontam.reports.report import ResultRow
from jaxcontam.reports.terms import Validity
from jaxcontam.scoring.completer import Completion, without_thoughts
from jaxcontam.stats.paired import (
    paired_bootstrap_p,
    sign_flip_test,
    unpaired_bootstrap_p,
)

ALPHA = 0.05
"""Level of the paper's tests, and of the word `suspected`."""

LEVEL = 0.001
"""Level of the word `contaminated`."""

ReplicationVerdict = Literal["contaminated", "suspected", "inconclusive", "no evidence"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OverlapResult(ResultRow):
    """Test if naming the partition makes completions more like the reference.

    Attributes:
        method: Measure and test, such as `rouge_l_sign_flip`.
        n_left_out: Instances without an answer, or a reference that can be read.
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
class RougeL:
    """Longest common subsequence, over the reference's words and the candidate's."""

    recall: float
    precision: float
    f1: float


_WORD = re.compile(r"[a-z0-9]+")


def rouge_l(reference: str, candidate: str) -> RougeL:
    """ROUGE-L of a candidate against a reference; 0 where one has no words.

    Source:
        Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries". Words and
        the weight of F (beta = 1) are those of the Python package rouge_score without
        its stemmer, which published numbers on completions use.
    """
    reference_words, candidate_words = rouge_words(reference), rouge_words(candidate)
    if not reference_words or not candidate_words:
        return RougeL(recall=0.0, precision=0.0, f1=0.0)
    common = common_words(reference_words, candidate_words)
    recall, precision = common / len(reference_words), common / len(candidate_words)
    f1 = 2 * common / (len(reference_words) + len(candidate_words))
    return RougeL(recall=recall, precision=precision, f1=f1)


def rouge_words(text: str) -> list[str]:
    """Runs of ASCII letters and digits in lower case: none in another alphabet."""
    return _WORD.findall(text.lower())


def has_rouge_words(text: str) -> bool:
    """True if at least half of a text's letters are Latin, the only ones it counts."""
    letters = list(filter(str.isalnum, text))
    n_latin = sum(one < "\u0250" or "\u1e00" <= one < "\u1f00" for one in letters)
    return 2 * n_latin >= len(letters) and bool(rouge_words(text))


def common_words(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    from rapidfuzz.distance import LCSseq

    return LCSseq.similarity(a, b)


def words_f1(a: Sequence[str], b: Sequence[str]) -> float:
    """Harmonic mean of the shares of words that are common; 0 where one has none."""
    return 2 * common_words(a, b) / (len(a) + len(b)) if a and b else 0.0


def stands_within(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """True if words, which hold no space, stand in others one after the other."""
    return f" {' '.join(wanted)} " in f" {' '.join(words)} "


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measure of overlap, such as ROUGE-L.

    Attributes:
        whole_when_inside: Whether an instance that was cut inside a sentence is
            compared whole, first piece and all: for measures that want sentences.
        score: (reference, candidate) pairs to float64 (N,), higher for more overlap;
            nan where the measure cannot read the reference.
        note: Sentence on the model that measures; "" without one.
        is_bleurt_20: The local judge may read its scores.
    """

    name: str
    whole_when_inside: bool
    score: Callable[[Sequence[tuple[str, str]]], np.ndarray]
    note: str = ""
    is_bleurt_20: bool = False


def overlap_scores(
    measure: Measure, instances: Sequence[Instance], completions: Sequence[Completion]
) -> np.ndarray:
    """Overlap of each completion with its reference, (N,) float64.

    NaN where the request was refused or the measure cannot read the reference. An empty
    completion is an answer, and is scored like any other.
    """
    answered, pairs = [], []
    for i, (instance, one) in enumerate(zip(instances, completions, strict=True)):
        if one.refused:
            continue
        # What it repeats of its prompt stays, as in published scores.
        reference, candidate = instance.second_piece, without_thoughts(one.text)
        if measure.whole_when_inside and instance.cut == "inside":
            first = instance.first_piece
            reference, candidate = f"{first} {reference}", f"{first} {candidate}"
        answered.append(i)
        pairs.append((reference, candidate))
    scores_N = np.full(len(instances), np.nan)
    if answered:
        scores_N[answered] = measure.score(pairs)
    return scores_N


def _rouge_l_f1(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    shares = (
        rouge_l(*pair).f1 if has_rouge_words(pair[0]) else np.nan for pair in pairs
    )
    return np.array([*shares])


ROUGE_L = Measure(name="rouge_l", whole_when_inside=False, score=_rouge_l_f1)
"""F of ROUGE-L on the new piece alone, at any cut: it counts words, not fluency.
nan where the reference is mostly of letters that ROUGE does not know."""


_FEWEST_PAIRS = 2
_UNANSWERED = "one of the instructions has no answer"
_UNSCORED = {
    "rouge_l": f"{_UNANSWERED}, or the reference is not mostly in Latin letters, the "
    "only ones that ROUGE-L counts"
}
_EXACT = "sign_flip"
_BOOTSTRAPS = {
    "paired_bootstrap": (
        paired_bootstrap_p,
        "the bootstrap's share is not a calibrated p-value: with ten pairs it is below "
        "0.05 in 8% of null sets",
    ),
    "unpaired_bootstrap": (
        unpaired_bootstrap_p,
        "the released code resamples both arms separately, so the p-value depends on "
        "how correlated they are",
    ),
}
OVERLAP_TESTS = {
    _EXACT: "sign flips",
    "paired_bootstrap": "paired bootstrap",
    "unpaired_bootstrap": "unpaired bootstrap, as released",
}
"""Second parts of the methods' names, and words for tables; the first one decides."""


def overlap_results(
    measure: str,
    guided_N: np.ndarray,
    general_N: np.ndarray,
    *,
    benchmark: str,
    fingerprint: str,
    prompt_version: str | None,
    seed: int,
) -> tuple[OverlapResult, ...]:
    """Test by sign flips and bootstraps that naming the partition raises the overlap.

    Null hypothesis: an instance's two completions could have been exchanged. Small
    p-values show that the name helps, which a model that knows the style of a dataset
    can do as well as one that knows its rows. NaN is no score.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, algorithm 1, for the bootstraps.
    """
    answered_N = ~(np.isnan(guided_N) | np.isnan(general_N))
    guided_N, general_N = guided_N[answered_N], general_N[answered_N]
    n_pairs = len(guided_N)
    n_left_out = len(answered_N) - n_pairs
    warnings = []
    if n_left_out:
        why = _UNSCORED.get(measure, _UNANSWERED)
        warnings.append(
            f"{n_left_out} of {len(answered_N)} instances are left out: {why}"
        )

    def row(
        test: str, p_value: float | None, p_floor: float | None, *more: str
    ) -> OverlapResult:
        verdict: ReplicationVerdict | None = None
        if p_value is not None:
            # A name that helps is no copy, whatever p is.
            verdict = "suspected" if p_value <= ALPHA else "no evidence"
        return OverlapResult(
            benchmark=benchmark,
            fingerprint=fingerprint,
            method=f"{measure}_{test}",
            validity="exact" if test == _EXACT else "asymptotic",
            n_instances=n_pairs,
            n_left_out=n_left_out,
            guided=float(guided_N.mean()) if n_pairs else None,
            general=float(general_N.mean()) if n_pairs else None,
            p_value=p_value,
            p_floor=p_floor,
            prompt_version=prompt_version,
            verdict=verdict,
            warnings=(*warnings, *more),
        )

    if n_pairs < _FEWEST_PAIRS:
        few = f"no test with {n_pairs} pairs of completions"
        return tuple(row(test, None, None, few) for test in OVERLAP_TESTS)
    exact = sign_flip_test(guided_N, general_N)
    floor = []
    if np.array_equal(guided_N, general_N):
        floor = ["both instructions give the same overlap everywhere: nothing to test"]
    elif exact.p_floor > ALPHA:
        floor = [
            f"so few pairs differ that p cannot be below {exact.p_floor:.3g}: draw "
            "more instances"
        ]
    rows = [row(_EXACT, exact.p_value, exact.p_floor, *floor)]
    for test, (share, caveat) in _BOOTSTRAPS.items():
        rows.append(row(test, share(guided_N, general_N, seed=seed), None, caveat))
    return tuple(rows)


def measure_and_test(method: str) -> tuple[str, str]:
    """`rouge_l_sign_flip` -> `rouge_l`, `sign_flip`."""
    for test in OVERLAP_TESTS:
        if method.endswith(f"_{test}"):
            return method.removesuffix(f"_{test}"), test
    raise ValueError(f"no overlap test: {method!r}")
