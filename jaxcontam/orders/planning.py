"""`jaxcontam plan`: how much data, time and money a wanted power takes."""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxcontam.amounts import amount
from jaxcontam.errors import InputError
from jaxcontam.orders.flags import Plan
from jaxcontam.orders.methods import ADJACENCY, N_SHARDS, TESTS, AskedTest
from jaxcontam.orders.power_designs import (
    FilePlan,
    fewest_examples,
    has_free_orders,
    power_design,
    scored_design,
    workload,
)
from jaxcontam.proof.outcome import bare_table, first_that_fits
from jaxcontam.proof.result import OrderResult
from jaxcontam.reports.report_files import REPORT_NAME, read_report
from jaxcontam.scoring.seam import SEAM, Seam
from jaxcontam.stats.power import detectable_effect, power, sd_from, smallest_enough
from jaxcontam.terminal import Terminal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TestPlan:
    """Needs of one test, and the effects that it finds.

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
    """Needs of every test for a wanted power.

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


# More orders a stratum than this are no remedy.
_MOST_ORDERS = 9_999
# Share of boundaries that carry all of the memory, where few do.
_FEW = 0.1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """A benchmark of a finished report.

    Attributes:
        example_tokens: Mean tokens of an example; 0 in older reports.
        symmetry: Symmetry of the pair matrices; 0 where none were scored.
        seam: What its pair tests scored.
        sd: Method -> standard deviation of what chance adds to one boundary.
        tokens_per_second: Speed of the run, loading and analysis included; None if
            every score came from a store.
    """

    n_examples: int
    example_tokens: float
    context: int | None
    symmetry: float
    seam: Seam
    effect: float
    sd: Mapping[str, float]
    tokens_per_second: float | None

    def spread_of(self, method: str) -> str:
        """The test of nearest spread: itself if it ran, else one of whole orders."""
        if method in self.sd:
            return method
        whole = [name for name in self.sd if name != ADJACENCY.name]
        return next(iter(whole or self.sd))


