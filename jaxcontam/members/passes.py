"""Texts in, one number a text and score out, from as few passes as the scores need.

The text itself is read once for all scores. Lowercased texts and neighbours are read in
one call, texts after a prefix in another; nothing is read that no score asks for, and
no sequence twice: one that comes again, as a text without capitals does when it is
lowercased, is taken from the text's own pass.

A text without a scored token has no score of any kind (NaN): an empty text, and a text
of one token where no BOS or EOS stands before it: the tokenizer has none, or
`no_prefix` leaves it out. A text of one token after BOS or EOS has every score. A text
longer than the model's context is read in windows that move by half a context. A
rewrite without a scored token counts as the text itself.

Dimension key
    N  texts
    T  scored tokens of a text
    R  scores of a token: its log-probability, and mean, variance and top if asked
    V  vocabulary
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from tokenizers import Tokenizer

from jaxcontam.data.encoding import encode_texts, first_added
from jaxcontam.errors import InputError
from jaxcontam.members.blind import fluency_of
from jaxcontam.members.result import Scores
from jaxcontam.members.score import Reading, ScoredText, ScoreMethod
from jaxcontam.members.scores import EDITS, corpus_logprobs
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.decoder import Decoder
from jaxcontam.progress import Progress, progress_after
from jaxcontam.scoring.gradients import gradient_norms
from jaxcontam.scoring.opened import OpenModel, PairSource, SequenceScorer
from jaxcontam.scoring.parts import ShareScored
from jaxcontam.scoring.prefixed import PrefixedSums, paired_sums, prefixed_sums
from jaxcontam.scoring.run_batches import NonFiniteScoreError
from jaxcontam.scoring.scorer import Scorer, n_targets
from jaxcontam.scoring.shares import each_scored

SHARE = 0.3
"""Share of words that an edit touches, rounded up."""

# White space is kept with the word before it, so that a joined text loses none.
_SPACED_WORD = re.compile(r"\S+\s*|\s+")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextModel:
    """A model and its scorers, one with moments where it can give them."""

    model: OpenModel
    plain: SequenceScorer
    with_moments: SequenceScorer | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The weights; InputError if they are not here."""
        return self.model.weights("this")

    @property
    def context(self) -> int:
        """Ids that are read at once."""
        return self.model.context

    @property
    def n_before(self) -> int:
        """Ids before each text: 1 where something stands before it, else 0."""
        return int(self.model.prefix_id is not None)

    def sequences(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of each text, the tokenizer's BOS or EOS once before them if any."""
        prefix_id = self.model.prefix_id
        prefix = [] if prefix_id is None else [prefix_id]
        found = encode_texts(self.model.tokenizer, texts, after=prefix_id, begins=True)
        return [np.array([*prefix, *ids], np.int32) for ids in found]

    def is_same_as(self, other: "TextModel") -> bool:
        """True if the two give the same scores."""
        mine, others = (
            (one.fingerprint, one.info.dtype, one.prefix_id)
            for one in (self.model, other.model)
        )
        return mine == others


def text_model(
    model: OpenModel,
    *,
    store: Path | None,
    batch_tokens: int | None = None,
    no_prefix: bool = False,
) -> TextModel:
    """Make a model of any kind ready to score texts; a rerun resumes from the store.

    With `no_prefix` nothing stands before a text but what its tokenizer puts there.

    Raises:
        InputError: If a server, or whoever made a file of scores, puts it there.
    """
    if no_prefix and model.prefix_id is not None:
        if not hasattr(model.tokenizer, "token_to_id"):
            raise InputError(
                f"--no-prefix: {model.info.name} has itself put a token before texts",
                hint="leave it out",
            )
        if first_added(cast(Tokenizer, model.tokenizer)) != model.prefix_id:
            model = dataclasses.replace(model, prefix_id=None)
    make = functools.partial(model.make_scorer, store=store, batch_tokens=batch_tokens)
    plain = make()
    with_moments = make(moments=True) if model.has_moments else None
    return TextModel(model=model, plain=plain, with_moments=with_moments)


def edited(text: str, n: int, seed: int) -> list[str]:
    """Neighbours of a text: about 30 % of its words are edited in each.

    An edit drops a word, repeats it, swaps it with the next one, or swaps, drops or
    repeats characters inside it. Other than words chosen by a masked model, these make
    a text worse to read, so that every model finds the text likelier than its
    neighbours. The draws depend on the seed and on the text, not on the texts beside
    it. Neighbours are neither empty nor the text itself; they may repeat.
    """
    if not text:
        raise ValueError("an empty text has no neighbours")
    digest = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).digest()
    words = np.frombuffer(digest, "<u4").tolist()
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))
    return [_neighbour(text, rng) for _ in range(n)]


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
        neighbours_by: What makes the neighbours, in a table's words.
    """

    reference: TextModel | None = None
    nonmember_prefix: tuple[str, ...] = ()
    member_prefix: tuple[str, ...] = ()
    company: tuple[str, ...] = ()
    corpus_counts: np.ndarray | None = None
    neighbours: Callable[[str, int, int], list[str]] = edited
    neighbours_by: str = EDITS
    n_neighbours: int = 10


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoreTable(Scores):
    """Scores of texts, and what they cost in target tokens, `n_cached` in the store."""

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
    """Score every text by every method; as many rows come out as texts go in.

    A text's scores do not depend on the texts beside it, but for float32 rounding where
    another number of texts makes batches of another shape, and but for `recall` and
    `con_recall`, whose prefix must leave room for the longest text. Neighbours are
    drawn from the seed.

    Raises:
        InputError: If a method needs an input that is missing; names its flag. If a
            text is also in a prefix, or no text of a prefix fits the context.
        NonFiniteScoreError: If a score is not finite; `sequence` is the text's index.
    """
    inputs = inputs or Inputs()
    plan = _planned(texts, methods, model, inputs, seed)
    own, scored, passes, total = plan.own, plan.scored, plan.passes, plan.n_targets
    scorer = model.plain
    if "moments" in plan.reads and model.with_moments is not None:
        scorer = model.with_moments
    try:
        table, n_cached = _token_scores(scorer, own, progress_after(progress, 0, total))
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
        read: dict[Reading, np.ndarray] = {
            reading: values[place] for reading, values in rewrites.items()
        }
        text = _scored_text(texts[i], plan.sequences[i], scores_RT, corpus_V, read)
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
    """Count the target tokens of all passes of `score_texts`; asks no model."""
    return _planned(texts, methods, model, inputs, seed).n_targets


def reference_targets(texts: Sequence[str], reference: TextModel) -> int:
    """Count the target tokens that a reference reads of texts; asks no model."""
    sequences = reference.sequences(texts)
    return _sequences_of(sequences, range(len(texts))).n_targets


def fitting_shots(
    shots: Sequence[str], texts: Sequence[str], model: TextModel
) -> list[int]:
    """Shots that fit the context with the longest text; too long ones are passed by."""
    lengths = [len(ids) - model.n_before for ids in model.sequences(texts)]
    return _fitting(_shot_ids(shots, model), max(lengths, default=0), model)


Found = tuple[Mapping[Reading, Sequence[np.ndarray]], int]
"""Results of a pass: reading -> for each text its numbers, float64, as in
`ScoredText.rewrites`; and how many target tokens the store held the scores of."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """One call of the model for all texts that have a scored token.

    Attributes:
        n_targets: Target tokens that it costs.
        read: Runs it: (ids of each text as bytes -> its mean log-probability, progress
            in target tokens) -> what it reads. A `NonFiniteScoreError` names the text.
    """

    n_targets: int
    read: Callable[[Mapping[bytes, float], Progress | None], Found]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Sequences:
    """Distinct sequences to score, and a text that each is of.

    `keys` says for each sequence given which one it is; None where nothing is scored.
    """

    fresh: tuple[np.ndarray, ...]
    owners: tuple[int, ...]
    keys: tuple[bytes | None, ...]

    @property
    def n_targets(self) -> int:
        return n_targets(self.fresh)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Sequences to read, `scored` ones of which have a target, and passes over them."""

    reads: set[Reading]
    sequences: Sequence[np.ndarray]
    own: _Sequences
    scored: list[int]
    passes: list[_Pass]

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
    prefixes: dict[Reading, tuple[str, ...]] = {}
    if "nonmember_prefix" in reads:
        prefixes["nonmember_prefix"] = inputs.nonmember_prefix
    if "member_prefix" in reads:
        prefixes["member_prefix"] = inputs.member_prefix
    # A text after itself is no surprise: prefixes are of other texts.
    shown = {text for shots in prefixes.values() for text in shots}
    for i, text in enumerate(texts):
        if text in shown:
            raise InputError(
                f"text {i + 1}: also in the prefix of recall or con_recall",
                hint="remove texts of a prefix from the file: they cannot be scored",
            )
    sequences = model.sequences(texts)
    own = _sequences_of(sequences, range(len(texts)))
    scored = [i for i, key in enumerate(own.keys) if key is not None]
    passes: list[_Pass] = []
    rewrites: dict[Reading, list[list[str]]] = {}
    if "lowercase" in reads:
        rewrites["lowercase"] = [[texts[i].lower()] for i in scored]
    if "neighbours" in reads:
        rewrites["neighbours"] = [
            inputs.neighbours(texts[i], inputs.n_neighbours, seed) for i in scored
        ]
    if rewrites:
        passes.append(_means_pass(rewrites, scored, own, model))
    reference = inputs.reference
    # A model beside itself needs no second pass.
    if reference is not None and not reference.is_same_as(model):
        theirs = reference.sequences([texts[i] for i in scored])
        passes.append(_reference_pass(reference.plain, _sequences_of(theirs, scored)))
    if (pairs := model.plain.pairs) is not None:
        for reading, shots in prefixes.items():
            passes.append(_prefix_pass(reading, pairs, shots, own, model))
        if "own_file" in reads:
            passes.append(_company_pass(pairs, inputs.company, own, model))
    if "gradients" in reads and isinstance(model.plain, Scorer):
        passes.append(_gradient_pass(model.checkpoint.decoder, own, model.plain))
    return _Plan(reads, sequences, own, scored, passes)


