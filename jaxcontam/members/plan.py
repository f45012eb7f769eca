"""Texts in, one number a text and score out, from as few passes as the scores need.

The text itself is read once for all scores. Lowercased texts and neighbours are read in
one call, texts after a prefix in another; nothing is read that no score asks for.

A text without a scored token has no score of any kind (NaN): an empty text, and a text
of one token where the tokenizer has neither BOS nor EOS to put before it. A text of one
token after BOS or EOS has every score. A text longer than the model's context is read
in windows that move by half a context. A rewrite without a scored token counts as the
text itself.

Dimension key
    N  texts
    T  scored tokens of a text
    V  vocabulary
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from jaxcontam.errors import InputError
from jaxcontam.members.blind_classifiers import fluency_of
from jaxcontam.members.neighbours import edited
from jaxcontam.members.readings import (
    Pass,
    Sequences,
    company_pass,
    gradient_pass,
    means_pass,
    prefix_of,
    prefix_pass,
    reference_pass,
    sequences_of,
    token_scores,
)
from jaxcontam.members.score import Reading, ScoredText, ScoreMethod, Scores
from jaxcontam.members.text_model import TextModel
from jaxcontam.members.token_scores import corpus_logprobs
from jaxcontam.progress import Progress, progress_after
from jaxcontam.scoring.run_batches import NonFiniteScoreError
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.scoring.shares import ShareScored, each_scored


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Inputs:
    """Inputs that scores may need besides the model and the texts.

    Attributes:
        reference: Model that saw none of the texts; it is read whatever the scores are,
            since blind baselines ask it, too.
        nonmember_prefix: Texts that the model did not see; none may be among those that
            are scored.
        member_prefix: Texts that it did see; likewise.
        company: For each text that is scored another one of its own side.
        corpus_counts: (V,) int64, tokens of a corpus by id; see `token_frequencies`.
    """

    reference: TextModel | None = None
    nonmember_prefix: tuple[str, ...] = ()
    member_prefix: tuple[str, ...] = ()
    company: tuple[str, ...] = ()
    corpus_counts: np.ndarray | None = None
    neighbours: Callable[[str, int, int], list[str]] = edited
    n_neighbours: int = 10


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoreTable(Scores):
    """Scores of texts, and what they cost.

    Attributes:
        tokens_scored: Target tokens of all passes, those in the store among them.
        n_cached: Those whose scores the store held.
    """

    n_tokens: np.ndarray
    tokens_scored: int
    n_cached: int


def score_texts(
    texts: Sequence[str],
    methods: Sequence[ScoreMethod],
    model: TextModel,
    *,
    inputs: Inputs | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ScoreTable:
    """Score every text by every method.

    A text's scores do not depend on the texts beside it, but for float32 rounding where
    another number of texts makes batches of another shape, and but for `recall` and
    `con_recall`, whose prefix must leave room for the longest text. As many rows come
    out as texts go in. Neighbours are drawn from the seed.

    Raises:
        InputError: If a method needs an input that is missing; names its flag. If a
            text is also in a prefix, or no text of a prefix fits the context.
        NonFiniteScoreError: If a score is not finite; `sequence` is the text's index.
    """
    inputs = inputs or Inputs()
    plan = _planned(texts, methods, model, inputs, seed)
    own, scored, passes = plan.own, plan.scored, plan.passes
    scorer = model.plain
    if "moments" in plan.reads and model.with_moments is not None:
        scorer = model.with_moments
    total = plan.n_targets
    try:
        table, n_cached = token_scores(scorer, own, progress_after(progress, 0, total))
    except ShareScored:
        # The other passes need none of these scores before their results are joined.
        rest = each_scored(functools.partial(part.read, {}, None) for part in passes)
        collections.deque(rest, maxlen=0)
        raise
    # A server's tokens may be fewer than the ids: a text of one has no scored token.
    known = {
        key: float(scores[0].mean(dtype=np.float64)) if scores.size else np.nan
        for key, scores in table.items()
    }
    done = own.n_targets
    rewrites: dict[Reading, Sequence[np.ndarray]] = {}
    for part in passes:
        values, n_held = part.read(known, progress_after(progress, done, total))
        rewrites |= values
        done += part.n_targets
        n_cached += n_held
    if inputs.reference is not None and "reference" not in rewrites:
        # The model itself, whose own pass has been made.
        rewrites["reference"] = [
            fluency_of(table[plan.sequences[i].tobytes()][0]) for i in scored
        ]
    reference_N2 = None
    if "reference" in rewrites:
        reference_N2 = np.full((len(texts), 2), np.nan)
        reference_N2[scored] = np.reshape(rewrites["reference"], (-1, 2))
        # Scores read the mean alone.
        rewrites["reference"] = [values[:1] for values in rewrites["reference"]]
    corpus_V = None
    if "corpus" in plan.reads and inputs.corpus_counts is not None:
        corpus_V = corpus_logprobs(inputs.corpus_counts)
    values_NM = np.full((len(texts), len(methods)), np.nan)
    n_tokens_N = np.zeros(len(texts), np.int64)
    for place, i in enumerate(scored):
        scores_RT = table[plan.sequences[i].tobytes()]
        if not scores_RT.size:
            continue
        text = _scored_text(
            texts[i],
            plan.sequences[i],
            scores_RT,
            corpus_V,
            {reading: values[place] for reading, values in rewrites.items()},
        )
        n_tokens_N[i] = len(text.logprobs)
        values_NM[i] = [method.score(text) for method in methods]
        if not np.isfinite(values_NM[i]).all():
            raise NonFiniteScoreError(i, 0)
    return ScoreTable(
        names=tuple(method.name for method in methods),
        values=values_NM,
        n_tokens=n_tokens_N,
        tokens_scored=total,
        n_cached=n_cached,
        reference=reference_N2,
    )


def count_targets(
    texts: Sequence[str],
    methods: Sequence[ScoreMethod],
    model: TextModel,
    *,
    inputs: Inputs,
    seed: int,
) -> int:
    """Target tokens of all passes that `score_texts` would make; asks no model."""
    return _planned(texts, methods, model, inputs, seed).n_targets


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Plan:
    """Sequences to read, `scored` ones of which have a target, and passes over them."""

    reads: set[Reading]
    sequences: Sequence[np.ndarray]
    own: Sequences
    scored: list[int]
    passes: list[Pass]

    @property
    def n_targets(self) -> int:
        return self.own.n_targets + sum(part.n_targets for part in self.passes)


def _planned(
    texts: Sequence[str],
    methods: Sequence[ScoreMethod],
    model: TextModel,
    inputs: Inputs,
    seed: int,
) -> _Plan:
    _check_inputs(methods, model, inputs)
    reads: set[Reading] = {name for method in methods for name in method.reads}
    if inputs.reference is not None:
        reads.add("reference")
    _check_apart(texts, reads, inputs)
    sequences = model.sequences(texts)
    own = sequences_of(sequences, range(len(texts)))
    scored = [i for i, key in enumerate(own.keys) if key is not None]
    passes = _passes(
        [texts[i] for i in scored], scored, reads, own, model, inputs, seed
    )
    return _Plan(
        reads=reads, sequences=sequences, own=own, scored=scored, passes=passes
    )


def _check_inputs(
    methods: Sequence[ScoreMethod], model: TextModel, inputs: Inputs
) -> None:
    """Check that every method has what it reads, before anything is scored."""
    directory = "give a model directory, or leave the score out"
    missing: dict[Reading, tuple[str, str]] = {}
    if model.with_moments is None:
        missing["moments"] = "log-probabilities of the whole vocabulary", directory
    if inputs.reference is None:
        missing["reference"] = "a reference model", "--reference MODEL names one"
    if inputs.corpus_counts is None:
        missing["corpus"] = "token counts of a corpus", "--corpus FILE names one"
    if model.model.checkpoint is None:
        missing["gradients"] = "the weights of the model", directory
    if model.plain.pairs is None:
        both = "a model that reads many texts after one prefix", "leave the score out"
        missing["nonmember_prefix"] = missing["member_prefix"] = both
        missing["own_file"] = both
    if not inputs.nonmember_prefix:
        unseen = "texts that the model did not see", "--nonmembers FILE names some"
        missing["nonmember_prefix"] = unseen
    if not inputs.member_prefix:
        seen = "texts that the model saw", "--members FILE names some"
        missing["member_prefix"] = seen
    if not inputs.company:
        two = (
            "another text beside each one",
            "give 2 distinct texts or more of each side",
        )
        missing["own_file"] = two
    for method in methods:
        for reading in method.reads:
            if reading in missing:
                what, hint = missing[reading]
                raise InputError(f"{method.name}: needs {what}", hint=hint)


def _check_apart(
    texts: Sequence[str], reads: Collection[Reading], inputs: Inputs
) -> None:
    """A text after itself is no surprise: prefixes are of other texts."""
    shots = {
        *(inputs.nonmember_prefix if "nonmember_prefix" in reads else ()),
        *(inputs.member_prefix if "member_prefix" in reads else ()),
    }
    for i, text in enumerate(texts):
        if text in shots:
            raise InputError(
                f"text {i + 1}: stands in the prefix of recall or con_recall too",
                hint="texts of a prefix cannot be scored: take them out of the file",
            )


def _passes(
    texts: Sequence[str],
    owners: Sequence[int],
    reads: Collection[Reading],
    own: Sequences,
    model: TextModel,
    inputs: Inputs,
    seed: int,
) -> list[Pass]:
    """Passes beside that over all texts; `texts` are the `owners` among these."""
    passes: list[Pass] = []
    rewrites: dict[Reading, list[list[str]]] = {}
    if "lowercase" in reads:
        rewrites["lowercase"] = [[text.lower()] for text in texts]
    if "neighbours" in reads:
        rewrites["neighbours"] = [
            inputs.neighbours(text, inputs.n_neighbours, seed) for text in texts
        ]
    known = {key for key in own.keys if key is not None}
    if rewrites:
        rewritten: dict[Reading, list[list[np.ndarray]]] = {
            reading: _encoded(model, some) for reading, some in rewrites.items()
        }
        passes.append(means_pass(model.plain, rewritten, owners, known))
    reference = inputs.reference
    # A model beside itself needs no second pass.
    if reference is not None and not reference.is_same_as(model):
        their_own = sequences_of(reference.sequences(texts), owners)
        passes.append(reference_pass(reference.plain, their_own))
    prefixes: dict[Reading, tuple[str, ...]] = {
        "nonmember_prefix": inputs.nonmember_prefix,
        "member_prefix": inputs.member_prefix,
    }
    for reading, shots in prefixes.items():
        if reading in reads and model.plain.pairs is not None:
            passes.append(
                prefix_pass(
                    reading,
                    model.plain.pairs,
                    prefix_of(shots, reading, own, model),
                    own,
                    model,
                )
            )
    if "own_file" in reads and model.plain.pairs is not None:
        passes.append(company_pass(model.plain.pairs, inputs.company, own, model))
    if "gradients" in reads and isinstance(model.plain, Scorer):
        passes.append(gradient_pass(model.checkpoint.decoder, own, model.plain))
    return passes


def _encoded(
    model: TextModel, texts: Sequence[Sequence[str]]
) -> list[list[np.ndarray]]:
    """Ids of lists of texts, tokenised in one call."""
    ids = iter(model.sequences([text for some in texts for text in some]))
    return [list(itertools.islice(ids, len(some))) for some in texts]


def _scored_text(
    text: str,
    ids_T: np.ndarray,
    scores_RT: np.ndarray,
    corpus_V: np.ndarray | None,
    rewrites: Mapping[Reading, np.ndarray],
) -> ScoredText:
    """Readings of one text, for the scores."""
    mean = scores_RT[0].mean(dtype=np.float64)
    means_T, variances_T, tops_T = scores_RT[1:] if len(scores_RT) > 1 else [None] * 3
    return ScoredText(
        text=text,
        ids=ids_T[1:],
        logprobs=scores_RT[0],
        means=means_T,
        variances=variances_T,
        tops=tops_T,
        corpus_logprobs=None if corpus_V is None else corpus_V[ids_T[1:]],
        rewrites={
            reading: np.where(np.isnan(values), mean, values)
            for reading, values in rewrites.items()
        },
    )
