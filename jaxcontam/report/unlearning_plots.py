"""Histograms of an unlearning run: ratios of scores, and likeness of samples."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np

from jaxcontam.report.figure import (
    BLUE,
    GREY,
    ORANGE,
    STYLE,
    figure_axes,
    svg_text,
)

_SIZE = (4.0, 2.6)
_BINS = 30
# Ratios further out stand in the last bar: one of a thousand would hide all others.
_FURTHEST = 3.0


def ratio_plot(
    texts: Sequence[Mapping[str, Any]], screens: Sequence[Mapping[str, Any]]
) -> str:
    """Ratios of each screen, on a logarithmic axis, with the suspicious band.

    Args:
        texts: Rows of `texts.jsonl`.
        screens: Rows of the report, of the same bound.
    """
    bound = screens[0]["bound"]
    furthest = max(_FURTHEST, bound**2)
    edges = np.geomspace(1 / furthest, furthest, _BINS + 1)
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SIZE)
        axes.axvspan(1 / bound, bound, color=GREY, alpha=0.25, lw=0, label="suspicious")
        for row, colour in zip(screens, (ORANGE, BLUE), strict=False):
            ratios = [text["ratios"][row["method"]] for text in texts]
            known = np.array([ratio for ratio in ratios if ratio is not None])
            axes.hist(
                np.clip(known, edges[0], edges[-1]),
                bins=edges.tolist(),
                histtype="step",
                color=colour,
                lw=1.5,
                label=row["method"],
            )
        axes.set_xscale("log")
        ticks = sorted({1 / furthest, 1 / bound, 1.0, bound, furthest})
        axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("score or perplexity after unlearning over before")
        axes.set_ylabel("texts")
        axes.legend(frameon=False)
        counts = ", ".join(f"{r['method']} {r['n_suspicious']}" for r in screens)
        return svg_text(
            figure, f"Histogram of ratios of scores; suspicious texts: {counts}"
        )


def similarity_plot(texts: Sequence[Mapping[str, Any]], method: str, label: str) -> str:
    """Likeness of every sample, suspicious texts beside others, as shares.

    Args:
        texts: Rows of `texts.jsonl`.
        method: Field of the likeness.
        label: Its name.
    """
    arms: dict[bool, list[float]] = {True: [], False: []}
    for text in texts:
        values = [value for value in text.get(method, []) if value is not None]
        arms[text["suspicious"]["min_k"]] += values
    everything = arms[True] + arms[False]
    if method == "judge":
        edges = np.arange(0.5, 6)
    else:
        low = min(0.0, *everything) if everything else 0.0
        edges = np.linspace(low, 1, _BINS + 1)
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SIZE)
        for is_suspicious, colour, name in (
            (False, GREY, "others"),
            (True, ORANGE, "suspicious"),
        ):
            if not (values := arms[is_suspicious]):
                continue
            axes.hist(
                np.minimum(values, edges[-1]),
                bins=edges.tolist(),
                weights=np.full(len(values), 1 / len(values)),
                histtype="stepfilled" if not is_suspicious else "step",
                color=colour,
                alpha=0.6 if not is_suspicious else 1.0,
                lw=1.5,
                label=name,
            )
        axes.set_xlabel(label)
        axes.set_ylabel("share of samples")
        axes.legend(frameon=False)
        return svg_text(
            figure,
            f"Histograms of {label}: {len(arms[True])} samples of suspicious texts, "
            f"{len(arms[False])} of others",
        )
