"""Plots of order tests as SVG text: the same numbers give the same bytes.

Dimension key
    K  strata
"""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text
from jaxcontam.report.pictures import NullPicture
from jaxcontam.report.text_plots import histogram
from jaxcontam.results import OrderNumbers, OrderResult

_SMALL, _SQUARE = (4.0, 2.6), (3.6, 3.4)
_MOST_POINTS = 300
_LEVEL = 0.001
# Standard errors on each side of a 95 % interval.
_WIDTH = 1.959964


def null_plot(
    picture: NullPicture, version: str = "order", unit: str | None = None
) -> str:
    """Histogram of the statistic under chance, with the published version's value.

    Args:
        picture: The numbers.
        version: What was published and has alternatives.
        unit: Of the sum; by default nats above the mean version.
    """
    return histogram(
        {"by chance": picture.null_sums},
        f"summed score, {unit or f'nats above the mean {version}'}",
        "share of draws",
        mark=(f"published {version}", picture.observed),
    )


def evidence_plot(
    picture: NullPicture, row: str = "stratum", unit: str | None = None
) -> str:
    """Each stratum's score along the file; `unit` is nats above its mean by default."""
    contributions_K = picture.contributions
    index_K = np.arange(1, len(contributions_K) + 1)
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SMALL)
        colours = np.where(contributions_K > 0, ORANGE, GREY)
        axes.bar(index_K, contributions_K, color=colours, width=0.8)
        axes.axhline(0, color="black", lw=0.6)
        axes.set_xlabel(f"{row}, in the order of the file")
        axes.set_ylabel(unit or "nats above its mean")
        n_above = np.count_nonzero(contributions_K > 0)
        return svg_text(
            figure,
            f"Score of each {row} along the file; {n_above} of {len(index_K)} are "
            + ("above their mean" if unit is None else f"above 0, {unit}"),
        )


def split_plot(numbers: OrderNumbers) -> str | None:
    """Memory beside natural order, as `draw_split` has it; None without pairs."""
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SMALL)
        said = draw_split(axes, numbers)
        return None if said is None else svg_text(figure, said)


def draw_split(axes: Axes, numbers: OrderNumbers) -> str | None:
    """How expected an example is in the published direction and against it, by lag.

    Args:
        axes: Where to draw.
        numbers: Of a pair test: standard deviations at each lag where all pairs were
            scored, else nats beside the neighbours alone, with 95 % intervals.

    Returns:
        The numbers in words; None, and nothing drawn, where no pairs were scored.
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
        errors = [_WIDTH * found.forward_se], [_WIDTH * found.backward_se]
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
    axes.set_xlabel("places between two examples")
    axes.set_ylabel(unit)
    axes.legend(frameon=False, loc="upper right")
    told = [
        f"{lag} {side[0]}: {value:.2f}"
        for side in sides
        for lag, value in zip(lags, side[1], strict=True)
        if value is not None
    ]
    return f"How expected an example is by places from another, {unit}; " + ", ".join(
        told
    )


def copies_plot(tests: Sequence[OrderResult]) -> str:
    """Strength of the primary tests against the planted duplication count.

    Args:
        tests: Primary results, each with `copies`.
    """
    points = [(test.copies or 0, -test.numbers.log10_p) for test in tests]
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SMALL)
        for shuffled, colour, marker, label in (
            (False, BLUE, "o", "planted in one order"),
            (True, ORANGE, "s", "each copy in an order of its own"),
        ):
            chosen = [
                point
                for point, test in zip(points, tests, strict=True)
                if bool(test.copies_shuffled) == shuffled
            ]
            if chosen:
                x, y = zip(*chosen, strict=True)
                axes.scatter(x, y, color=colour, marker=marker, label=label, zorder=3)
        axes.set_xscale("symlog", linthresh=1)
        ticks = sorted({copies for copies, _ in points})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        level = -np.log10(_LEVEL)
        axes.axhline(level, color=GREY, ls="--", lw=1)
        axes.text(ticks[-1], level, f"p = {_LEVEL:g} ", va="bottom", ha="right")
        axes.set_xlabel("copies in the training data")
        axes.set_ylabel("-log10 p")
        axes.set_ylim(0, None)
        figure.legend(frameon=False, loc="outside upper left")
        values = ", ".join(f"{copies}: {strength:.1f}" for copies, strength in points)
        return svg_text(figure, f"-log10 p by copies in the training data: {values}")


def qq_plot(p_values_R: np.ndarray) -> str:
    """Sorted p-values against what as many uniform ones would be, both as -log10 p.

    The band holds each point of a uniform sample with probability 0.95.

    Args:
        p_values_R: (R,) p-values above 0, R >= 1.
    """
    from scipy import stats

    n = len(p_values_R)
    # All of the smallest, and then ever fewer: thousands of points make no picture.
    ranks = np.unique(np.geomspace(1, n, min(n, _MOST_POINTS)).round().astype(np.int64))
    expected = -np.log10((ranks - 0.5) / n)
    observed = -np.log10(np.sort(p_values_R)[ranks - 1])
    low, high = (
        -np.log10(stats.beta.ppf(q, ranks, n + 1 - ranks)) for q in (0.975, 0.025)
    )
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SQUARE)
        axes.fill_between(expected, low, high, color=GREY, alpha=0.3, lw=0)
        axes.plot(expected, expected, color="black", lw=0.6)
        axes.plot(expected, observed, "o", color=BLUE, ms=3)
        axes.set_xlabel("-log10 p, uniform")
        axes.set_ylabel("-log10 p, found")
        n_outside = np.count_nonzero((observed < low) | (observed > high))
        return svg_text(
            figure,
            f"Sorted p-values against uniform ones; {n_outside} of {len(ranks)} points "
            "outside the 95 % band",
        )
