"""One planted model of a power study: sets, stream, training, tests, one record.

The sets are disjoint draws from the questions that `eval.python_docs` makes, each in
the random order in which it was drawn: at 0 copies the null of every test holds by
construction, whatever the questions are.
"""

import dataclasses
import time
from collections.abc import Sequence

import jax
import numpy as np
from flax import nnx
from tokenizers import Tokenizer

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded, encode_examples, plain_tokenizer
from jaxcontam.errors import InputError
from jaxcontam.methods import order_method
from jaxcontam.methods.layouts import Layout, PairLayout
from jaxcontam.methods.order_test import order_result, plan_test, score_test
from jaxcontam.models.decoder import Decoder
from jaxcontam.results import OrderResult
from jaxcontam.scoring.local import local_scorer
from train.population import train_scanned
from train.presets import Preset
from train.stream import Canary, build_stream, training_rows
from train.tokenizer import BOS, train_tokenizer

# Losses at the end of training are averaged over so many steps.
_LAST_STEPS = 50


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Orders to score and the tests that read their scores.

    Attributes:
        scored: The method whose orders are scored.
        n_orders: m of these orders; None is the method's own.
        names: (name in the table, method) of each test; each is charged the cost.
        fewest_copies: Sets planted less often are not tested so.
    """

    scored: str
    n_orders: int | None
    names: tuple[tuple[str, str], ...]
    fewest_copies: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A population: everything but the seed.

    Attributes:
        name: Of the population.
        preset: Model and batch.
        n_examples: Of each set.
        copies: Duplication count of each set, no two the same.
        n_steps: Training steps; background fills what the sets leave.
        variants: Tests of every set.
        max_example_tokens: Cut of an example, separator included.
    """

    name: str
    preset: Preset
    n_examples: int
    copies: tuple[int, ...]
    n_steps: int
    variants: tuple[Variant, ...]
    max_example_tokens: int

    @property
    def n_tokens(self) -> int:
        """Target tokens of a training run."""
        context = self.preset.decoder.context
        return self.n_steps * self.preset.batch_rows * context


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """What models of one vocabulary are trained and tested on.

    Attributes:
        tokenizer: Trained on the documents.
        prefix_id: BOS.
        documents: Background.
        questions: The pool that sets are drawn from.
    """

    tokenizer: Tokenizer
    prefix_id: int
    documents: tuple[str, ...]
    questions: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One test of one set of one model; numbers as in `OrderNumbers`.

    Attributes:
        passes: Tokens that the model read over those of the set.
    """

    test: str
    copies: int
    log10_p: float
    effect: float | None
    effect_se: float | None
    mde: float | None
    n_strata: int
    n_orders: int
    passes: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """One model of a population and what the tests said of its sets.

    Attributes:
        design: Name of the population.
        seed: Of sets, stream, weights and tests.
        n_examples: Of each set.
        n_parameters: Tied weights counted once.
        n_tokens: Target tokens of training.
        n_canary_tokens: Ids of all copies of all sets.
        loss: Mean of the last steps, nats a token.
        train_seconds: Wall time, compilation included.
        test_seconds: Likewise.
        rows: Every test of every set.
    """

    design: str
    seed: int
    n_examples: int
    n_parameters: int
    n_tokens: int
    n_canary_tokens: int
    loss: float
    train_seconds: float
    test_seconds: float
    rows: tuple[Outcome, ...]


def read_texts(
    documents: Sequence[str], questions: Sequence[str], vocab_size: int
) -> Texts:
    """Train the tokenizer of a population; the same texts, the same tokenizer."""
    tokenizer = plain_tokenizer(
        train_tokenizer(documents, vocab_size).backend_tokenizer
    )
    prefix_id = tokenizer.token_to_id(BOS)
    assert prefix_id is not None, "the trainer was given BOS as a special token"
    return Texts(tokenizer, prefix_id, tuple(documents), tuple(questions))


def planted_model(design: Design, texts: Texts, *, seed: int) -> ModelRecord:
    """Draw sets, plant them, train, test.

    Raises:
        InputError: If there are too few questions or documents.
    """
    start = time.monotonic()
    sets = draw_sets(design, texts, seed=seed)
    encoded = [_encode(design, texts, one) for one in sets]
    rows, n_canary_tokens = _rows(design, texts, encoded, seed=seed)
    decoder, losses = train_scanned(design.preset, rows, seed=seed)
    trained = time.monotonic()
    tested = tuple(
        row
        for one, ids, copies in zip(sets, encoded, design.copies, strict=True)
        for row in _test(design, texts, decoder, one, ids, copies, seed)
    )
    return ModelRecord(
        design=design.name,
        seed=seed,
        n_examples=design.n_examples,
        n_parameters=sum(leaf.size for leaf in jax.tree.leaves(nnx.state(decoder))),
        n_tokens=design.n_tokens,
        n_canary_tokens=n_canary_tokens,
        loss=float(losses[-_LAST_STEPS:].mean()),
        train_seconds=trained - start,
        test_seconds=time.monotonic() - trained,
        rows=tested,
    )


def draw_sets(design: Design, texts: Texts, *, seed: int) -> list[Benchmark]:
    """Disjoint sets in a seeded random order, one for each duplication count.

    Raises:
        InputError: If there are too few questions.
    """
    needed = design.n_examples * len(design.copies)
    if len(texts.questions) < needed:
        raise InputError(
            f"this Python installation gives {len(texts.questions)} questions, "
            f"{needed} needed",
            hint="use a Python whose standard library has its .py files",
        )
    rng = np.random.default_rng([seed, 3])
    drawn = rng.permutation(len(texts.questions))[:needed]
    return [
        Benchmark(
            f"{design.name}-{copies}",
            tuple(texts.questions[i] for i in part),
            (None,) * design.n_examples,
            order_provenance="seeded",
        )
        for copies, part in zip(
            design.copies, np.split(drawn, len(design.copies)), strict=True
        )
    ]


def _encode(design: Design, texts: Texts, benchmark: Benchmark) -> Encoded:
    return encode_examples(
        texts.tokenizer, benchmark.texts, max_example_tokens=design.max_example_tokens
    )


def _rows(
    design: Design, texts: Texts, encoded: Sequence[Encoded], *, seed: int
) -> tuple[np.ndarray, int]:
    """Rows of exactly the design's steps, and the ids of all copies."""
    sizes = [int(ids.lengths.sum()) for ids in encoded]
    n_canary = sum(n * size for n, size in zip(design.copies, sizes, strict=True))
    stream = build_stream(
        _background(texts, design.n_tokens - n_canary, seed=seed),
        [
            Canary(name=str(copies), encoded=ids, copies=copies)
            for copies, ids in zip(design.copies, encoded, strict=True)
        ],
        prefix_id=texts.prefix_id,
        seed=seed,
    )
    rows, _ = training_rows(stream.ids, design.preset.decoder.context, seed=seed)
    # One BOS before each document and copy: a few tokens more than the steps take.
    return rows[: design.n_steps * design.preset.batch_rows], stream.n_canary_ids


