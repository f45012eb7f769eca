"""What a finished report says of effects, spreads and speed, for `jaxcontam plan`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.errors import InputError
from jaxcontam.methods.power_designs import FilePlan, scored_design, workload
from jaxcontam.report.document import REPORT_NAME, read_document
from jaxcontam.stats.power import sd_from


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """A benchmark of a finished report.

    Attributes:
        benchmark: Its name.
        n_examples: Examples scored.
        example_tokens: Mean ids of an example.
        context: Context of the scored model, in tokens.
        symmetry: Symmetry of the pair matrices; 0 where none were scored.
        effect: Effect of the deciding test, nats per boundary.
        sd: Method -> standard deviation of what chance adds to one boundary.
        tokens_per_second: Speed of the run, loading and analysis included; None if
            every score came from a store.
    """

    benchmark: str
    n_examples: int
    example_tokens: float
    context: int
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
    document = read_document(directory / REPORT_NAME)
    path = directory / REPORT_NAME
    try:
        rows = [row for row in document["results"] if "effect_se" in row]
        names = list(dict.fromkeys(row["benchmark"] for row in rows))
        name = _chosen(path, names, benchmark)
        if document["model"] is None:
            raise InputError(f"{path}: no model was scored", hint="use an audit")
        found = _pilot(path, [row for row in rows if row["benchmark"] == name])
        scored = sum(row["tokens_scored"] for row in document["results"])
        return dataclasses.replace(
            found,
            context=document["model"]["context"],
            tokens_per_second=scored / document["wall_seconds"] if scored else None,
        )
    except (KeyError, TypeError, ZeroDivisionError) as e:
        raise InputError(
            f"{path}: not a report of order tests ({type(e).__name__}: {e})"
        ) from e


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


def _pilot(path: Path, rows: Sequence[Mapping[str, Any]]) -> Pilot:
    name = rows[0]["benchmark"]
    if any(row["group_field"] is not None for row in rows):
        raise InputError(
            f"{path}: {name}: its orders kept to groups",
            hint="a pilot needs orders of whole strata",
        )
    symmetry = next(
        (row["symmetry"] for row in rows if row.get("symmetry") is not None), 0.0
    )
    sd: dict[str, float] = {}
    effects: list[tuple[bool, float]] = []
    lengths: list[float] = []
    for row in rows:
        design = scored_design(
            row["method"],
            row["n_examples"],
            row["n_strata"] + row["n_dropped"],
            row["n_orders"],
            symmetry=symmetry,
        )
        # A standard error of 0 is a model that tells no orders apart.
        if design is None or not row["effect_se"] or row["effect"] is None:
            continue
        sd[row["method"]] = sd_from(design, row["effect_se"])
        effects.append((bool(row["primary"]), row["effect"]))
        one = FilePlan(
            n_examples=row["n_examples"], example_tokens=1.0, context=2, symmetry=0.0
        )
        tokens = row["tokens_scored"] + row["cached_tokens"]
        lengths.append(tokens / workload(row["method"], one, design).n_targets)
    if not sd:
        raise InputError(
            f"{path}: {name}: no standard error of an effect",
            hint="every order scored alike, or the tests are none that are planned",
        )
    return Pilot(
        benchmark=name,
        n_examples=rows[0]["n_examples"],
        # Equal sequences are scored once, so the largest is the nearest.
        example_tokens=max(lengths),
        context=0,
        symmetry=symmetry,
        effect=max(effects, key=lambda effect: effect[0])[1],
        sd=sd,
        tokens_per_second=None,
    )
