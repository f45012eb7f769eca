"""Cells of the study: one test of one kind of file under one law, many data sets."""

import dataclasses
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from eval.simulated_power.laws import LAWS, Pairs, draw_pairs
from eval.simulated_power.statistics import Parts, order_parts, p_values, spreads
from jaxcontam.methods.power_designs import (
    PLANNED,
    FilePlan,
    fewest_examples,
    power_design,
)
from jaxcontam.stats.effect import mde_factor
from jaxcontam.stats.power import (
    PowerDesign,
    detectable_effect,
    power,
    smallest_enough,
    standard_error,
)

LEVELS = (0.05, 0.01, 0.001)
EXAMPLE_TOKENS, CONTEXT = 32.0, 512
"""Tokens of an example and of the context: they decide the sizes of strata."""
BATCH = 250
"""Data sets a call: few enough that their scores stay in cache."""

# p-values are float32; a rank's p may equal a level.
_ROUNDING = 1 + 1e-5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is simulated.

    Attributes:
        test: One of `PLANNED`.
        law: Name in `LAWS`.
        n_examples: Examples of a file.
        n_orders: m; None is the test's own.
        effects: Gain of a published boundary in standard deviations of one; the
            spread is taken at the first, which is 0.
        names: What each effect is.
        part: Table that the cell belongs to.
    """

    test: str
    law: str
    n_examples: int
    n_orders: int | None
    effects: tuple[float, ...]
    names: tuple[str, ...]
    part: str

    @property
    def design(self) -> PowerDesign:
        """As the planner makes it, symmetry known."""
        file = FilePlan(
            n_examples=self.n_examples,
            example_tokens=EXAMPLE_TOKENS,
            context=CONTEXT,
            symmetry=LAWS[self.law].symmetry,
        )
        return power_design(self.test, file, self.n_orders)

    @property
    def label(self) -> str:
        """Words that name it in a folder."""
        law = self.law.replace(" ", "-").replace(".", "")
        return f"{self.part}-{self.test}-{law}-{self.n_examples}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Share of data sets with p at or below a level, and what the formula says.

    Attributes:
        effect: Gain of a boundary, in standard deviations of an entry (item effects
            left out).
        name: What effect it is.
        level: Level of the test.
        simulated: The share.
        se: Its standard error, by the batches or the binomial law, the larger one.
        formula: `power` at the spread that a report of clean files shows.
    """

    effect: float
    name: str
    level: float
    simulated: float
    se: float
    formula: float

    @property
    def apart(self) -> float:
        """Simulated less formula, in standard errors."""
        return (self.simulated - self.formula) / self.se


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What a cell's data sets showed.

    Attributes:
        cell: What was simulated.
        n_sets: Data sets.
        n_strata: K.
        n_orders: m; None where all orders are columns.
        spread: Standard deviation of one boundary as a report of clean files shows it.
        shares: One an effect and level.
        cpu_seconds: CPU seconds of the simulation alone, without compilation and
            without the check beside the library.
    """

    cell: Cell
    n_sets: int
    n_strata: int
    n_orders: int | None
    spread: float
    shares: tuple[Share, ...]
    cpu_seconds: float

    def share(self, name: str, level: float) -> Share:
        """The row of one effect and level."""
        return next(s for s in self.shares if s.name == name and s.level == level)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some data sets of a cell, and what the tests say of them.

    Attributes:
        pairs: Pairs of each stratum size.
        parts: Scores of orders.
        p_values: (E, D) float32, one row an effect.
        squares: (D,) float32; squared spread of a boundary, see `spreads`.
    """

    pairs: list[Pairs]
    parts: Parts
    p_values: jax.Array
    squares: jax.Array


jax.tree_util.register_dataclass(Batch, ["pairs", "parts", "p_values", "squares"], [])


def batches_of(cell: Cell, n_sets: int, *, seed: int) -> Callable[[int], Batch]:
    """Compiled once: number of a batch -> its data sets, `n_sets` of them.

    Args:
        cell: What to simulate.
        n_sets: Data sets a batch.
        seed: With the cell's label and the batch's number, seeds them.
    """
    design, law = cell.design, LAWS[cell.law]
    sizes = [(kind.size, kind.count) for kind in design.kinds]
    effects_E = jnp.array(cell.effects, jnp.float32)
    # Philox: half of the time goes into draws.
    key = jax.random.key(seed, impl="rbg")
    key = jax.random.fold_in(key, zlib.crc32(cell.label.encode()))

    @jax.jit
    def batch(number: jax.Array) -> Batch:
        pairs_key, orders_key = jax.random.split(jax.random.fold_in(key, number))
        pairs = draw_pairs(pairs_key, law, sizes, n_sets)
        parts = order_parts(design, pairs, orders_key)
        p_ED = jax.lax.map(lambda effect: p_values(design, parts, effect), effects_E)
        return Batch(pairs, parts, p_ED, spreads(design, parts))

    return lambda number: batch(jnp.uint32(number))


