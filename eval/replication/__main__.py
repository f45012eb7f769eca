"""Does replication find instances that a model read, and none that it did not?

Question: of a benchmark that a model read 50 times, as guided prompts with their
answers or as plain lines, how many instances does `jaxcontam replicate` see copied,
asked by instructions and by the first piece alone; and how many of one that it never
read? Beside a control, and a reference model of the same recipe that read other sets.
Golchin and Surdeanu, arXiv:2308.08493, on models trained here.
Command: `python -m eval.replication`. Hardware: 2 CPU cores, two minutes a model;
nothing is downloaded. Headline: docs/log.

One recipe and one size of model: larger models replicate after fewer copies (Carlini et
al. 2023, arXiv:2202.07646). Silence does not prove that a model did not read a set.
With `--recorded DIR` no model is trained: tables 1 and 2 of the paper are made of
completions that came with it, and the local judge's constants are chosen on them
(`git clone https://github.com/shahriargolchin/time-travel-in-llms`, DIR its results/).
"""

import contextlib
import dataclasses
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.python_docs import read_python_docs
from eval.replication.constants import choice, constant_grids, labelled
from eval.replication.models import (
    CONTROL,
    DATASET,
    FORMATTED,
    FULL,
    RAW,
    SPLIT,
    TASK,
    TINY,
    UNSEEN,
    Scale,
    plant,
    take_paragraphs,
)
from eval.replication.recorded import (
    grids,
    read_recorded_folder,
    recorded_partitions,
    successes,
)
from eval.study import (
    Clock,
    Column,
    Grid,
    ResumedFlags,
    finish_study,
    grouped,
    run_study,
    say,
)
from jaxcontam.errors import InputError
from jaxcontam.replication.flags import Replicate
from jaxcontam.reports.report_files import REPORT_NAME
from train.data import corpus_digest
from train.run_folder import MODEL_DIR

PLAIN = "plain"
# Each set is asked by instructions, and by its first pieces alone.
_ASKED = (TASK, PLAIN)
_PLANTED = (FORMATTED, RAW, UNSEEN)
_WORDS = {
    FORMATTED: "guided prompts",
    RAW: "plain lines",
    UNSEEN: "never",
    TASK: "instructions",
    PLAIN: "first piece alone",
}
# Numbers of more models are given as a range.
_MOST_VALUES = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replication(ResumedFlags):
    """Train models on instances, then see which of them they write by heart."""

    recorded: Path | None = None
    """Folder of MODEL/SET/SPLIT/FILE.csv with completions, such as results/ of
    github.com/shahriargolchin/time-travel-in-llms: train nothing, and write the paper's
    tables alone, as recorded.md and recorded.json of --out."""
    models: int = 3
    """Models, each with its own draw."""
    out: Path = Path("runs/replication-study")
    """Folder of models, their reports, report.json and report.md; see --recorded."""

    positive = ("models",)

    def __post_init__(self) -> None:
        ResumedFlags.__post_init__(self)
        if self.recorded is not None and not self.recorded.is_dir():
            raise InputError(f"--recorded {self.recorded}: no such folder")

    def run(self) -> dict[str, Any]:
        """Train and ask what is missing, print the table; returns what was found."""
        clock = Clock.start()
        if self.recorded is not None:
            return self._tables(self.recorded, clock)
        texts = take_paragraphs(read_python_docs().documents)
        scale = TINY if self.tiny else FULL
        rows = []
        for seed in range(self.seed, self.seed + self.models):
            out = self.out / f"seed-{seed}"
            say(f"eval.replication: seed {seed}")
            files = plant(texts, scale, seed=seed, out=out, any_code=self.any_code)
            rows += [
                _row(name, task, seed, _asked(files, name, task, scale, seed, out))
                for name in _PLANTED
                for task in _ASKED
            ]
        return finish_study(
            "replication",
            self,
            clock=clock,
            numbers={
                "corpus_digest": corpus_digest(texts.documents),
                "n_instances": len(texts.instances),
                "scale": dataclasses.asdict(scale),
                "rows": rows,
            },
            grids=[table(rows, scale.copies)],
            file=Path(REPORT_NAME).stem,
        )

    def _tables(self, folder: Path, clock: Clock) -> dict[str, Any]:
        """Tables of recorded completions, and constants chosen on them."""
        recorded = read_recorded_folder(folder)
        partitions = recorded_partitions(
            recorded, seed=self.seed, folder=folder.resolve().name
        )
        tables, numbers = grids(partitions), {}
        rows = labelled(recorded)
        if len(set(rows.places)) > 1:
            found = choice(rows)
            tables += constant_grids(found)
            numbers["constants"] = dataclasses.asdict(found)
        by_model = grouped(partitions, lambda one: one.model)
        numbers["table_1"] = {name: successes(own) for name, own in by_model.items()}
        return finish_study(
            "replication",
            self,
            clock=clock,
            numbers=numbers,
            grids=tables,
            file="recorded",
        )


