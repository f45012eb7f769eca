"""Records of planted models to power, the copies of half power, tables and figures.

A model has one set in every cell, so that Wilson's interval over models is one over
independent runs; what compares cells of the same models is bootstrapped over models.

Dimension key
    M  models
    C  duplication counts
    B  bootstrap draws
"""

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

from eval.intervals import Share, is_rejected
from eval.population import Fields
from eval.study import Grid, grouped
from jaxcontam.reports.figure import (
    BLUE,
    GREY,
    ORANGE,
    STYLE,
    figure_axes,
    svg_text,
)

LEVELS = (0.001, 0.01, 0.05)
"""Levels at which power is stated."""
# The level of the figures; tables have the others.
_DRAWN_LEVEL = 0.001
# Told apart by marker too; the first ones also in grey print.
_COLOURS = (BLUE, ORANGE, GREY, "#2e7d5b", "#7a3e9d", "#b03a48", "#5b4b3a", "#111111")
_MARKERS = "os^Dv*PX"
_N_BOOTSTRAP = 2000
# Fewer duplication counts are no curve; a bootstrap of fewer models is too narrow.
_FEWEST_COUNTS, _FEWEST_MODELS = 4, 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """Power of one test in one cell, with Wilson's 95 % interval over models.

    0 copies give the size; `passes` is the mean cost in passes over the examples.
    """

    design: str
    test: str
    copies: int
    level: float
    n_models: int
    n_rejected: int
    low: float | None
    high: float | None
    median_log10_p: float
    quartiles_log10_p: tuple[float, float]
    passes: float

    @property
    def share(self) -> Share:
        """Share of sets found."""
        value = self.n_rejected / self.n_models
        return Share(value=value, low=self.low, high=self.high)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Dup50:
    """Copies at which a test finds half of the sets, with a bootstrap over models.

    None is more than the most copies planted.
    """

    design: str
    test: str
    level: float
    n_models: int
    copies: float | None
    low: float | None
    high: float | None
    has_interval: bool
    most: int


def power_table(records: Sequence[Fields]) -> list[PowerRow]:
    """One row a cell and level, in order of arrival."""
    cells = grouped(
        ((record["design"], row) for record in records for row in record["rows"]),
        lambda one: (one[0], one[1]["test"], one[1]["copies"]),
    )
    table = []
    for (design, test, copies), found in cells.items():
        rows = [row for _, row in found]
        log10_p_M = np.array([row["log10_p"] for row in rows])
        first, third = np.quantile(log10_p_M, (0.25, 0.75)).tolist()
        for level in LEVELS:
            n_found = int(is_rejected(log10_p_M, level).sum())
            share = Share.counted(n_found, len(rows))
            table.append(
                PowerRow(
                    design=design,
                    test=test,
                    copies=copies,
                    level=level,
                    n_models=len(rows),
                    n_rejected=n_found,
                    low=share.low,
                    high=share.high,
                    median_log10_p=float(np.median(log10_p_M)),
                    quartiles_log10_p=(first, third),
                    passes=statistics.fmean(row["passes"] for row in rows),
                )
            )
    return table


def dup50_rows(records: Sequence[Fields]) -> list[Dup50]:
    """Each test and level of populations with enough duplication counts.

    A test needs one set of each count a model.
    """
    found = []
    for design, models in grouped(records, lambda record: record["design"]).items():
        rows = (row for model in models for row in model["rows"])
        for test, own in grouped(rows, lambda row: row["test"]).items():
            cells = sorted(grouped(own, lambda row: row["copies"]).items())
            if len(cells) < _FEWEST_COUNTS or any(
                len(cell) != len(models) for _, cell in cells
            ):
                continue
            copies = [n for n, _ in cells]
            log10_p_CM = np.array(
                [[row["log10_p"] for row in cell] for _, cell in cells]
            )
            for level in LEVELS:
                found_MC = is_rejected(log10_p_CM.T, level)
                found.append(_dup50(design, test, level, copies, found_MC))
    return found


def _dup50(
    design: str, test: str, level: float, copies: Sequence[int], found_MC: np.ndarray
) -> Dup50:
    """With an interval: models are drawn again, each with all of its sets."""
    n_models = len(found_MC)
    rng = np.random.default_rng([n_models, len(copies)])
    drawn = rng.integers(n_models, size=(_N_BOOTSTRAP, n_models))
    power_BC = np.stack([found_MC[rows].mean(axis=0) for rows in drawn])
    values = np.sort(half_power_copies(copies, power_BC))
    # Ends are drawn values: an infinite one must not be mixed with a finite one.
    low, high = (values[round(q * (_N_BOOTSTRAP - 1))] for q in (0.025, 0.975))
    own = half_power_copies(copies, found_MC.mean(axis=0)[None])[0]
    own, low, high = (float(x) if np.isfinite(x) else None for x in (own, low, high))
    return Dup50(
        design=design,
        test=test,
        level=level,
        n_models=n_models,
        copies=own,
        low=low,
        high=high,
        has_interval=n_models >= _FEWEST_MODELS,
        most=max(copies),
    )