def simulate(cell: Cell, n_sets: int, *, seed: int) -> tuple[CellResult, Batch]:
    """Draw a cell's data sets, test them all, and count.

    Args:
        cell: What to simulate.
        n_sets: Data sets; rounded up to whole batches.
        seed: See `batches_of`.

    Returns:
        What was counted, and one more batch, which was not.
    """
    design = cell.design
    batch_size = min(BATCH, n_sets)
    n_batches = math.ceil(n_sets / batch_size)
    batch = batches_of(cell, batch_size, seed=seed)
    spare = jax.block_until_ready(batch(n_batches))
    started = time.process_time()
    found, squares = [], []
    levels_L = np.array(LEVELS) * _ROUNDING
    for number in range(n_batches):
        one = batch(number)
        p_ED = np.asarray(one.p_values)
        found.append((p_ED[:, :, None] <= levels_L).mean(axis=1))
        squares.append(float(one.squares.mean()))
    seconds = time.process_time() - started
    spread = math.sqrt(sum(squares) / n_batches)
    result = CellResult(
        cell=cell,
        n_sets=n_batches * batch_size,
        n_strata=design.n_strata,
        n_orders=design.n_orders,
        spread=spread,
        shares=tuple(_shares(cell, design, np.stack(found), spread, batch_size)),
        cpu_seconds=seconds,
    )
    return result, spare


def _shares(
    cell: Cell,
    design: PowerDesign,
    found_BEL: np.ndarray,
    spread: float,
    batch: int,
) -> Iterator[Share]:
    B, _, _ = found_BEL.shape
    n_sets = B * batch
    for e, (effect, name) in enumerate(zip(cell.effects, cell.names, strict=True)):
        for n, level in enumerate(LEVELS):
            found_B = found_BEL[:, e, n]
            simulated = float(found_B.mean())
            formula = power(design, effect, spread, level=level)
            # Batches share the orders of a whole file, so their spread may be more
            # than the binomial one; where all or none are found it is none at all.
            by_batch = float(found_B.std(ddof=1)) / math.sqrt(B) if B > 1 else 0.0
            inside = min(max(simulated, 1 / n_sets), 1 - 1 / n_sets)
            binomial = math.sqrt(inside * (1 - inside) / n_sets)
            yield Share(
                effect=effect,
                name=name,
                level=level,
                simulated=simulated,
                se=max(by_batch, binomial),
                formula=formula,
            )


LEVEL, WANTED = 0.001, 0.8
"""What is promised: this power at this level."""
N_EXAMPLES = 120
"""As the sets of `eval.power`."""
N_SHORT = 40
"""Examples of files for `permutation`, whose pair matrix is the whole file's."""
N_ORDERS = 999
"""Orders of `permutation`: the fewest that reach the level."""
MULTIPLES = (0.4, 0.7, 1.3)
"""Effects of the power curves, as multiples of the one that is found as wanted."""
PLANNED_EFFECTS = (1.0, 0.5, 0.25)
"""Effects, in standard deviations, for which the planner is asked how many examples."""

LAWS_PART, PLANNER_PART = "laws", "planner"
NONE, FOUND, MDE = "none", "wanted", "mde"


def law_cells(laws: Iterable[str] = LAWS) -> list[Cell]:
    """Every test under each law, at no effect and at the one that is found as wanted.

    That effect is the formula's for independent normal entries (of the law's symmetry).
    Under the normal law there are more: a curve, and the `mde` of reports.
    """
    return [
        _law_cell(test, law)
        for law in laws
        for test in PLANNED
        # One scale for the one stratum that it has changes no rank.
        if not (test == "permutation" and LAWS[law].strata_spread)
    ]


def planner_cells(effects: Iterable[float] = PLANNED_EFFECTS) -> list[Cell]:
    """Files as large as the planner asks, with the effect that it was asked about."""
    found = []
    for effect in effects:
        for test in PLANNED:
            n = examples_needed(test, effect)
            # Pair matrices of whole files of hundreds would take most of the time.
            if test == "permutation" and effect == min(PLANNED_EFFECTS):
                continue
            found.append(
                Cell(
                    test=test,
                    law="normal",
                    n_examples=n,
                    n_orders=_orders(test),
                    effects=(0.0, effect),
                    names=(NONE, FOUND),
                    part=PLANNER_PART,
                )
            )
    return found


def examples_needed(test: str, effect: float) -> int:
    """What `jaxcontam plan` answers for a spread of 1."""

    def power_of(n: int) -> float:
        file = FilePlan(n_examples=n, example_tokens=EXAMPLE_TOKENS, context=CONTEXT)
        return power(power_design(test, file, _orders(test)), effect, 1.0, level=LEVEL)

    needed = smallest_enough(power_of, WANTED, smallest=fewest_examples(test))
    assert needed is not None
    return needed


def _law_cell(test: str, law: str) -> Cell:
    empty = Cell(
        test=test,
        law=law,
        n_examples=N_SHORT if test == "permutation" else N_EXAMPLES,
        n_orders=_orders(test),
        effects=(),
        names=(),
        part=LAWS_PART,
    )
    wanted = detectable_effect(empty.design, 1.0, level=LEVEL, wanted=WANTED)
    assert wanted is not None
    effects = {NONE: 0.0, FOUND: wanted}
    if law == "normal":
        effects |= {f"{multiple:g}": multiple * wanted for multiple in MULTIPLES}
        effects[MDE] = mde_factor(1) * standard_error(empty.design, 1.0)
    return Cell(
        test=test,
        law=law,
        n_examples=empty.n_examples,
        n_orders=empty.n_orders,
        effects=tuple(effects.values()),
        names=tuple(effects),
        part=LAWS_PART,
    )


def _orders(test: str) -> int | None:
    return N_ORDERS if test == "permutation" else None
