"""How much of the reference a completion repeats, by a measure that can be exchanged.

Dimension key
    N  instances
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.replication.instance import Completion, Instance
from jaxcontam.replication.result import OverlapResult, ReplicationVerdict
from jaxcontam.replication.rouge import has_rouge_words, rouge_l
from jaxcontam.scoring.completer import without_thoughts
from jaxcontam.stats.paired import (
    paired_bootstrap_p,
    sign_flip_test,
    unpaired_bootstrap_p,
)

if TYPE_CHECKING:
    from jaxcontam.models.checkpoint import Checkpoint

Pairs = Sequence[tuple[str, str]]
"""References with their candidates."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measure of overlap, such as ROUGE-L.

    Attributes:
        whole_when_inside: Whether an instance that was cut inside a sentence is
            compared whole, first piece and all: for measures that want sentences.
        score: (reference, candidate) pairs to float64 (N,), higher for more overlap;
            nan where the measure cannot read the reference.
    """

    name: str
    whole_when_inside: bool
    score: Callable[[Pairs], np.ndarray]


def overlap_scores(
    measure: Measure, instances: Sequence[Instance], completions: Sequence[Completion]
) -> np.ndarray:
    """Overlap of each completion with its reference, (N,) float64.

    NaN where the request was refused or the measure cannot read the reference. An empty
    completion is an answer, and is scored like any other.
    """
    answered = [i for i, one in enumerate(completions) if not one.refused]
    pairs = [
        compared_texts(
            instances[i],
            completions[i].text,
            whole_when_inside=measure.whole_when_inside,
        )
        for i in answered
    ]
    scores_N = np.full(len(instances), np.nan)
    if answered:
        scores_N[answered] = measure.score(pairs)
    return scores_N


def compared_texts(
    instance: Instance, completion: str, *, whole_when_inside: bool
) -> tuple[str, str]:
    """Reference and candidate: the new piece, or the whole where that is asked for.

    The candidate's thoughts are left out. What it repeats of its prompt stays, as in
    published scores; judges leave that out, too.
    """
    reference, candidate = instance.second_piece, without_thoughts(completion)
    if whole_when_inside and instance.cut == "inside":
        first = instance.first_piece
        return f"{first} {reference}", f"{first} {candidate}"
    return reference, candidate


def _rouge_l_f1(pairs: Pairs) -> np.ndarray:
    return np.array(
        [
            rouge_l(reference, candidate).f1 if has_rouge_words(reference) else np.nan
            for reference, candidate in pairs
        ]
    )


ROUGE_L = Measure(name="rouge_l", whole_when_inside=False, score=_rouge_l_f1)
"""F of ROUGE-L on the new piece alone, at any cut: it counts words, not fluency.
nan where the reference is mostly of letters that ROUGE does not know."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class EmbeddingOverlap:
    """Similarity by the embeddings of a model that is open.

    Cosines of a plain language model are high for any two texts of one language; what
    counts is how much higher they are with the guided instruction.
    """

    checkpoint: "Checkpoint"
    name: str = "embedding"

    @classmethod
    def load(cls, model: str) -> "EmbeddingOverlap":
        """Open a folder or a name on the hub; see `load_checkpoint`."""
        from jaxcontam.models.checkpoint import load_checkpoint

        return cls(load_checkpoint(model))

    @property
    def version(self) -> str:
        """Name and digest of the model, for a report."""
        digest = self.checkpoint.fingerprint.removeprefix("sha256:")
        return f"{self.checkpoint.name} {digest[:12]}"

    @property
    def measure(self) -> Measure:
        """For `overlap_scores`, with the truncation of BLEURT."""
        return Measure(name=self.name, whole_when_inside=True, score=self.scores)

    def scores(self, pairs: Pairs) -> np.ndarray:
        """Cosine of each pair's mean hidden states; 0 where a text has no tokens."""
        from jaxcontam.scoring.embedding import text_embeddings

        if not pairs:
            return np.zeros(0)
        # A reference stands in two pairs, one an instruction: it is read once.
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        place = {text: i for i, text in enumerate(texts)}
        vectors_ND = text_embeddings(self.checkpoint, texts).astype(np.float64)
        first_ND, second_ND = (
            vectors_ND[[place[pair[side]] for pair in pairs]] for side in (0, 1)
        )
        return np.sum(first_ND * second_ND, axis=1)


ALPHA = 0.05
"""Level of the paper's tests, and of the word `suspected`."""

LEVEL = 0.001
"""Level of the word `contaminated`."""

_FEWEST_PAIRS = 2
_UNANSWERED = "one of the instructions has no answer"
_UNSCORED = {
    "rouge_l": f"{_UNANSWERED}, or the reference is not mostly of Latin letters, the "
    "only ones that ROUGE-L counts"
}
_EXACT = "sign_flip"
_BOOTSTRAPS = {
    "paired_bootstrap": (
        paired_bootstrap_p,
        "the bootstrap's share is no calibrated p-value: with ten pairs it is below "
        "0.05 in 8 % of null sets",
    ),
    "unpaired_bootstrap": (
        unpaired_bootstrap_p,
        "the released code draws both arms apart, so the p-value depends on how alike "
        "they are",
    ),
}
OVERLAP_TESTS = (_EXACT, *_BOOTSTRAPS)
"""Second parts of the methods' names; the first of them decides."""


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
    """Test that naming the partition raises the overlap, in three ways.

    Null hypothesis: an instance's two completions could have been exchanged. Small
    p-values show that the name helps, which a model that knows the style of a dataset
    can do as well as one that knows its rows. NaN is no score.

    Returns:
        The exact sign-flip test, the paired bootstrap and the unpaired one.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, algorithm 1, for the bootstraps.
    """
    answered_N = ~(np.isnan(guided_N) | np.isnan(general_N))
    guided_N, general_N = guided_N[answered_N], general_N[answered_N]
    n_pairs = len(guided_N)
    n_left_out = len(answered_N) - n_pairs
    is_enough = n_pairs >= _FEWEST_PAIRS
    warnings: tuple[str, ...] = ()
    if n_left_out:
        warnings = (
            f"{n_left_out} of {len(answered_N)} instances are left out: "
            f"{_UNSCORED.get(measure, _UNANSWERED)}",
        )

    def row(
        test: str, p_value: float | None, p_floor: float | None, *more: str
    ) -> OverlapResult:
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
            verdict=_verdict(p_value),
            warnings=(*warnings, *more),
        )

    if not is_enough:
        few = f"no test with {n_pairs} pairs of completions"
        return tuple(row(test, None, None, few) for test in OVERLAP_TESTS)
    exact = sign_flip_test(guided_N, general_N)
    floor = () if exact.p_floor <= ALPHA else (_floor_warning(exact.p_floor),)
    if np.array_equal(guided_N, general_N):
        floor = ("both instructions give the same overlap everywhere: nothing to test",)
    rows = [row(_EXACT, exact.p_value, exact.p_floor, *floor)]
    for test, (share, caveat) in _BOOTSTRAPS.items():
        rows.append(row(test, share(guided_N, general_N, seed=seed), None, caveat))
    return tuple(rows)


def _verdict(p_value: float | None) -> ReplicationVerdict | None:
    if p_value is None:
        return None
    # A name that helps is no copy, whatever p is.
    return "suspected" if p_value <= ALPHA else "no evidence"


def _floor_warning(p_floor: float) -> str:
    return (
        f"so few pairs differ that no p-value is below {p_floor:.3g}: draw more "
        "instances"
    )
