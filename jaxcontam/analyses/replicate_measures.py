"""Measure: how close completions are to what they should be, and what people say.

Dimension key
    N  instances
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from jaxcontam.analyses.replicate_judging import Arm, Partition, rouge_overlap
from jaxcontam.errors import InputError
from jaxcontam.methods.replication.annotate import is_filled, read_sheet
from jaxcontam.methods.replication.judges import People
from jaxcontam.methods.replication.overlap import Measure, overlap_scores
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
        """Likeness of texts, as `overlap_scores` takes it."""
        ...


def measured(
    partition: Partition, measures: Sequence[OverlapModel], *, bar: Bar
) -> Partition:
    """The partition with measures of both kinds of completions, ROUGE-L first.

    Args:
        partition: Its completions; which models measured is added to its warnings.
        measures: Models that measure beside ROUGE-L. The control is measured only where
            the local judge reads the measure.
        bar: Gives the progress of each measure.
    """
    arm, control = partition.arm, partition.control
    rouge = rouge_overlap(arm)
    if rouge is None or arm.general is None:
        return partition
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
    return dataclasses.replace(
        partition,
        overlaps=overlaps,
        has_bleurt_20=has_bleurt_20,
        control_bleurt=control_bleurt,
        warnings=(*partition.warnings, *notes),
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
