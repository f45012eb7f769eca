"""The populations of the power study, fixed before any of their results was seen.

Half of every stream is planted unless the population asks about just that. Every set
is a random draw in random order from one pool of questions, another one for each model.

- `main`: the curve. 60 examples of at most 20 tokens, 0 to 32 copies. Adjacency, and
  tests of whole orders in shards of 6 with 7 orders, read 8 passes each. The rule of
  `audit` for so short a file gives strata of 3, of which 5 passes are all there is;
  reversal reads 2. Context 128, so that shards of 6 fit.
- `direction`: the same curve with other seeds: direction from the pairs that it asks
  for, and from all pairs of adjacency, whose test stands beside it.
- `examples`: sets of 240 planted 0 and 4 times; the first 15 to 240 are tested.
- `shards`: sets of 120 at 0 and 16 copies; 10, 20, 30, 60 shards and 1, 3, 7, 15 orders
  of each. Context 256, so that shards of 12 fit.
- `size-...`: 0.16, 0.41 and 1.30 M weights on the same streams; 0, 4 and 8 copies.
- `position`: 6 copies in one stretch of an eighth of training, which begins at 0.05,
  0.45, 0.85 of it, or spread over all of it.
- `share-...`: 8 copies are a half, a quarter, a tenth of the stream, which makes the
  training two and five times as long.
- `ladder`, `long`, `quickstart`: of an earlier study, whose effects reports quote
  (`eval.reference_curve`); with the paper's 250 orders.

Learning rates and lengths were tried on seeds from 90000 on, which are not used.
"""

import dataclasses
from collections.abc import Mapping

from eval.planted import in_rows, resized
from eval.power.model import Reading, Study, Variant
from train.plan import When
from train.presets import PRESETS, Preset

EXACT = ("stratified", "adjacency")
PAPER = "t, 50 shards, 250 orders"
# Deeper p-values are not compared: the assumptions of neither test carry so far.
CUT = 1e-12

_CUT_TOKENS = 20
_N_EXAMPLES = 60
_SHARD_SIZE = 6
# Rows hold a shard.
_CONTEXT = 128


def _scored(scored: str, readings: Mapping[str, str], m: int | None = None) -> Variant:
    """Scores of a method with m orders; readings are test -> method."""
    found = tuple(Reading(name, method) for name, method in readings.items())
    return Variant(scored=scored, n_orders=m, readings=found)


def _sharded(n_shards: int, words: str) -> Variant:
    """Shards with 7 orders: as many passes as adjacency reads."""
    readings = {f"stratified, {words}": "stratified", f"t, {words}": "sharded_t"}
    return dataclasses.replace(_scored("sharded_t", readings, 7), n_shards=n_shards)


