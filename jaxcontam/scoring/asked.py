"""A scorer over any function that answers log-probabilities of continuations."""

import inspect
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jaxcontam.amounts import amount
from jaxcontam.errors import InputError
from jaxcontam.progress import Progress, progress_in
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.rows import FIRST_K, rows_of
from jaxcontam.scoring.run_batches import NonFiniteScoreError
from jaxcontam.scoring.scorer import SequenceSums, TokenTable, n_targets
from jaxcontam.stats.randomisation import LARGEST

REPEATS_WITHIN = 1e-3
"""Nats by which the same request may differ without a word."""
MEAN_WITHIN = 0.05
"""Nats by which the numbers of one model may differ on average: bfloat16 resolves a
logit of 16 to an eighth, and engines compute otherwise for other batches."""
EACH_WITHIN = 0.3
"""Nats by which each of them may differ."""
_T = TypeVar("_T")


Request = tuple[np.ndarray, np.ndarray]
"""int32 ids of a context and of its continuation; only texts have an empty context."""
Ask = Callable[[Sequence[Request]], Sequence[np.ndarray]]
"""Requests -> for each a float array: nats an id of the continuation, or one sum."""

# Requests between two reports of progress; the engine batches them as it likes.
_CHUNK = 256
# Rows that are asked for again, each alone, or in another order.
_ALONE, _REVERSED = 3, 8
# Kinds of arrays without real numbers: truth, complex, text, time, anything.
_NO_REALS = "bcSUOmM"
# Characters of a continuation, or of an answer, that an error shows.
_SHOWN = 40


def _told(value: Any) -> str:
    """A value in an error: its type and how it begins."""
    kind = type(value).__name__
    if inspect.iscoroutine(value):
        return f"a {kind}"
    try:
        said = f"the {kind} {value!r}"
    except ValueError:
        return f"a {kind} of very many digits"
    return f"{said[:_SHOWN]}..." if len(said) > _SHOWN else said