def _check_inputs(
    methods: Sequence[ScoreMethod], model: TextModel, inputs: Inputs
) -> None:
    """Check that every method has what it reads, before anything is scored."""
    directory = "give a model directory, or leave out the score"
    missing: dict[Reading, tuple[str, str]] = {}
    if model.with_moments is None:
        missing["moments"] = "log-probabilities of the whole vocabulary", directory
    if inputs.reference is None:
        missing["reference"] = "a reference model", "--reference MODEL names one"
    if inputs.corpus_counts is None:
        missing["corpus"] = "token counts of a corpus", "--scores dc_pdd:FILE names one"
    if model.model.checkpoint is None:
        missing["gradients"] = "the weights of the model", directory
    if model.plain.pairs is None:
        many = "a model that reads many texts after one prefix", "leave the score out"
        missing |= dict.fromkeys(
            ("nonmember_prefix", "member_prefix", "own_file"), many
        )
    if not inputs.nonmember_prefix:
        unseen = "texts that the model did not see", "--nonmembers FILE names some"
        missing["nonmember_prefix"] = unseen
    if not inputs.member_prefix:
        missing["member_prefix"] = (
            "texts that the model saw",
            "--members FILE names some",
        )
    if not inputs.company:
        two = "give 2 distinct texts or more of each side"
        missing["own_file"] = "a second text for each one", two
    for method in methods:
        for reading in method.reads:
            if reading in missing:
                what, hint = missing[reading]
                raise InputError(f"{method.name}: needs {what}", hint=hint)


