"""The sets of the canary study: from the ten files, or from a finished run."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from eval.canaries.published import Plan, copies_of
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.manifest import Manifest, read_manifest
from jaxcontam.errors import InputError
from train.earlier import MANIFEST_NAME, MODEL_DIR
from train.plan import HELD_OUT, PlannedSet


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


def check_same(trained: Trained, wanted: Sequence[PlannedSet], folder: Path) -> None:
    """Refuse a run that planted something else than what the flags ask for.

    Raises:
        InputError: Names the first set that is missing, or differs in its lines or its
            copies.
    """
    found = {one.name: one for one in trained.sets}
    for one in wanted:
        there = found.get(one.name)
        if there is None:
            raise InputError(f"{folder}: has no set {one.name!r}")
        if there.copies != one.copies:
            raise InputError(
                f"{folder}: planted {one.name!r} {there.copies} times, "
                f"not {one.copies}",
                hint="--dup-counts names the plan that it followed",
            )
        if there.benchmark.fingerprint != one.benchmark.fingerprint:
            raise InputError(
                f"{folder}: its set {one.name!r} has other lines than --canaries",
                hint=f"--limit {len(there.benchmark)}"
                if len(there.benchmark) != len(one.benchmark)
                else "",
            )


def control_of(name: str, sets: Sequence[PlannedSet]) -> PlannedSet | None:
    """The later lines of a planted set's own file, which were not planted."""
    for one in sets:
        named = one.held_out_of == name or one.name == name + HELD_OUT
        if one.copies == 0 and named:
            return one
    return None
