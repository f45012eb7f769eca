"""`training.html`: a training run on one page, for people.

Command: `python -m train.page RUN`, at any time, also while the run is training.
"""

import dataclasses
import itertools
import math
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from jaxcontam.analyses.method_notes import named_rows
from jaxcontam.cli import parse, run_command
from jaxcontam.data.manifest import Manifest, PlantedSet, read_manifest
from jaxcontam.errors import InputError
from jaxcontam.report.document import replace_bytes
from jaxcontam.report.numbers import effect_words, p_cell
from jaxcontam.report.page import render
from jaxcontam.report.page_words import PageWords
from jaxcontam.report.section import (
    Code,
    Details,
    Figure,
    Items,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
)
from train.audit_log import AUDITS_NAME
from train.earlier import MODEL_DIR
from train.metrics import METRICS_NAME, smoothed
from train.plots import (
    PUBLISHED,
    LossCurve,
    SetPicture,
    loss_figure,
    memorisation_figure,
)
from train.step_log import read_rows

PAGE_NAME = "training.html"
_MANIFEST_NAME = "manifest.json"
_LOSS = (
    "Loss before each step on the tokens of that step. In the middle, each mark is a "
    "step that trained on some part of a copy."
)
_MEMORY = (
    "Each point is one test of the model as it was then. Dashed grey curves are "
    "controls, which no training saw; where they move, so does chance."
)
_AUDIT_HEADER = (
    *("set", "copies seen", "tokens", "test", "p, uncorrected", "effect ± se"),
    *("detectable", "AUC ± se", "ranked among"),
)
_AUDIT_WORDS = tuple(map(_AUDIT_HEADER.index, ("test", "ranked among")))
_SET_HEADER = (
    *("set", "copies", "examples", "tokens a copy", "orders", "form", "planned times"),
    *("first step", "last step", "found in background"),
)
_SET_WORDS = tuple(map(_SET_HEADER.index, ("orders", "form", "planned times")))
_WORDS = PageWords(
    limits=(
        "An order test rises when the model prefers the published order of a set. It "
        "is silent where copies came in orders of their own.",
        "AUC tells how often a text of the set scores above an unseen one, in any "
        "order. It proves nothing: unseen texts of another kind score otherwise by "
        "themselves.",
        "The points of a curve are tests of one model, not independent, and no p-value "
        "here is corrected for the number of tests.",
    )
)

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageCommand:
    """Draw training.html of a run from its manifest, metrics and audits."""

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run: what was `--out` of train.pretrain."""

    def run(self) -> None:
        """Write the page, print where it stands."""
        print(write_training_page(self.run_dir))


def write_training_page(run_dir: Path) -> Path:
    """Write training.html beside the manifest of a run, finished or not.

    Returns:
        The page's path.

    Raises:
        InputError: If there is no manifest, or a log is damaged.
    """
    manifest = read_manifest(run_dir / _MANIFEST_NAME)
    metrics = read_rows(run_dir / METRICS_NAME)
    if metrics and "tokens" not in metrics[0]:
        raise InputError(
            f"{run_dir / METRICS_NAME}:1: no field 'tokens'",
            hint="an earlier version wrote it: train again",
        )
    audits = read_rows(run_dir / AUDITS_NAME)
    page = render_page(manifest, metrics, audits, run_dir)
    replace_bytes(run_dir / PAGE_NAME, page.encode())
    return run_dir / PAGE_NAME


def render_page(
    manifest: Manifest, metrics: Sequence[Row], audits: Sequence[Row], run_dir: Path
) -> str:
    """The page of a run; every text from outside is escaped.

    Args:
        manifest: What is trained on.
        metrics: Rows of metrics.jsonl.
        audits: Rows of audits.jsonl.
        run_dir: Names the run.
    """
    tokens_a_step = _tokens_a_step(manifest, metrics)
    n_tokens = manifest.n_steps * tokens_a_step
    sets = [set_picture(row, audits, tokens_a_step) for row in _ordered(manifest.sets)]
    steps = sorted({row["step"] for row in audits})
    name = run_dir.resolve().name
    loss: Part = Paragraph("No step is done yet.")
    if metrics:
        curve = loss_figure(loss_curve(metrics), sets, n_tokens)
        loss = Figure(curve, _LOSS, "wide", "loss")
    sections = [
        Section([Items(_facts(manifest, metrics))]),
        Section([loss], "Loss"),
    ]
    if audits:
        memory = memorisation_figure(sets, n_tokens)
        last = _audit_table(_audit_rows(audits, steps[-1:]), "last audit")
        every = _audit_table(_audit_rows(audits, steps), "all audits")
        sections += [
            Section([Figure(memory, _MEMORY, "wide", "memorisation")], "Memorisation"),
            Section([last, Details("All audits", parts=[every])], "Last audit"),
        ]
    rows = [_set_cells(row) for row in _ordered(manifest.sets)]
    planted = Table(_SET_HEADER, rows, "sets", words=_SET_WORDS)
    nothing = Paragraph("Nothing was planted.")
    page = Page(
        title=f"Training run: {name}",
        subtitle=_subtitle(manifest, n_tokens),
        sections=[*sections, Section([planted if rows else nothing], "Sets")],
        methods=named_rows([row["method"] for row in audits]),
        limits=_WORDS.limits,
        command=shlex.join(["python", "-m", "train.page", str(run_dir)]),
        check=(
            "This draws the page again, of a run that goes on as well. For a verdict "
            "on a set, once the run is finished: ",
            Code(f"jaxcontam audit {shlex.quote(str(run_dir / MODEL_DIR))} SET"),
        ),
        provenance=[
            ("jaxcontam", manifest.jaxcontam),
            ("code", manifest.code or "unknown"),
            ("seed", str(manifest.seed)),
            ("digest of the corpus", manifest.corpus_digest),
        ],
    )
    return render(page)


def _audit_table(rows: list[list[str]], label: str) -> Table:
    return Table(_AUDIT_HEADER, rows, label, words=_AUDIT_WORDS)


def loss_curve(metrics: Sequence[Row]) -> LossCurve:
    """The curve of rows of metrics.jsonl."""
    return LossCurve(
        tokens=np.array([row["tokens"] for row in metrics], np.int64),
        losses=_floats([row["loss"] for row in metrics]),
        rates=_floats([row["rate"] for row in metrics]),
    )


def set_picture(
    planted: PlantedSet, audits: Sequence[Row], tokens_a_step: int
) -> SetPicture:
    """Plot data of a set."""
    steps = sorted(set(itertools.chain.from_iterable(planted.steps)))
    return SetPicture(
        name=planted.name,
        copies=planted.copies,
        orders=_orders(planted),
        seen=np.array(steps, np.int64) * tokens_a_step,
        audits=[row for row in audits if row["set"] == planted.name],
    )


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([math.nan if v is None else v for v in values], np.float64)


def _ordered(sets: Sequence[PlantedSet]) -> list[PlantedSet]:
    """Most copies first, as their curves stand; controls last."""
    return sorted(sets, key=lambda row: -row.copies)


def _tokens_a_step(manifest: Manifest, metrics: Sequence[Row]) -> int:
    if metrics:
        return metrics[0]["tokens"] // metrics[0]["step"]
    # Before the first step: near enough for an empty page.
    return max(1, manifest.n_tokens // max(1, manifest.n_steps))


def _subtitle(manifest: Manifest, n_tokens: int) -> str:
    share = manifest.n_canary_tokens / max(1, manifest.n_tokens)
    made_of = f"Preset {manifest.preset}"
    if manifest.init_model is not None:
        made_of += f", going on from {manifest.init_model}"
    return (
        f"{made_of}, {manifest.n_steps:,} steps, {n_tokens:,} tokens in rows of "
        f"{manifest.context}. {share:.1%} of the training tokens are planted."
    )


def _facts(manifest: Manifest, metrics: Sequence[Row]) -> list[str]:
    if not metrics:
        return ["The run has not begun."]
    last = metrics[-1]
    if manifest.finished:
        facts = [f"Finished after {last['step']:,} steps."]
    else:
        share = last["step"] / manifest.n_steps
        facts = [f"At step {last['step']:,} of {manifest.n_steps:,} ({share:.0%})."]
    if (loss := smoothed([row["loss"] for row in metrics])[0][-1]) is not None:
        facts.append(
            f"Loss at the end, mean of some 50 steps: {loss:.3f} nats a token."
        )
    if n_lost := sum(row["loss"] is None for row in metrics):
        facts.append(f"The loss of {n_lost:,} steps was no number: training diverged.")
    if (speed := _speed(metrics)) is not None:
        facts.append(f"{speed:,.0f} tokens a second, median over the run.")
    return facts


def _speed(metrics: Sequence[Row]) -> float | None:
    """Tokens a second between the moments at which losses became known."""
    moments = [
        (row["seconds"], row["tokens"])
        for row, after in itertools.zip_longest(metrics, metrics[1:])
        if after is None or after["seconds"] != row["seconds"]
    ]
    rates = [
        (tokens - before) / (now - then)
        for (then, before), (now, tokens) in itertools.pairwise(moments)
        if now > then
    ]
    return statistics.median(rates) if rates else None


def _audit_rows(audits: Sequence[Row], steps: Sequence[int]) -> list[list[str]]:
    """A row for each order test of each set at each step, the AUC beside the first."""
    found = []
    for step, name in itertools.product(
        steps, dict.fromkeys(row["set"] for row in sorted(audits, key=_few_copies))
    ):
        rows = [row for row in audits if (row["step"], row["set"]) == (step, name)]
        scores = [row for row in rows if row["auc"] is not None]
        tests = [row for row in rows if row["auc"] is None]
        found += [
            _audit_cells(test, score)
            for test, score in itertools.zip_longest(tests, scores)
        ]
    return found


def _few_copies(row: Row) -> int:
    return -row["copies"]


def _audit_cells(test: Row | None, score: Row | None) -> list[str]:
    row = test or score
    assert row is not None
    cells = [
        row["set"],
        f"{row['copies_seen']} of {row['copies']}",
        f"{row['tokens']:,}",
    ]
    if test is None:
        cells += [""] * 4
    else:
        cells += [
            test["method"],
            p_cell(test["log10_p"], test["validity"]),
            effect_words(test["effect"], test["effect_se"], dash=""),
            "" if test["mde"] is None else f"{test['mde']:.2g}",
        ]
    if score is None:
        return [*cells, "", ""]
    among = ", ".join(score["reference"])
    return [*cells, effect_words(score["auc"], score["auc_se"]), among]


def _orders(planted: PlantedSet) -> str:
    """How the copies of a set are ordered."""
    if planted.layout == "spread":
        return planted.layout
    return "shuffled" if planted.shuffled else PUBLISHED


def _set_cells(row: PlantedSet) -> list[str]:
    half = "" if row.held_out_of is None else f", held out of {row.held_out_of}"
    cells = [row.name + half, str(row.copies)]
    cells += [f"{row.n_examples:,}", f"{row.n_tokens:,}"]
    steps = [step for copy in row.steps for step in copy]
    if row.copies:
        cells += [_orders(row), row.form, _times(row.when)]
        cells += [f"{min(steps):,}", f"{max(steps):,}"] if steps else ["", ""]
    else:
        cells += [""] * 5
    overlap = row.overlap
    if overlap is None:
        return [*cells, "not searched"]
    return [*cells, f"{overlap.n_background} of {overlap.n_compared}"]


def _times(when: str | tuple[float, ...]) -> str:
    return when if isinstance(when, str) else ", ".join(f"{at:.0%}" for at in when)


def main() -> int:
    """Command line of `python -m train.page`."""
    return run_command(
        lambda: parse(PageCommand, sys.argv[1:], prog="python -m train.page").run(),
        name="train.page",
    )


if __name__ == "__main__":
    sys.exit(main())