def _sequences_of(
    sequences: Sequence[np.ndarray],
    owners: Sequence[int],
    known: Collection[bytes] = (),
) -> _Sequences:
    """Find what is to be scored: no sequence of `known`, and none without a target."""
    fresh: dict[bytes, tuple[np.ndarray, int]] = {}
    keys: list[bytes | None] = []
    for ids, owner in zip(sequences, owners, strict=True):
        key = ids.tobytes() if len(ids) > 1 else None
        if key is not None and key not in known:
            fresh.setdefault(key, (ids, owner))
        keys.append(key)
    sequences, of_texts = zip(*fresh.values(), strict=True) if fresh else ((), ())
    return _Sequences(sequences, of_texts, tuple(keys))


def _token_scores(
    scorer: SequenceScorer, own: _Sequences, progress: Progress | None
) -> tuple[dict[bytes, np.ndarray], int]:
    """Key -> (R, T) float32 of every distinct sequence; and how many the store held."""
    with _named(own):
        table = scorer.token_table(own.fresh, progress)
    keys = (ids.tobytes() for ids in own.fresh)
    return dict(zip(keys, table.scores, strict=True)), table.n_cached


@contextlib.contextmanager
def _named(own: _Sequences) -> Iterator[None]:
    """Name the text of a score that is not finite, not its sequence."""
    try:
        yield
    except NonFiniteScoreError as e:
        raise NonFiniteScoreError(own.owners[e.sequence], e.position) from e


