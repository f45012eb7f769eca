"""Plots of a training run: loss with injections marked, memorisation along the run.

Dimension key
    N  steps
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from jaxcontam.report.figure import BLUE, GREY, STYLE, svg_text
from jaxcontam.stats.effect import LEVEL

PUBLISHED = "published"
_WIDTH = 9.4
# Inches: of a curve, of a low one, and of each set's line in the calendar of copies.
_TALL, _LOW, _LINE = 2.3, 0.9, 0.17
# More would not be seen, and would make the page heavy.
_MOST_POINTS = 1500
_MOST_MARKS = 400
# The mean of the loss spans 1/100 of the run on either side.
_STEPS_OF_RUN = 100
_MARKERS = "os^Dv*PX"
# Largest -log10 p plotted on a linear scale; a p-value may be 1e-200.
_PLAIN_UP_TO = 12
# Approximate p-values are not trusted below 1e-15; tables end there too.
_APPROXIMATE_TO = 15
# Label, title and baseline of each plotted number.
_PANELS = {
    "p": ("-log10 p", f"order of the examples (dashed: p = {LEVEL:g})", 0.0),
    "effect": (
        "nats per boundary",
        "effect of the published order ± one standard error",
        0.0,
    ),
    "auc": ("AUC", "presence of the texts ± one standard error", 0.5),
}
# The end of the colour map is too light on white.
_LIGHTEST = 0.88


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LossCurve:
    """Training, step by step.

    Attributes:
        tokens: (N,) int64, targets trained on after each step.
        losses: (N,) float64, nats per token; NaN where a loss was no number.
        rates: (N,) float64, learning rates.
    """

    tokens: np.ndarray
    losses: np.ndarray
    rates: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SetPicture:
    """One planted set or control along a run.

    Attributes:
        name: Name of the set.
        copies: In all training data; 0 for a control.
        orders: `published`, or `shuffled` or `spread` where no two copies share one.
        seen: Targets trained on when a part of a copy was, ascending; one for each
            step that trained on any.
        audits: Rows of audits.jsonl, ascending in `tokens`.
    """

    name: str
    copies: int
    orders: str
    seen: np.ndarray
    audits: Sequence[Mapping[str, Any]]


def loss_figure(curve: LossCurve, sets: Sequence[SetPicture], n_tokens: int) -> str:
    """Loss, when each planted set was trained on, and the learning rate.

    Args:
        curve: At least one step.
        sets: In the order of their lines.
        n_tokens: Tokens of the whole run, which may be unfinished.
    """
    planted = _planted(sets)
    with matplotlib.rc_context(STYLE):
        figure, (top, *middle, bottom) = _panels(
            [_TALL, *([_calendar_height(planted)] if planted else []), _LOW]
        )
        _draw_losses(top, curve)
        top.set_ylabel("loss, nats a token")
        top.legend(frameon=False, loc="upper right")
        for axes in middle:
            _draw_calendar(axes, planted)
        places = _kept(len(curve.tokens))
        bottom.plot(curve.tokens[places], curve.rates[places], color=GREY, lw=1)
        bottom.set_ylabel("learning rate")
        bottom.set_ylim(bottom=0)
        _label_tokens(bottom, n_tokens)
        return svg_text(
            figure, f"Loss and learning rate over {len(curve.tokens):,} steps"
        )


def local_means(values_N: np.ndarray, reach: int) -> np.ndarray:
    """Centred moving average, over as many values as there are near the ends.

    Centred, so that a falling curve is not plotted too high; NaN is skipped.

    Args:
        values_N: float64.
        reach: Values on either side.

    Returns:
        (N,) float64; NaN where there is nothing but NaN.
    """
    known_N = np.isfinite(values_N)
    sums, counts = (
        np.concatenate([[0.0], np.cumsum(part)])
        for part in (np.where(known_N, values_N, 0.0), known_N)
    )
    N = len(values_N)
    high_N = np.minimum(np.arange(N) + reach + 1, N)
    low_N = np.maximum(np.arange(N) - reach, 0)
    counts_N = counts[high_N] - counts[low_N]
    means_N = (sums[high_N] - sums[low_N]) / np.maximum(counts_N, 1)
    return np.where(counts_N > 0, means_N, np.nan)


def memorisation_figure(sets: Sequence[SetPicture], n_tokens: int) -> str:
    """Plot the tests of each set along the run.

    One panel a number: -log10 p and effect of each order test, AUC of the membership
    score; below them when each planted set was trained on.

    Args:
        sets: At least one of them audited.
        n_tokens: Tokens of the whole run.
    """
    planted = _planted(sets)
    methods = dict.fromkeys(row["method"] for one in sets for row in one.audits)
    tests, scores = [], []
    for method in methods:
        rows = [r for one in sets for r in one.audits if r["method"] == method]
        (scores if any(row["auc"] is not None for row in rows) else tests).append(
            method
        )
    panels = [(method, name) for method in tests for name in ("p", "effect")]
    panels += [(method, "auc") for method in scores]
    heights = [_TALL] * len(panels)
    with matplotlib.rc_context(STYLE):
        figure, found = _panels(
            [*heights, *([_calendar_height(planted)] if planted else [])]
        )
        for axes, (method, name) in zip(found[: len(panels)], panels, strict=True):
            _draw_panel(axes, sets, method, name)
        for axes in found[len(panels) :]:
            _draw_calendar(axes, planted)
        _label_tokens(found[-1], n_tokens)
        handles, labels = found[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside right upper", frameon=False, fontsize=8
        )
        names = ", ".join(one.name for one in sets)
        told = ", ".join([*tests, *scores])
        return svg_text(figure, f"{told} along training, of {names}")


def _planted(sets: Sequence[SetPicture]) -> list[SetPicture]:
    return [one for one in sets if one.copies]


def _calendar_height(planted: Sequence[SetPicture]) -> float:
    return _LINE * (len(planted) + 1.5)


def _panels(heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Panels over one another with one axis of tokens."""
    figure = Figure(figsize=(_WIDTH, sum(heights) + 0.5), layout="constrained")
    found = figure.subplots(
        len(heights), 1, sharex=True, height_ratios=heights, squeeze=False
    )
    return figure, list(found[:, 0])


