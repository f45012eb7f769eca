"""Passes over texts: what a model says of them, and of rewrites of them.

Each pass knows its size before it runs and scores no sequence twice. A sequence of the
text itself that comes again, as a text without capitals does when it is lowercased, is
taken from the text's own pass.

Dimension key
    T  scored tokens of a text
    R  scores of a token: its log-probability, and mean, variance and top if asked
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from jaxcontam.data.encoding import encode_texts
from jaxcontam.errors import InputError
from jaxcontam.members.blind_classifiers import fluency_of
from jaxcontam.members.score import Reading
from jaxcontam.members.text_model import TextModel
from jaxcontam.models.decoder import Decoder
from jaxcontam.progress import Progress
from jaxcontam.scoring.gradients import gradient_norms
from jaxcontam.scoring.opened import PairSource, SequenceScorer
from jaxcontam.scoring.prefixed import PrefixedSums, paired_sums, prefixed_sums
from jaxcontam.scoring.run_batches import NonFiniteScoreError
from jaxcontam.scoring.scorer import Scorer, n_targets

Found = tuple[Mapping[Reading, Sequence[np.ndarray]], int]
"""Results of a pass: reading -> for each text its numbers, float64, as in
`ScoredText.rewrites`; and how many target tokens the store held the scores of."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One call of the model for all texts that have a scored token.

    Attributes:
        n_targets: Target tokens that it costs.
        read: Runs it: (ids of each text as bytes -> its mean log-probability, progress
            in target tokens) -> what it reads. A `NonFiniteScoreError` names the text.
    """

    n_targets: int
    read: Callable[[Mapping[bytes, float], Progress | None], Found]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Distinct sequences to score, and a text that each is of.

    `keys` says for each sequence given which one it is; None where nothing is scored.
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
    """Find what is to be scored: no sequence of `known`, and none without a target."""
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

    Key -> (R, T) float32. A `NonFiniteScoreError` names the text and the id.
    """
    with _named(own):
        table = scorer.token_table(own.fresh, progress)
    keys = (ids.tobytes() for ids in own.fresh)
    return dict(zip(keys, table.scores, strict=True)), table.n_cached


@contextlib.contextmanager
def _named(own: Sequences) -> Iterator[None]:
    """Name the text of a score that is not finite, not its sequence."""
    try:
        yield
    except NonFiniteScoreError as e:
        raise NonFiniteScoreError(own.owners[e.sequence], e.position) from e


def means_pass(
    scorer: SequenceScorer,
    rewrites: Mapping[Reading, Sequence[Sequence[np.ndarray]]],
    owners: Sequence[int],
    known: Collection[bytes],
) -> Pass:
    """Mean log-probabilities of rewrites, all in one call; NaN of one without a target.

    `rewrites` holds the ids of each text's rewrites, `owners` the text's index, `known`
    ids as bytes whose means will be known.
    """
    flat = [
        (ids, owner)
        for of_texts in rewrites.values()
        for of_text, owner in zip(of_texts, owners, strict=True)
        for ids in of_text
    ]
    plan = sequences_of([ids for ids, _ in flat], [owner for _, owner in flat], known)

    def read(known: Mapping[bytes, float], progress: Progress | None) -> Found:
        with _named(plan):
            sums = scorer.sums(plan.fresh, progress)
        means = dict(known)
        for ids, mean in zip(plan.fresh, sums.means(plan.fresh), strict=True):
            means[ids.tobytes()] = float(mean)
        found = iter([np.nan if key is None else means[key] for key in plan.keys])
        values: dict[Reading, list[np.ndarray]] = {
            reading: [
                np.array(list(itertools.islice(found, len(of_text))))
                for of_text in of_texts
            ]
            for reading, of_texts in rewrites.items()
        }
        return values, sums.n_cached

    return Pass(plan.n_targets, read)


def reference_pass(scorer: SequenceScorer, own: Sequences) -> Pass:
    """`fluency_of` the texts under another model; NaN of a text without a target."""

    def read(_: Mapping[bytes, float], progress: Progress | None) -> Found:
        table, n_cached = token_scores(scorer, own, progress)
        nothing = np.zeros((1, 0))
        values = [
            fluency_of((nothing if key is None else table[key])[0]) for key in own.keys
        ]
        return {"reference": values}, n_cached

    return Pass(own.n_targets, read)


def prefix_pass(
    reading: Reading,
    pairs: PairSource,
    prefix_P: np.ndarray,
    own: Sequences,
    model: TextModel,
) -> Pass:
    """Mean log-probabilities of the texts after a prefix."""
    texts = [ids[model.n_before :] for ids in own.fresh]
    score = functools.partial(
        prefixed_sums, pairs, prefix_P, texts, n_heads=model.model.n_heads
    )
    return _means_after(reading, texts, own, model, score)


