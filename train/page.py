"""`training.html`: a training run on one page, for people.

Command: `python -m train.page RUN`, at any time, also while the run is training.

Dimension key
    N  steps
"""

import dataclasses
import itertools
import math
import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import matplotlib
import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from jaxcontam.cli.main import run_module
from jaxcontam.errors import InputError
from jaxcontam.methods import named_rows
from jaxcontam.reports import page as section
from jaxcontam.reports.figure import BLUE, GREY, ORANGE, STYLE, svg_text
from jaxcontam.reports.page import render
from jaxcontam.reports.report_files import replace_bytes
from jaxcontam.stats.result import LEVEL
from train.manifest import Manifest, SetRecord, read_manifest
from train.report import (
    AUDITS_NAME,
    METRICS_NAME,
    VALIDATION_NAME,
    Row,
    RunningMean,
    read_rows,
)
from train.run_folder import MANIFEST_NAME, MODEL_DIR

PAGE_NAME = "training.html"
# Fields of metrics.jsonl that have a place of their own; the others are of the loss.
_USUAL = {
    *("step", "tokens", "loss", "gradient_norm", "parameter_norm", "rate"),
    *("seconds", "tokens_per_second", "mfu"),
}
_LOSS = "Each mark below the loss is a step that trained on some part of a copy."
_MEMORY = (
    "Each point is one test of the model at that step. Dashed grey curves are "
    "controls, which were never trained on; they show how much chance moves a curve. "
    "The numbers are in audits.jsonl."
)
_LIMITS = (
    "An order test rises when the model prefers the published order of a set. It shows "
    "no effect if each copy had an order of its own.",
    "AUC: how often a text of the set scores above an unseen one, in any order. It "
    "proves nothing: unseen texts of another kind have different scores anyway.",
    "The points of a curve are tests of one model and not independent; p-values here "
    "are not corrected for the number of tests.",
)
_NO_AUDITS = "The loss does not say which texts the model remembers: audit it."
_SET_HEADER = (
    *(
        "set",
        "copies",
        "examples",
        "tokens per copy",
        "orders",
        "form",
        "planned times",
    ),
    *("first step", "last step", "found in background"),
)
# Its columns of words.
_SET_WORDS = (4, 5, 6)
_PUBLISHED = "published"
# Inches: width, height of a curve, and of a set's line of marks.
_WIDTH, _TALL, _SMALL, _LINE = 9.4, 2.3, 0.9, 0.17
# More would not be seen, and would make the page heavy.
_MOST_POINTS, _MOST_MARKS = 1500, 400
# Largest -log10 p on a linear scale, and the deepest that an approximation supports.
_PLAIN_UP_TO, _APPROXIMATE_TO = 12, 15


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageCommand:
    """Draw training.html of a run from its manifest, metrics and audits."""

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run: what was `--out` of train.pretrain."""

    def run(self) -> None:
        """Print where the page stands."""
        print(write_training_page(self.run_dir))


def write_training_page(run_dir: Path) -> Path:
    """Write training.html beside the manifest of a run, and return its path."""
    manifest = read_manifest(run_dir / MANIFEST_NAME)
    metrics = read_rows(run_dir / METRICS_NAME)
    if metrics and "gradient_norm" not in metrics[0]:
        raise InputError(
            f"{run_dir / METRICS_NAME}:1: no field 'gradient_norm'",
            hint="train again: an earlier version wrote it",
        )
    audits = read_rows(run_dir / AUDITS_NAME)
    validation = read_rows(run_dir / VALIDATION_NAME)
    page = render(_page(manifest, metrics, validation, audits, run_dir))
    replace_bytes(run_dir / PAGE_NAME, page.encode())
    return run_dir / PAGE_NAME


def _page(
    manifest: Manifest,
    metrics: Sequence[Row],
    validation: Sequence[Row],
    audits: Sequence[Row],
    run_dir: Path,
) -> section.Page:
    """Facts, loss, memorisation, sets."""
    # Most copies first, controls last, in every figure and table.
    sets = sorted(manifest.sets, key=lambda row: -row.copies)
    # Before the first step: near enough for an empty page.
    step_tokens = max(1, manifest.n_tokens // max(1, manifest.n_steps))
    if metrics:
        step_tokens = metrics[0]["tokens"] // metrics[0]["step"]
    n_tokens = manifest.n_steps * step_tokens
    parts: dict[str, list[section.Part]] = {}
    parts[""] = [section.Items(_facts(manifest, metrics, validation))]
    if metrics:
        svg = _loss_figure(metrics, validation, sets, step_tokens, n_tokens)
        parts["Loss"] = [section.Figure(svg, _LOSS, "wide", "loss")]
    if audits:
        svg = _memorisation_figure(audits, sets, n_tokens)
        parts["Memorisation"] = [section.Figure(svg, _MEMORY, "wide", "memorisation")]
    rows = [_set_cells(row) for row in sets]
    planted = section.Table(_SET_HEADER, rows, "sets", words=_SET_WORDS)
    parts["Sets"] = [planted if sets else section.Paragraph("Nothing was planted.")]
    model = shlex.quote(str(run_dir / MODEL_DIR))
    return section.Page(
        title=f"Training run: {run_dir.resolve().name}",
        subtitle=_subtitle(manifest, n_tokens),
        sections=[section.Section(own, title) for title, own in parts.items()],
        methods=named_rows(row["method"] for row in audits),
        limits=_LIMITS if audits else (_NO_AUDITS,),
        command=shlex.join(["python", "-m", "train.page", str(run_dir)]),
        check=(
            "This redraws the page, also during a run. For a verdict on a set, once "
            "the run is finished: ",
            section.Code(f"jaxcontam audit {model} SET"),
        ),
        provenance=[
            ("jaxcontam", manifest.jaxcontam),
            ("code", manifest.code or "unknown"),
            ("seed", str(manifest.seed)),
            ("digest of the corpus", manifest.corpus_digest),
        ],
    )


def _loss_figure(
    metrics: Sequence[Row],
    validation: Sequence[Row],
    sets: Sequence[SetRecord],
    step_tokens: int,
    n_tokens: int,
) -> str:
    """Loss, its mean, norms, and when each planted set was trained on."""
    planted = [one for one in sets if one.copies]
    N = len(metrics)
    tokens_N = np.array([row["tokens"] for row in metrics], np.int64)
    losses_N = np.array([row["loss"] for row in metrics], np.float64)
    # Steps on either side of a mean.
    reach = min(N // 100, 500)
    means_N = _local_means(losses_N, reach)
    shown = np.unique(np.linspace(0, N - 1, min(N, _MOST_POINTS)).astype(np.int64))
    lines = [_LINE * (len(planted) + 1.5)] if planted else []
    # Another version may have gone on with a run, whose loss reports other numbers.
    names = dict.fromkeys(name for row in metrics for name in row)
    reported = [name for name in names if name not in _USUAL]
    small = [_SMALL] * (1 + bool(reported))
    with matplotlib.rc_context(STYLE):
        figure, (top, norms, *below) = _panels([_TALL, *small, *lines], n_tokens)
        top.plot(tokens_N[shown], losses_N[shown], color=BLUE, lw=0.6, alpha=0.35)
        label = f"mean of {2 * reach + 1} steps"
        top.plot(tokens_N[shown], means_N[shown], color=BLUE, lw=1.4, label=label)
        top.set_ylabel("loss, nats per token")
        if validation:
            at = [row["tokens"] for row in validation]
            losses = [row["loss"] for row in validation]
            top.plot(at, losses, color=ORANGE, marker="o", ms=3, label="held out")
        top.legend(frameon=False, loc="upper right")
        drawn = [(norms, "norm", ["gradient_norm", "parameter_norm"])]
        if reported:
            drawn.append((below.pop(0), "reported", reported))
        for axes, label, names in drawn:
            for name, colour in zip(names, itertools.cycle((BLUE, GREY, ORANGE))):
                one_N = np.array([row.get(name) for row in metrics], np.float64)
                axes.plot(tokens_N[shown], one_N[shown], color=colour, lw=0.8)
                axes.lines[-1].set_label(name.replace("_norm", "s"))
            axes.set_ylabel(label)
            axes.legend(frameon=False, loc="center right", fontsize=7)
        norms.set_yscale("log")
        norms.yaxis.set_major_formatter("{x:g}")
        norms.yaxis.set_minor_formatter("")
        for axes in below:
            _draw_marks(axes, planted, step_tokens)
        return svg_text(figure, f"Loss over {N:,} steps")


def _local_means(values_N: np.ndarray, reach: int) -> np.ndarray:
    """Mean of each value and `reach` on either side, so that a fall shows where it is.

    NaN is skipped; where there is nothing but NaN the mean is NaN.
    """
    window = np.ones(2 * reach + 1)
    known_N = np.isfinite(values_N)
    sums_N = np.convolve(np.where(known_N, values_N, 0.0), window, "same")
    counts_N = np.convolve(known_N, window, "same")
    return np.where(counts_N > 0, sums_N / np.maximum(counts_N, 1), np.nan)


def _memorisation_figure(
    audits: Sequence[Row], sets: Sequence[SetRecord], n_tokens: int
) -> str:
    """A panel a test, a curve a set: -log10 p of order tests, AUC of a score."""
    methods = list(dict.fromkeys(row["method"] for row in audits))
    with matplotlib.rc_context(STYLE):
        figure, panels = _panels([_TALL] * len(methods), n_tokens)
        for axes, method in zip(panels, methods, strict=True):
            rows = [row for row in audits if row["method"] == method]
            _draw_curves(axes, rows, sets)
            if rows[0]["auc"] is not None:
                axes.set_title(f"{method}: presence of the texts ± one standard error")
                axes.set_ylabel("AUC")
                axes.axhline(0.5, color="black", lw=0.6)
                continue
            axes.set_title(f"{method}: order of the examples (dashed: p = {LEVEL:g})")
            axes.set_ylabel("-log10 p")
            axes.axhline(-math.log10(LEVEL), color=GREY, ls="--", lw=0.8)
            if axes.get_ylim()[1] > _PLAIN_UP_TO:
                axes.set_yscale("symlog", linthresh=3)
                axes.yaxis.set_major_formatter("{x:g}")
            axes.set_ylim(bottom=0)
        legend = panels[0].get_legend_handles_labels()
        figure.legend(*legend, loc="outside right upper", frameon=False, fontsize=8)
        names = ", ".join(one.name for one in sets)
        return svg_text(figure, f"{', '.join(methods)} along training, of {names}")


def _panels(heights: Sequence[float], n_tokens: int) -> tuple[Figure, list[Axes]]:
    """Panels over one another with one axis of tokens."""
    figure = Figure(figsize=(_WIDTH, sum(heights) + 0.5), layout="constrained")
    found = figure.subplots(
        len(heights), 1, sharex=True, height_ratios=heights, squeeze=False
    )[:, 0]
    # Room for the marks of audits before the first and after the last step.
    found[-1].set_xlim(-0.01 * n_tokens, 1.01 * n_tokens)
    found[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    found[-1].set_xlabel("tokens trained on")
    return figure, list(found)


def _draw_marks(axes: Axes, planted: Sequence[SetRecord], step_tokens: int) -> None:
    """A line per set, with a mark where a part of a copy was trained on."""
    for line, one in enumerate(planted):
        seen = step_tokens * np.unique([step for copy in one.steps for step in copy])
        edges = np.linspace(0, axes.get_xlim()[1], _MOST_MARKS + 1)
        marks = np.unique(np.digitize(seen, edges), return_index=True)[1]
        # One path for all marks of a set: a path each would be most of the page.
        x = np.repeat(seen[marks].astype(np.float64), 3)
        y = np.tile([line - 0.38, line + 0.38, np.nan], len(marks))
        axes.plot(x, y, color=_colour(one, planted), lw=1)
    axes.set_yticks(range(len(planted)), [_label(one) for one in planted], fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(planted) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.set_title("when copies were trained on", fontsize=8)


def _draw_curves(axes: Axes, rows: Sequence[Row], sets: Sequence[SetRecord]) -> None:
    """A curve a set, controls below the others."""
    for one in sets:
        own = [row for row in rows if row["set"] == one.name]
        errors = [row["auc_se"] or 0.0 for row in own]
        planted_line = "-" if _orders(one) == _PUBLISHED else ":"
        # Dashed controls, dotted copies in orders of their own.
        axes.errorbar(
            [row["tokens"] for row in own],
            [_value(row) for row in own],
            yerr=errors if any(errors) else None,
            color=_colour(one, sets),
            marker="o" if one.copies else None,
            ms=3.5,
            lw=1,
            ls=planted_line if one.copies else "--",
            label=_label(one),
        )


def _value(row: Row) -> float:
    """AUC, or -log10 p no deeper than the test supports."""
    if row["auc"] is not None:
        return row["auc"]
    deepest = _APPROXIMATE_TO if row["validity"] == "asymptotic" else math.inf
    return min(deepest, -row["log10_p"])


def _colour(one: SetRecord, sets: Sequence[SetRecord]) -> Any:
    """Grey for controls; for the others from dark (most copies) to light (fewest)."""
    if not one.copies:
        return GREY
    planted = [other for other in sets if other.copies]
    # The end of the colour map is too light on white.
    place = 0.88 * planted.index(one) / max(1, len(planted) - 1)
    return matplotlib.colormaps["viridis"](place)


def _label(one: SetRecord) -> str:
    """A label; matplotlib would hide one that began with the name of a set `_x`."""
    if not one.copies:
        return f"control {one.name}"
    orders = _orders(one)
    return f"{one.copies}x{'' if orders == _PUBLISHED else f' {orders}'} {one.name}"


def _orders(planted: SetRecord) -> str:
    """Name the order of a set's copies."""
    if planted.layout == "spread":
        return planted.layout
    return "shuffled" if planted.shuffled else _PUBLISHED