def half_power_copies(copies: Sequence[int], power_BC: np.ndarray) -> np.ndarray:
    """Copies at which each curve crosses one half; infinite where it never does.

    A curve is made monotone by pooling adjacent violators and drawn straight over the
    logarithm of copies; between 0 and 1 copies it is drawn straight over copies.
    """
    rising_BC = np.stack([isotonic_regression(power_C).x for power_C in power_BC])
    above_BC = rising_BC >= 0.5
    at_B = above_BC.argmax(axis=1)
    rows_B = np.arange(len(rising_BC))
    before_B = np.maximum(at_B - 1, 0)
    x_C = np.asarray(copies, np.float64)
    x0_B, x1_B = x_C[before_B], x_C[at_B]
    y0_B, y1_B = rising_BC[rows_B, before_B], rising_BC[rows_B, at_B]
    share_B = (0.5 - y0_B) / np.where(y1_B > y0_B, y1_B - y0_B, 1.0)
    straight_B = x0_B + share_B * (x1_B - x0_B)
    floor_B = np.maximum(x0_B, 1.0)
    curved_B = floor_B * (x1_B / floor_B) ** share_B
    found_B = np.where(x0_B < 1, straight_B, curved_B)
    found_B = np.where(at_B == 0, x_C[0], found_B)
    return np.where(above_BC.any(axis=1), found_B, np.inf)


def power_grids(
    table: Sequence[PowerRow],
    dup50: Sequence[Dup50],
    populations: Sequence[Mapping[str, Any]],
) -> list[Grid]:
    """A table a population and level, and the copies of half power."""
    cells = grouped(table, lambda row: (row.design, row.level))
    grids = [
        _power_grid(cells.get((about["name"], level), []), level, about)
        for about, level in itertools.product(populations, LEVELS)
    ]
    if dup50:
        title = (
            "Copies at which half of the sets are found (95 % interval over models, "
            "where there are 40 or more)"
        )
        words = {
            (f"{row.design}: {row.test}", f"p at most {row.level:g}"): _copies(row)
            for row in dup50
        }
        grids.append(Grid.crossed(title, "population, test", words))
    return grids


def seam_grids(records: Sequence[Fields]) -> list[Grid]:
    """Share of z that is left by tokens read and scored, by length and copies, pooled.

    Means over models, each divided by that of whole examples.
    """
    rows = [
        {**row, "design": record["design"], "z": row["effect"] / row["effect_se"]}
        for record in records
        for row in record["rows"]
        if row["copies"]
    ]
    cells = grouped(rows, lambda row: f"{row['design']}, {row['copies']} copies")
    if len(grouped(rows, lambda row: row["design"])) > 1:
        cells |= grouped(rows, lambda row: f"All lengths, {row['copies']} copies")
    grids = []
    for name, own in cells.items():
        by_test = grouped(own, lambda row: row["test"])
        z = {
            test: statistics.fmean(row["z"] for row in by_test[test])
            for test in by_test
        }
        whole = next(iter(z.values()))
        title = f"{name}: share of the z of whole examples ({whole:.2f}) that is left"
        words = {}
        for test, mean in z.items():
            read, _, scored = test.partition(", ")
            words[read, scored] = f"{mean / whole:.3f}"
        grids.append(Grid.crossed(title, "", words))
    return grids


def _power_grid(
    rows: Sequence[PowerRow], level: float, about: Mapping[str, Any]
) -> Grid:
    """Tests by duplication counts."""
    title = (
        f"{about['name']}: {len(about['seeds']):,} models of {about['n_parameters']:,} "
        f"parameters, {about['n_tokens']:,} tokens, {about['canary_share']:.0%} "
        f"planted, sets of {about['n_examples']}. Share of sets with p at most "
        f"{level:g} (95 % interval), by copies"
    )
    words = {}
    for row in rows:
        words[row.test, "passes"] = f"{row.passes:.1f}"
        words[row.test, f"{row.copies}"] = _cell(row)
    return Grid.crossed(title, "test", words)


