"""Any model object of lm-evaluation-harness as a scorer of sequences.

Such an object gives one number for a continuation after a context. That is all that
order tests ask for; scores of single tokens are not there.

Where the object's tokenizer is a fast one of transformers, ids are sent, so that an
example has the same ids in every order. Else text is sent: then whatever the object
makes of it is a fixed function of the text, and order tests stay exact.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from jaxcontam.data.characters import text_of
from jaxcontam.data.journal import Journal, journal_key
from jaxcontam.errors import InputError, first_line
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.rows import rows_of
from jaxcontam.scoring.scorer import SequenceSums, TokenTable, n_targets
from jaxcontam.scoring.stored import NonFiniteScoreError, Progress

if TYPE_CHECKING:
    from lm_eval.api.model import LM

JOURNAL_NAME = "lm_eval.jsonl"
"""Answers of the object, in the folder of scores."""

# Requests that the object gets together, to batch as it likes. What is finished is
# kept; a chunk that is not is asked for whole again, so that its batches are the same.
# Of a server only what is missing is asked: it makes batches of its own, and is paid.
_CHUNK = 256
# What servers answer to requests that they will never take.
_REFUSED = (400, 413, 422)

Request = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of a context, at least one where ids are sent, and of its continuation."""


class LmEvalScorer:
    """Scores sequences with a model object of lm-evaluation-harness."""

    store = None

    def __init__(
        self,
        lm: "LM",
        *,
        sends_ids: bool,
        context: int,
        identity: str,
        journal: Journal | None = None,
    ):
        """Wrap a model object.

        Args:
            lm: The object.
            sends_ids: Ids are those of its tokenizer; else they are code points, and
                text is sent.
            context: Most ids of a request.
            identity: Of what decides its numbers; part of the journal's keys.
            journal: Where answers are kept.
        """
        self.context = context
        self.pairs = LmEvalPairs(self)
        self._lm = lm
        self._is_served = _is_served(lm)
        self._sends_ids = sends_ids
        self._identity = identity
        self._journal = journal

    def log_likelihoods(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> np.ndarray:
        """See `Scorer.log_likelihoods`."""
        return self.sums(sequences, progress).loglik

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """See `Scorer.sums`.

        Of text the first character counts as well, after whatever the object puts
        before a text. Sums over first ids alone are not there; they are nan.

        Raises:
            InputError: If the object gives none of what was asked.
            NonFiniteScoreError: Names the sequence; which of its ids nobody says.
        """
        parts = self._parts(sequences)
        total, done, n_cached = n_targets(sequences), 0, 0
        loglik = np.zeros(len(sequences))
        answers = self.ask([request for _, request in parts])
        for (sequence, request), (value, is_cached) in zip(parts, answers, strict=True):
            if not math.isfinite(value):
                raise NonFiniteScoreError(sequence, 1)
            loglik[sequence] += value
            n_own = len(request[1]) - (not request[0])
            done += n_own
            n_cached += n_own * is_cached
            if progress is not None:
                progress(done, total)
        return SequenceSums(loglik, np.full(len(sequences), np.nan), n_cached)

    def _parts(self, sequences: Sequence[np.ndarray]) -> list[tuple[int, Request]]:
        """What is asked for each sequence, with its index."""
        if not self._sends_ids:
            # The object cuts long texts into windows of its own.
            return [(i, _request(ids[:0], ids)) for i, ids in enumerate(sequences)]
        parts = []
        for row in rows_of(sequences, self.context):
            ids, n_read = row.ids(sequences), row.first + 1
            parts.append((row.sequence, _request(ids[:n_read], ids[n_read:])))
        return parts

    def tokens(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> NoReturn:
        """Not there.

        Raises:
            InputError: Always.
        """
        raise _no_tokens()

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """Not there.

        Raises:
            InputError: Always.
        """
        raise _no_tokens()

    def ask(self, requests: Sequence[Request]) -> Iterator[tuple[float, bool]]:
        """Log-probability of each continuation, and whether the journal held it.

        Raises:
            InputError: If the object gives no log-likelihoods, or not one of each.
        """
        journal = self._journal
        for start in range(0, len(requests), _CHUNK):
            chunk = requests[start : start + _CHUNK]
            keys = [journal_key("lm_eval", self._identity, *one) for one in chunk]
            held = [journal is not None and key in journal for key in keys]
            if not self._is_served and not all(held):
                held = [False] * len(chunk)
            missing = [i for i, is_held in enumerate(held) if not is_held]
            values = []
            if missing:
                asked = [chunk[i] for i in missing]
                values = _answers(self._lm, asked, sends_ids=self._sends_ids)
            # What is not finite ends the run, and JSON has no word for it.
            if journal is not None and all(map(math.isfinite, values)):
                for i, value in zip(missing, values, strict=True):
                    journal.add(keys[i], value)
            found = dict(zip(missing, values, strict=True))
            for i, key in enumerate(keys):
                if i in found:
                    yield found[i], False
                elif journal is not None:
                    yield float(journal[key]), True


class LmEvalPairs:
    """Continuations after prefixes, each a sum."""

    has_tokens = False

    def __init__(self, scorer: LmEvalScorer):
        """Ask what `scorer` asks."""
        self._scorer = scorer

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """See `PairScorer.logprobs`; a continuation has one number, its sum.

        Raises:
            InputError: If the object gives none of what was asked.
            NonFiniteScoreError: Names the group and its continuation.
        """
        requests = [
            _request(group.prefix, ids)
            for group in groups
            for ids in group.continuations
        ]
        answers = self._scorer.ask(requests)
        total, done, n_cached = sum(group.n_targets for group in groups), 0, 0
        found: list[list[np.ndarray]] = []
        for index, group in enumerate(groups):
            own = []
            for k, ids in enumerate(group.continuations):
                value, is_cached = next(answers)
                if not math.isfinite(value):
                    raise NonFiniteScoreError(index, k)
                own.append(np.array([value]))
                done += len(ids)
                n_cached += len(ids) * is_cached
            found.append(own)
            if progress is not None:
                progress(done, total)
        return PairScores(found, n_cached)


def _request(context: np.ndarray, continuation: np.ndarray) -> Request:
    return tuple(context.tolist()), tuple(continuation.tolist())


def _answers(lm: "LM", requests: Sequence[Request], *, sends_ids: bool) -> list[float]:
    """What the object gives for each request.

    Raises:
        InputError: If it gives no log-likelihoods, or not one of each, or what it asks
            for them is not reached.
    """
    try:
        answers = _asked_ids(lm, requests) if sends_ids else _asked_text(lm, requests)
    except NotImplementedError as e:
        raise InputError(
            f"{type(lm).__name__}: gives no log-likelihoods",
            hint="models of chats have none; `jaxcontam replicate` works with chats",
        ) from e
    except Exception as e:
        # Errors of the network and of servers. Some are no OSError: those of aiohttp,
        # by which many requests are sent at once.
        if not isinstance(e, OSError) and not type(e).__module__.startswith("aiohttp"):
            raise
        raise InputError(
            f"{type(lm).__name__}: {first_line(e)}", hint=_hint(lm, e)
        ) from e
    return list(map(float, answers))


def _hint(lm: "LM", e: Exception) -> str:
    """What helps against an error of a server."""
    status = getattr(getattr(e, "response", None), "status_code", None)
    if getattr(e, "status", status) in _REFUSED:
        most = getattr(lm, "max_length", None) or "what is sent"
        return (
            f"if the server's model reads fewer tokens than {most}, say how many with "
            "max_length=N in the arguments"
        )
    return "what was answered before is kept; the same command goes on"


def _is_served(lm: "LM") -> bool:
    """Whether the object asks a server."""
    from lm_eval.models.api_models import TemplateAPI

    return isinstance(lm, TemplateAPI)


def _counted(lm: "LM", answers: Iterable[Any], n: int) -> list[Any]:
    """Answers, if there is one for each request."""
    found = list(answers)
    if len(found) != n:
        raise InputError(f"{type(lm).__name__}: {len(found)} answers to {n} requests")
    return found


def _asked_ids(lm: Any, requests: Sequence[Request]) -> list[float]:
    # Not `loglikelihood`, which would encode context and continuation together: then
    # the ids of an example would depend on the one before it.
    score = lm._loglikelihood_tokens
    # Without texts, which only its own cache asks for.
    asked = [(None, list(context), list(own)) for context, own in requests]
    # Objects of type hf read requests with the same ids once. In lm_eval 0.4.13 they
    # then give the wrong places' numbers where these ids are split otherwise into
    # context and continuation.
    shares = getattr(lm, "logits_cache", None)
    if shares is not None:
        lm.logits_cache = False
    try:
        answers = _counted(lm, score(asked, disable_tqdm=True), len(asked))
    finally:
        if shares is not None:
            lm.logits_cache = shares
    return [value for value, *_ in answers]


def _asked_text(lm: "LM", requests: Sequence[Request]) -> list[float]:
    """A whole text alone, or a continuation after a context."""
    from lm_eval.api.instance import Instance

    def instance(kind: str, *texts: str) -> Instance:
        return Instance(kind, doc={}, arguments=texts, idx=0)  # type: ignore[arg-type]

    whole = [
        instance("loglikelihood_rolling", text_of(own))
        for context, own in requests
        if not context
    ]
    after = [
        instance("loglikelihood", text_of(context), text_of(own))
        for context, own in requests
        if context
    ]
    rolled = lm.loglikelihood_rolling(whole) if whole else []
    followed = lm.loglikelihood(after) if after else []
    alone = iter(_counted(lm, rolled, len(whole)))
    given = iter(_counted(lm, followed, len(after)))
    answers = [next(given if context else alone) for context, _ in requests]
    return [one[0] if isinstance(one, tuple) else one for one in answers]


def _no_tokens() -> InputError:
    return InputError(
        "models of lm-evaluation-harness give one number a text, and scores of single "
        "tokens are needed here",
        hint="name a model directory, or api:URL#NAME",
    )