def _means_pass(
    rewrites: Mapping[Reading, Sequence[Sequence[str]]],
    owners: Sequence[int],
    own: _Sequences,
    model: TextModel,
) -> _Pass:
    """Mean log-probabilities of rewrites, all in one call; NaN of one without a target.

    `rewrites` holds those of each text, `owners` the text's index.
    """
    sequences: list[np.ndarray] = []
    flat_owners: list[int] = []
    for of_texts in rewrites.values():
        sequences += model.sequences([text for some in of_texts for text in some])
        for owner, some in zip(owners, of_texts, strict=True):
            flat_owners += [owner] * len(some)
    known = {key for key in own.keys if key is not None}
    plan = _sequences_of(sequences, flat_owners, known)

    def read(known: Mapping[bytes, float], progress: Progress | None) -> Found:
        with _named(plan):
            sums = model.plain.sums(plan.fresh, progress)
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

    return _Pass(plan.n_targets, read)


def _reference_pass(scorer: SequenceScorer, own: _Sequences) -> _Pass:
    """`fluency_of` the texts under another model; NaN of a text without a target."""

    def read(_: Mapping[bytes, float], progress: Progress | None) -> Found:
        table, n_cached = _token_scores(scorer, own, progress)
        nothing = np.zeros((1, 0))
        values = [
            fluency_of((nothing if key is None else table[key])[0]) for key in own.keys
        ]
        return {"reference": values}, n_cached

    return _Pass(own.n_targets, read)


def _prefix_pass(
    reading: Reading,
    pairs: PairSource,
    shots: Sequence[str],
    own: _Sequences,
    model: TextModel,
) -> _Pass:
    """Mean log-probabilities of the texts after a prefix."""
    texts = [ids[model.n_before :] for ids in own.fresh]
    prefix_P = _prefix_of(shots, reading, texts, model)
    score = functools.partial(
        prefixed_sums, pairs, prefix_P, texts, n_heads=model.model.n_heads
    )
    return _means_after(reading, texts, own, model, score)


def _company_pass(
    pairs: PairSource, company: Sequence[str], own: _Sequences, model: TextModel
) -> _Pass:
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
    own: _Sequences,
    model: TextModel,
    score: Callable[..., PrefixedSums],
) -> _Pass:
    """Means over the tokens that count without a prefix; NaN of a text without one."""

    def read(_: Mapping[bytes, float], progress: Progress | None) -> Found:
        with _named(own):
            # Without BOS or EOS the text's first token has no score of its own.
            sums = score(skip=1 - model.n_before, progress=progress)
        means, n = np.full(len(texts), np.nan), sums.n_scored
        np.divide(sums.loglik, n, out=means, where=n > 0)
        return {reading: _of_texts(own, means.tolist())}, sums.n_cached

    return _Pass(sum(map(len, texts)), read)


def _gradient_pass(decoder: Decoder, own: _Sequences, scorer: Scorer) -> _Pass:
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
        return {"gradients": _of_texts(own, found.norms.tolist())}, found.n_cached

    context = decoder.config.context
    return _Pass(sum(min(len(ids), context) - 1 for ids in own.fresh), read)


def _of_texts(own: _Sequences, values: Sequence[float]) -> list[np.ndarray]:
    """One number for each text that is scored, from one for each distinct one."""
    of_key = {
        ids.tobytes(): np.array([value])
        for ids, value in zip(own.fresh, values, strict=True)
    }
    return [of_key[key] for key in own.keys if key is not None]


