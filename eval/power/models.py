"""The populations of the power study, and every test of the sets of one model.

Fixed before any of their results was seen. Half of every stream is planted. Every set
is a random draw in random order from one pool of questions, another one for each model:
60 examples of at most 20 tokens, planted 0 to 32 times in models of 0.16 M weights.

- `main`: adjacency, and tests of whole orders in shards of 6 with 7 orders, read 8
  passes each. The rule of `audit` for so short a file gives strata of 3, of which 5
  passes are all there is; reversal reads 2. Context 128, so that shards of 6 fit.
- `shards`: the paper's t-test over 10 to 150 shards, and its permutation test, on sets
  of 1,000 examples.
- `seam_20`, `seam_60`, `seam_150`: direction by how many tokens before a boundary are
  read and after it scored, examples of so many tokens (questions one after another).
- `direction`: the same curve with other seeds: direction from the pairs that it asks
  for, and from all pairs of adjacency, whose test stands beside it.

Populations that asked for the number of examples, shards and orders, the size of the
model, the position in training and the share of the stream are told of in docs/log.
Learning rates and lengths were tried on seeds from 90000 on, which are not used.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eval.planted import in_rows
from eval.population import Fields, TrainedModel, train_model, train_side_by_side
from jaxcontam.data.encoding import Encoded
from jaxcontam.orders.methods import order_method
from jaxcontam.orders.order_test import (
    Layout,
    OrderFile,
    TestMethod,
    plan_test,
    score_test,
)
from jaxcontam.orders.sequences import OrderMethod
from jaxcontam.scoring.local import local_scorer
from jaxcontam.scoring.pair_plan import PairPlan
from jaxcontam.scoring.scorer import Scorer
from jaxcontam.scoring.seam import WHOLE, Seam
from train.config import PRESETS
from train.filters import Data
from train.plant import PlannedSet
from train.population_models import Design, Texts, read_texts

_CUT_TOKENS = 20
_SHARE = 0.5
_N_EXAMPLES = 60
_COPIES = (0, 1, 2, 4, 8, 16, 32)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Orders to score, and the tests that read their scores.

    `readings` are names in the table and rows of METHODS, each charged the cost. None
    for `n_orders` and `n_shards`, strata of whole orders, is the method's own. `seam`
    is what is scored of pairs.
    """

    scored: str
    n_orders: int | None = None
    readings: tuple[tuple[str, str], ...]
    n_shards: int | None = None
    seam: Seam = WHOLE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Population(Design):
    """Models of one design and the tests of all their sets; seeds count up.

    An example is `joined` questions.
    """

    variants: tuple[Variant, ...]
    first_seed: int
    joined: int = 1


_ADJACENCY, _REVERSAL, _DIRECTION = (
    Variant(scored=name, readings=((name, name),))
    for name in ("adjacency", "reversal", "direction")
)
_ALL_PAIRS = Variant(
    scored="adjacency",
    readings=(("adjacency", "adjacency"), ("direction of all pairs", "direction")),
)
# By the rule that `audit` has: strata of three here, whose orders coincide often, so
# that they cost less than adjacency does.
_BY_RULE = Variant(
    scored="stratified",
    n_orders=7,
    readings=(("stratified, by rule", "stratified"), ("t, same strata", "sharded_t")),
)
# Shards with 7 orders: as many passes as adjacency reads.
_SHARDS_OF_6 = Variant(
    scored="sharded_t",
    n_orders=7,
    n_shards=_N_EXAMPLES // 6,
    readings=(
        ("stratified, shards of 6", "stratified"),
        ("t, shards of 6", "sharded_t"),
    ),
)


# The paper's ablation over shards (figure 3, left) and its permutation test of whole
# files, at 20 and 100 orders: an order costs a pass.
_N_SHARDS = (10, 20, 50, 100, 150)
_OF_SHARDS = tuple(
    Variant(
        scored="sharded_t",
        n_orders=19,
        n_shards=n,
        readings=((f"t, {n} shards", "sharded_t"), (f"{n} shards", "stratified")),
    )
    for n in _N_SHARDS
)
_PERMUTATION = Variant(scored="permutation", readings=(("permutation", "permutation"),))
# Tokens before a boundary that are read, and after it that are scored; 0 is all.
_CONTEXTS, _FIRST = (0, 128, 96, 64, 48, 32), (0, 96, 64, 48, 32, 16)
_SEAMS = tuple(
    Variant(
        scored="direction",
        readings=((f"{context or 'all'} read, {first or 'all'} scored", "direction"),),
        seam=Seam(context, first),
    )
    for context, first in itertools.product(_CONTEXTS, _FIRST)
)
# Tokens of an example -> questions in it, and the context of models, which holds two.
_LENGTHS = {20: (1, 128), 60: (3, 128), 150: (8, 320)}


def _population(
    name: str,
    first_seed: int,
    *variants: Variant,
    n_examples: int = _N_EXAMPLES,
    copies: tuple[int, ...] = _COPIES,
    tokens: int = _CUT_TOKENS,
) -> Population:
    joined, context = _LENGTHS[tokens]
    preset = in_rows("0.16m", context, batch_rows=1)
    preset = preset.changed(max_example_tokens=tokens)
    planted = sum(copies) * n_examples * tokens
    return Population(
        name=name,
        config=preset,
        n_examples=n_examples,
        copies=copies,
        n_steps=round(planted / _SHARE / preset.step_tokens),
        variants=variants,
        first_seed=first_seed,
        joined=joined,
    )


