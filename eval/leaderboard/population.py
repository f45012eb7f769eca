"""Models with planted sets, and each set as a detector meets it."""

import dataclasses
import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from eval.leaderboard.detector import (
    Budget,
    Entry,
    Known,
    MeteredScorer,
    Need,
    Subject,
    read_only,
)
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.members.passes import TextModel
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.opened import ModelInfo, OpenModel, SequenceScorer
from jaxcontam.scoring.scorer import Scorer
from train.population_device import train_scanned
from train.population_models import (
    Design,
    PlannedModel,
    Texts,
    last_loss,
    n_parameters,
    plan_model,
    read_pool,
    texts_in_memory,
)

# Sets of unseen texts that stand beside each set; no two sets share one.
_UNSEEN_SETS = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field(Design):
    """A population whose first sets are put before detectors.

    The sets that follow are at 0 copies: the unseen texts beside each of the first.

    Attributes:
        n_tested: How many these are.
        batch_tokens: Tokens that are scored at once; None is the platform's number.
            Fewer make fewer shapes to compile.
    """

    n_tested: int
    batch_tokens: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Arena:
    """A trained model with its sets.

    Attributes:
        field: Field of the population.
        texts: Texts of the population.
        planned: Sets and stream.
        plain: Scores with log-probabilities alone.
        moments: Also means, variances and tops.
        known: Name of a scorer -> its answers so far.
        n_parameters: Tied weights counted once.
        loss: Mean of the last steps, nats per token.
        seconds: CPU time of the training.
    """

    field: Field
    texts: Texts
    planned: PlannedModel
    plain: Scorer
    moments: Scorer
    known: dict[str, Known]
    n_parameters: int
    loss: float
    seconds: float

    @property
    def copies(self) -> tuple[int, ...]:
        """How often each tested set was planted."""
        return self.field.copies[: self.field.n_tested]

    def facts(self) -> dict[str, Any]:
        """What stands in the numbers of the study."""
        return {
            "seed": self.planned.seed,
            "n_parameters": self.n_parameters,
            "n_tokens": self.field.n_tokens,
            "n_planted_tokens": self.planned.stream.n_canary_ids,
            "loss": self.loss,
            "train_seconds": self.seconds,
        }


def field_of(design: Design, *, batch_tokens: int | None = None) -> Field:
    """A design's sets, and as many unseen ones at 0 copies as stand beside them."""
    n = len(design.copies)
    fields = {f.name: getattr(design, f.name) for f in dataclasses.fields(design)}
    fields["copies"] = (*design.copies, *(0,) * (_UNSEEN_SETS * n))
    return Field(**fields, n_tested=n, batch_tokens=batch_tokens)


def read_texts(documents: Sequence[str], pool: Sequence[str], field: Field) -> Texts:
    """Tokenizer, background and the examples that no model has to cut.

    Examples of more tokens than `max_example_tokens` are left out rather than cut, so
    that a set is the same as text and as ids.

    Raises:
        InputError: If an example and its separator give no ids.
    """
    texts = texts_in_memory(documents, pool, field)
    whole = [
        text for text, cut in zip(pool, texts.encoded.n_cut_ids, strict=True) if not cut
    ]
    return read_pool(
        texts.tokenizer,
        texts.prefix_id,
        texts.documents,
        whole,
        max_example_tokens=field.max_example_tokens,
        separator=field.separator,
    )


def train_arena(field: Field, texts: Texts, *, seed: int) -> Arena:
    """Draw sets, plant them, train.

    Raises:
        InputError: If there are too few examples or documents.
        DivergedError: If the loss is not finite at the end.
    """
    start = time.process_time()
    planned = plan_model(field, texts, seed=seed)
    decoder, losses = train_scanned(field.config, planned.rows, seed=seed)
    return Arena(
        field=field,
        texts=texts,
        planned=planned,
        plain=local_scorer(decoder, batch_tokens=field.batch_tokens),
        moments=local_scorer(decoder, batch_tokens=field.batch_tokens, moments=True),
        known={"plain": {}, "moments": {}, "reference": {}},
        n_parameters=n_parameters(decoder),
        loss=last_loss(losses),
        seconds=time.process_time() - start,
    )


