"""What `jaxcontam plan` finds: the examples, orders and hours of a wanted power."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TestPlan:
    """What one test needs and finds.

    Attributes:
        examples_needed: For the wanted power; None if no number is enough.
        n_examples: Examples that what follows is about: those at hand, else needed.
        power: With them, where every boundary carries the effect alike.
        power_one_in_ten: Where one boundary in ten carries ten times the effect, and
            the others none.
        mde: Smallest effect found with the wanted power; None if none is.
        log10_p_floor: log10 of the smallest p-value; None if there is no floor.
        n_orders: m; None where all orders of a stratum are compared.
        orders_needed: Smallest m with the wanted power; None if no number is enough,
            or there is no choice.
        n_sequences: Sequences, or pairs.
        device_hours: At the speed given; None without one.
    """

    method: str
    examples_needed: int | None
    n_examples: int | None
    power: float | None = None
    power_one_in_ten: float | None = None
    mde: float | None = None
    log10_p_floor: float | None = None
    n_strata: int | None = None
    n_orders: int | None = None
    orders_needed: int | None = None
    n_sequences: int | None = None
    tokens: int | None = None
    device_hours: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """What a wanted power takes.

    Attributes:
        effect: Nats that each published boundary gains.
        sd: Test -> nats that chance adds to a boundary, standard deviation.
        level: p-value that counts as found.
        power: Wanted probability of finding the effect.
        tokens_per_second: Speed of scoring; None where it is not known.
    """

    effect: float
    sd: Mapping[str, float]
    level: float
    power: float
    example_tokens: float
    context: int
    tokens_per_second: float | None
    tests: tuple[TestPlan, ...]
