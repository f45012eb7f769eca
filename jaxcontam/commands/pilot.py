"""What a finished report says of effects, spreads and speed, for `jaxcontam plan`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxcontam.errors import InputError
from jaxcontam.methods.power_designs import FilePlan, scored_design, workload
from jaxcontam.report.report_files import REPORT_NAME, read_report
from jaxcontam.results import OrderResult
from jaxcontam.stats.power import sd_from


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """A benchmark of a finished report.

    Attributes:
        n_examples: Examples scored.
        example_tokens: Mean ids of an example.
        context: Context of the scored model, in tokens, as far as it is known.
        symmetry: Symmetry of the pair matrices; 0 where none were scored.
        effect: Effect of the deciding test, nats per boundary.
        sd: Method -> standard deviation of what chance adds to one boundary.
        tokens_per_second: Speed of the run, loading and analysis included; None if
            every score came from a store.
    """

    n_examples: int
    example_tokens: float
    context: int | None
    symmetry: float
    effect: float
    sd: Mapping[str, float]
    tokens_per_second: float | None

    def spread_of(self, method: str) -> str:
        """The test whose spread is the nearest to that of `method`: itself if it ran.

        Pairs are centred and so have less of it than whole orders.
        """
        if method in self.sd:
            return method
        whole = [name for name in self.sd if name != "adjacency"]
        return next(iter(whole or self.sd))


def read_pilot(directory: Path, benchmark: str | None = None) -> Pilot:
    """Read the planning numbers of one benchmark of a report.

    Raises:
        InputError: If there is no such report or benchmark, it scored no model, kept
            its orders to groups, or has no standard error to plan with.
    """
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
            hint="a pilot needs orders of whole strata",
        )
    known = [row.numbers.symmetry for row in rows if row.numbers.symmetry is not None]
    symmetry = known[0] if known else 0.0
    sd: dict[str, float] = {}
    effects: list[tuple[bool, float]] = []
    lengths: list[float] = []
    for row in rows:
        n, effect, se = row.n_examples, row.numbers.effect, row.numbers.effect_se
        n_strata = row.n_strata + row.n_dropped
        design = scored_design(row.method, n, n_strata, row.n_orders, symmetry=symmetry)
        # A standard error of 0 is a model that tells no orders apart.
        if design is None or not se or effect is None:
            continue
        sd[row.method] = sd_from(design, se)
        effects.append((row.primary, effect))
        one = FilePlan(n_examples=n, example_tokens=1.0, context=2, symmetry=0.0)
        tokens = row.tokens_scored + row.cached_tokens
        lengths.append(tokens / workload(row.method, one, design).n_targets)
    if not sd:
        raise InputError(
            f"{path}: {name}: no standard error of an effect",
            hint="every order scored alike, or the tests are none that are planned",
        )
    scored = sum(getattr(row, "tokens_scored", 0) for row in report.results)
    is_timed = scored and report.wall_seconds
    return Pilot(
        n_examples=rows[0].n_examples,
        # Equal sequences are scored once, so the largest is the nearest.
        example_tokens=max(lengths),
        context=report.model.context,
        symmetry=symmetry,
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
