"""Measure: how close completions are to what they should be, and what people say.

Dimension key
    N  instances
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from jaxcontam.analyses.partition import Arm, rouge_overlap
from jaxcontam.errors import InputError
from jaxcontam.methods.replication.annotate import is_filled, read_sheet
from jaxcontam.methods.replication.overlap import Measure, overlap_scores
from jaxcontam.methods.replication.people import People
from jaxcontam.progress import Bar

_TITLES = {"bleurt": "BLEURT", "embedding": "The embedding cosine"}


class OverlapModel(Protocol):
    """A model that measures how close a completion is to its reference."""

    @property
    def name(self) -> str:
        """`bleurt` or `embedding`."""
        ...

    @property
    def version(self) -> str:
        """Which one, for reports."""
        ...

    @property
    def measure(self) -> Measure:
        """See `overlap_scores`."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Measured:
    """Overlaps of completions; see `Partition` for the first three.

    Attributes:
        overlaps: Measure -> scores of guided and general completions, (N,) each.
        has_bleurt_20: Whether one of them is that of BLEURT-20.
        control_bleurt: (N,) the same measure of the control, or None.
        notes: Which models measured, one sentence each.
    """

    overlaps: dict[str, tuple[np.ndarray, np.ndarray]]
    has_bleurt_20: bool = False
    control_bleurt: np.ndarray | None = None
    notes: tuple[str, ...] = ()


def measured(
    arm: Arm, measures: Sequence[OverlapModel], *, control: Arm | None, bar: Bar
) -> Measured:
    """Measures of both kinds of completions, ROUGE-L first.

    Args:
        arm: The completions.
        measures: Models that measure beside it.
        control: Measured only where the local judge reads the measure.
        bar: Gives the progress of each measure.
    """
    rouge = rouge_overlap(arm)
    if rouge is None or arm.general is None:
        return Measured(overlaps={})
    overlaps, notes, has_bleurt_20 = {"rouge_l": rouge}, [], False
    control_bleurt = None
    for measure in measures:
        is_bleurt_20 = getattr(measure, "is_bleurt_20", False)
        with bar(f"measuring {measure.name}"):
            overlaps[measure.name] = (
                overlap_scores(measure.measure, arm.instances, arm.guided),
                overlap_scores(measure.measure, arm.instances, arm.general),
            )
            if control is not None and is_bleurt_20:
                # Else the local judge would judge both by other rules.
                control_bleurt = overlap_scores(
                    measure.measure, control.instances, control.guided
                )
        notes.append(f"{_TITLES[measure.name]} is measured by {measure.version}")
        has_bleurt_20 |= is_bleurt_20
    return Measured(
        overlaps=overlaps,
        has_bleurt_20=has_bleurt_20,
        control_bleurt=control_bleurt,
        notes=tuple(notes),
    )


def check_sheet(annotated: Path | None) -> None:
    """Refuse a sheet that is none, or is empty, before anything is asked.

    Raises:
        InputError: If the sheet cannot be used, whatever the completions will be.
    """
    if annotated is not None and not is_filled(annotated):
        raise InputError(f"{annotated}: no label is filled in")


def human_labels(annotated: Path | None, arm: Arm, *, seed: int) -> People | None:
    """Labels of a sheet that people filled in; None without one."""
    if annotated is None:
        return None
    return read_sheet(annotated, arm.instances, arm.guided, seed=seed)
