"""The populations of the power study, fixed before any of their results was seen.

`designs.toml` lists them.

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
- `ladder`, `long`, `quickstart`: of an earlier study, with the paper's 250 orders.

Learning rates and lengths were tried on seeds from 90000 on, which are not used.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from eval.planted import in_rows, resized
from eval.power.model import Reading, Study, Variant
from eval.study import data_file
from train.presets import PRESETS, Preset

EXACT = ("stratified", "adjacency")
PAPER = "t, 50 shards, 250 orders"
# Deeper p-values are not compared: the assumptions of neither test carry so far.
CUT = 1e-12

_CUT_TOKENS = 20


def _scored(readings: Mapping[str, str | tuple[str, int]], **scored: Any) -> Variant:
    """Scores, and what reads them: test -> method, or method and orders."""
    read = [
        Reading(test, how) if isinstance(how, str) else Reading(test, *how)
        for test, how in readings.items()
    ]
    return Variant(readings=tuple(read), **scored)


_TABLE = data_file(__file__)
_SCORED = {name: _scored(**row) for name, row in _TABLE["scored"].items()}


def _variant(given: str | dict[str, Any]) -> Variant:
    """The scores of a name, or of a name and what is different there."""
    own = {"name": given} if isinstance(given, str) else dict(given)
    return dataclasses.replace(_SCORED[own.pop("name")], **own)


def _small(context: int) -> Preset:
    """0.16 M parameters; one row a step, long enough for strata of several examples."""
    return in_rows("0.16m", context, batch_rows=1)


def _steps(copies: Sequence[int], n_examples: int, share: float, preset: Preset) -> int:
    """Steps of a stream of which the copies are a share; most examples are cut."""
    planted = sum(copies) * n_examples * _CUT_TOKENS
    return round(planted / share / preset.step_tokens)


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


def _population(
    *,
    name: str,
    n_models: int,
    first_seed: int,
    copies: Sequence[int],
    variants: Sequence[str | dict[str, Any]],
    n_examples: int = 60,
    n_steps: int | None = None,
    share: float = 0.5,
    max_example_tokens: int = _CUT_TOKENS,
    preset: str | None = None,
    context: int = 128,
    weights: Sequence[int] = (),
    when: Sequence[Any] = (),
    settings: Sequence[str] = (),
) -> Population:
    shape = PRESETS[preset] if preset else _small(context)
    shape = resized(shape, *weights) if weights else shape
    study = Study(
        name=name,
        preset=shape,
        n_examples=n_examples,
        copies=tuple(copies),
        n_steps=n_steps or _steps(copies, n_examples, share, shape),
        variants=tuple(map(_variant, variants)),
        max_example_tokens=max_example_tokens,
        when=tuple(tuple(one) if isinstance(one, list) else one for one in when),
        settings=tuple(settings),
    )
    return Population(study=study, n_models=n_models, first_seed=first_seed)


POPULATIONS: Mapping[str, Population] = {
    row["name"]: _population(**row) for row in _TABLE["population"]
}
"""By name; `python -m eval.power` makes all of them."""
LONG = POPULATIONS["long"].study
PULSE = _population(**_TABLE["pulse"])
"""The population of `--tiny`."""
