"""Does replication find instances that a model read, and none that it did not?

Question: of a benchmark that a model read 50 times, as guided prompts with their
answers or as plain lines, how many instances does `jaxcontam replicate` see copied,
asked by instructions and by the first piece alone; and how many of one that it never
read?
Golchin and Surdeanu, arXiv:2308.08493, on models trained here.
Command: `python -m eval.replication`. Hardware: 2 CPU cores, two minutes a model;
nothing is downloaded. Headline: LOG.md.

With `--recorded DIR` no model is trained: tables 1 and 2 of the paper are made of
completions that came with it.
"""

import contextlib
import dataclasses
import io
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.python_docs import read_python_docs
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
    Planted,
    Scale,
    planted_model,
)
from eval.replication.page import write_page
from eval.replication.recorded import recorded_partitions
from eval.replication.table import print_study
from eval.replication.texts import take_paragraphs
from eval.study import run_study
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.commands.replicate import Replicate
from jaxcontam.errors import InputError
from jaxcontam.methods.replication.tables import table_1, table_2
from jaxcontam.report.document import REPORT_NAME, make_folder, replace_bytes
from jaxcontam.report.provenance import library_versions, utc_now
from jaxcontam.scoring.identity import cpu_name
from train.earlier import code_version
from train.sources import corpus_digest

PLAIN = "plain"
# Each set is asked by instructions, and by its first pieces alone.
_ASKED = (TASK, PLAIN)
_PLANTED = (FORMATTED, RAW, UNSEEN)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """Train models on instances, then see which of them they write by heart."""

    recorded: Path | None = None
    """Folder of SET/SPLIT/FILE.csv with completions: print the paper's tables alone."""
    models: int = 3
    """Models, each with a draw of its own."""
    seed: int = 0
    """Seed of the first of them."""
    any_code: bool = False
    """Take finished models that other code trained; their manifests say which."""
    out: Path = Path("runs/replication-study")
    """Folder of models, reports, report.json and replication.html."""
    tiny: bool = False
    """A pulse run, too small to learn anything."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "models")
        if self.recorded is not None and not self.recorded.is_dir():
            raise InputError(f"--recorded {self.recorded}: no such folder")

    def run(self) -> dict[str, Any] | None:
        """Train and ask what is missing, print the table; returns what was found."""
        if self.recorded is not None:
            partitions = recorded_partitions(self.recorded, seed=self.seed)
            print(table_1(partitions))
            print(table_2(partitions), end="")
            return None
        started, clock, cpu = utc_now(), time.monotonic(), time.process_time()
        texts = take_paragraphs(read_python_docs().documents)
        scale = TINY if self.tiny else FULL
        rows = []
        for seed in range(self.seed, self.seed + self.models):
            out = self.out / f"seed-{seed}"
            print(f"eval.replication: seed {seed}", file=sys.stderr, flush=True)
            planted = planted_model(
                texts, scale, seed=seed, out=out, any_code=self.any_code
            )
            rows += [
                _row(name, task, seed, _asked(planted, name, task, scale, seed, out))
                for name in _PLANTED
                for task in _ASKED
            ]
        document = {
            "study": "replication",
            "command": ["eval.replication", *flags_of(self)],
            "started": started,
            "wall_seconds": round(time.monotonic() - clock, 1),
            "cpu_seconds": round(time.process_time() - cpu, 1),
            "cpu": cpu_name(),
            "code": code_version(),
            "versions": library_versions(),
            "corpus_digest": corpus_digest(texts.documents),
            "n_instances": len(texts.instances),
            "scale": dataclasses.asdict(scale),
            "rows": rows,
        }
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        make_folder(self.out)
        replace_bytes(self.out / REPORT_NAME, text.encode())
        console = Console()
        print_study(document, console)
        page = write_page(document, self.out)
        console.print(f"\npage: {page}", soft_wrap=True, highlight=False)
        return document


def _asked(
    planted: Planted, name: str, task: Any, scale: Scale, seed: int, out: Path
) -> list[Mapping[str, Any]]:
    """Result rows of `jaxcontam replicate` on one set, with the unseen control."""
    folder = out / f"{name}-{task}"
    command = Replicate(
        model=str(planted.folder / "model"),
        benchmark=planted.files[name],
        control=planted.files[CONTROL],
        dataset_name=DATASET,
        split_name=SPLIT,
        task=task,
        k=scale.n,
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
    """What a table shows of a run."""
    by_method = {row["method"]: row for row in results}
    judge, overlap = by_method["judge_local"], by_method.get("rouge_l_sign_flip")
    return {
        "planted": name,
        "asked": task,
        "seed": seed,
        "folder": f"seed-{seed}/{name}-{task}",
        "n": judge["n_instances"],
        "n_exact": judge["n_exact"],
        "n_near": judge["n_near"],
        "n_control": judge["n_control"],
        "control_copies": judge["control_copies"],
        "p_control": judge["p_control"],
        "verdict": judge["verdict"],
        "guided": None if overlap is None else overlap["guided"],
        "general": None if overlap is None else overlap["general"],
        "p_overlap": None if overlap is None else overlap["p_value"],
        "p_paired_bootstrap": None
        if overlap is None
        else by_method["rouge_l_paired_bootstrap"]["p_value"],
    }


def main() -> int:
    """Command line of `python -m eval.replication`."""
    return run_study("replication", Replication, trains=True, compiles=True)


if __name__ == "__main__":
    sys.exit(main())
