"""A served model as a scorer: sequences to requests, answers to log-probabilities.

Sequences are token ids where a tokenizer is given. Else they are code points, and the
server cuts the text into tokens of its own. The log-probability of such a token then
stands at its first character; sums are those of the server's tokens, a fixed function
of the text, so tests of orders stay exact. A text longer than the context is sent in
windows that may begin within a word, which the server then reads as other tokens than
it would in the whole text.
"""

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.encoding import text_of
from jaxcontam.progress import Progress, progress_in
from jaxcontam.scoring.api.logprobs import Prompt
from jaxcontam.scoring.api.prompts import CountedPrompts, ServedPrompts
from jaxcontam.scoring.cost import ScoringCost
from jaxcontam.scoring.pair_plan import PairGroup
from jaxcontam.scoring.pair_scorer import PairScores
from jaxcontam.scoring.rows import FIRST_K, Row, rows_of
from jaxcontam.scoring.scorer import SequenceSums, TokenTable, n_targets

BEFORE_TEXT = 0x110000
"""Stands for what a server puts before a text; one above the last code point."""


Prompts = ServedPrompts | CountedPrompts
"""Asks for log-probabilities of prompts, or counts what would be asked."""


class RemoteScorer:
    """Scores sequences by requests, one for each row; see `SequenceScorer`."""

    store = None

    def __init__(self, prompts: Prompts, *, context: int):
        self.prompts = prompts
        self.context = context

    @property
    def pairs(self) -> "RemotePairs":
        """Scores continuations, each in a request with its prefix."""
        return RemotePairs(self.prompts)

    def sums(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> SequenceSums:
        """Sum each sequence, as `Scorer.sums`."""
        n = len(sequences)
        loglik, first, n_scored = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)
        rows, found, n_cached = self._ask(sequences, progress)
        for row, (own, at) in zip(rows, found, strict=True):
            loglik[row.sequence] += own.sum()
            n_scored[row.sequence] += len(own)
            if row.window.start == 0:
                first[row.sequence] = own[at <= FIRST_K].sum()
        return SequenceSums(loglik, first, n_cached, n_scored)

    def token_table(
        self, sequences: Sequence[np.ndarray], progress: Progress | None = None
    ) -> TokenTable:
        """Score every token; where text is sent, every token of the server's."""
        rows, found, n_cached = self._ask(sequences, progress)
        logprobs: list[list[np.ndarray]] = [[] for _ in sequences]
        starts: list[list[np.ndarray]] = [[] for _ in sequences]
        # Rows of a sequence stand in its order.
        for row, (own, at) in zip(rows, found, strict=True):
            logprobs[row.sequence].append(own.astype(np.float32))
            starts[row.sequence].append(at + row.window.start)
        return TokenTable(
            [np.concatenate(parts)[None] for parts in logprobs],
            n_cached,
            None if self.prompts.ids else [np.concatenate(part) for part in starts],
        )

    def sequence_cost(
        self, sequences: Sequence[np.ndarray], planned: set[bytes]
    ) -> ScoringCost:
        """Cost of `sums`; asks no server."""
        rows = rows_of(sequences, self.context)
        asked = [
            (prompt_of(row.ids(sequences), ids=self.prompts.ids), row.n_targets)
            for row in rows
        ]
        return _cost(self.prompts, asked, planned)

    def _ask(
        self, sequences: Sequence[np.ndarray], progress: Progress | None
    ) -> tuple[list[Row], list[tuple[np.ndarray, np.ndarray]], int]:
        """Each row, its own log-probabilities and where they are, and what was there.

        Places count ids of the row from its start.
        """
        rows = rows_of(sequences, self.context)
        asked = [row.ids(sequences) for row in rows]
        prompts = [prompt_of(ids, ids=self.prompts.ids) for ids in asked]
        held = self.prompts.held(prompts)
        n_cached = sum(itertools.compress([row.n_targets for row in rows], held))
        scores = self.prompts.scores(
            prompts, progress_in(progress, n_targets(sequences))
        )
        found = []
        for row, ids, score in zip(rows, asked, scores, strict=True):
            at = score.starts + _n_before(ids)
            own = at >= row.window.first_target - row.window.start
            found.append((score.logprobs[own], at[own]))
        return rows, found, n_cached


class RemotePairs:
    """Scores continuations of prefixes; see `PairSource`."""

    def __init__(self, prompts: Prompts):
        self.prompts = prompts

    def logprobs(
        self, groups: Sequence[PairGroup], progress: Progress | None = None
    ) -> PairScores:
        """Score continuations, as `PairScorer.logprobs`.

        In text, a token counts for the part in which it begins; its score stands at its
        first character, and other characters have 0.
        """
        asked = self._prompts(groups)
        prompts = [prompt for prompt, _ in asked]
        held = self.prompts.held(prompts)
        n_cached = sum(itertools.compress([n for _, n in asked], held))
        total = sum(group.n_targets for group in groups)
        scores = iter(self.prompts.scores(prompts, progress_in(progress, total)))
        found, n_scored = [], []
        for group in groups:
            before = len(group.prefix) - _n_before(group.prefix)
            of_group, counts = [], []
            for ids in group.continuations:
                score = next(scores)
                is_own = score.starts >= before
                own = np.zeros(len(ids), np.float32)
                # Parts of one character begin at one place.
                np.add.at(
                    own,
                    score.starts[is_own] - before,
                    score.logprobs[is_own].astype(np.float32),
                )
                of_group.append(own)
                counts.append(int(is_own.sum()))
            found.append(of_group)
            n_scored.append(counts)
        return PairScores(found, n_cached, n_scored)

    def pair_cost(
        self, groups: Sequence[PairGroup], planned: set[bytes]
    ) -> ScoringCost:
        """Cost of `logprobs`; asks no server."""
        return _cost(self.prompts, self._prompts(groups), planned)

    def _prompts(self, groups: Sequence[PairGroup]) -> list[tuple[Prompt, int]]:
        """Each prefix with each of its continuations, and the ids to be scored."""
        return [
            (
                prompt_of(np.concatenate([group.prefix, ids]), ids=self.prompts.ids),
                len(ids),
            )
            for group in groups
            for ids in group.continuations
        ]


def prompt_of(sequence: np.ndarray, *, ids: bool) -> Prompt:
    """Prompt for a sequence: its ids, or the text of its code points."""
    if ids:
        return tuple(sequence.tolist())
    return text_of(sequence[_n_before(sequence) :].tolist())


def _n_before(ids: np.ndarray) -> int:
    """1 where something stands before the text that is not sent."""
    return int(len(ids) > 0 and ids[0] == BEFORE_TEXT)


def _cost(
    prompts: Prompts, asked: Sequence[tuple[Prompt, int]], planned: set[bytes]
) -> ScoringCost:
    """One request has the shape (1, its length)."""
    n_cached, positions = 0, Counter[tuple[int, ...]]()
    for prompt, n in asked:
        key = prompts.key(prompt).encode()
        if key in planned or prompts.holds(prompt):
            n_cached += n
            continue
        planned.add(key)
        positions[1, len(prompt)] += len(prompt)
    return ScoringCost(sum(n for _, n in asked), n_cached, positions, store_bytes=0)
