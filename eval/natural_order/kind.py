"""What a kind of natural order is, and the chains that most of them follow."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal, TypeVar

from eval.study import data_file
from jaxcontam.data.benchmark import Benchmark

Value = TypeVar("Value")
_Function = TypeVar("_Function", bound=Callable)

Law = Literal["exchangeable", "reversible", "forward"]
"""How the law of a file's order changes when rows move.

`exchangeable`: every order is equally likely, the null of `adjacency`. `reversible`:
the file is as likely backwards, the null of `direction`. `forward`: neither holds.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """A benchmark file before it has a name.

    Attributes:
        texts: Examples in published order, none with a line end.
        fields: Record of each example, or None for plain lines.
    """

    texts: tuple[str, ...]
    fields: tuple[dict[str, object] | None, ...]

    def benchmark(self, name: str) -> Benchmark:
        """As `load_benchmark` would give it."""
        return Benchmark(name, self.texts, self.fields)


Make = Callable[[Random, int, float], File]
"""(random state, rows, strength) -> the file."""

GoesOn = Callable[[str, str], bool]
"""(a row, another) -> whether a reader of any such file expects the second next."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of natural order.

    Attributes:
        name: In tables and as the first part of a file's name.
        law: See `Law`.
        strengths: Ascending: how strong the order is; `strength_is` says of what.
        strength_is: What the number is.
        make: Makes a file.
        most_rows: Longest file that the kind can give; None for any.
        goes_on: Whether the second row is a natural sequel of the first, by the two
            texts alone; None if no simple rule says so.
    """

    name: str
    law: Law
    strengths: tuple[float, ...]
    strength_is: str
    make: Make
    most_rows: int | None = None
    goes_on: GoesOn | None = None

    def file(self, *, n: int, strength: float, seed: int) -> File:
        """A file of n rows; the same arguments give the same bytes."""
        return self.make(Random(f"{self.name} {n} {strength} {seed}"), n, strength)


_TABLE = {
    name: {**row, "strengths": tuple(row["strengths"])}
    for row in data_file(__file__, "kinds")["kinds"]
    for name in row.pop("names")
}


def kinds(
    makes: Mapping[str, Make],
    *,
    most_rows: int | None = None,
    goes_on: Mapping[str, GoesOn] | None = None,
) -> list[Kind]:
    """Kinds by name; `kinds.toml` has their laws and strengths. Rules by name too."""
    return [
        Kind(
            name=name,
            make=make,
            most_rows=most_rows,
            goes_on=(goes_on or {}).get(name),
            **_TABLE[name],
        )
        for name, make in makes.items()
    ]


def named(*functions: _Function) -> dict[str, _Function]:
    """Functions by their names, without the underscore."""
    return {one.__name__.removeprefix("_"): one for one in functions}


def in_order(
    rows: Callable[[Random, int], Sequence[str] | Sequence[Mapping[str, Any]]],
) -> Make:
    """Rows of a full order, of which a share keeps its place: see `loosened`."""

    def make(rng: Random, n: int, strength: float) -> File:
        found = loosened(rng, rows(rng, n), strength)
        return lines(found) if isinstance(found[0], str) else records(found)

    return make


def lines(texts: Sequence[str]) -> File:
    """A file of plain lines."""
    return File(tuple(texts), (None,) * len(texts))


def records(
    rows: Sequence[Mapping[str, Any]],
    *,
    write: Callable[[Mapping[str, Any]], str] = lambda row: json.dumps(row),
) -> File:
    """A file of JSON lines, written one by one."""
    return File(tuple(write(row) for row in rows), tuple(dict(row) for row in rows))


def chain(
    rng: Random, values: Sequence[Value], n: int, *, stay: float
) -> Iterator[Value]:
    """A reversible Markov chain: stays with this probability, else any other value.

    It is symmetric and starts anywhere, so it has the same law backwards.
    """
    now = rng.randrange(len(values))
    for _ in range(n):
        yield values[now]
        if rng.random() >= stay:
            now = (now + rng.randrange(1, len(values))) % len(values)


def runs(
    rng: Random, values: Sequence[Value], n: int, *, mean: float
) -> Iterator[Value]:
    """Runs of geometric length; the next run takes any of the values but the last."""
    return chain(rng, values, n, stay=1 - 1 / mean)


def loosened(rng: Random, rows: Sequence[Any], share: float) -> list[Any]:
    """Rows of which this share keeps its place; the others trade places at random."""
    moved = [i for i in range(len(rows)) if rng.random() >= share]
    targets = rng.sample(moved, len(moved))
    found = list(rows)
    for here, there in zip(moved, targets, strict=True):
        found[there] = rows[here]
    return found