def _asked(
    files: Mapping[str, Path], name: str, task: Any, scale: Scale, seed: int, out: Path
) -> list[Mapping[str, Any]]:
    """Result rows of `jaxcontam replicate` on one set, with control and reference."""
    folder = out / f"{name}-{task}"
    command = Replicate(
        model=str(out / "model" / MODEL_DIR),
        benchmark=files[name],
        control=files[CONTROL],
        reference=str(out / "reference" / MODEL_DIR),
        dataset_name=f"{DATASET}:{SPLIT}",
        task=task,
        sample=scale.n,
        new_tokens=scale.new_tokens,
        seed=seed,
        out=folder,
    )
    # What it prints stands in its report.
    with contextlib.redirect_stdout(io.StringIO()):
        command.run()
    report = json.loads((folder / REPORT_NAME).read_text(encoding="utf-8"))
    return report["results"]


def _row(
    name: str, task: str, seed: int, results: list[Mapping[str, Any]]
) -> dict[str, Any]:
    """Row of a run in a table."""
    by_method = {row["method"]: row for row in results}
    judge, overlap = by_method["judge_local"], by_method.get("rouge_l_sign_flip", {})
    counts = ("n_exact", "n_near", "n_control", "control_copies", "p_control")
    return {
        "planted": name,
        "asked": task,
        "seed": seed,
        "n": judge["n_instances"],
        "n_copies": judge["n_exact"] + judge["n_near"],
        **{name: judge[name] for name in (*counts, "verdict")},
        "guided": overlap.get("guided"),
        "general": overlap.get("general"),
        "p_overlap": overlap.get("p_value"),
    }


def table(rows: Sequence[Mapping[str, Any]], copies: int) -> Grid:
    """A line a set and way of asking; the numbers of each seed, or their range."""
    n_seeds = len({row["seed"] for row in rows})

    def each(form: str, name: str, total: str = "") -> Column:
        """A number of each model, or their range, of as many."""
        return lambda own: (
            _each([row[name] for row in own], form)
            + (f" of {own[0][total]}" if total else "")
        )

    def planted(own: Sequence[Mapping[str, Any]]) -> str:
        name = own[0]["planted"]
        return _WORDS[name] + ("" if name == UNSEEN else f", {copies} x")

    return Grid.of(
        f"{n_seeds} models: each number, or their range. Copies: exact and "
        "near-exact ones by the local judge, of the set and of a control that no model "
        "read; the first p is Fisher's, of more copies than in the control; the second "
        "that of the exact sign-flip test of ROUGE-L with the guided against the "
        "general instruction; the verdict beside a reference that read other sets",
        grouped(rows, lambda row: (row["planted"], row["asked"])).values(),
        {
            "planted": planted,
            "asked by": lambda own: _WORDS[own[0]["asked"]],
            "copies": each("d", "n_copies", "n"),
            "of control": each("d", "control_copies", "n_control"),
            "p": each(".1g", "p_control"),
            "ROUGE-L guided": each(".2f", "guided"),
            "general": each(".2f", "general"),
            "p of these": each(".1g", "p_overlap"),
            "verdict": lambda own: " / ".join(
                dict.fromkeys(row["verdict"] or "-" for row in own)
            ),
        },
    )


def _each(values: Sequence[float | None], form: str) -> str:
    """One value where all are alike, a range where they are many."""
    there = [value for value in values if value is not None]
    words = [format(value, form) for value in there]
    if not words:
        return "-"
    if len(set(words)) == 1:
        return words[0]
    if len(words) > _MOST_VALUES:
        return f"{min(there):{form}} to {max(there):{form}}"
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(run_study("replication", Replication, trains=True, compiles=True))
