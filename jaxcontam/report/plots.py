"""Plots as SVG text: the same numbers give the same bytes.

Dimension key
    K  strata
"""

from collections.abc import Sequence

import matplotlib
import numpy as np

from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text
from jaxcontam.report.neighbours import Gain
from jaxcontam.report.pictures import LossPicture, NullPicture
from jaxcontam.results import OrderResult

_SMALL, _WIDE = (3.8, 2.5), (8.4, 3.0)
_SQUARE = (3.6, 3.4)
_MOST_POINTS = 300
_LEVEL = 0.001
# The neighbours of an example: only the one behind it memory has no part in.
_NEIGHBOURS = {-1: BLUE, 1: ORANGE}
# As text orange is too light on white.
_INK_ORANGE = "#8f4e00"


def null_plot(
    picture: NullPicture, version: str = "order", unit: str | None = None
) -> str:
    """Histogram of the statistic under chance, with the published version's value.

    Args:
        picture: The numbers.
        version: What was published and has alternatives.
        unit: Of the sum; by default nats above the mean version.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SMALL)
        axes.hist(picture.null_sums, bins=60, color=GREY, label="by chance")
        axes.axvline(picture.observed, color=ORANGE, lw=2, label=f"published {version}")
        axes.set_xlabel(f"summed score, {unit or f'nats above the mean {version}'}")
        axes.set_yticks([])
        # Above the axes: it hides neither the bars nor the line.
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
        return svg_text(
            figure,
            f"Histogram of the summed score by chance; the published {version} stands "
            f"at {picture.observed:.3g}",
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


def lag_plot(profile: Sequence[float | None] | None) -> str | None:
    """How expected examples are at each distance after (or before) another one.

    Args:
        profile: Standard deviations at lags -n..-1 and 1..n; None where there are none.
    """
    if profile is None or all(value is None for value in profile):
        return None
    most = len(profile) // 2
    lags = [lag for lag in range(-most, most + 1) if lag]
    found = {
        lag: value
        for lag, value in zip(lags, profile, strict=True)
        if value is not None
    }
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SMALL)
        colours = [_NEIGHBOURS.get(lag, GREY) for lag in found]
        for lag, colour in _NEIGHBOURS.items():
            axes.axvspan(lag - 0.5, lag + 0.5, color=colour, alpha=0.12, lw=0)
        axes.bar(list(found), list(found.values()), color=colours, width=0.7)
        axes.axhline(0, color="black", lw=0.6)
        axes.axvline(0, color="black", lw=0.6, ls=":")
        axes.set_xlim(-most - 0.6, most + 0.6)
        axes.set_xticks(list(found), [f"{lag:+d}" for lag in found])
        axes.set_title("\u2190 against the order", loc="left", color=BLUE)
        axes.set_title("in the order \u2192", loc="right", color=_INK_ORANGE)
        axes.set_xlabel("places after the other example")
        axes.set_ylabel("standard deviations")
        values = ", ".join(f"{lag:+d}: {value:.2f}" for lag, value in found.items())
        return svg_text(
            figure, f"Mean score by places after the other example: {values}"
        )


def gains_plot(gains: Sequence[Gain]) -> str:
    """Two bars with 95 % intervals: what an example gains after each neighbour.

    Args:
        gains: Forward, backward and, not drawn, their difference.
    """
    forward, backward, _ = gains
    shown = [
        (forward, ORANGE, "after the one\nbefore it"),
        (backward, BLUE, "after the one\nbehind it"),
    ]
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SMALL)
        for place, (gain, colour, _) in enumerate(shown):
            axes.barh(place, gain.mean, color=colour, height=0.5)
            axes.plot([gain.low, gain.high], [place, place], color="black", lw=1.2)
            ends = [gain.low, gain.high]
            axes.plot(ends, [place] * 2, "|", color="black", ms=8)
        axes.axvline(0, color="black", lw=0.6)
        axes.set_yticks([0, 1], [words for _, _, words in shown])
        axes.set_ylim(1.6, -0.6)
        axes.set_xlabel("gain of an example, nats")
        said = ", ".join(
            f"{gain.mean:.2f} ({gain.low:.2f} to {gain.high:.2f}) {words}"
            for gain, _, words in shown
        ).replace("\n", " ")
        return svg_text(figure, f"Nats that an example gains: {said}")


def copies_plot(tests: Sequence[OrderResult]) -> str:
    """Strength of the primary tests against the planted duplication count.

    Args:
        tests: Primary results, each with `copies`.
    """
    points = [(test.copies or 0, -test.numbers.log10_p) for test in tests]
    floors = [test.numbers.p_floor for test in tests]
    floor = -np.log10(min(floor for floor in floors if floor is not None))
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_WIDE)
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
        axes.axhline(floor, color=GREY, ls=":", lw=1)
        axes.text(ticks[0], floor, " smallest p possible", va="bottom")
        axes.set_xlabel("copies in the training data")
        axes.set_ylabel("-log10 p")
        axes.set_ylim(0, floor * 1.12)
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.92))
        values = ", ".join(f"{copies}: {strength:.1f}" for copies, strength in points)
        return svg_text(figure, f"-log10 p by copies in the training data: {values}")


def loss_plot(picture: LossPicture) -> str:
    """Training loss with the steps at which each set was seen."""
    losses = picture.losses
    steps = np.arange(1, len(losses) + 1)
    names = list(picture.injections)
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((_WIDE[0], 3.4))
        axes.plot(steps, losses, color=BLUE, lw=0.8)
        axes.set_xlabel("step")
        axes.set_ylabel("loss, nats a token")
        low, high = float(losses.min()), float(losses.max())
        gap = (high - low) / 14
        for row, name in enumerate(names):
            height = low - (row + 1.2) * gap
            seen = picture.injections[name]
            axes.plot(seen, np.full(len(seen), height), "|", color=ORANGE, ms=6)
            axes.text(steps[-1] * 1.01, height, name, va="center", fontsize=7)
        axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= high])
        axes.set_ylim(low - (len(names) + 1.5) * gap, high + gap)
        return svg_text(
            figure,
            f"Training loss over {len(losses)} steps, from {losses[0]:.2f} to "
            f"{losses[-1]:.2f} nats a token, with the steps that saw each set",
        )


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
