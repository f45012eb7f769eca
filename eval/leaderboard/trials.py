"""Models with planted sets, each set as a detector meets it, and what detectors say."""

import dataclasses
import functools
import hashlib
import time

import numpy as np

from eval.leaderboard.detector import (
    Budget,
    Entry,
    Known,
    MeteredScorer,
    OverBudgetError,
    Subject,
    read_only,
)
from eval.planted import in_rows
from eval.population import TrainedModel, train_model
from eval.python_docs import read_python_docs
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.members.passes import TextModel, text_model
from jaxcontam.scoring.in_memory import opened_decoder
from jaxcontam.scoring.opened import SequenceScorer
from jaxcontam.sources import source_digest
from train.data import corpus_digest
from train.population_models import Design, part_of, read_texts

# Sets of unseen texts that stand beside each set; no two sets share one.
_UNSEEN_SETS = 2


def _with_unseen(design: Design) -> Design:
    """A design's sets, followed at 0 copies by the unseen texts beside each of them."""
    unseen = (0,) * (_UNSEEN_SETS * len(design.copies))
    return dataclasses.replace(design, copies=(*design.copies, *unseen))


def shown_copies(design: Design) -> tuple[int, ...]:
    """Copies of the sets that are put before detectors."""
    return design.copies[: len(design.copies) // (1 + _UNSEEN_SETS)]


DESIGN = _with_unseen(
    Design(
        name="leaderboard",
        config=in_rows("0.16m", 128, batch_rows=1).changed(max_example_tokens=40),
        n_examples=60,
        copies=(0, 0, 1, 2, 4, 8, 16),
        n_steps=988,
    )
)
PULSE = _with_unseen(
    Design(
        name="pulse",
        config=in_rows("pulse", 128, batch_rows=2).changed(max_example_tokens=44),
        n_examples=16,
        copies=(0, 8),
        n_steps=30,
    )
)
# Fewer tokens that are scored at once make fewer shapes to compile.
_PULSE_TOKENS = 32


class Bench:
    """Inputs that all models share."""

    def __init__(self, *, seed: int, tiny: bool):
        """Read the documentation of this Python, train a tokenizer, encode.

        Long examples are left out, not cut: a set is the same as text and as ids.
        """
        docs = read_python_docs()
        pool = [question.text for question in docs.questions]
        self.design = design = PULSE if tiny else DESIGN
        self.corpus, self.seed = corpus_digest([*docs.documents, *pool]), seed
        self._batch_tokens = _PULSE_TOKENS if tiny else None
        _, texts = read_texts(docs.documents, pool, design.config)
        whole = np.flatnonzero(np.asarray(texts.encoded.n_cut_ids) == 0)
        self.texts = dataclasses.replace(
            texts,
            pool=tuple(pool[i] for i in whole),
            encoded=part_of(texts.encoded, whole),
        )

    def arena(self, seed: int) -> "Arena":
        """Train a model; raises as `train_model`."""
        model = train_model(self.design, self.texts, seed=seed)
        return Arena(self, model, self._reader(model))

    @functools.cached_property
    def reference(self) -> TextModel:
        """A model of the same shape and length of training, on background alone."""
        nothing = dataclasses.replace(self.design, copies=(0,))
        # Seeds are at least 0, and that of the first model may be 0.
        seed = self.seed - 1 if self.seed else 2**31
        return self._reader(train_model(nothing, self.texts, seed=seed))

    @functools.cached_property
    def counts_V(self) -> np.ndarray:
        """(V,) int64, how often each id stands in the background documents."""
        documents = self.texts.documents
        counts_V = np.zeros(self.design.config.decoder.vocab_size, np.int64)
        for index in range(len(documents.lengths)):
            ids = documents.document(index)
            counts_V += np.bincount(ids, minlength=len(counts_V))
        return counts_V

    def _reader(self, model: TrainedModel) -> TextModel:
        opened = opened_decoder(model.decoder, self.texts.tokenizer)
        opened = dataclasses.replace(opened, prefix_id=self.texts.prefix_id)
        return text_model(opened, store=None, batch_tokens=self._batch_tokens)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Arena:
    """A trained model with its sets, its scorers, and their answers so far by name."""

    bench: Bench
    model: TrainedModel
    reader: TextModel
    known: dict[str, Known] = dataclasses.field(
        default_factory=lambda: {"plain": {}, "moments": {}, "reference": {}}
    )


def subject_of(arena: Arena, number: int, entry: Entry, *, passes: float) -> Subject:
    """One set with what the entry needs; the budget is in passes over it."""
    planned, bench, needs = arena.model.planned, arena.bench, set(entry.needs)
    encoded = read_only(planned.encoded[number])
    pass_tokens = int(encoded.lengths.sum())
    # Who says that no model is read gets no token of one.
    tokens = int(passes * pass_tokens) if "log-probabilities" in needs else 0
    budget = Budget(tokens, pass_tokens=pass_tokens)

    def metered(name: str, scorer: SequenceScorer | None) -> MeteredScorer:
        assert scorer is not None
        return MeteredScorer(scorer, budget, arena.known[name])

    # Its name would tell how often it was planted.
    benchmark = dataclasses.replace(planned.sets[number].benchmark, name="set")
    moments, reference, unseen = None, None, ()
    if "distributions" in needs:
        moments = metered("moments", arena.reader.with_moments)
    if "unseen texts" in needs:
        first = len(shown_copies(bench.design)) + _UNSEEN_SETS * number
        beside = planned.sets[first : first + _UNSEEN_SETS]
        unseen = tuple(text for one in beside for text in one.benchmark.texts)
    if "reference model" in needs:
        plain = metered("reference", bench.reference.plain)
        reference = _weightless(bench.reference, plain)
    return Subject(
        benchmark=benchmark,
        encoded=encoded,
        model=_weightless(arena.reader, metered("plain", arena.reader.plain), moments),
        budget=budget,
        seed=_drawing_seed(planned.seed, benchmark),
        unseen=unseen,
        reference=reference,
        corpus_counts=read_only(bench.counts_V) if "corpus" in needs else None,
    )


def _drawing_seed(model_seed: int, benchmark: Benchmark) -> int:
    """Seed of a detector's draws: not the model's own, which drew sets and copies."""
    words = f"leaderboard\0{model_seed}\0{benchmark.content_digest}"
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big") >> 1


def _weightless(
    reader: TextModel, plain: SequenceScorer, moments: SequenceScorer | None = None
) -> TextModel:
    """A model without its weights, with scorers that count what they read."""
    opened = dataclasses.replace(
        reader.model,
        device=None,
        checkpoint=None,
        make_scorer=_no_scorer,
        has_moments=moments is not None,
    )
    return TextModel(model=opened, plain=plain, with_moments=moments)


def _no_scorer(**_: object) -> SequenceScorer:
    raise ValueError("scorers are those of the subject, which count what they read")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Finding of one entry on one set of one model, by the model's seed.

    Its CPU seconds are less where another entry had asked the same before. There is no
    score where the budget was too small, and `refused` says why.
    """

    entry: str
    seed: int
    copies: int
    score: float | None
    p_value: float | None
    passes: float
    seconds: float
    refused: str | None = None


class EntryError(Exception):
    """An entry's own code broke; the cause is its exception."""


def try_entry(entry: Entry, arena: Arena, *, passes: float) -> list[Trial]:
    """One entry on every tested set of a model; `passes` is the budget of each set.

    Raises:
        EntryError: If the entry raises anything but `OverBudgetError`, says that it
            gives p-values and gives none, or gives one that it does not say.
    """
    trials = []
    for number, copies in enumerate(shown_copies(arena.bench.design)):
        subject = subject_of(arena, number, entry, passes=passes)
        start = time.process_time()
        score = p_value = refused = None
        try:
            found = entry.detect(subject)
            score, p_value = found.score, found.p_value
            if (p_value is not None) != (entry.gives == "p-value"):
                raise ValueError(
                    f"it says that it gives a {entry.gives}, got p_value={p_value}"
                )
        except OverBudgetError as e:
            refused = str(e)
        except Exception as e:
            # Whatever a file of the user raises: the other entries go on.
            raise EntryError(f"{type(e).__name__}: {e}") from e
        trials.append(
            Trial(
                entry=entry.name,
                seed=arena.model.planned.seed,
                copies=copies,
                score=score,
                p_value=p_value,
                passes=subject.budget.passes,
                seconds=time.process_time() - start,
                refused=refused,
            )
        )
    return trials


def trial_sources() -> str:
    """Digest of all code that trials follow from, but for that of single entries.

    It needs no git, and a new document or entry makes no trial obsolete.
    """
    entries = "eval.leaderboard.entries"
    return source_digest("eval.leaderboard.trials", entries, unread=(entries,))
