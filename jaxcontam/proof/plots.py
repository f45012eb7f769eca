"""Plots as SVG text: the same numbers give the same bytes.

Dimension key
    K  strata
    R  thresholds, or p-values
"""

import dataclasses
import io
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxcontam.members.page import blind_name
from jaxcontam.members.result import BlindBaseline, ScorePicture, ScoreResult, SetResult
from jaxcontam.proof.order_words import WIDTH
from jaxcontam.proof.outcome import print_outcome, print_unscored
from jaxcontam.proof.result import NullPicture, OrderResult
from jaxcontam.replication.page import replication_rows
from jaxcontam.reports.figure import (
    BLUE,
    GREY,
    ORANGE,
    STYLE,
    plotted,
    shortened,
    svg_text,
)
from jaxcontam.reports.report import Report
from jaxcontam.reports.terms import Words
from jaxcontam.stats.result import OrderNumbers
from jaxcontam.terminal import Terminal

# Bars of strata: each takes a millisecond to draw, and 200 bytes.
_MOST_BARS = 1000
_TALL, _SMALL, _SQUARE = (4.0, 4.2), (4.0, 2.6), (3.6, 3.4)
# Inches of a plot of intervals: its width, what stands around it, and each line.
_INTERVALS = (4.2, 0.8, 0.26)
# Told apart by dash as well as by colour, for grey print and colour-blind readers.
_COLOURS = (BLUE, ORANGE, "#2a7f62", "#8e4585", "#5b4636", "#0f8b8d", "#b8336a")
_DASHES = ("-", "--", ":", "-.")
# Points of an ROC curve, and of p-values; a screen shows no more across a plot.
_MOST_POINTS, _MOST_P_VALUES = 200, 300
_BINS = 40
_LEVEL = 0.001


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A number with its interval: a line of `intervals_plot` under its `group`."""

    name: str
    group: str = ""
    value: float
    low: float | None
    high: float | None
    colour: str


def roc_plot(pictures: Sequence[ScorePicture], *, primary: str | None = None) -> str:
    """ROC curves of scores of the same texts, both rates on a logarithmic scale.

    It shows what matters in an audit: how many members are found where false alarms
    are rare. It begins below one non-member. The primary score is drawn heavier.
    """
    first = pictures[0]
    floors = 0.5 / len(first.nonmembers), 0.5 / len(first.members)
    with plotted(_TALL) as (figure, axes):
        axes.plot([floors[0], 1], [floors[0], 1], color=GREY, lw=0.8, label="chance")
        for i, picture in enumerate(pictures):
            fpr_R, tpr_R = _thinned(picture.fpr, picture.tpr)
            axes.step(
                np.maximum(fpr_R, floors[0]),
                np.maximum(tpr_R, floors[1]),
                where="post",
                color=_COLOURS[i % len(_COLOURS)],
                ls=_DASHES[i % len(_DASHES)],
                lw=2.2 if picture.method == primary else 1.0,
                label=f"{picture.method}, AUC {picture.auc:.3f}",
            )
        axes.set(xscale="log", yscale="log")
        axes.set(xlim=(floors[0], 1), ylim=(min(floors), 1.05))
        axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
        figure.legend(loc="outside lower center", frameon=False, ncols=2)
        labels = axes.get_legend_handles_labels()[1]
        return svg_text(figure, f"ROC curves: {'; '.join(labels)}")


def histogram(
    groups: Mapping[str, np.ndarray],
    xlabel: str,
    ylabel: str,
    *,
    mark: tuple[str, float] | None = None,
) -> str:
    """Histograms of groups in one plot, each adding up to 1.

    Bins lie between quantiles of all values; what lies beyond goes into the last ones.
    Groups are label -> finite values, what is known or unremarkable first; `mark` is
    the label and value of a line.
    """
    # Scores have long tails.
    every = np.concatenate(list(groups.values()))
    ends = [*np.quantile(every, [0.005, 0.995]), *(mark or ())[1:]]
    low, high = float(min(ends)), float(max(ends))
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _BINS + 1)
    with plotted(_SMALL) as (figure, axes):
        colours = GREY, ORANGE, BLUE
        for i, (label, values) in enumerate(groups.items()):
            axes.hist(
                np.clip(values, low, high),
                bins=edges.tolist(),
                weights=np.full(len(values), 1 / max(1, len(values))),
                histtype="stepfilled",
                alpha=0.55,
                lw=1.5,
                color=colours[i % len(colours)],
                label=label,
            )
        if mark is not None:
            axes.axvline(mark[1], color=ORANGE, lw=2, label=mark[0])
        axes.set(xlabel=xlabel, ylabel=ylabel)
        # Above the axes: it hides neither the bars nor the line.
        figure.legend(frameon=False, loc="outside upper left", ncols=3)
        medians = ", ".join(
            f"{name} {np.median(values):.3g} ({len(values)})"
            for name, values in groups.items()
            if len(values)
        )
        at = "" if mark is None else f"; the {mark[0]} stands at {mark[1]:.3g}"
        return svg_text(figure, f"Histograms of {xlabel}; medians: {medians}{at}")


def interval_row(
    row: object, field: str, name: str, colour: str = GREY, group: str = ""
) -> Interval:
    """A field of a result with its interval, which FIELD_low and FIELD_high hold."""
    low, high = (getattr(row, f"{field}_{end}", None) for end in ("low", "high"))
    value = getattr(row, field)
    return Interval(
        name=name, group=group, value=value, low=low, high=high, colour=colour
    )


def intervals_plot(rows: Sequence[Interval], xlabel: str, *, nothing: float) -> str:
    """`intervals_figure` as SVG text."""
    values = "; ".join(
        f"{row.group + ', ' if row.group else ''}{row.name}: {row.value:.2f}"
        for row in rows
    )
    figure = intervals_figure(rows, xlabel, nothing=nothing)
    return svg_text(figure, f"{xlabel} with 95 % intervals: {values}")


def intervals_figure(
    rows: Sequence[Interval], xlabel: str, *, nothing: float
) -> Figure:
    """Numbers with 95 % intervals, a line each; `nothing` is that of no effect."""
    groups = list(dict.fromkeys(row.group for row in rows))
    has_groups = groups != [""]
    # A free line before each group, for its name.
    places = [
        i + (groups.index(row.group) + 1) * has_groups for i, row in enumerate(rows)
    ]
    n_lines = places[-1] + 1
    width, around, line = _INTERVALS
    with plotted((width, around + line * n_lines)) as (figure, axes):
        for place, row in zip(places, rows, strict=True):
            ends = None
            if row.low is not None and row.high is not None:
                # A bootstrap interval may leave out the estimate by a rounding error.
                ends = np.maximum([[row.value - row.low], [row.high - row.value]], 0)
            axes.errorbar(
                row.value,
                place,
                xerr=ends,
                fmt="o",
                color=row.colour,
                capsize=2,
            )
        axes.axvline(nothing, color="black", lw=0.6)
        axes.set_yticks(places, [shortened(row.name) for row in rows])
        axes.set_ylim(n_lines - 0.4, -0.6)
        for group in groups if has_groups else ():
            axes.text(
                0,
                places[[row.group for row in rows].index(group)] - 0.75,
                group,
                transform=axes.get_yaxis_transform(),
                fontweight="bold",
                va="center",
                # That line must not run through a name.
                bbox={"fc": "white", "ec": "none", "pad": 1},
            )
        axes.set_xlabel(xlabel)
    return figure


def overlap_plot(points: Sequence[tuple[float, float, str]]) -> str:
    """ROUGE-L of instances (general, guided, label), guided over general."""
    kinds = (("exact", ORANGE, "o"), ("near", BLUE, "s"), ("no", GREY, "x"))
    with plotted(_SQUARE) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=GREY, lw=0.8)
        for kind, colour, marker in kinds:
            own = [(x, y) for x, y, label in points if label == kind]
            if own:
                x, y = zip(*own, strict=True)
                axes.plot(x, y, marker, color=colour, ms=5, alpha=0.8, label=kind)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.set_xlabel("ROUGE-L, general instruction")
        axes.set_ylabel("ROUGE-L, guided instruction")
        axes.legend(frameon=False)
        return svg_text(
            figure,
            f"ROUGE-L of {len(points)} instances, guided over general instruction; "
            f"{sum(y > x for x, y, _ in points)} are closer when guided",
        )


def _thinned(fpr_R: np.ndarray, tpr_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fewer points, spread over ranks on a log scale, where few would be told apart."""
    n = len(fpr_R)
    if n <= _MOST_POINTS:
        return fpr_R, tpr_R
    kept = np.geomspace(1, n, _MOST_POINTS).round().astype(np.int64) - 1
    even = np.linspace(0, n - 1, _MOST_POINTS).round().astype(np.int64)
    chosen = np.unique(np.concatenate([kept, even]))
    return fpr_R[chosen], tpr_R[chosen]


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
    with plotted(_SMALL) as (figure, axes):
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
    with plotted(_SMALL) as (figure, axes):
        said = draw_split(axes, numbers)
        return None if said is None else svg_text(figure, said)


