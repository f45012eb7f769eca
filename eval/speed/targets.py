"""What was asked of the speed, beside what was measured."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One line of the list of targets.

    Attributes:
        name: What is asked for.
        wanted: The bound.
        at_least: Whether the bound is the lower one.
        read: Measurements of all parts -> value.
        unit: How a value is printed: `x`, `%`, `s`, or nothing.
    """

    name: str
    wanted: float
    at_least: bool
    read: Callable[[Mapping[str, Any]], float]
    unit: str

    def is_met(self, value: float) -> bool:
        """Whether a measured value keeps the bound."""
        return value >= self.wanted if self.at_least else value <= self.wanted

    def text(self, value: float) -> str:
        """A value with its unit."""
        if self.unit == "%":
            return f"{100 * value:.3g} %"
        return f"{value:.2f} {self.unit}" if self.unit else f"{value:g}"


def _cell(size: str, length: str, field: str, way: str | None = None):
    def read(measured: Mapping[str, Any]) -> float:
        part = "real" if length == "real" else "kernel"
        value = measured[f"{part}_{size}"]["cells"][length][field]
        return value if way is None else value[way]

    return read


def _kernel(name: str, wanted: float, unit: str, read) -> Target:
    return Target(
        name=name,
        wanted=wanted,
        at_least=unit != "",
        read=read,
        unit=unit,
    )


def _of_size(size: str, ratio: float) -> list[Target]:
    label = {"124m": "124 M", "30m": "30 M"}[size]
    alone = _cell(size, "real", "ratio_to", "jaxcontam_alone")
    return [
        _kernel(
            f"{label}: float32 against torch one by one, T = 512",
            ratio,
            "x",
            _cell(size, "512", "ratio_to", "torch"),
        ),
        _kernel(
            f"{label}: share of the sgemm peak, T = 512",
            0.8,
            "%",
            _cell(size, "512", "share_of_peak"),
        ),
        _kernel(
            f"{label}: against our own one-sequence calls, real lengths",
            2.5,
            "x",
            alone,
        ),
        _kernel(
            f"{label}: compiled shapes, real lengths",
            10,
            "",
            _cell(size, "real", "n_shapes"),
        ),
    ]


def _moments(size: str) -> Target:
    return Target(
        name=f"{size[:-1]} M: what moments add to log-probabilities",
        wanted=0.15,
        at_least=False,
        read=lambda measured: measured["moments"][size]["added_share"],
        unit="%",
    )


def _pairs(shape: str, wanted: float) -> Target:
    return Target(
        name=f"30 M: shared prefix against 20 calls from scratch, {shape} ids",
        wanted=wanted,
        at_least=True,
        read=lambda measured: measured["pairs"][shape]["ratio_to_scratch"],
        unit="x",
    )


def _orders(way: str, name: str, wanted: float) -> Target:
    return Target(
        name=name,
        wanted=wanted,
        at_least=False,
        read=lambda measured: measured["orders"]["median_seconds"][way],
        unit="s",
    )


TARGETS = (
    *_of_size("124m", 2.0),
    *_of_size("30m", 2.4),
    _moments("124m"),
    _moments("30m"),
    Target(
        name="30 M: all scores of one pass against Min-K% alone, 128 ids",
        wanted=1.2,
        at_least=False,
        read=lambda measured: measured["membership"]["ratio"],
        unit="x",
    ),
    _pairs("64/64", 1.8),
    _pairs("256/64", 6.0),
    Target(
        name="30 M: writing with a cache against reading anew, 200 + 200 ids",
        wanted=3.0,
        at_least=True,
        read=lambda measured: measured["generation"]["ratio"],
        unit="x",
    ),
    Target(
        name="30 M: share of the store in scoring",
        wanted=0.05,
        at_least=False,
        read=lambda measured: measured["store"]["share"],
        unit="%",
    ),
    _orders("exact", "10^4 orders a stratum, 40 of 25, exact p-value", 1.0),
    Target(
        name="30 M: a training step against a plain torch loop, T = 512",
        wanted=1.5,
        at_least=True,
        read=lambda measured: measured["train"]["ratio"],
        unit="x",
    ),
    # Asked of two cores, measured on one.
    _orders("fresh", "10^5 fresh orders of 40 strata of 25", 8.0),
)


def judge(measured: Mapping[str, Any]) -> list[dict]:
    """Every target of the parts that were measured: name, bound, value, met or not.

    A target whose cell was not measured (a pulse run has other lengths) is left out.
    """
    rows = []
    for target in TARGETS:
        try:
            value = target.read(measured)
        except KeyError:
            continue
        bound = "at least " if target.at_least else "at most "
        rows.append(
            {
                "target": target.name,
                "wanted": bound + target.text(target.wanted),
                "measured": target.text(value),
                "value": value,
                "met": target.is_met(value),
            }
        )
    return rows
