"""Plots as SVG text: the same numbers give the same bytes.

Dimension key
    K  strata
    R  thresholds, or p-values
"""

import io
import itertools
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxcontam.proof.outcome import print_outcome, print_unscored
from jaxcontam.proof.result import NullPicture, OrderResult
from jaxcontam.proof.sentences import WIDTH
from jaxcontam.reports.figure import (
    BLUE,
    DECIDES,
    GREY,
    ORANGE,
    SMALL,
    SQUARE,
    STYLE,
    histogram,
    plotted,
    svg_text,
)
from jaxcontam.reports.methods import Words
from jaxcontam.reports.report import Report
from jaxcontam.stats.result import OrderNumbers
from jaxcontam.terminal import Terminal

# Bars of strata: each takes a millisecond to draw, and 200 bytes.
_MOST_BARS = 1000
# Points of a plot of p-values: a screen shows no more across it.
_MOST_P_VALUES = 300
_LEVEL = 0.001


def null_plot(
    picture: NullPicture, version: str = "order", unit: str | None = None
) -> str:
    """The statistic under chance, and that of the published version."""
    return histogram(
        {"by chance": picture.null_sums},
        f"summed score, {unit or f'nats above the mean {version}'}",
        "share of draws",
        mark=(f"published {version}", picture.observed),
    )