def draw_split(axes: Axes, numbers: OrderNumbers) -> str | None:
    """How expected an example is in the published direction and against it, by lag.

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
    told = [
        f"{lag} {side[0]}: {value:.2f}"
        for side in sides
        for lag, value in zip(lags, side[1], strict=True)
        if value is not None
    ]
    said = f"How expected an example is by places from another, {unit}; "
    return said + ", ".join(told)


def copies_plot(tests: Sequence[OrderResult]) -> str:
    """Strength of primary tests, each with `copies`, against that count."""
    points = [(test.copies or 0, -test.numbers.log10_p) for test in tests]
    with plotted(_SMALL) as (figure, axes):
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
    ranks = np.unique(
        np.geomspace(1, n, min(n, _MOST_P_VALUES)).round().astype(np.int64)
    )
    expected = -np.log10((ranks - 0.5) / n)
    observed = -np.log10(np.sort(p_values_R)[ranks - 1])
    low, high = (
        -np.log10(stats.beta.ppf(q, ranks, n + 1 - ranks)) for q in (0.975, 0.025)
    )
    with plotted(_SQUARE) as (figure, axes):
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
# A row that decides stands out.
_DECIDES = {True: ORANGE, False: GREY}


def summary_text(report: Report, words: Words) -> str:
    """The print of `jaxcontam audit` in 80 columns: table, notes, next steps."""
    page = io.StringIO()
    console = Terminal(file=page, width=80)
    if found := [row for row in report.results if isinstance(row, OrderResult)]:
        print_outcome(found, report.command, words, console)
    print_unscored(report.unscored, report.command, words, console)
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
        colours = [_DECIDES[row.primary] for row in results]
        panels[0].barh([row.method for row in results], depths, color=colours)
        panels[0].axvline(_VERDICT_DEPTH, color="black", lw=0.8, ls=":")
        panels[0].set_xlabel("-log10 p (dotted: p = 0.001)")
        panels[0].invert_yaxis()
        if pairs:
            draw_split(panels[1], pairs[0])
    return figure


def membership_figure(
    scores: Sequence[ScoreResult | SetResult], blind: Sequence[BlindBaseline]
) -> Figure:
    """AUC of every score and of every blind baseline, with 95 % intervals."""
    if not scores:
        raise ValueError("no members and non-members are known, so there is no AUC")
    rows = [
        interval_row(row, "auc", row.method, _DECIDES[row.primary]) for row in scores
    ]
    rows += [interval_row(one, "auc", blind_name(one.name)) for one in blind]
    return intervals_figure(rows, "AUC", nothing=0.5)


def replication_figure(report: Report, words: Words) -> Figure:
    """Share of copies by every judge, then what other methods found, with intervals."""
    judges, _, others = replication_rows(report.results)
    rows = [
        interval_row(row, "rate", words[row.method].label, _DECIDES[row.primary])
        for row in (*judges, *others)
        if row.rate is not None
    ]
    if not rows:
        raise ValueError("nothing was judged, so there is no share")
    return intervals_figure(rows, "share of instances that are found", nothing=0.0)