def _label_tokens(axes: Axes, n_tokens: int) -> None:
    # Room for the marks of audits before the first and after the last step.
    axes.set_xlim(-0.01 * n_tokens, 1.01 * n_tokens)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("tokens trained on")


def _draw_losses(axes: Axes, curve: LossCurve) -> None:
    """Single losses in a light colour (their range where they are many), the mean."""
    N = len(curve.tokens)
    if N <= _MOST_POINTS:
        axes.plot(curve.tokens, curve.losses, color=BLUE, lw=0.6, alpha=0.35)
    else:
        starts = np.linspace(0, N, _MOST_POINTS, endpoint=False).astype(np.int64)
        axes.fill_between(
            curve.tokens[starts],
            np.fmin.reduceat(curve.losses, starts),
            np.fmax.reduceat(curve.losses, starts),
            color=BLUE,
            alpha=0.25,
            lw=0,
        )
    places, reach = _kept(N), N // _STEPS_OF_RUN
    axes.plot(
        curve.tokens[places],
        local_means(curve.losses, reach)[places],
        color=BLUE,
        lw=1.4,
        label=f"mean of {2 * reach + 1} steps",
    )


def _draw_calendar(axes: Axes, planted: Sequence[SetPicture]) -> None:
    """A line per set, with a mark where a part of a copy was trained on."""
    for line, one in enumerate(planted):
        if not len(one.seen):
            continue
        edges = np.linspace(0, one.seen.max(), _MOST_MARKS + 1)
        marks = np.unique(np.digitize(one.seen, edges), return_index=True)[1]
        # One path for all marks of a set: a path each would be most of the page.
        x = np.repeat(one.seen[marks].astype(np.float64), 3)
        y = np.tile([line - 0.38, line + 0.38, np.nan], len(marks))
        axes.plot(x, y, color=_colour(one, planted), lw=1)
    axes.set_yticks(range(len(planted)), [_words(one) for one in planted], fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(planted) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.set_title("when copies were trained on", fontsize=8)


def _draw_panel(axes: Axes, sets: Sequence[SetPicture], method: str, name: str) -> None:
    """One number of a method, a curve for each set."""
    label, title, baseline = _PANELS[name]
    largest = _draw_curves(axes, sets, method, name)
    axes.set_ylabel(label)
    axes.set_title(f"{method}: {title}")
    if name != "p":
        axes.axhline(baseline, color="black", lw=0.6)
        return
    axes.axhline(-math.log10(LEVEL), color=GREY, ls="--", lw=0.8)
    if largest > _PLAIN_UP_TO:
        axes.set_yscale("symlog", linthresh=3)
        ticks = [t for t in (0, 1, 2, 3, 10, 30, 100, 300) if t <= 1.3 * largest]
        axes.set_yticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)


def _value(row: Mapping[str, Any], name: str) -> float | None:
    """A plotted number; for `p` -log10 p, no deeper than the test supports."""
    if name != "p":
        return row[name]
    if row["log10_p"] is None:
        return None
    deepest = _APPROXIMATE_TO if row["validity"] == "asymptotic" else math.inf
    return min(deepest, -row["log10_p"])


def _draw_curves(
    axes: Axes, sets: Sequence[SetPicture], method: str, name: str
) -> float:
    """A curve a set, controls below the others; returns the largest value."""
    planted = _planted(sets)
    largest = 0.0
    for one in sets:
        rows = [
            row
            for row in one.audits
            if row["method"] == method and _value(row, name) is not None
        ]
        values = np.array([_value(row, name) for row in rows], np.float64)
        errors = np.array([row.get(f"{name}_se") or 0.0 for row in rows], np.float64)
        largest = max(largest, float(values.max(initial=0.0)))
        is_control = not one.copies
        axes.errorbar(
            [row["tokens"] for row in rows],
            values,
            yerr=errors if errors.any() else None,
            color=_colour(one, planted),
            marker=None if is_control else _MARKERS[planted.index(one) % len(_MARKERS)],
            ms=3.5,
            lw=1,
            elinewidth=0.6,
            ls="--" if is_control else "-" if one.orders == PUBLISHED else ":",
            label=_words(one),
            zorder=1 if is_control else 2,
        )
    return largest


def _colour(one: SetPicture, planted: Sequence[SetPicture]) -> Any:
    """Grey for controls; for the others from dark (most copies) to light (fewest)."""
    if not one.copies:
        return GREY
    ranked = sorted(planted, key=lambda other: -other.copies)
    place = ranked.index(one) / max(1, len(ranked) - 1)
    return matplotlib.colormaps["viridis"](_LIGHTEST * place)


def _words(one: SetPicture) -> str:
    """A label; matplotlib would hide one that began with the name of a set `_x`."""
    if not one.copies:
        return f"control {one.name}"
    orders = "" if one.orders == PUBLISHED else f" {one.orders}"
    return f"{one.copies}x{orders} {one.name}"


def _kept(n: int) -> np.ndarray:
    """Indices of the plotted points: all, or evenly spaced ones with both ends."""
    return np.unique(np.linspace(0, n - 1, min(n, _MOST_POINTS)).astype(np.int64))
