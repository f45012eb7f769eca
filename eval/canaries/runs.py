"""The ten sets of the paper, the sets of a model, and what was found on it."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.errors import InputError
from train.manifest import Manifest, read_manifest
from train.plant import HELD_OUT, PlannedSet
from train.run_folder import MANIFEST_NAME, MODEL_DIR

Plan = Literal["published", "lower"]
"""Copies of the paper's first model, or of its second one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Canary:
    """One of the ten sets.

    Attributes:
        published: Copies in the paper's first model.
        lower: Copies in the authors' second model.
        sharded_p: p-value of the sharded test on the first model, as it was printed.
    """

    published: int
    lower: int
    sharded_p: str | None = None


# Copies: the README of the authors' code (tatsu-lab/test_set_contamination) has both
# columns. Figures: the table in the authors' public answer to the reviewers of
# arXiv:2310.17623, which has these five sets and no figure of the second model.
CANARIES: Mapping[str, Canary] = {
    "boolq": Canary(1, 1, "0.156"),
    "hellaswag": Canary(1, 1, "0.478"),
    "openbookqa": Canary(1, 2),
    "naturalquestions": Canary(10, 2),
    "mnli": Canary(10, 4, "1.96e-11"),
    "truthfulqa": Canary(10, 4),
    "piqa": Canary(50, 7),
    "mmlu_professional_law": Canary(50, 7, "1e-38"),
    "mmlu_professional_psychology": Canary(50, 10),
    "mmlu_high_school_psychology": Canary(100, 10, "1e-38"),
}


def copies_of(plan: Plan) -> dict[str, int]:
    """Copies of each set in a plan."""
    return {name: getattr(canary, plan) for name, canary in CANARIES.items()}


def plan_of(copies: Mapping[str, int]) -> Plan | None:
    """The plan whose sets were planted with these copies; None if it is neither.

    Args:
        copies: Copies of the planted sets, by name.
    """
    plans: tuple[Plan, ...] = ("published", "lower")
    return next((plan for plan in plans if copies_of(plan) == copies), None)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A finished run.

    Attributes:
        manifest: What the model was trained on.
        sets: Its sets, planted ones first.
        model: Folder of the model.
    """

    manifest: Manifest
    sets: tuple[PlannedSet, ...]
    model: Path


def sets_to_plant(folder: Path, plan: Plan, limit: int) -> tuple[PlannedSet, ...]:
    """The first lines of each of the ten files, and as many after them as controls.

    Raises:
        InputError: If a file is missing or too short.
    """
    return tuple(
        planned
        for name, copies in copies_of(plan).items()
        for planned in _set_and_control(folder / f"{name}.jsonl", copies, limit)
    )


def _set_and_control(path: Path, copies: int, limit: int) -> tuple[PlannedSet, ...]:
    whole = load_benchmark(path, limit=2 * limit)
    if len(whole) < 2 * limit:
        raise InputError(
            f"{path}: {len(whole)} lines, {2 * limit} needed for a set and a control",
            hint=f"--limit {len(whole) // 2} or less" if len(whole) > 1 else "",
        )
    return tuple(
        PlannedSet(
            benchmark=Benchmark(
                whole.name + suffix, whole.texts[part], whole.rows[part]
            ),
            copies=n,
        )
        for suffix, part, n in (
            ("", slice(limit), copies),
            (HELD_OUT, slice(limit, None), 0),
        )
    )


def read_trained(folder: Path) -> Trained:
    """The model, the manifest and the sets of a finished run.

    Raises:
        InputError: If the run is not finished, a file of it is missing, or a set is
            not the one that the manifest names.
    """
    manifest = read_manifest(folder / MANIFEST_NAME)
    if not manifest.finished:
        raise InputError(
            f"{folder}: its training is not finished",
            hint="the same command again goes on from the last checkpoint",
        )
    sets = []
    for row in manifest.sets:
        benchmark = load_benchmark(folder / row.file, text_field=row.text_field)
        if benchmark.fingerprint != row.fingerprint:
            raise InputError(
                f"{folder / row.file}: not the set {row.name!r} of {MANIFEST_NAME}",
                hint="the file was changed after training",
            )
        sets.append(
            PlannedSet(
                benchmark=dataclasses.replace(benchmark, name=row.name),
                copies=row.copies,
                shuffled=row.shuffled,
                held_out_of=row.held_out_of,
            )
        )
    if not any(one.copies for one in sets):
        raise InputError(f"{folder}: no set was planted there")
    return Trained(manifest, planted_first(sets), folder / MODEL_DIR)


def planted_first(sets: Sequence[PlannedSet]) -> tuple[PlannedSet, ...]:
    """Planted sets before controls, otherwise in the order of the manifest."""
    return tuple(sorted(sets, key=lambda one: one.copies == 0))


def control_of(name: str, sets: Sequence[PlannedSet]) -> PlannedSet | None:
    """The later lines of a planted set's own file, which were not planted."""
    for one in sets:
        named = one.held_out_of == name or one.name == name + HELD_OUT
        if one.copies == 0 and named:
            return one
    return None


MOST_SEEN = 0.05
"""Share of a control's lines that training may have read."""

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What was found on one model.

    Attributes:
        plan: Plan of its copies; None if it followed neither.
        label: The plan's name, or the model's.
        n_parameters: Parameters of the model.
        n_tokens: That it was trained on.
        canary_share: Share of these that is planted.
        tests: Rows of order tests, by set and method.
        seen: Control -> its lines that stand in the planted part, and its lines.
    """

    plan: Plan | None
    label: str
    n_parameters: int
    n_tokens: int
    canary_share: float
    tests: Mapping[tuple[str, str], Row]
    seen: Mapping[str, tuple[int, int]]

    @property
    def copies(self) -> dict[str, int]:
        """Copies of all sets and controls, in the report's order."""
        return {name: row["copies"] for (name, _), row in self.tests.items()}

    @property
    def planted(self) -> dict[str, int]:
        """Copies of the planted sets."""
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


def run_of(document: Mapping[str, Any]) -> Run:
    """The run that a report of this study tells of."""
    tests = {(row["benchmark"], row["method"]): row for row in document["results"]}
    copies = {name: row["copies"] for (name, _), row in tests.items()}
    plan = plan_of({name: n for name, n in copies.items() if n})
    model, study = document["model"], document["study"]
    return Run(
        plan=plan,
        label=plan or model["name"],
        n_parameters=model["n_parameters"],
        n_tokens=study["n_tokens"],
        canary_share=study["canary_share"],
        tests=tests,
        seen={name: (n_seen, n) for name, (n_seen, n) in study["seen"].items()},
    )
