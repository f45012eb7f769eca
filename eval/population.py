"""One planted model of a power study: trained as in `train.population`, many tests.

The pool that its sets are drawn from are the questions that `eval.python_docs` makes.
"""

import dataclasses
import time
from collections.abc import Sequence

import jax
from flax import nnx

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import Encoded, plain_tokenizer
from jaxcontam.methods import order_method
from jaxcontam.methods.layouts import Layout, PairLayout
from jaxcontam.methods.order_test import order_result, plan_test, score_test
from jaxcontam.models.decoder import Decoder
from jaxcontam.results import OrderResult
from jaxcontam.scoring.local import local_scorer
from train.population_forms import train_scanned
from train.population_plan import Design, Texts, plan_model, read_pool
from train.tokenizer import prefix_id, train_tokenizer
from train.tokens import as_cache

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
class Study(Design):
    """A population and the tests of every set of its models."""

    variants: tuple[Variant, ...]


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
    documents: Sequence[str], questions: Sequence[str], study: Study
) -> Texts:
    """Train the tokenizer of a population; the same texts, the same tokenizer."""
    tokenizer = train_tokenizer(documents, study.preset.decoder.vocab_size)
    plain = plain_tokenizer(tokenizer.backend_tokenizer)
    return read_pool(
        plain,
        prefix_id(tokenizer),
        as_cache(documents, plain),
        questions,
        max_example_tokens=study.max_example_tokens,
        separator=study.separator,
    )


def planted_model(study: Study, texts: Texts, *, seed: int) -> ModelRecord:
    """Draw sets, plant them, train, test.

    Raises:
        InputError: If there are too few questions or documents.
    """
    start = time.monotonic()
    model = plan_model(study, texts, seed=seed)
    decoder, losses = train_scanned(study.preset, model.rows, seed=seed)
    trained = time.monotonic()
    tested = tuple(
        row
        for one, ids in zip(model.sets, model.encoded, strict=True)
        for row in _test(study, texts, decoder, one.benchmark, ids, one.copies, seed)
    )
    return ModelRecord(
        design=study.name,
        seed=seed,
        n_examples=study.n_examples,
        n_parameters=sum(leaf.size for leaf in jax.tree.leaves(nnx.state(decoder))),
        n_tokens=study.n_tokens,
        n_canary_tokens=model.stream.n_canary_ids,
        loss=float(losses[-_LAST_STEPS:].mean()),
        train_seconds=trained - start,
        test_seconds=time.monotonic() - trained,
        rows=tested,
    )


def _test(
    study: Study,
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
    for variant in study.variants:
        if copies < variant.fewest_copies:
            continue
        planned = plan_test(
            benchmark,
            encoded,
            order_method(variant.scored),
            prefix_id=texts.prefix_id,
            context=study.preset.decoder.context,
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
