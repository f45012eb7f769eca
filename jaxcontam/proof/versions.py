"""Tests of versions: the published one of each row against its counterfactuals.

A row may hold a text and its rewrites, a secret and its held-out twins, or an item in
several option orders. All are one randomisation test.

Dimension key
    K  rows
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from jaxcontam.data.benchmark import content_digest, fingerprint
from jaxcontam.data.encoding import Encoder, encode_examples
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.proof.result import Evidence, OrderResult
from jaxcontam.proof.test_row import TestRow
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.plan import VersionPlan, plan_versions
from jaxcontam.scoring.scorer import NonFiniteScoreError, n_targets
from jaxcontam.stats.orders import draw_places
from jaxcontam.stats.randomisation import randomisation_test
from jaxcontam.stats.result import OrderNumbers
from jaxcontam.stats.rows import unpadded


def version_numbers(rows: Sequence[np.ndarray], seed: int) -> OrderNumbers:
    """`randomisation_test` of rows, published first; the effect is the gain a row."""
    return randomisation_test(list(rows), np.ones(len(rows)), seed=seed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VersionMethod(TestRow):
    """A test of published versions: texts, secrets or options, not orders of a file.

    `analyse` takes float64 rows, the published version first.

    Attributes:
        in_random_places: Published versions took random places while they were scored.
    """

    analyse: Callable[[Sequence[np.ndarray], int], OrderNumbers] = version_numbers
    in_random_places: bool = True

    def numbers(
        self, evidence: Evidence, *, grouped: bool, seed: int, content_digest: str
    ) -> OrderNumbers:
        """From scores of each version, short rows ending in NaN."""
        return self.analyse(_rows_of(evidence), seed)

    def redrawn(
        self, result: OrderResult, evidence: Evidence, *, seed: int
    ) -> Evidence:
        """Places."""
        if not self.in_random_places:
            return Evidence()
        sizes, digest = list(map(len, _rows_of(evidence))), result.content_digest
        return Evidence(place=draw_places(sizes, seed=seed, content_digest=digest))


def _rows_of(evidence: Evidence) -> list[np.ndarray]:
    if evidence.scores is None:
        raise ValueError("no scores")
    return list(unpadded(evidence.scores))


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VersionSet:
    """Texts of a test of versions: two or more a row, the published one first.

    `places` say where each row stands in the file, for messages.
    """

    name: str
    rows: tuple[tuple[str, ...], ...]
    places: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Digest of all versions with the published ones first."""
        return fingerprint([fingerprint(row) for row in self.rows])

    @property
    def content_digest(self) -> str:
        """Digest of all versions, blind to which is published and to row order."""
        return content_digest([content_digest(row) for row in self.rows])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ScoredVersions:
    """Scores of a test of versions, in nats or nats a token, the published one first.

    `place` (K,) is where the published version stood. `n_cached` target tokens had
    scores in the store, `n_scored` went through the model.
    """

    rows: tuple[np.ndarray, ...]
    place: np.ndarray
    n_scored: int
    n_cached: int


def plan_texts(
    texts: VersionSet, tokenizer: Encoder, *, prefix_id: int | None, seed: int
) -> VersionPlan:
    """Tokenise and lay out every version; asks no model."""
    flat = [text for row in texts.rows for text in row]
    owner = [k for k, row in enumerate(texts.rows) for _ in row]
    fewest = 1 if prefix_id is not None else 2
    for text, k in zip(flat, owner, strict=True):
        if not text.strip():
            raise InputError(f"{texts.places[k]}: a version is blank")
    encoded = iter(encode_examples(tokenizer, flat, separator="").ids)
    rows = [[next(encoded) for _ in row] for row in texts.rows]
    for k, row in enumerate(rows):
        if min(map(len, row)) < fewest:
            raise InputError(
                f"{texts.places[k]}: a version has one token, but the model needs a "
                "token before it"
            )
    return plan_versions(
        rows, prefix_id=prefix_id, seed=seed, content_digest=texts.content_digest
    )


def score_texts(
    texts: VersionSet,
    plan: VersionPlan,
    scorer: SequenceScorer,
    *,
    per_token: bool,
    progress: Progress | None = None,
) -> ScoredVersions:
    """Score every version; `per_token` divides each log-likelihood by its tokens."""
    try:
        sums = scorer.sums(plan.sequences, progress)
    except NonFiniteScoreError as e:
        row, _ = plan.version_of(e.sequence)
        raise InputError(
            f"{texts.places[row]}: the model's log-probability is not finite",
            hint="check the checkpoint: its weights may hold NaN or be truncated",
        ) from e
    loglik = sums.means(plan.sequences) if per_token else sums.loglik
    if bad := np.flatnonzero(np.isnan(loglik)).tolist():
        row, _ = plan.version_of(bad[0])
        raise InputError(
            f"{texts.places[row]}: a version is one token to the server, which puts "
            "none before it"
        )
    n_all = n_targets(plan.sequences)
    return ScoredVersions(
        rows=tuple(plan.rows(loglik)),
        place=plan.place,
        n_scored=n_all - sums.n_cached,
        n_cached=sums.n_cached,
    )
