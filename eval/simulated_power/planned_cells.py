"""Which cells the study simulates: fixed before any of them was looked at."""

from collections.abc import Iterable

from eval.simulated_power.cells import CONTEXT, EXAMPLE_TOKENS, Cell
from eval.simulated_power.laws import LAWS
from jaxcontam.methods.power_designs import (
    PLANNED,
    FilePlan,
    fewest_examples,
    power_design,
)
from jaxcontam.stats.effect import mde_factor
from jaxcontam.stats.power import (
    detectable_effect,
    power,
    smallest_enough,
    standard_error,
)

LEVEL, WANTED = 0.001, 0.8
"""What is promised: this power at this level."""
N_EXAMPLES = 120
"""As the sets of `eval.power`."""
N_SHORT = 40
"""Of files for `permutation`, whose pair matrix is the whole file's."""
N_ORDERS = 999
"""Of `permutation`: the fewest that reach the level."""
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