class AskedScorer:
    """Scores sequences by asking; see `SequenceScorer`."""

    store = None

    def __init__(
        self, ask: Ask, *, name: str, context: int, ids: bool, has_tokens: bool
    ):
        """Wrap an asking function; a request has at most `context` ids.

        Sequences are a tokenizer's ids, of which the first has no score; without `ids`
        they are code points, and the first one counts, too. With `has_tokens` answers
        hold a number for each id.
        """
        self.context, self.has_tokens = context, has_tokens
        self.notes: tuple[str, ...] = ()
        self._ask_engine, self._name, self._ids = ask, name, ids
        self._is_checked = False

    @property
    def pairs(self) -> "AskedPairs":
        """Scores continuations, each in a request with its prefix."""
        return AskedPairs(self)

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """Sum each sequence; sums over first ids are NaN where ids have no numbers."""
        n = len(sequences)
        loglik, first = np.zeros(n), np.full(n, 0.0 if self.has_tokens else np.nan)

        def both_sums(values: np.ndarray) -> tuple[float, float]:
            return float(values.sum()), float(values[:FIRST_K].sum())

        for at, start, (own, own_first) in self._parts(sequences, both_sums, progress):
            loglik[at] += own
            if start == 0 and self.has_tokens:
                first[at] = own_first
        return SequenceSums(loglik, first, 0)

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """Score every token, as `Scorer.token_table`; answers may not be sums."""
        if not self.has_tokens:
            raise InputError(
                "this model gives one number per text, but scores of single tokens are "
                "required here",
                hint="name a model directory, or give a transformers model",
            )
        parts: list[list[np.ndarray]] = [[] for _ in sequences]
        to_float32 = operator.methodcaller("astype", np.float32)
        for sequence, _, values in self._parts(sequences, to_float32, progress):
            parts[sequence].append(values)
        return TokenTable([np.concatenate(found)[None] for found in parts], 0)

    def ask(
        self,
        requests: Sequence[Request],
        keep: Callable[[int, np.ndarray], _T],
        progress: Progress | None = None,
    ) -> list[_T]:
        """Ask in a random order, check the first answers, and keep what `keep` makes.

        It gets the place of a request and its float64 answer; progress is in requests.
        """
        order, found = going_out(len(requests)), []
        for start in range(0, len(requests), _CHUNK):
            places = order[start : start + _CHUNK]
            chunk = [requests[i] for i in places]
            answers = self._answers(chunk)
            if not self._is_checked:
                self._is_checked = True
                self._check(chunk, answers)
                note = self._alone_note if self._ids else self._chain_note
                self.notes += note(chunk, answers)
            found += map(keep, places, answers)
            if progress is not None:
                progress(len(found), len(requests))
        return put_back(order, found)

    def _answers(self, requests: Sequence[Request]) -> list[np.ndarray]:
        given: Any = self._ask_engine(requests)
        # Sets, mappings and texts have no order, or no items.
        is_list = isinstance(given, Iterable)
        if not is_list or isinstance(given, str | bytes | Set | Mapping):
            if inspect.iscoroutine(given):
                given.close()
            raise InputError(
                f"{self._name}: gives {_told(given)}",
                hint=f"give a list of {len(requests)} numbers, in the order of the "
                "pairs",
            )
        answers = list(given)
        if len(answers) != len(requests):
            raise InputError(
                f"{self._name}: {len(answers)} answers to {len(requests)} requests"
            )
        found = []
        for (_, continuation), answer in zip(requests, answers, strict=True):
            values = self._numbers(answer, continuation)
            wanted = len(continuation) if self.has_tokens else 1
            if values.shape != (wanted,):
                raise InputError(
                    f"{self._name}: {values.size} numbers for a continuation, "
                    f"expected {wanted}"
                )
            # Infinite ones are told later, with their place; rounding may lift log 1.
            unlikely = np.isfinite(values) & (values < -LARGEST)
            if (bad := np.flatnonzero((values > 1e-4) | unlikely)).size:
                raise InputError(
                    f"{self._name}: {float(values[bad[0]])!r} is not a log-probability",
                    hint="give log p(continuation | context) in nats: at most 0, and "
                    "not that low",
                )
            found.append(values)
        return found

    def _numbers(self, answer: Any, continuation: np.ndarray) -> np.ndarray:
        """An answer as float64."""
        try:
            values = np.asarray(answer)
            if values.dtype.kind == "O" and not isinstance(answer, int):
                values = np.array(float(answer))
            if values.dtype.kind in _NO_REALS or np.ma.is_masked(answer):
                raise TypeError
            return np.atleast_1d(values.astype(np.float64))
        except (TypeError, ValueError, OverflowError, RuntimeError):
            if hasattr(answer, "detach"):
                # A tensor of torch that has gradients, or a dtype NumPy has not.
                tensor: Any = answer
                return self._numbers(tensor.detach().double().numpy(), continuation)
            row = "a continuation"
            if not self._ids:
                text = "".join(map(chr, continuation[:_SHOWN].tolist()))
                row = f"{text!r}{'...' if len(continuation) > _SHOWN else ''}"
            raise InputError(
                f"{self._name}: gives {_told(answer)} for {row}",
                hint="give log p(continuation | context) in nats, a number of at most "
                "0",
            ) from None

    def _check(
        self, requests: Sequence[Request], answers: Sequence[np.ndarray]
    ) -> None:
        """Refuse one answer to all requests, or answers that depend on their order."""
        distinct = {continuation.tobytes() for _, continuation in requests}
        sums = {float(answer.sum()) for answer in answers}
        if len(distinct) > 2 and len(sums) == 1 and math.isfinite(min(sums)):
            raise InputError(
                f"{self._name}: the same number for every continuation of a context "
                f"({min(sums):.4f})",
                hint="give log p(continuation | context) of each pair",
            )
        if self._ids:
            return
        order = [i for i, one in enumerate(answers) if np.isfinite(one).all()]
        order = order[: -_REVERSED - 1 : -1]
        again = self._answers([requests[i] for i in order])
        for i, answer in zip(order, again, strict=True):
            if not is_same(answers[i], answer):
                change = float(np.abs(answers[i] - answer).max())
                raise InputError(
                    f"{self._name}: the same pairs in another order have different "
                    f"log-probabilities (by up to {amount(change)} nats)",
                    hint="give one number for each pair, in the order of the pairs, "
                    "and the same in every call",
                )

    def _alone_note(
        self, requests: Sequence[Request], answers: Sequence[np.ndarray]
    ) -> tuple[str, ...]:
        """Ask some rows again, each by itself; say by how much their numbers move."""
        change = 0.0
        for request, answer in zip(requests[:_ALONE], answers, strict=False):
            if not np.isfinite(answer).all():
                continue
            (alone,) = self._answers([request])
            change = max(change, float(np.abs(alone - answer).max(initial=0.0)))
            if not is_same(answer, alone):
                raise InputError(
                    f"{self._name}: a row has different log-probabilities alone and "
                    f"among others (by up to {amount(change)} nats)",
                    hint="turn off the engine's prefix cache, or turn on its "
                    "batch-invariant mode",
                )
        if change <= REPEATS_WITHIN:
            return ()
        return (
            f"numbers of {self._name} depend on which rows are computed together: "
            f"alone, a row has a log-probability that differs by {amount(change)} "
            "nats; rows were sent in a random order, so none is favoured",
        )

    def _chain_note(
        self, requests: Sequence[Request], answers: Sequence[np.ndarray]
    ) -> tuple[str, ...]:
        """Note on texts whose two parts do not add up to the whole."""
        for (context, own), answer in zip(requests, answers, strict=True):
            spaces = np.flatnonzero(own[1:] == ord(" ")) + 1
            if not len(context) or not len(spaces):
                continue
            # Before a space, where tokenizers begin a token anyway.
            first, second = np.split(own, [int(spaces[len(spaces) // 2])])
            after = np.concatenate([context, first])
            parts = self._answers([(context, first), (after, second)])
            whole, both = float(answer.sum()), sum(float(part.sum()) for part in parts)
            # bfloat16 rounds by less; an engine that forgets its context, or divides
            # by the length, is nats apart.
            if abs(whole - both) > 0.5:
                return (
                    f"{self._name} gives two parts of a text {both:.3f} nats and the "
                    f"whole {whole:.3f}: p-values hold for any function of the texts, "
                    "but effects are not in nats",
                )
            return ()
        return ()

    def _parts(
        self,
        sequences: Sequence[np.ndarray],
        reduce: Callable[[np.ndarray], _T],
        progress: Progress | None,
    ) -> list[tuple[int, int, _T]]:
        """Sequence, start and reduced values of each scored window."""
        requests: list[Request] = [(ids[:0], ids) for ids in sequences]
        places = [(i, 0) for i in range(len(sequences))]
        if self._ids:
            rows = rows_of(sequences, self.context)
            places = [(row.sequence, row.window.start) for row in rows]
            split = [(row.ids(sequences), row.first + 1) for row in rows]
            requests = [(ids[:n_read], ids[n_read:]) for ids, n_read in split]

        def keep(i: int, values: np.ndarray) -> _T:
            bad = np.flatnonzero(~np.isfinite(values))
            if len(bad):
                sequence, start = places[i]
                at = start + len(requests[i][0]) + int(bad[0])
                raise NonFiniteScoreError(sequence, at)
            return reduce(values)

        kept = self.ask(requests, keep, progress_in(progress, n_targets(sequences)))
        return [(*place, one) for place, one in zip(places, kept, strict=True)]


class AskedPairs:
    """Scores continuations of prefixes; see `PairSource`."""

    def __init__(self, scorer: AskedScorer):
        self._scorer = scorer

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """Score continuations, as `PairScorer.logprobs`."""
        places = [
            (index, k)
            for index, group in enumerate(groups)
            for k in range(len(group.continuations))
        ]
        requests = [(groups[i].prefix, groups[i].continuations[k]) for i, k in places]

        def keep(i: int, values: np.ndarray) -> np.ndarray:
            if not np.isfinite(values).all():
                raise NonFiniteScoreError(*places[i])
            return values

        total = sum(group.n_targets for group in groups)
        kept = iter(self._scorer.ask(requests, keep, progress_in(progress, total)))
        found = [list(itertools.islice(kept, len(g.continuations))) for g in groups]
        return PairScores(found, 0)


def make_asked_scorer(
    scorer: AskedScorer,
    *,
    store: Path | None,
    batch_tokens: int | None = None,
    moments: bool = False,
) -> AskedScorer:
    """Give a scorer that keeps no scores and has no moments, as `MakeScorer`."""
    del store, batch_tokens
    if moments:
        raise InputError(
            "a model in memory or behind a function gives no moments of the vocabulary",
            hint="name a model directory",
        )
    return scorer


def is_same(first: np.ndarray, second: np.ndarray) -> bool:
    """True if two lists of log-probabilities can be of one model and one text."""
    if first.shape != second.shape:
        return False
    change = np.abs(first - second)
    return change.max(initial=0.0) <= EACH_WITHIN and (
        change.sum() <= MEAN_WITHIN * max(1, change.size)
    )


def going_out(n_requests: int) -> list[int]:
    """Places of requests in a random order, the same in each run of as many.

    An engine's answers may change with time, or with what it computes together, in
    favour of rows that stand beside one another; in a random order that is noise.
    """
    return np.random.default_rng(n_requests).permutation(n_requests).tolist()


def put_back(order: list[int], answers: list[_T]) -> list[_T]:
    """Answers in the order of the plan."""
    found = dict(zip(order, answers, strict=True))
    return [found[i] for i in range(len(order))]
