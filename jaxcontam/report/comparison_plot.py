"""The figure of a comparison: effects with intervals, benchmark by benchmark."""

from collections.abc import Sequence

import matplotlib

from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text
from jaxcontam.results.comparison import ComparedTest

_WIDTH, _ROW = 4.2, 0.24
# Told apart by shape and filling as well as by colour.
_LOOKS = {
    "contaminated": (ORANGE, "o", "full"),
    "suspected": (ORANGE, "o", "none"),
    "invalid design": (GREY, "x", "full"),
    "confounded": (GREY, "x", "full"),
}
_OTHER = (BLUE, "s", "none")


def effects_plot(tests: Sequence[ComparedTest], *, nothing: float) -> str | None:
    """Effect of every test with its 95 % interval; None if none has an effect.

    Args:
        tests: In the order of their lines.
        nothing: Value of an effect where there is none.
    """
    shown = [test for test in tests if test.effect is not None]
    if not shown:
        return None
    benchmarks = list(dict.fromkeys(test.benchmark for test in shown))
    # A free row between benchmarks, for their names.
    places = {}
    for b, benchmark in enumerate(benchmarks):
        for test in (t for t in shown if t.benchmark == benchmark):
            places[id(test)] = len(places) + b + 1
    n_rows = len(shown) + len(benchmarks)
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes((_WIDTH, 0.8 + _ROW * n_rows))
        labelled: set[str] = set()
        for test in shown:
            colour, marker, fill = _LOOKS.get(test.verdict, _OTHER)
            effect = test.effect or 0.0
            ends = None
            if test.effect_low is not None and test.effect_high is not None:
                ends = [[effect - test.effect_low], [test.effect_high - effect]]
            axes.errorbar(
                effect,
                places[id(test)],
                xerr=ends,
                fmt=marker,
                fillstyle=fill,
                color=colour,
                capsize=2,
                label="_" * (test.verdict in labelled) + test.verdict,
            )
            labelled.add(test.verdict)
        axes.axvline(nothing, color="black", lw=0.6)
        axes.set_yticks(
            [places[id(test)] for test in shown], [test.model for test in shown]
        )
        for benchmark in benchmarks:
            first = min(places[id(t)] for t in shown if t.benchmark == benchmark)
            axes.text(
                0,
                first - 0.75,
                benchmark,
                transform=axes.get_yaxis_transform(),
                fontweight="bold",
                va="center",
                # That line must not run through a name.
                bbox={"fc": "white", "ec": "none", "pad": 1},
            )
        axes.set_ylim(n_rows - 0.4, -0.4)
        unit = " or ".join(dict.fromkeys(test.effect_unit for test in shown))
        axes.set_xlabel(unit if unit == "AUC" else f"effect, {unit}")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        values = "; ".join(f"{t.benchmark}, {t.model}: {t.effect:.2f}" for t in shown)
        return svg_text(figure, f"Effects with 95 % intervals: {values}")