def _background(texts: Texts, n_ids: int, *, seed: int) -> list[np.ndarray]:
    """Random documents of so many ids in all, the last one cut."""
    rng = np.random.default_rng([seed, 0])
    chosen: list[np.ndarray] = []
    for index in rng.permutation(len(texts.documents)):
        if n_ids <= 0:
            break
        ids = texts.tokenizer.encode(
            texts.documents[index], add_special_tokens=False
        ).ids[:n_ids]
        chosen.append(np.array(ids, np.int32))
        n_ids -= len(ids)
    if n_ids > 0:
        raise InputError(
            f"this Python installation has {n_ids} tokens of text too few",
            hint="use a Python whose standard library has its .py files",
        )
    return chosen


def _test(
    design: Design,
    texts: Texts,
    decoder: Decoder,
    benchmark: Benchmark,
    encoded: Encoded,
    copies: int,
    seed: int,
) -> list[Outcome]:
    """Every variant on one set, through the code that audits run."""
    scorer = local_scorer(decoder)
    rows = []
    for variant in design.variants:
        if copies < variant.fewest_copies:
            continue
        planned = plan_test(
            benchmark,
            encoded,
            order_method(variant.scored),
            prefix_id=texts.prefix_id,
            context=design.preset.decoder.context,
            seed=seed,
            n_orders=variant.n_orders,
        )
        scored = score_test(planned, scorer)
        passes = _n_read(planned.layout) / int(encoded.lengths.sum())
        rows += [
            _row(
                name,
                copies,
                order_result(
                    planned,
                    scored,
                    primary=False,
                    pretests=(),
                    method=order_method(method),
                ),
                passes,
            )
            for name, method in variant.names
        ]
    return rows


def _n_read(layout: Layout) -> int:
    """Tokens that the model reads; a prefix counts once, however often it is shared."""
    prefixes = 0
    if isinstance(layout, PairLayout):
        prefixes = sum(len(group.prefix) for group in layout.plan.groups)
    return layout.n_targets + prefixes


def _row(test: str, copies: int, result: OrderResult, passes: float) -> Outcome:
    numbers = result.numbers
    return Outcome(
        test=test,
        copies=copies,
        log10_p=numbers.log10_p,
        effect=numbers.effect,
        effect_se=numbers.effect_se,
        mde=numbers.mde,
        n_strata=result.n_strata,
        n_orders=result.n_orders,
        passes=passes,
    )