def _subtitle(manifest: Manifest, n_tokens: int) -> str:
    share = manifest.n_canary_tokens / max(1, manifest.n_tokens)
    start = f", continuing from {manifest.init_model}" if manifest.init_model else ""
    return (
        f"Preset {manifest.preset}{start}, {manifest.n_steps:,} steps, "
        f"{n_tokens:,} tokens in rows of {manifest.context}. "
        f"{share:.1%} of the training tokens are planted."
    )


def _facts(
    manifest: Manifest, metrics: Sequence[Row], validation: Sequence[Row]
) -> list[str]:
    if not metrics:
        return ["The run has not begun."]
    last = metrics[-1]["step"]
    facts = [f"Finished after {last:,} steps."]
    if not manifest.finished:
        share = last / manifest.n_steps
        facts = [f"At step {last:,} of {manifest.n_steps:,} ({share:.0%})."]
    losses = [row["loss"] for row in metrics]
    if (loss := RunningMean().after(losses)) is not None:
        facts.append(f"Loss, mean of some 50 steps: {loss:.3f} nats per token.")
    if validation:
        now, n = validation[-1], manifest.n_validation_tokens
        facts.append(
            f"Held out, {n:,} tokens: {now['loss']:.3f} nats per token, "
            f"{now['bits_per_byte']:.3f} bits per byte after step {now['step']:,}."
        )
    if n_lost := losses.count(None):
        facts.append(
            f"The loss of {n_lost:,} steps was not a number: training diverged."
        )
    # Between the moments at which losses became known, block by block.
    moments = {row["seconds"]: row["tokens"] for row in metrics}
    rates = [
        (tokens - before) / (now - then)
        for (then, before), (now, tokens) in itertools.pairwise(moments.items())
    ]
    if rates:
        speed = statistics.median(rates)
        facts.append(f"{speed:,.0f} tokens per second, median over the run.")
    if (mfu := metrics[-1].get("mfu")) is not None:
        facts.append(f"{mfu:.1%} of the peak (model FLOPs utilisation) at the end.")
    return facts


def _set_cells(row: SetRecord) -> list[str]:
    half = "" if row.held_out_of is None else f", held out of {row.held_out_of}"
    steps = [step for copy in row.steps for step in copy]
    when, overlap = row.when, row.overlap
    times = when if isinstance(when, str) else ", ".join(f"{at:.0%}" for at in when)
    found = "not searched"
    if overlap is not None:
        found = f"{overlap.n_background} of {overlap.n_compared}"
    return [
        row.name + half,
        str(row.copies),
        f"{row.n_examples:,}",
        f"{row.n_tokens:,}",
        *([_orders(row), row.form, times] if row.copies else [""] * 3),
        *([f"{min(steps):,}", f"{max(steps):,}"] if steps else [""] * 2),
        found,
    ]


def main() -> int:
    """Command line of `python -m train.page`."""
    return run_module(PageCommand, "train.page")


if __name__ == "__main__":
    sys.exit(main())