def _shards(n_examples: int) -> Variant:
    """Shards of six, as long as rows allow."""
    return _sharded(max(2, n_examples // _SHARD_SIZE), "shards of 6")


_ADJACENCY_ALONE = _scored("adjacency", {"adjacency": "adjacency"})
_ADJACENCY = _scored(
    "adjacency", {name: name for name in ("adjacency", "adjacency_normal")}
)
_REVERSAL = _scored("reversal", {"reversal": "reversal"})
_STRATIFIED = _scored(
    "stratified",
    {"stratified": "stratified", "t, same strata, 9 orders": "sharded_t"},
    9,
)
_SHORT_T = _scored("sharded_t", {"t, 50 shards, 9 orders": "sharded_t"}, 9)
_PAPER_T = _scored("sharded_t", {PAPER: "sharded_t"}, 250)
_LONG_T = _scored("stratified", {"t, same strata, 250 orders": "sharded_t"}, 250)
# By the rule that `audit` has: strata of three here, whose orders coincide often, so
# that they cost less than adjacency does.
_BY_RULE = _scored(
    "stratified",
    {"stratified, by rule": "stratified", "t, same strata": "sharded_t"},
    7,
)


def _small(context: int) -> Preset:
    """0.16 M parameters; one row a step, long enough for strata of several examples."""
    return in_rows("0.16m", context, batch_rows=1)


def _steps(
    copies: tuple[int, ...], n_examples: int, share: float, preset: Preset
) -> int:
    """Steps of a stream of which the copies are a share; most examples are cut."""
    planted = sum(copies) * n_examples * _CUT_TOKENS
    return round(planted / share / preset.step_tokens)


def _population(
    name: str,
    copies: tuple[int, ...],
    variants: tuple[Variant, ...],
    *,
    n_examples: int = _N_EXAMPLES,
    preset: Preset | None = None,
    share: float = 0.5,
    when: tuple[When, ...] = (),
    settings: tuple[str, ...] = (),
) -> Study:
    preset = preset or _small(_CONTEXT)
    return Study(
        name=name,
        preset=preset,
        n_examples=n_examples,
        copies=copies,
        n_steps=_steps(copies, n_examples, share, preset),
        variants=variants,
        max_example_tokens=_CUT_TOKENS,
        when=when,
        settings=settings,
    )


MAIN = _population(
    "main",
    (0, 1, 2, 4, 8, 16, 32),
    (_ADJACENCY, _shards(_N_EXAMPLES), _BY_RULE, _REVERSAL),
)
DIRECTION = _population(
    "direction",
    MAIN.copies,
    (
        _scored(
            "adjacency",
            {"adjacency": "adjacency", "direction of all pairs": "direction"},
        ),
        _scored("direction", {"direction": "direction"}),
    ),
)
_SIDE = (_ADJACENCY_ALONE, _shards(_N_EXAMPLES))
EXAMPLES = _population(
    "examples",
    (0, 4),
    tuple(
        dataclasses.replace(variant, first_examples=n)
        for n in (15, 30, 60, 120, 240)
        for variant in (_ADJACENCY_ALONE, _shards(n))
    ),
    n_examples=240,
)
_SHARDS_OF_ORDERS, _N_SHARDS, _N_ORDERS = 20, (10, 30, 60), (1, 3, 7, 15)
SHARDS = _population(
    "shards",
    (0, 16),
    (
        Variant(
            scored="sharded_t",
            n_orders=_N_ORDERS[-1],
            n_shards=_SHARDS_OF_ORDERS,
            readings=tuple(
                Reading(f"{name}, {_SHARDS_OF_ORDERS} shards, {m} orders", method, m)
                for m in _N_ORDERS
                for name, method in (("stratified", "stratified"), ("t", "sharded_t"))
            ),
        ),
        *(_sharded(k, f"{k} shards, 7 orders") for k in _N_SHARDS),
        _ADJACENCY_ALONE,
    ),
    n_examples=120,
    preset=_small(256),
)
SIZES = tuple(
    _population(f"size-{size}", (0, 4, 8), _SIDE, preset=preset)
    for size, preset in (
        ("0.16m", _small(_CONTEXT)),
        ("0.41m", resized(_small(_CONTEXT), 112, 2, 4, 296)),
        ("1.3m", resized(_small(_CONTEXT), 176, 3, 4, 472)),
    )
)
POSITION = _population(
    "position",
    (0, 6, 6, 6, 6),
    _SIDE,
    when=("uniform", (0.05,), (0.45,), (0.85,), "uniform"),
    settings=("", "from 0.05", "from 0.45", "from 0.85", "spread"),
)
SHARES = tuple(
    _population(f"share-{share:g}", (0, 8), _SIDE, share=share)
    for share in (0.5, 0.25, 0.1)
)

LADDER = Study(
    name="ladder",
    preset=_small(128),
    n_examples=120,
    copies=(0, 1, 2, 4, 10),
    n_steps=988,
    variants=(_ADJACENCY, _STRATIFIED, _REVERSAL, _SHORT_T, _PAPER_T, _LONG_T),
    max_example_tokens=31,
)
LONG = Study(
    name="long",
    preset=_small(256),
    n_examples=300,
    copies=(0, 4, 10),
    n_steps=1016,
    variants=(
        _ADJACENCY,
        _STRATIFIED,
        _REVERSAL,
        _SHORT_T,
        dataclasses.replace(_PAPER_T, fewest_copies=4),
    ),
    max_example_tokens=31,
)
QUICKSTART = Study(
    name="quickstart",
    preset=PRESETS["tiny"],
    n_examples=125,
    copies=(0, 1, 2, 4, 10, 50),
    n_steps=664,
    variants=(_ADJACENCY, _STRATIFIED, _REVERSAL),
    max_example_tokens=31,
)
PULSE = Study(
    name="pulse",
    preset=PRESETS["pulse"],
    n_examples=24,
    copies=(0, 10),
    n_steps=40,
    variants=(
        _ADJACENCY,
        dataclasses.replace(_shards(12), first_examples=12),
        Variant(
            scored="sharded_t",
            n_orders=3,
            n_shards=4,
            readings=(Reading("t, 4 shards, 1 orders", "sharded_t", 1),),
        ),
        _REVERSAL,
    ),
    max_example_tokens=31,
    when=("uniform", (0.5,)),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """How many models of a study are made, and from which seed on.

    Attributes:
        study: What each model is.
        n_models: Models.
        first_seed: Seed of the first; the others count up.
    """

    study: Study
    n_models: int
    first_seed: int


POPULATIONS: Mapping[str, Population] = {
    population.study.name: population
    for population in (
        Population(study=MAIN, n_models=1000, first_seed=10_000),
        Population(study=DIRECTION, n_models=1000, first_seed=30_000),
        Population(study=EXAMPLES, n_models=200, first_seed=20_000),
        Population(study=SHARDS, n_models=200, first_seed=21_000),
        Population(study=POSITION, n_models=200, first_seed=22_000),
        # The same seeds: the same sets, streams and orders at every size.
        *(Population(study=one, n_models=200, first_seed=23_000) for one in SIZES),
        *(Population(study=one, n_models=200, first_seed=24_000) for one in SHARES),
        Population(study=LADDER, n_models=40, first_seed=1000),
        Population(study=LONG, n_models=8, first_seed=2000),
        Population(study=QUICKSTART, n_models=10, first_seed=3000),
    )
}
"""By name; `python -m eval.power` makes all of them."""
