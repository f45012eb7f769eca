"""Passes over texts: what a model says of them, and of rewrites of them.

Each pass knows its size before it runs and scores no sequence twice. A sequence of the
text itself that comes again, as a text without capitals does when it is lowercased, is
taken from the text's own pass.

Dimension key
    T  scored tokens of a text
    R  scores of a token: its log-probability, and mean, variance and top if asked
"""

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np

from jaxcontam.methods.membership.fluency import fluency_of
from jaxcontam.methods.membership.score import Reading
from jaxcontam.models.decoder import Decoder
from jaxcontam.progress import Progress
from jaxcontam.scoring.gradients import gradient_norms
from jaxcontam.scoring.opened import PairSource, SequenceScorer
from jaxcontam.scoring.prefixed import prefixed_sums
from jaxcontam.scoring.scorer import n_targets
from jaxcontam.scoring.shares import Division, Together
from jaxcontam.scoring.store import ScoreStore
from jaxcontam.scoring.stored import NonFiniteScoreError


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a pass reads.

    Attributes:
        values: Reading -> for each text its numbers, float64; see
            `ScoredText.rewrites`.
        n_cached: Target tokens whose scores the store held.
    """

    values: Mapping[Reading, Sequence[np.ndarray]]
    n_cached: int


class Pass(Protocol):
    """One call of the model for all texts that have a scored token."""

    @property
    def n_targets(self) -> int:
        """Target tokens that it costs."""
        ...

    def read(self, known: Mapping[bytes, float], progress: Progress | None) -> Found:
        """Run it.

        Args:
            known: Ids of each text as bytes -> its mean log-probability.
            progress: Receives target tokens.

        Raises:
            NonFiniteScoreError: Names the text and the id.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Sequences of texts, each distinct one once.

    Attributes:
        fresh: Distinct id arrays that are to be scored.
        owners: For each of them, a text that it is of.
        keys: For each sequence given, which one it is; None where nothing is scored.
    """

    fresh: tuple[np.ndarray, ...]
    owners: tuple[int, ...]
    keys: tuple[bytes | None, ...]

    @property
    def n_targets(self) -> int:
        """Target tokens that scoring will cost."""
        return n_targets(self.fresh)


def sequences_of(
    sequences: Sequence[np.ndarray],
    owners: Sequence[int],
    known: Collection[bytes] = (),
) -> Sequences:
    """Find what is to be scored.

    Args:
        sequences: int32 ids; one of fewer than two has no target.
        owners: The text that each is of.
        known: Keys of sequences that need no scoring.
    """
    fresh: dict[bytes, tuple[np.ndarray, int]] = {}
    keys: list[bytes | None] = []
    for ids, owner in zip(sequences, owners, strict=True):
        key = ids.tobytes() if len(ids) > 1 else None
        if key is not None and key not in known:
            fresh.setdefault(key, (ids, owner))
        keys.append(key)
    return Sequences(
        tuple(ids for ids, _ in fresh.values()),
        tuple(owner for _, owner in fresh.values()),
        tuple(keys),
    )


def token_scores(
    scorer: SequenceScorer, own: Sequences, progress: Progress | None
) -> tuple[dict[bytes, np.ndarray], int]:
    """Scores of every token of distinct sequences, and how many the store held.

    Returns:
        Key -> (R, T) float32.

    Raises:
        NonFiniteScoreError: Names the text and the id.
    """
    try:
        table = scorer.token_table(own.fresh, progress)
    except NonFiniteScoreError as e:
        raise NonFiniteScoreError(own.owners[e.sequence], e.position) from e
    keys = (ids.tobytes() for ids in own.fresh)
    return dict(zip(keys, table.scores, strict=True)), table.n_cached


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MeansPass:
    """Mean log-probabilities of rewrites, all of them in one call.

    Attributes:
        scorer: Gives log-probabilities.
        rewrites: Reading -> ids of the rewrites of each text.
        owners: Index of each text.
        plan: What of it is to be scored.
        own: Whether `known` holds what this very scorer says of the texts.
    """

    scorer: SequenceScorer
    rewrites: Mapping[Reading, Sequence[Sequence[np.ndarray]]]
    owners: Sequence[int]
    plan: Sequences
    own: bool

    @property
    def n_targets(self) -> int:
        """Target tokens that it costs."""
        return self.plan.n_targets

    def read(self, known: Mapping[bytes, float], progress: Progress | None) -> Found:
        """Run it; a rewrite without a target has NaN.

        Raises:
            NonFiniteScoreError: Names the text and the id.
        """
        plan = self.plan
        try:
            sums = self.scorer.sums(plan.fresh, progress)
        except NonFiniteScoreError as e:
            raise NonFiniteScoreError(plan.owners[e.sequence], e.position) from e
        means = dict(known) if self.own else {}
        for ids, mean in zip(plan.fresh, sums.means(plan.fresh), strict=True):
            means[ids.tobytes()] = float(mean)
        keys = iter(plan.keys)
        values: dict[Reading, list[np.ndarray]] = {
            reading: [
                np.array(
                    [
                        np.nan if key is None else means[key]
                        for key in itertools.islice(keys, len(of_text))
                    ]
                )
                for of_text in of_texts
            ]
            for reading, of_texts in self.rewrites.items()
        }
        return Found(values, sums.n_cached)


def means_pass(
    scorer: SequenceScorer,
    rewrites: Mapping[Reading, Sequence[Sequence[np.ndarray]]],
    owners: Sequence[int],
    known: Collection[bytes] | None,
) -> MeansPass:
    """Plan the mean log-probabilities of rewrites.

    Args:
        scorer: Gives log-probabilities.
        rewrites: Reading -> for each text the ids of its rewrites.
        owners: Index of each text.
        known: Ids of texts as bytes whose means will be known; None if those are of
            another model.
    """
    flat = [
        (ids, owner)
        for of_texts in rewrites.values()
        for of_text, owner in zip(of_texts, owners, strict=True)
        for ids in of_text
    ]
    plan = sequences_of(
        [ids for ids, _ in flat], [owner for _, owner in flat], known or ()
    )
    return MeansPass(scorer, rewrites, owners, plan, known is not None)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReferencePass:
    """What another model says of the texts.

    Attributes:
        scorer: That model's scorer; gives log-probabilities.
        own: Sequences of the texts, by its tokenizer, each distinct one once.
    """

    scorer: SequenceScorer
    own: Sequences

    @property
    def n_targets(self) -> int:
        """Target tokens that it costs."""
        return self.own.n_targets

    def read(self, known: Mapping[bytes, float], progress: Progress | None) -> Found:
        """Run it; a text without a target has NaN.

        Raises:
            NonFiniteScoreError: Names the text and the id.
        """
        del known
        table, n_cached = token_scores(self.scorer, self.own, progress)
        nothing = np.zeros((1, 0))
        values = [
            fluency_of((nothing if key is None else table[key])[0])
            for key in self.own.keys
        ]
        return Found({"reference": values}, n_cached)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PrefixPass:
    """Mean log-probabilities of the texts after a prefix.

    Attributes:
        reading: What it is.
        pairs: Scores continuations of shared prefixes.
        prefix: int32 ids.
        own: Sequences of the texts, each distinct one once.
        n_before: Ids of these before the text's own: BOS or EOS, or none.
        n_heads: Query heads of the model.
    """

    reading: Reading
    pairs: PairSource
    prefix: np.ndarray
    own: Sequences
    n_before: int
    n_heads: int

    @property
    def n_targets(self) -> int:
        """Target tokens that it costs."""
        return sum(len(ids) - self.n_before for ids in self.own.fresh)

    def read(self, known: Mapping[bytes, float], progress: Progress | None) -> Found:
        """Run it; the tokens that count are those that count without the prefix.

        Raises:
            NonFiniteScoreError: Names the text and the id.
        """
        del known
        # Without BOS or EOS the text's first token has no score of its own.
        skip = 1 - self.n_before
        try:
            sums = prefixed_sums(
                self.pairs,
                self.prefix,
                [ids[self.n_before :] for ids in self.own.fresh],
                n_heads=self.n_heads,
                skip=skip,
                progress=progress,
            )
        except NonFiniteScoreError as e:
            raise NonFiniteScoreError(self.own.owners[e.sequence], e.position) from e
        means = [
            # A text without a token that counts has no mean.
            loglik / n if n else np.nan
            for n, loglik in zip(
                sums.n_scored.tolist(), sums.loglik.tolist(), strict=True
            )
        ]
        return Found({self.reading: _of_texts(self.own, means)}, sums.n_cached)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GradientPass:
    """Gradient norms of the texts.

    Attributes:
        decoder: The model.
        own: Sequences of the texts, each distinct one once.
        batch_tokens: Tokens of a batch on one device.
        store: Where scores of this very decoder are kept.
        division: How batches are divided among processes.
    """

    decoder: Decoder
    own: Sequences
    batch_tokens: int
    store: ScoreStore | None
    division: Division | Together | None

    @property
    def n_targets(self) -> int:
        """Target tokens that it costs."""
        context = self.decoder.config.context
        return sum(min(len(ids), context) - 1 for ids in self.own.fresh)

    def read(self, known: Mapping[bytes, float], progress: Progress | None) -> Found:
        """Run it.

        Raises:
            NonFiniteScoreError: Names the text.
        """
        del known
        try:
            found = gradient_norms(
                self.decoder,
                self.own.fresh,
                batch_tokens=self.batch_tokens,
                store=self.store,
                division=self.division,
                progress=progress,
            )
        except NonFiniteScoreError as e:
            raise NonFiniteScoreError(self.own.owners[e.sequence], e.position) from e
        norms = found.norms.tolist()
        return Found({"gradients": _of_texts(self.own, norms)}, found.n_cached)


def _of_texts(own: Sequences, values: Sequence[float]) -> list[np.ndarray]:
    """One number for each text that is scored, from one for each distinct one."""
    of_key = {
        ids.tobytes(): np.array([value])
        for ids, value in zip(own.fresh, values, strict=True)
    }
    return [of_key[key] for key in own.keys if key is not None]
