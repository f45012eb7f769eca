"""A scorer over any function that answers log-probabilities of continuations.

An engine that runs elsewhere, or a model held in memory, has one thing in common: it
can say how likely a continuation is after a context. Order tests ask for no more.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.progress import Progress, progress_in
from jaxcontam.scoring.agreement import REPEATS_WITHIN, is_same
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.request_order import going_out, put_back
from jaxcontam.scoring.rows import FIRST_K, rows_of
from jaxcontam.scoring.run_batches import NonFiniteScoreError
from jaxcontam.scoring.scorer import SequenceSums, TokenTable, n_targets

Request = tuple[np.ndarray, np.ndarray]
"""int32 ids of a context and of its continuation; only texts have an empty context."""
Ask = Callable[[Sequence[Request]], Sequence[np.ndarray]]
"""Requests -> for each a float array: nats an id of the continuation, or one sum."""

# Requests between two reports of progress; the engine batches them as it likes.
_CHUNK = 256
# Rows that are asked for again, each alone.
_ALONE = 3
# Nats between a sum and the sum of its parts: bfloat16 rounds by less; an engine that
# forgets its context, or divides by the length, is nats apart.
_CHAIN_TOLERANCE = 0.5
# Rounding may lift log 1 so far.
_ABOVE_0 = 1e-4


class AskedScorer:
    """Scores sequences by asking; see `SequenceScorer`."""

    store = None

    def __init__(
        self, ask: Ask, *, name: str, context: int, ids: bool, has_tokens: bool
    ):
        """Wrap an asking function.

        Args:
            ask: See `Ask`.
            name: Name of the model, which errors begin with.
            context: Most ids of a request.
            ids: Sequences are a tokenizer's ids, of which the first of a sequence has
                no score; else they are code points, and the first one counts, too.
            has_tokens: Whether answers hold a number for each id.
        """
        self.context = context
        self.has_tokens = has_tokens
        self.notes: tuple[str, ...] = ()
        self._ask_engine = ask
        self._name = name
        self._ids = ids
        self._is_checked = False

    @property
    def pairs(self) -> "AskedPairs":
        """Scores continuations, each in a request with its prefix."""
        return AskedPairs(self)

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """Sum each sequence; sums over first ids are NaN where ids have no numbers.

        Raises:
            NonFiniteScoreError: Names the sequence.
        """
        n = len(sequences)
        loglik, first = np.zeros(n), np.full(n, 0.0 if self.has_tokens else np.nan)
        for sequence, start, values in self._parts(sequences, progress):
            loglik[sequence] += values.sum(dtype=np.float64)
            if start == 0 and self.has_tokens:
                first[sequence] = values[:FIRST_K].sum(dtype=np.float64)
        return SequenceSums(loglik, first, 0)

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """Score every token, as `Scorer.token_table`.

        Raises:
            InputError: If answers are sums.
            NonFiniteScoreError: Names the sequence.
        """
        if not self.has_tokens:
            raise InputError(
                "this model gives one number a text, and scores of single tokens are "
                "needed here",
                hint="name a model directory, or give a transformers model",
            )
        parts: list[list[np.ndarray]] = [[] for _ in sequences]
        for sequence, _, values in self._parts(sequences, progress):
            parts[sequence].append(values.astype(np.float32))
        return TokenTable([np.concatenate(found)[None] for found in parts], 0)

    def ask(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[np.ndarray]:
        """Answers of requests, asked for in a random order; the first are checked.

        Raises:
            InputError: If there is not one answer of the right length for each, one is
                above 0, or all are the same.
        """
        order, found = going_out(len(requests)), []
        for start in range(0, len(requests), _CHUNK):
            chunk = [requests[i] for i in order[start : start + _CHUNK]]
            answers = self._answers(chunk)
            if not self._is_checked:
                self._is_checked = True
                self._check_same(chunk, answers)
                note = self._alone_note if self._ids else self._chain_note
                self.notes += note(chunk, answers)
            found += answers
            if progress is not None:
                progress(len(found), len(requests))
        return put_back(order, found)

    def _answers(self, requests: Sequence[Request]) -> list[np.ndarray]:
        answers = list(self._ask_engine(requests))
        if len(answers) != len(requests):
            raise InputError(
                f"{self._name}: {len(answers)} answers to {len(requests)} requests"
            )
        found = []
        for (_, continuation), answer in zip(requests, answers, strict=True):
            values = np.atleast_1d(np.asarray(answer, np.float64))
            wanted = len(continuation) if self.has_tokens else 1
            if values.shape != (wanted,):
                raise InputError(
                    f"{self._name}: {values.size} numbers for a continuation, "
                    f"expected {wanted}"
                )
            if (values > _ABOVE_0).any():
                raise InputError(
                    f"{self._name}: {float(values.max())!r} is no log-probability",
                    hint="log p(continuation | context) in nats is at most 0",
                )
            found.append(values)
        return found

    def _check_same(
        self, requests: Sequence[Request], answers: Sequence[np.ndarray]
    ) -> None:
        """Refuse an engine that gives every request the same answer."""
        distinct = {continuation.tobytes() for _, continuation in requests}
        sums = {float(answer.sum()) for answer in answers}
        if len(distinct) > 2 and len(sums) == 1 and math.isfinite(min(sums)):
            raise InputError(
                f"{self._name}: the same number whatever follows a context "
                f"({min(sums):.4f})",
                hint="give log p(continuation | context) of each pair",
            )

    def _alone_note(
        self, requests: Sequence[Request], answers: Sequence[np.ndarray]
    ) -> tuple[str, ...]:
        """Ask some rows again, each by itself; say by how much their numbers move.

        Raises:
            InputError: If they move further than those of one model do.
        """
        change = 0.0
        for request, answer in zip(requests[:_ALONE], answers, strict=False):
            if not np.isfinite(answer).all():
                continue
            (alone,) = self._answers([request])
            change = max(change, float(np.abs(alone - answer).max(initial=0.0)))
            if not is_same(answer, alone):
                raise InputError(
                    f"{self._name}: a row has other log-probabilities alone than among "
                    f"others (by up to {change:.2g} nats)",
                    hint="turn off the engine's prefix cache, or turn on its "
                    "batch-invariant mode",
                )
        if change <= REPEATS_WITHIN:
            return ()
        return (
            f"numbers of {self._name} depend on what it computes together: a row alone "
            f"has a log-probability that differs by {change:.2g} nats; rows went out "
            "in a random order, which favours none",
        )

    def _chain_note(
        self, requests: Sequence[Request], answers: Sequence[np.ndarray]
    ) -> tuple[str, ...]:
        """What is said of texts whose two parts do not add up to the whole."""
        for (context, own), answer in zip(requests, answers, strict=True):
            spaces = np.flatnonzero(own[1:] == ord(" ")) + 1
            if not len(context) or not len(spaces):
                continue
            # Before a space, where tokenizers begin a token anyway.
            first, second = np.split(own, [int(spaces[len(spaces) // 2])])
            after = np.concatenate([context, first])
            parts = self._answers([(context, first), (after, second)])
            whole, both = float(answer.sum()), sum(float(part.sum()) for part in parts)
            if abs(whole - both) > _CHAIN_TOLERANCE:
                return (
                    f"{self._name} gives two parts of a text {both:.3f} nats and the "
                    f"whole {whole:.3f}: p-values hold for any function of the texts, "
                    "effects are not in nats",
                )
            return ()
        return ()

    def _parts(
        self, sequences: Sequence[np.ndarray], progress: Progress | None
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        """Sequence, start of the window and values of each scored window."""
        requests: list[Request] = []
        places: list[tuple[int, int]] = []
        if self._ids:
            for row in rows_of(sequences, self.context):
                ids, n_read = row.ids(sequences), row.first + 1
                requests.append((ids[:n_read], ids[n_read:]))
                places.append((row.sequence, row.window.start))
        else:
            requests = [(ids[:0], ids) for ids in sequences]
            places = [(i, 0) for i in range(len(sequences))]
        answers = self.ask(requests, progress_in(progress, n_targets(sequences)))
        for (context, _), (sequence, start), values in zip(
            requests, places, answers, strict=True
        ):
            bad = np.flatnonzero(~np.isfinite(values))
            if len(bad):
                raise NonFiniteScoreError(sequence, start + len(context) + int(bad[0]))
            yield sequence, start, values


class AskedPairs:
    """Scores continuations of prefixes; see `PairSource`."""

    def __init__(self, scorer: AskedScorer):
        """Ask what `scorer` asks."""
        self._scorer = scorer
        self.has_tokens = scorer.has_tokens

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """Score continuations, as `PairScorer.logprobs`.

        Raises:
            NonFiniteScoreError: Names the group and its continuation.
        """
        requests = [
            (group.prefix, ids) for group in groups for ids in group.continuations
        ]
        total = sum(group.n_targets for group in groups)
        answers = iter(self._scorer.ask(requests, progress_in(progress, total)))
        found: list[list[np.ndarray]] = []
        for index, group in enumerate(groups):
            own: list[np.ndarray] = []
            for k, _ in enumerate(group.continuations):
                values = next(answers)
                if not np.isfinite(values).all():
                    raise NonFiniteScoreError(index, k)
                own.append(values)
            found.append(own)
        return PairScores(found, 0)


def make_asked_scorer(
    scorer: AskedScorer,
    *,
    store: Path | None,
    batch_tokens: int | None = None,
    moments: bool = False,
) -> AskedScorer:
    """Make a scorer that keeps no scores, as `MakeScorer`.

    Raises:
        InputError: If moments of the vocabulary are asked for.
    """
    del store, batch_tokens
    if moments:
        raise InputError(
            "a model in memory or behind a function gives no moments of the vocabulary",
            hint="name a model directory",
        )
    return scorer