def company_pass(
    pairs: PairSource, company: Sequence[str], own: Sequences, model: TextModel
) -> Pass:
    """Mean log-probabilities of the texts, each after another one and a newline.

    The end of the other one is kept where not all fits.
    """
    (start,), n_before = model.sequences([""]), model.n_before
    texts = [ids[n_before:] for ids in own.fresh]
    before = _shot_ids([company[i] for i in own.owners], model)
    prefixes = [
        np.concatenate([start, shot[max(0, len(shot) - room) :]])
        for shot, ids in zip(before, texts, strict=True)
        for room in [model.context - n_before - len(ids)]
    ]
    score = functools.partial(paired_sums, pairs, prefixes, texts)
    return _means_after("own_file", texts, own, model, score)


def _means_after(
    reading: Reading,
    texts: Sequence[np.ndarray],
    own: Sequences,
    model: TextModel,
    score: Callable[..., PrefixedSums],
) -> Pass:
    """Means over the tokens that count without a prefix; NaN of a text without one."""

    def read(_: Mapping[bytes, float], progress: Progress | None) -> Found:
        with _named(own):
            # Without BOS or EOS the text's first token has no score of its own.
            sums = score(skip=1 - model.n_before, progress=progress)
        means = np.divide(
            sums.loglik,
            sums.n_scored,
            out=np.full(len(texts), np.nan),
            where=sums.n_scored > 0,
        )
        return {reading: of_texts(own, means.tolist())}, sums.n_cached

    return Pass(sum(map(len, texts)), read)


def gradient_pass(decoder: Decoder, own: Sequences, scorer: Scorer) -> Pass:
    """Gradient norms of the texts; `scorer` says how batches are made and kept."""

    def read(_: Mapping[bytes, float], progress: Progress | None) -> Found:
        with _named(own):
            found = gradient_norms(
                decoder,
                own.fresh,
                batch_tokens=scorer.batch_tokens,
                store=scorer.store,
                division=scorer.division,
                progress=progress,
            )
        return {"gradients": of_texts(own, found.norms.tolist())}, found.n_cached

    context = decoder.config.context
    return Pass(sum(min(len(ids), context) - 1 for ids in own.fresh), read)


def of_texts(own: Sequences, values: Sequence[float]) -> list[np.ndarray]:
    """One number for each text that is scored, from one for each distinct one."""
    of_key = {
        ids.tobytes(): np.array([value])
        for ids, value in zip(own.fresh, values, strict=True)
    }
    return [of_key[key] for key in own.keys if key is not None]


def prefix_of(
    shots: Sequence[str], reading: Reading, own: Sequences, model: TextModel
) -> np.ndarray:
    """Ids of the shots that fit the context with the longest text, in their order.

    Each shot is tokenised alone and ends in a newline; BOS or EOS stands before them.
    """
    context = model.context
    longest = max((len(ids) - model.n_before for ids in own.fresh), default=0)
    ids = _shot_ids(shots, model)
    kept = _fitting(ids, longest, model)
    if not kept:
        flag = "--members" if reading == "member_prefix" else "--nonmembers"
        raise InputError(
            f"no text of {flag} fits the model's context of {context} tokens before "
            f"the longest text ({longest} tokens)",
            hint="cut texts with --length, or leave recall and con_recall out",
        )
    return np.concatenate([*model.sequences([""]), *(ids[i] for i in kept)])


def fitting_shots(
    shots: Sequence[str], texts: Sequence[str], model: TextModel
) -> list[int]:
    """Shots that fit the context with the longest text; too long ones are passed by."""
    lengths = [len(ids) - model.n_before for ids in model.sequences(texts)]
    return _fitting(_shot_ids(shots, model), max(lengths, default=0), model)


def _shot_ids(shots: Sequence[str], model: TextModel) -> list[np.ndarray]:
    """Ids of each shot with its newline, each tokenised alone."""
    newline = encode_texts(model.model.tokenizer, ["\n"])[0]
    found = encode_texts(model.model.tokenizer, shots)
    return [np.concatenate([ids, newline]) for ids in found]


def _fitting(ids: Sequence[np.ndarray], longest: int, model: TextModel) -> list[int]:
    room = model.context - longest - model.n_before
    kept = []
    for i, shot in enumerate(ids):
        if len(shot) <= room:
            room -= len(shot)
            kept.append(i)
    return kept
