"""A scorer over any function that answers log-probabilities of continuations.

An engine that runs elsewhere, or a model held in memory, has one thing in common: it
can say how likely a continuation is after a context. Order tests ask for no more.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.encoding import Encoder, encode_texts
from jaxcontam.errors import InputError
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.rows import FIRST_K, rows_of
from jaxcontam.scoring.scorer import SequenceSums, TokenTable, n_targets
from jaxcontam.scoring.stored import NonFiniteScoreError, Progress

Request = tuple[np.ndarray, np.ndarray]
"""int32 ids of a context and of its continuation; only texts have an empty context."""
Ask = Callable[[Sequence[Request]], Sequence[np.ndarray]]
"""Requests -> for each a float array: nats an id of the continuation, or one sum."""

# Requests between two reports of progress; the engine batches them as it likes.
_CHUNK = 256
_PROBE = "The cat sat on the mat. The dog lay by the door. "
# Each begins with an id of its own.
_PROBE_ENDS = ("It", "One", "7", "?")
# Nats between a sum and the sum of its parts: bfloat16 rounds by less; an engine that
# forgets its context, or divides by the length, is nats apart.
_CHAIN_TOLERANCE = 0.5


class AskedScorer:
    """Scores sequences by asking; see `SequenceScorer`."""

    store = None

    def __init__(self, ask: Ask, *, context: int, ids: bool, has_tokens: bool):
        """Wrap an asking function.

        Args:
            ask: See `Ask`.
            context: Most ids of a request.
            ids: Sequences are a tokenizer's ids, of which the first of a sequence has
                no score; else they are code points, and the first one counts, too.
            has_tokens: Whether answers hold a number for each id.
        """
        self.context = context
        self.has_tokens = has_tokens
        self._ask_engine = ask
        self._ids = ids

    @property
    def pairs(self) -> "AskedPairs":
        """Scores continuations, each in a request with its prefix."""
        return AskedPairs(self)

    def log_likelihoods(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> np.ndarray:
        """See `Scorer.log_likelihoods`."""
        return self.sums(sequences, progress).loglik

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """See `Scorer.sums`; sums over first ids are NaN where ids have no numbers.

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

    def tokens(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> list[np.ndarray]:
        """See `Scorer.tokens`."""
        return self.token_table(sequences, progress).scores

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """See `Scorer.token_table`.

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

    def ask(self, requests: Sequence[Request]) -> Iterator[np.ndarray]:
        """Answers in the order of the requests.

        Raises:
            InputError: If there is not one answer of the right length for each.
        """
        for start in range(0, len(requests), _CHUNK):
            chunk = requests[start : start + _CHUNK]
            answers = list(self._ask_engine(chunk))
            if len(answers) != len(chunk):
                raise InputError(
                    f"the model gave {len(answers)} answers to {len(chunk)} requests"
                )
            for (_, continuation), answer in zip(chunk, answers, strict=True):
                values = np.atleast_1d(np.asarray(answer, np.float64))
                wanted = len(continuation) if self.has_tokens else 1
                if values.shape != (wanted,):
                    raise InputError(
                        f"the model gave {values.size} numbers for a continuation, "
                        f"expected {wanted}"
                    )
                yield values

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
        total, done = n_targets(sequences), 0
        for (context, own), (sequence, start), values in zip(
            requests, places, self.ask(requests), strict=True
        ):
            bad = np.flatnonzero(~np.isfinite(values))
            if len(bad):
                raise NonFiniteScoreError(sequence, start + len(context) + int(bad[0]))
            done += len(own) - (len(context) == 0)
            if progress is not None:
                progress(done, total)
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
        """See `PairScorer.logprobs`.

        Raises:
            NonFiniteScoreError: Names the group and its continuation.
        """
        requests = [
            (group.prefix, ids) for group in groups for ids in group.continuations
        ]
        answers = self._scorer.ask(requests)
        total, done = sum(group.n_targets for group in groups), 0
        found: list[list[np.ndarray]] = []
        for index, group in enumerate(groups):
            own: list[np.ndarray] = []
            for k, ids in enumerate(group.continuations):
                values = next(answers)
                if not np.isfinite(values).all():
                    raise NonFiniteScoreError(index, k)
                own.append(values)
                done += len(ids)
            found.append(own)
            if progress is not None:
                progress(done, total)
        return PairScores(found, 0)


def check_answers(
    scorer: AskedScorer, encoder: Encoder, prefix_id: int | None, name: str
) -> tuple[str, ...]:
    """Ask a few requests whose answers wrong numbers do not pass.

    Args:
        scorer: What is checked.
        encoder: Makes the ids that it takes.
        prefix_id: Put before each context, if the tokenizer has one.
        name: Of the model, to begin an error.

    Returns:
        What the reader of a report should know, one sentence each.

    Raises:
        InputError: If answers are not finite, above 0, or the same whatever follows a
            context, as where they belong to the token before.
    """
    start = [] if prefix_id is None else [prefix_id]

    def ids(text: str) -> np.ndarray:
        return np.array(encode_texts(encoder, [text])[0], np.int32)

    context = np.concatenate([np.array(start, np.int32), ids(_PROBE)])
    ends = [ids(end) for end in _PROBE_ENDS]
    first, second = ends[0], ends[1]
    requests = [
        *((context, end[:1]) for end in ends),
        (context, first),
        (np.concatenate([context, first]), second),
        (context, np.concatenate([first, second])),
    ]
    values = [float(answer.sum()) for answer in scorer.ask(requests)]
    if not all(math.isfinite(value) and value <= 0 for value in values):
        raise InputError(
            f"{name}: answers are no log-probabilities (such as {values[0]!r})",
            hint="log p(continuation | context) in nats is at most 0",
        )
    if len(set(values[: len(ends)])) == 1:
        raise InputError(
            f"{name}: the same number whatever follows a context ({values[0]:.4f})",
            hint="its numbers may belong to the token before",
        )
    *_, one, other, both = values
    if abs(one + other - both) > _CHAIN_TOLERANCE:
        return (
            f"{name} gives two parts of a text {one + other:.3f} nats and the whole "
            f"{both:.3f}: p-values hold for any function of the texts, effects are not "
            "in nats",
        )
    return ()


def make_asked_scorer(
    scorer: AskedScorer,
    *,
    store: Path | None,
    batch_tokens: int | None = None,
    moments: bool = False,
) -> AskedScorer:
    """See `MakeScorer`; keeps no scores.

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