def _scored_text(
    text: str,
    ids_T: np.ndarray,
    scores_RT: np.ndarray,
    corpus_V: np.ndarray | None,
    rewrites: Mapping[Reading, np.ndarray],
) -> ScoredText:
    """Readings of one text, for the scores."""
    mean = scores_RT[0].mean(dtype=np.float64)
    moments = dict(zip(("means", "variances", "tops"), scores_RT[1:], strict=False))
    return ScoredText(
        text=text,
        ids=ids_T[1:],
        logprobs=scores_RT[0],
        **moments,
        corpus_logprobs=None if corpus_V is None else corpus_V[ids_T[1:]],
        rewrites={
            reading: np.where(np.isnan(values), mean, values)
            for reading, values in rewrites.items()
        },
    )


def _prefix_of(
    shots: Sequence[str],
    reading: Reading,
    texts: Sequence[np.ndarray],
    model: TextModel,
) -> np.ndarray:
    """Ids of the shots that fit the context with the longest text, after BOS or EOS."""
    longest = max(map(len, texts), default=0)
    ids = _shot_ids(shots, model)
    kept = _fitting(ids, longest, model)
    if not kept:
        flag = "--members" if reading == "member_prefix" else "--nonmembers"
        raise InputError(
            f"no text of {flag} fits into the model's context of {model.context} "
            f"tokens before the longest text ({longest} tokens)",
            hint="cut texts with --length, or leave out recall and con_recall",
        )
    return np.concatenate([*model.sequences([""]), *(ids[i] for i in kept)])


def _shot_ids(shots: Sequence[str], model: TextModel) -> list[np.ndarray]:
    """Ids of each shot with its newline, each tokenised alone."""
    newline = encode_texts(model.model.tokenizer, ["\n"])[0]
    found = encode_texts(model.model.tokenizer, shots)
    return [np.concatenate([ids, newline]) for ids in found]


def _fitting(ids: Sequence[np.ndarray], longest: int, model: TextModel) -> list[int]:
    room, kept = model.context - longest - model.n_before, []
    for i, shot in enumerate(ids):
        if len(shot) <= room:
            room -= len(shot)
            kept.append(i)
    return kept


def _neighbour(text: str, rng: np.random.Generator) -> str:
    parts = _SPACED_WORD.findall(text)
    n_edits = math.ceil(SHARE * len(parts) - 1e-9)
    # From the end on, so that an edit moves no word that is still to be edited.
    for place in sorted(rng.choice(len(parts), n_edits, replace=False), reverse=True):
        _edit(parts, int(place), _EDITS[rng.integers(len(_EDITS))], rng)
    changed = "".join(parts)
    # Dropping the only word, or swapping two equal ones, is no neighbour; a character
    # said twice always is.
    return changed if changed and changed != text else _stuttered(text, rng)


_EDITS = ("drop", "repeat", "swap", "swap letters", "drop letter", "repeat letter")


def _edit(parts: list[str], place: int, edit: str, rng: np.random.Generator) -> None:
    part = parts[place]
    word, space = _split(part)
    if edit == "drop":
        del parts[place]
    elif edit == "repeat":
        spaced = part if part[-1].isspace() else part + " "
        parts[place : place + 1] = [spaced, part]
    elif edit == "swap" and place + 1 < len(parts):
        # Each place keeps its own white space.
        after, gap = _split(parts[place + 1])
        parts[place : place + 2] = [after + space, word + gap]
    elif edit == "swap letters" and len(word) > 1:
        i = int(rng.integers(len(word) - 1))
        parts[place] = word[:i] + word[i + 1] + word[i] + word[i + 2 :] + space
    elif edit == "drop letter" and len(word) > 1:
        i = int(rng.integers(len(word)))
        parts[place] = word[:i] + word[i + 1 :] + space
    elif edit == "repeat letter":
        parts[place] = _stuttered(part, rng)


def _split(part: str) -> tuple[str, str]:
    """A word and the white space after it."""
    word = part.rstrip()
    return word, part[len(word) :]


def _stuttered(text: str, rng: np.random.Generator) -> str:
    """A text with one of its characters said twice; never the text itself."""
    i = int(rng.integers(len(text)))
    return text[: i + 1] + text[i:]