def _copies(row: Dup50) -> str:
    def words(value: float | None) -> str:
        return f"> {row.most}" if value is None else f"{value:.1f}"

    if not row.has_interval:
        return words(row.copies)
    return f"{words(row.copies)} ({words(row.low)} to {words(row.high)})"


def _cell(row: PowerRow) -> str:
    """Share and interval; two digits, three where it is rare."""
    is_rare = row.share.value < 0.1 and row.n_models >= 200
    return row.share.words(".3f" if is_rare else ".2f")


def power_figures(table: Sequence[PowerRow]) -> Mapping[str, str]:
    """Name -> SVG, for the populations that are there."""
    figures = {}
    drawn = [row for row in table if row.level == _DRAWN_LEVEL]
    for design, rows in grouped(drawn, lambda row: row.design).items():
        if len({row.copies for row in rows}) < _FEWEST_COUNTS:
            continue
        curves = {
            f"{test} ({own[0].passes:.0f} passes)": {
                n: row.share for n, row in sorted((r.copies, r) for r in own)
            }
            for test, own in grouped(rows, lambda row: row.test).items()
        }
        figures[f"copies-{design}"] = copies_svg(curves)
        if design == "main":
            figures["cost-main"] = _cost(rows)
    return figures


def copies_svg(curves: Mapping[str, Mapping[int, Share]]) -> str:
    """Shares by copies, ascending, against these, logarithmic above 1; a curve a name.

    A thin line across is at the level.
    """
    ticks = sorted({copies for shares in curves.values() for copies in shares})
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((7.2, 3.6))
        for number, (label, shares) in enumerate(curves.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            axes.plot(
                list(shares),
                [share.value for share in shares.values()],
                color=colour,
                marker=_MARKERS[number % len(_MARKERS)],
                markersize=4,
                lw=1.2,
                label=label,
            )
            ends = [(share.low, share.high) for share in shares.values()]
            bounds = np.array(ends, np.float64).T
            axes.fill_between(list(shares), *bounds, color=colour, alpha=0.15, lw=0)
        axes.axhline(_DRAWN_LEVEL, color="black", lw=0.6)
        # Linear below 1, so that 0 copies have a place.
        axes.set_xscale("symlog", linthresh=1, linscale=0.6)
        # Else a third of the plot would be room for numbers that are not there.
        axes.set_xlim(left=0.85 * ticks[0] if ticks[0] else -0.3)
        axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("copies in the training data")
        axes.set_ylabel(f"share of sets with p at most {_DRAWN_LEVEL:g}")
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        return svg_text(figure)


def _cost(rows: Sequence[PowerRow]) -> str:
    """Median p and its quartiles against passes: a marker a test, a colour a count."""
    tests = list(dict.fromkeys(row.test for row in rows))
    counts = sorted({row.copies for row in rows})
    shades = matplotlib.colormaps["viridis_r"]
    colours = {n: shades(i / max(1, len(counts) - 1)) for i, n in enumerate(counts)}
    markers = dict(zip(tests, itertools.cycle(_MARKERS)))
    beside = _side_by_side({row.test: row.passes for row in rows})
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((7.2, 4.2))
        for row in sorted(rows, key=lambda row: tests.index(row.test)):
            middle = 10**row.median_log10_p
            low, high = (10**value for value in row.quartiles_log10_p)
            axes.errorbar(
                row.passes + beside[row.test],
                middle,
                yerr=[[middle - low], [high - middle]],
                fmt=markers[row.test],
                color=colours[row.copies],
                markersize=5,
                lw=0.8,
            )
        axes.set_yscale("log")
        # By default a formula, which the style shows as it is typed.
        axes.yaxis.set_major_formatter("{x:.0e}")
        axes.axhline(_DRAWN_LEVEL, color="black", lw=0.6)
        axes.set_xlabel("passes over the file")
        axes.set_ylabel("p: median and quartiles")
        shown = [(test, markers[test], "black") for test in tests]
        shown += [(f"{n} copies", "s", colours[n]) for n in counts]
        handles = [Line2D([], [], ls="", marker=m, color=c) for _, m, c in shown]
        figure.legend(
            handles,
            [label for label, _, _ in shown],
            loc="outside right upper",
            frameon=False,
            fontsize=8,
        )
        return svg_text(figure)


def _side_by_side(passes: Mapping[str, float]) -> dict[str, float]:
    """Test -> how far beside its cost it stands: others of that cost would hide it."""
    beside = {}
    for tests in grouped(passes, lambda test: round(passes[test])).values():
        for number, test in enumerate(tests):
            beside[test] = 0.09 * (number - (len(tests) - 1) / 2)
    return beside