def plan(command: Plan) -> PlanResult:
    """Plan and print; returns the plan."""
    pilot = command.pilot and read_pilot(command.pilot, command.pilot_benchmark)
    effect = command.effect if pilot is None else command.effect or pilot.effect
    assert effect is not None
    if effect <= 0:
        raise InputError(
            f"the pilot's effect is {effect:.3g} nats per boundary: nothing to find",
            hint="name the effect to find with --effect",
        )
    speed = command.tokens_per_second or (pilot and pilot.tokens_per_second)
    # The sizes are filled in for each number of examples.
    file = FilePlan(
        n_examples=0,
        example_tokens=command.example_tokens or (pilot and pilot.example_tokens) or 64,
        context=command.context or (pilot and pilot.context) or 2048,
        symmetry=pilot.symmetry if pilot else 0.0,
        seam=pilot.seam if pilot else SEAM,
    )
    examples = command.examples or (pilot and pilot.n_examples)
    names = [test.name for test in command.asked]
    sd = dict.fromkeys(names, command.sd or 0.0)
    if command.sd is None and pilot is not None:
        sd = {name: pilot.sd[pilot.spread_of(name)] for name in names}
    found = PlanResult(
        effect=effect,
        sd=sd,
        level=command.level,
        power=command.power,
        example_tokens=file.example_tokens,
        context=file.context,
        tokens_per_second=speed,
        tests=tuple(
            _plan(command, test, file, examples, effect, sd[test.name], speed)
            for test in command.asked
        ),
    )
    if command.json:
        print(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        _print(command, found, pilot, Terminal())
    return found


def _plan(
    command: Plan,
    test: AskedTest,
    file: FilePlan,
    examples: int | None,
    effect: float,
    sd: float,
    speed: float | None,
) -> TestPlan:
    name = test.name
    file = dataclasses.replace(file, n_shards=test.n_shards or N_SHARDS)

    def power_of(n: int, m: int | None) -> float:
        size = dataclasses.replace(file, n_examples=n)
        return power(power_design(name, size, m), effect, sd, level=command.level)

    fewest = fewest_examples(name)
    needed = smallest_enough(
        lambda n: power_of(n, test.n_orders), command.power, smallest=fewest
    )
    n = examples or needed
    if n is None or n < fewest:
        return TestPlan(method=name, examples_needed=needed, n_examples=n)
    here = dataclasses.replace(file, n_examples=n)
    design = power_design(name, here, test.n_orders)
    cost = workload(name, here, design)
    orders_needed = None
    if has_free_orders(name):
        orders_needed = smallest_enough(
            lambda m: power_of(n, m), command.power, smallest=1, largest=_MOST_ORDERS
        )
    return TestPlan(
        method=name,
        examples_needed=needed,
        n_examples=n,
        power=power(design, effect, sd, level=command.level),
        power_one_in_ten=power(design, effect, sd, share=_FEW, level=command.level),
        mde=detectable_effect(design, sd, level=command.level, wanted=command.power),
        log10_p_floor=design.log10_floor,
        n_strata=design.n_strata,
        n_orders=design.n_orders,
        orders_needed=orders_needed,
        n_sequences=cost.n_sequences,
        tokens=round(cost.n_targets),
        device_hours=None if not speed else cost.n_read / speed / 3600,
    )


def _print(
    plan: Plan, found: PlanResult, pilot: Pilot | None, console: Terminal
) -> None:
    at_hand = {test.n_examples for test in found.tests if test.n_examples is not None}
    here = f"\nn={at_hand.pop():,}" if len(at_hand) == 1 else ""
    header = ("test", "examples\nneeded", f"power{here}", "1 in 10\ncarry it", "MDE")
    header += ("p floor", "m", "m\nneeded", "scored", "tokens", "hours")
    rows = (
        (
            test.method,
            _count(test.examples_needed),
            _count(test.power, ".2f"),
            _count(test.power_one_in_ten, ".2f"),
            amount(test.mde),
            floor_text(test.log10_p_floor),
            "all" if test.n_orders is None and test.n_strata else _count(test.n_orders),
            _count(test.orders_needed),
            _count(test.n_sequences),
            _count(test.tokens),
            amount(test.device_hours),
        )
        for test in found.tests
    )
    table, _ = first_that_fits([bare_table(header, rows)], console)
    console.print(table, crop=False)
    ends = sorted({min(found.sd.values()), max(found.sd.values())})
    plain = functools.partial(amount, digits=3, padded=False)
    spread = " to ".join(map(plain, ends))
    effect, tokens = plain(found.effect), plain(found.example_tokens)
    console.print(
        f"\nTo find {effect} nats per boundary at p <= {plan.level:g} with probability "
        f"{plan.power:g}, if chance adds {spread} nats to each; {tokens} tokens per "
        "example. The first power holds if every boundary gains that, the second if "
        "one boundary in ten gains ten times that and the others nothing. A plan, not "
        "a promise: real scores have heavier tails."
    )
    borrowed: dict[str, list[str]] = {}
    for name in found.sd:
        if pilot is not None and plan.sd is None and name not in pilot.sd:
            borrowed.setdefault(pilot.spread_of(name), []).append(name)
    for source, names in borrowed.items():
        console.print(
            f"Not in the pilot, planned with the spread of {source}: "
            f"{', '.join(names)}."
        )
    if plan.pilot is not None and plan.effect is None:
        console.print(
            "The effect is the pilot's own estimate: if the pilot was chosen because "
            "it found something, it is too large. Plan with half of it too."
        )


def floor_text(log10_p: float | None) -> str:
    """A smallest p-value, from its log10."""
    if log10_p is None:
        return "-"
    return f"{10**log10_p:.3g}" if log10_p > -3 else f"1e{math.ceil(log10_p)}"


def _count(value: float | None, form: str = ",") -> str:
    return "-" if value is None else format(value, form)


def read_pilot(directory: Path, benchmark: str | None = None) -> Pilot:
    """Read the planning numbers of one benchmark of a report."""
    path = directory / REPORT_NAME
    report = read_report(path)
    tests = [row for row in report.results if isinstance(row, OrderResult)]
    name = _chosen(path, list(dict.fromkeys(row.benchmark for row in tests)), benchmark)
    if report.model is None:
        raise InputError(f"{path}: no model was scored", hint="use an audit")
    rows = [row for row in tests if row.benchmark == name]
    if any(row.group_field is not None for row in rows):
        raise InputError(
            f"{path}: {name}: its orders kept to groups",
            hint="use a pilot with orders of whole strata",
        )
    known = (row.numbers.symmetry for row in rows)
    symmetry = next((one for one in known if one is not None), 0.0)
    sd: dict[str, float] = {}
    effects: list[tuple[bool, float]] = []
    for row in rows:
        n, effect, se = row.n_examples, row.numbers.effect, row.numbers.effect_se
        n_strata = row.n_strata + row.n_dropped
        design = scored_design(row.method, n, n_strata, row.n_orders, symmetry=symmetry)
        # A standard error of 0 is a model that tells no orders apart.
        if design is None or not se or effect is None:
            continue
        sd[row.method] = sd_from(design, se)
        effects.append((row.primary, effect))
    if not sd:
        raise InputError(
            f"{path}: {name}: no standard error of an effect",
            hint="every order scored the same, or the tests cannot be planned",
        )
    of_pairs = [row for row in rows if TESTS[row.method].scores_pairs]
    scored = sum(row.tokens_scored for row in report.results)
    is_timed = scored and report.wall_seconds
    return Pilot(
        n_examples=rows[0].n_examples,
        # Tests may cut examples: that of the longest ones says most.
        example_tokens=max(row.n_tokens or 0 for row in rows) / rows[0].n_examples,
        context=report.model.context,
        symmetry=symmetry,
        seam=Seam(of_pairs[0].context_tokens, of_pairs[0].score_tokens)
        if of_pairs
        else SEAM,
        effect=max(effects, key=lambda effect: effect[0])[1],
        sd=sd,
        tokens_per_second=scored / report.wall_seconds if is_timed else None,
    )


def _chosen(path: Path, names: Sequence[str], wanted: str | None) -> str:
    if not names:
        raise InputError(f"{path}: no order test", hint="use the folder of an audit")
    if wanted is None and len(names) > 1:
        raise InputError(
            f"{path}: {len(names)} benchmarks",
            hint=f"choose with --benchmark: {', '.join(names)}",
        )
    if wanted is not None and wanted not in names:
        raise InputError(
            f"{path}: no benchmark {wanted!r}", hint=f"it has: {', '.join(names)}"
        )
    return wanted or names[0]
