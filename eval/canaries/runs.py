"""Reports of the canary study, read back: one model each."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.canaries.published import Plan, plan_of
from jaxcontam.errors import InputError
from jaxcontam.report.document import REPORT_NAME, is_report_of, read_document

COMMAND = "eval.canaries"
MOST_SEEN = 0.05
"""Share of a control's lines that training may have read."""

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What was found on one model.

    Attributes:
        label: The plan's name, or the model's where it followed neither plan.
        plan: Of its copies.
        fingerprint: Of the model.
        n_parameters: Of the model.
        n_tokens: That it was trained on.
        canary_share: Of which planted.
        tests: Rows of order tests, by set and method.
        ranked: Fields of `Ranked`, by set.
        seen: Control -> its lines that stand in the planted part, and its lines; of
            controls whose lines were ranked.
    """

    label: str
    plan: Plan | None
    fingerprint: str
    n_parameters: int
    n_tokens: int
    canary_share: float
    tests: Mapping[tuple[str, str], Row]
    ranked: Mapping[str, Row]
    seen: Mapping[str, tuple[int, int]]

    @property
    def copies(self) -> dict[str, int]:
        """Of all sets and controls, in the report's order."""
        return {name: row["copies"] for (name, _), row in self.tests.items()}

    @property
    def planted(self) -> dict[str, int]:
        """Of the planted sets."""
        return {name: copies for name, copies in self.copies.items() if copies}

    @property
    def controls(self) -> list[str]:
        """Names of the sets that were not planted."""
        return [name for name, copies in self.copies.items() if not copies]

    @property
    def read_controls(self) -> list[str]:
        """Controls that training read much of: no test should be silent there."""
        return [
            name
            for name, (n_seen, n_lines) in self.seen.items()
            if n_seen > MOST_SEEN * n_lines
        ]

    @property
    def methods(self) -> list[str]:
        """Order tests, the one that decides first, then in the report's order."""
        found = list(dict.fromkeys(method for _, method in self.tests))
        decides = next((m for (_, m), row in self.tests.items() if row["primary"]), "")
        return sorted(found, key=lambda method: method != decides)


def run_of(document: Mapping[str, Any], where: str) -> Run:
    """The run that a report tells of.

    Raises:
        InputError: If it is no report of this study; begins with `where`.
    """
    if not is_report_of(document, COMMAND):
        raise InputError(f"{where}: not a report of {COMMAND}")
    try:
        tests = {
            (row["benchmark"], row["method"]): row
            for row in document["results"]
            if "auc" not in row
        }
        if not tests:
            raise InputError(f"{where}: has no order test")
        copies = {name: row["copies"] for (name, _), row in tests.items()}
        plan = plan_of({name: n for name, n in copies.items() if n})
        model, study = document["model"], document["study"]
        # Reports from before this part existed have none.
        ranked = {row["benchmark"]: row for row in study.get("ranked", ())}
        control_of = {
            row["benchmark"]: row["reference"][0]
            for row in document["results"]
            if "auc" in row
        }
        return Run(
            label=plan or model["name"],
            plan=plan,
            fingerprint=model["fingerprint"],
            n_parameters=model["n_parameters"],
            n_tokens=study["n_tokens"],
            canary_share=study["canary_share"],
            tests=tests,
            ranked=ranked,
            seen={
                control_of[name]: (row["n_seen"], row["n_later"])
                for name, row in ranked.items()
            },
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise InputError(f"{where}: lacks {e}") from e


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Runs of finished studies; reports of one model are joined.

    Where two reports of a model have the same test of the same set, the first one
    counts.

    Raises:
        InputError: If a folder has no report of this study.
    """
    runs: dict[str, Run] = {}
    for folder in folders:
        path = folder / REPORT_NAME
        run = run_of(read_document(path), str(path))
        first = runs.get(run.fingerprint)
        runs[run.fingerprint] = run if first is None else _joined(first, run)
    return _told_apart(list(runs.values()))


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """Runs of one label are numbered from the second one on."""
    seen: dict[str, int] = {}
    told = []
    for run in runs:
        seen[run.label] = n = seen.get(run.label, 0) + 1
        told.append(
            run if n == 1 else dataclasses.replace(run, label=f"{run.label} {n}")
        )
    return told


def _joined(first: Run, second: Run) -> Run:
    tests = {**first.tests}
    for key, row in second.tests.items():
        tests.setdefault(key, row)
    return dataclasses.replace(
        first,
        tests=tests,
        ranked={**second.ranked, **first.ranked},
        seen={**second.seen, **first.seen},
    )