def evidence_plot(
    picture: NullPicture, row: str = "stratum", unit: str | None = None
) -> str:
    """Each stratum's score along the file; of very many, means of neighbours."""
    contributions_K = picture.contributions
    K = len(contributions_K)
    step = -(-K // _MOST_BARS)
    firsts = np.arange(0, K, step)
    counts = np.diff(firsts, append=K)
    heights = np.add.reduceat(contributions_K, firsts) / counts
    with plotted(SMALL) as (figure, axes):
        colours = np.where(heights > 0, ORANGE, GREY)
        axes.bar(firsts + (counts + 1) / 2, heights, color=colours, width=0.8 * counts)
        axes.axhline(0, color="black", lw=0.6)
        means = f"; a bar: mean of {step:,}" if step > 1 else ""
        axes.set_xlabel(f"{row}, in the order of the file{means}")
        axes.set_ylabel(unit or "nats above its mean")
        n_above = np.count_nonzero(contributions_K > 0)
        return svg_text(
            figure,
            f"Score of each {row} along the file; {n_above} of {K} are "
            + ("above their mean" if unit is None else f"above 0, {unit}"),
        )


def split_plot(numbers: OrderNumbers) -> str | None:
    """Memory beside natural order, as `draw_split` has it; None without pairs."""
    with plotted(SMALL) as (figure, axes):
        said = draw_split(axes, numbers)
        return None if said is None else svg_text(figure, said)


def draw_split(axes: Axes, numbers: OrderNumbers) -> str | None:
    """Expectedness of an example in the published direction and against it, by lag.

    In standard deviations at each lag where all pairs were scored, else in nats beside
    the neighbours alone, with 95 % intervals. Returns the numbers in words; None, and
    draws nothing, where no pairs were scored.
    """
    profile, found = numbers.lag_profile or (), numbers.neighbours
    most = len(profile) // 2
    backward, forward = list(profile[:most])[::-1], list(profile[most:])
    errors: tuple[list[float] | None, list[float] | None] = (None, None)
    unit = "standard deviations"
    if all(value is None for value in profile):
        if found is None:
            return None
        forward, backward = [found.forward], [found.backward]
        errors = [WIDTH * found.forward_se], [WIDTH * found.backward_se]
        unit = "nats gained"
    lags = np.arange(1, len(forward) + 1)
    sides = (
        ("after it, as published", forward, ORANGE, -0.2, errors[0]),
        ("before it, the wrong way", backward, BLUE, 0.2, errors[1]),
    )
    for label, values, colour, shift, error in sides:
        heights = [np.nan if value is None else value for value in values]
        axes.bar(
            lags + shift, heights, 0.4, color=colour, label=label, yerr=error, capsize=3
        )
    axes.axhline(0, color="black", lw=0.6)
    axes.set_xlim(0.3, max(2, len(lags)) + 0.7)
    axes.set_xticks(lags, [str(lag) for lag in lags])
    axes.set(xlabel="places between two examples", ylabel=unit)
    axes.legend(frameon=False, loc="upper right")
    told = (
        f"{lag} {label}: {value:.2f}"
        for label, values, *_ in sides
        for lag, value in zip(lags, values, strict=True)
        if value is not None
    )
    said = f"How expected an example is by places from another, {unit}; "
    return said + ", ".join(told)


def copies_plot(tests: Sequence[OrderResult]) -> str:
    """Strength of primary tests, each with `copies`, against that count."""
    points = [(test.copies or 0, -test.numbers.log10_p) for test in tests]
    kinds: dict[bool, dict[str, Any]] = {
        False: dict(color=BLUE, marker="o", label="planted in one order"),
        True: dict(color=ORANGE, marker="s", label="each copy in an order of its own"),
    }
    with plotted(SMALL) as (figure, axes):
        for is_shuffled, look in kinds.items():
            own = [bool(test.copies_shuffled) == is_shuffled for test in tests]
            if any(own):
                x, y = zip(*itertools.compress(points, own), strict=True)
                axes.scatter(x, y, **look, zorder=3)
        axes.set_xscale("symlog", linthresh=1)
        ticks = sorted({copies for copies, _ in points})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        level = -np.log10(_LEVEL)
        axes.axhline(level, color=GREY, ls="--", lw=1)
        axes.text(ticks[-1], level, f"p = {_LEVEL:g} ", va="bottom", ha="right")
        axes.set(xlabel="copies in the training data", ylabel="-log10 p")
        axes.set_ylim(0, None)
        figure.legend(frameon=False, loc="outside upper left")
        values = ", ".join(f"{copies}: {strength:.1f}" for copies, strength in points)
        return svg_text(figure, f"-log10 p by copies in the training data: {values}")


def qq_plot(p_values_R: np.ndarray) -> str:
    """Sorted (R,) p-values above 0 against uniform ones, -log10 p, with a 95 % band."""
    from scipy import stats

    n = len(p_values_R)
    # All of the smallest, and then ever fewer: thousands of points make no picture.
    spread = np.geomspace(1, n, min(n, _MOST_P_VALUES))
    ranks = np.unique(spread.round().astype(np.int64))
    expected = -np.log10((ranks - 0.5) / n)
    observed = -np.log10(np.sort(p_values_R)[ranks - 1])
    low, high = (
        -np.log10(stats.beta.ppf(q, ranks, n + 1 - ranks)) for q in (0.975, 0.025)
    )
    with plotted(SQUARE) as (figure, axes):
        axes.fill_between(expected, low, high, color=GREY, alpha=0.3, lw=0)
        axes.plot(expected, expected, color="black", lw=0.6)
        axes.plot(expected, observed, "o", color=BLUE, ms=3)
        axes.set(xlabel="-log10 p, uniform", ylabel="-log10 p, found")
        n_outside = np.count_nonzero((observed < low) | (observed > high))
        return svg_text(
            figure,
            f"Sorted p-values against uniform ones; {n_outside} of {len(ranks)} points "
            "outside the 95 % band",
        )


# p-values below are drawn here.
_DEEPEST = 20.0
_VERDICT_DEPTH = 3.0


def summary_text(report: Report, words: Words) -> str:
    """The print of `jaxcontam audit` in 80 columns: table, why, what next."""
    page = io.StringIO()
    console = Terminal(file=page, width=80)
    if found := [row for row in report.results if isinstance(row, OrderResult)]:
        print_outcome(found, report.command, words, console, explain=False)
    print_unscored(report.unscored, report.command, words, console, explain=False)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def audit_figure(results: Sequence[OrderResult]) -> Figure:
    """Tests of one benchmark: -log10 p, and `draw_split` where pairs were scored."""
    numbers = [row.numbers for row in results]
    # All pairs are better than some.
    by_pairs = sorted(numbers, key=lambda one: one.lag_profile is None)
    pairs = [one for one in by_pairs if one.neighbours is not None]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 2.6), layout="constrained")
        panels = figure.subplots(1, 1 + bool(pairs), squeeze=False)[0]
        depths = [min(_DEEPEST, -one.log10_p) for one in numbers]
        colours = [DECIDES[row.primary] for row in results]
        panels[0].barh([row.method for row in results], depths, color=colours)
        panels[0].axvline(_VERDICT_DEPTH, color="black", lw=0.8, ls=":")
        panels[0].set_xlabel("-log10 p (dotted: p = 0.001)")
        panels[0].invert_yaxis()
        if pairs:
            draw_split(panels[1], pairs[0])
    return figure