def train_reference(field: Field, texts: Texts, *, seed: int) -> Scorer:
    """A model of the same shape and length of training, on background alone.

    Raises:
        InputError: If there are too few documents.
    """
    nothing = dataclasses.replace(field, copies=(0,))
    planned = plan_model(nothing, texts, seed=seed)
    decoder, _ = train_scanned(field.config, planned.rows, seed=seed)
    return local_scorer(decoder, batch_tokens=field.batch_tokens)


def corpus_counts(field: Field, texts: Texts) -> np.ndarray:
    """(V,) int64, how often each id stands in the background documents."""
    counts_V = np.zeros(field.config.decoder.vocab_size, np.int64)
    for index in range(len(texts.documents.lengths)):
        ids = texts.documents.document(index)
        counts_V += np.bincount(ids, minlength=len(counts_V))
    return counts_V


def subject_of(
    arena: Arena,
    number: int,
    entry: Entry,
    *,
    passes: float,
    reference: Scorer | None,
    counts_V: np.ndarray | None,
) -> Subject:
    """One set with what the entry says that it needs, and nothing else.

    Args:
        arena: The model.
        number: Number of the set.
        entry: The detector.
        passes: The budget, in passes over the set.
        reference: See `train_reference`.
        counts_V: See `corpus_counts`.
    """
    encoded = read_only(arena.planned.encoded[number])
    pass_tokens = int(encoded.lengths.sum())
    needs: set[Need] = set(entry.needs)
    # Who says that no model is read gets no token of one.
    tokens = int(passes * pass_tokens) if "log-probabilities" in needs else 0
    budget = Budget(tokens, pass_tokens=pass_tokens)
    # Its name would tell how often it was planted.
    benchmark = dataclasses.replace(arena.planned.sets[number].benchmark, name="set")
    moments = None
    if "distributions" in needs:
        moments = MeteredScorer(arena.moments, budget, arena.known["moments"])
    unseen: tuple[str, ...] = ()
    if "unseen texts" in needs:
        first = arena.field.n_tested + _UNSEEN_SETS * number
        beside = arena.planned.sets[first : first + _UNSEEN_SETS]
        unseen = tuple(text for one in beside for text in one.benchmark.texts)
    other = None
    if reference is not None and "reference model" in needs:
        metered = MeteredScorer(reference, budget, arena.known["reference"])
        other = _text_model("reference", arena, metered, None)
    plain = MeteredScorer(arena.plain, budget, arena.known["plain"])
    return Subject(
        benchmark=benchmark,
        encoded=encoded,
        model=_text_model("model", arena, plain, moments),
        budget=budget,
        seed=_drawing_seed(arena.planned.seed, benchmark),
        unseen=unseen,
        reference=other,
        corpus_counts=read_only(counts_V) if "corpus" in needs else None,
    )


def _drawing_seed(model_seed: int, benchmark: Benchmark) -> int:
    """Seed of what detectors draw, in [0, 2**31).

    Not the model's own, which drew the sets, their order and their copies: what a
    detector draws is independent of these, and of one set and another.
    """
    words = f"leaderboard\0{model_seed}\0{benchmark.content_digest}"
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:4], "big") >> 1


def _text_model(
    name: str, arena: Arena, plain: SequenceScorer, moments: SequenceScorer | None
) -> TextModel:
    """A scorer as the model of membership scores; its weights are not in reach."""
    decoder = arena.field.config.decoder
    opened = OpenModel(
        name=name,
        fingerprint=name,
        tokenizer=arena.texts.tokenizer,
        prefix_id=arena.texts.prefix_id,
        context=decoder.context,
        info=ModelInfo(
            name=name,
            fingerprint=name,
            n_parameters=None,
            dtype="float32",
            precision="highest",
            context=decoder.context,
        ),
        device=None,
        checkpoint=None,
        make_scorer=_no_scorer,
        has_moments=moments is not None,
        vocab_size=decoder.vocab_size,
        n_heads=decoder.n_heads,
    )
    return TextModel(model=opened, plain=plain, with_moments=moments)


def _no_scorer(**_: object) -> SequenceScorer:
    raise ValueError("scorers are those of the subject, which count what they read")
