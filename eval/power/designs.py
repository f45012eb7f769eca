"""The populations of the power study, fixed before any of their results was seen.

Half of every stream is planted. Every set is a random draw in random order from one
pool of questions, another one for each model: 60 examples of at most 20 tokens, planted
0 to 32 times in models of 0.16 M weights.

- `main`: adjacency, and tests of whole orders in shards of 6 with 7 orders, read 8
  passes each. The rule of `audit` for so short a file gives strata of 3, of which 5
  passes are all there is; reversal reads 2. Context 128, so that shards of 6 fit.
- `direction`: the same curve with other seeds: direction from the pairs that it asks
  for, and from all pairs of adjacency, whose test stands beside it.

Populations that asked for the number of examples, shards and orders, the size of the
model, the position in training and the share of the stream are told of in docs/log.
Learning rates and lengths were tried on seeds from 90000 on, which are not used.
"""

import dataclasses
from collections.abc import Mapping

from eval.planted import in_rows
from eval.power.model import Study, Variant
from train.config import PRESETS

_CUT_TOKENS = 20
_SHARE = 0.5
_N_EXAMPLES = 60
_COPIES = (0, 1, 2, 4, 8, 16, 32)


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


def _population(name: str, first_seed: int, *variants: Variant) -> Population:
    preset = in_rows("0.16m", 128, batch_rows=1)
    planted = sum(_COPIES) * _N_EXAMPLES * _CUT_TOKENS
    study = Study(
        name=name,
        config=preset,
        n_examples=_N_EXAMPLES,
        copies=_COPIES,
        n_steps=round(planted / _SHARE / preset.step_tokens),
        variants=variants,
        max_example_tokens=_CUT_TOKENS,
    )
    return Population(study=study, n_models=1000, first_seed=first_seed)


POPULATIONS: Mapping[str, Population] = {
    "main": _population("main", 10_000, _ADJACENCY, _SHARDS_OF_6, _BY_RULE, _REVERSAL),
    "direction": _population("direction", 30_000, _ALL_PAIRS, _DIRECTION),
}
"""By name; `python -m eval.power` makes both."""
PULSE = Population(
    study=Study(
        name="pulse",
        config=PRESETS["pulse"],
        n_examples=24,
        n_steps=40,
        max_example_tokens=31,
        copies=(0, 10),
        variants=(
            _ADJACENCY,
            dataclasses.replace(_SHARDS_OF_6, n_shards=4),
            _REVERSAL,
        ),
    ),
    n_models=2,
    first_seed=1000,
)
"""The population of `--tiny`."""