POPULATIONS: Mapping[str, Population] = {
    "main": _population("main", 10_000, _ADJACENCY, _SHARDS_OF_6, _BY_RULE, _REVERSAL),
    "direction": _population("direction", 30_000, _ALL_PAIRS, _DIRECTION),
    "shards": _population(
        "shards",
        50_000,
        *(*_OF_SHARDS, _PERMUTATION, _DIRECTION),
        n_examples=1_000,
        copies=(0, 1, 4),
    ),
    **{
        name: _population(name, seed, *_SEAMS, copies=(0, 4, 10), tokens=tokens)
        for name, seed, tokens in (
            ("seam_20", 60_000, 20),
            ("seam_60", 61_000, 60),
            ("seam_150", 62_000, 150),
        )
    },
}
"""By name; `python -m eval.power` makes all."""
PULSE = Population(
    name="pulse",
    config=PRESETS["pulse"].changed(max_example_tokens=31),
    n_examples=24,
    n_steps=40,
    copies=(0, 10),
    variants=(_ADJACENCY, dataclasses.replace(_SHARDS_OF_6, n_shards=4), _REVERSAL),
    first_seed=1000,
)
"""The population of `--tiny`."""


def inputs_of(corpus: str, task: tuple[Population, int]) -> tuple[Any, ...]:
    """Name of the record of a model, and what determines it."""
    population, seed = task
    return f"{population.name}-{seed}", dataclasses.asdict(population), seed, corpus


def maker(
    documents: Sequence[str],
    questions: Sequence[str],
    *,
    chunks: Sequence[Sequence[tuple[Population, int]]] = (),
) -> Callable[[tuple[Population, int]], Fields]:
    """Function that trains and tests a model, with sets of the questions.

    It encodes a vocabulary's texts once. Models of a chunk, of one population, are
    trained side by side when the first of them is asked for.
    """
    texts: dict[tuple[int, Data, int], Texts] = {}
    chunk_of = {task: chunk for chunk in chunks for task in chunk}
    trained: dict[tuple[Population, int], TrainedModel | Exception] = {}

    def made_of(task: tuple[Population, int], own: Texts) -> TrainedModel:
        one, seed = task
        if task not in chunk_of:
            return train_model(one, own, seed=seed)
        if task not in trained:
            chunk = chunk_of[task]
            try:
                made = train_side_by_side(one, own, seeds=[seed for _, seed in chunk])
            except Exception as e:
                # Too little memory for one is too little for the others.
                made = [e] * len(chunk)
            trained.clear()
            trained.update(zip(chunk, made, strict=True))
        if isinstance(found := trained.pop(task), Exception):
            raise found
        return found

    def make(task: tuple[Population, int]) -> Fields:
        one, _ = task
        kind = (one.config.decoder.vocab_size, one.config.data, one.joined)
        if kind not in texts:
            # Neighbours in the documentation, mostly of one page.
            starts = range(0, len(questions) - one.joined + 1, one.joined)
            pool = [" ".join(questions[i : i + one.joined]) for i in starts]
            _, texts[kind] = read_texts(documents, pool, one.config)
        return _tested_model(one, texts[kind], made_of(task, texts[kind]))

    return make


def _tested_model(population: Population, texts: Texts, model: TrainedModel) -> Fields:
    """Every test of every set of a model."""
    start, scorer = time.process_time(), local_scorer(model.decoder)
    seed = model.planned.seed
    rows = [
        row
        for one, ids in zip(model.planned.sets, model.planned.encoded, strict=True)
        for row in _tests(population, texts, scorer, one, ids, seed)
    ]
    return {
        "design": population.name,
        "n_examples": population.n_examples,
        **model.facts,
        "test_seconds": time.process_time() - start,
        "rows": rows,
    }


def _tests(
    population: Population,
    texts: Texts,
    scorer: Scorer,
    planned: PlannedSet,
    encoded: Encoded,
    seed: int,
) -> Iterable[Fields]:
    """Every variant on one set, through the code that audits run."""
    for variant in population.variants:
        test = plan_test(
            planned.benchmark,
            encoded,
            method_of(variant),
            prefix_id=texts.prefix_id,
            context=population.config.decoder.context,
            seed=seed,
            n_orders=variant.n_orders,
            seam=variant.seam,
        )
        evidence = score_test(test, scorer).evidence
        for name, method in variant.readings:
            numbers = order_method(method).numbers(
                evidence,
                grouped=False,
                seed=test.seed,
                content_digest=test.benchmark.content_digest,
            )
            yield {
                "test": name,
                "copies": planned.copies,
                "log10_p": numbers.log10_p,
                "effect": numbers.effect,
                "effect_se": numbers.effect_se,
                "passes": n_read(test.layout) / int(encoded.lengths.sum()),
            }


def method_of(variant: Variant) -> TestMethod:
    """The row of METHODS, with the variant's strata in place of its own."""
    method = order_method(variant.scored)
    if variant.n_shards is not None and isinstance(method, OrderMethod):
        n_shards = variant.n_shards

        def strata(file: OrderFile, n_orders: int) -> list[np.ndarray]:
            return np.array_split(np.arange(file.n_examples), n_shards)

        # Few shards are longer than the context.
        return dataclasses.replace(method, strata=strata, windowed=True)
    return method


def n_read(layout: Layout) -> int:
    """Tokens that the model reads; a prefix counts once, however often it is shared."""
    prefixes = 0
    if isinstance(layout.plan, PairPlan):
        prefixes = sum(len(group.prefix) for group in layout.plan.groups)
    return layout.n_targets + prefixes
