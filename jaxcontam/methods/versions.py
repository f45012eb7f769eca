"""Tests of versions: the published one of each row against its counterfactuals.

A row may hold a text and its rewrites, a secret and its held-out twins, or an item in
several option orders. All are one randomisation test.

Dimension key
    K  rows
"""

import dataclasses

import numpy as np

from jaxcontam.data.benchmark import content_digest, fingerprint
from jaxcontam.data.encoding import Encoder, encode_examples
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.scoring.plan import VersionPlan, plan_versions
from jaxcontam.scoring.scorer import NonFiniteScoreError, n_targets


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class VersionSet:
    """Texts of a test of versions.

    Attributes:
        name: Name of the file.
        rows: Versions of each row, the published one first; at least two each.
        places: Where each row stands in the file, for messages.
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
    """Scores of a test of versions.

    Attributes:
        rows: One float64 array a row, nats (or nats per token), published first.
        place: (K,) where the published version stood.
        n_scored: Target tokens that went through the model.
        n_cached: Target tokens whose scores the store held.
    """

    rows: tuple[np.ndarray, ...]
    place: np.ndarray
    n_scored: int
    n_cached: int


def plan_texts(
    texts: VersionSet, tokenizer: Encoder, *, prefix_id: int | None, seed: int
) -> VersionPlan:
    """Tokenise and lay out every version; asks no model.

    Raises:
        InputError: If a version has no token to score; names the row.
    """
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
                f"{texts.places[k]}: a version has one token, and the model needs a "
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
    """Score every version.

    Args:
        texts: For messages.
        plan: Their sequences.
        scorer: The model.
        per_token: Divide each log-likelihood by its tokens.
        progress: See `Progress`.

    Raises:
        InputError: If the model gives a number that is not finite; names the row.
    """
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
            f"{texts.places[row]}: a version is one token to the server, and it puts "
            "none before it"
        )
    n_all = n_targets(plan.sequences)
    return ScoredVersions(
        rows=tuple(plan.rows(loglik)),
        place=plan.place,
        n_scored=n_all - sums.n_cached,
        n_cached=sums.n_cached,
    )
