"""Design of a run: its flags, and which instances are asked for in which words.

Nothing here needs a model.
"""

import dataclasses
from pathlib import Path
from typing import TypeVar

import numpy as np

from jaxcontam.data.answer_options import Item, read_items
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.documents import compared
from jaxcontam.data.templates import template_pieces, typed_newlines
from jaxcontam.errors import InputError
from jaxcontam.replication.comparisons import Issue
from jaxcontam.replication.control import independence_words
from jaxcontam.replication.flags import OPTION, PATHS, ReplicationDesign
from jaxcontam.replication.hidden import read_issues
from jaxcontam.replication.instances import (
    Drawn,
    Fields,
    Prompts,
    draw_instances,
    find_fields,
    load_prompts,
    text_keys,
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplicationPlan:
    """Prompts of a run, and the instances behind them."""

    design: ReplicationDesign
    benchmark: Benchmark
    drawn: Drawn
    control: Drawn | None
    prompts: Prompts
    dataset_name: str
    items: tuple[Item, ...]
    issues: tuple[Issue, ...]
    control_issues: tuple[Issue, ...]
    stop: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def arms(self) -> list[Drawn]:
        """The instances in question, then those of the control."""
        return [self.drawn, *([] if self.control is None else [self.control])]

    @property
    def guided(self) -> list[list[str]]:
        """Prompts that name the dataset, of each arm: all that a reference is asked."""
        names = dict(dataset_name=self.dataset_name, split_name=self.design.names[1])
        return [
            [self.prompts.guided_prompt(one, **names) for one in arm.instances]
            for arm in self.arms
        ]

    @property
    def general(self) -> list[str] | None:
        """Prompts that name nothing; None where both instructions are the same."""
        if not self.prompts.has_arms:
            return None
        return [self.prompts.general_prompt(one) for one in self.drawn.instances]

    @property
    def completion_prompts(self) -> list[str]:
        """All prompts whose completions are compared with second pieces."""
        return [p for part in self.guided for p in part] + (self.general or [])

    @property
    def references(self) -> list[str]:
        """Second pieces of all arms."""
        return [one.second_piece for arm in self.arms for one in arm.instances]

    @property
    def warnings(self) -> list[str]:
        """Warnings about the draw and the prompts."""
        drawn = self.drawn
        left_out = {
            "repeat another one": drawn.n_duplicates,
            "are empty or too short to be cut": drawn.n_too_short,
        }
        words = [*drawn.warnings]
        words += [
            f"{n} of {drawn.n_rows} instances {what} and were not drawn"
            for what, n in left_out.items()
            if n
        ]
        if self.control is not None:
            for name, one in (("benchmark", drawn), ("control", self.control)):
                if one.n_elsewhere:
                    words.append(
                        f"{one.n_elsewhere} of {one.n_rows} instances of the {name} "
                        "occur more than once in both files together and were not drawn"
                    )
            words += self.notes
        if not self.prompts.has_arms:
            words.append(
                "both instructions are the same, so their completions are not compared"
            )
        return words


_Asked = TypeVar("_Asked", Item, Issue)


def plan_replication(
    benchmark: Path | str, design: ReplicationDesign
) -> ReplicationPlan:
    """Load a partition, draw instances, cut each in two and write the prompts.

    Raises:
        InputError: If a file, a field or a name is at fault, or all instances of the
            control are those of the partition.
    """

    def read(path: Path | str) -> tuple[Benchmark, Fields]:
        if not isinstance(path, str | Path):
            raise InputError(
                f"a partition and its control must be files, got {type(path).__name__}",
                hint="write the texts to a .jsonl file, each as {'text': ...}",
            )
        text, field = design.template, design.text_field
        found = load_benchmark(path, template=text, text_field=field, check_fields=True)
        return found, find_fields(found, design)

    def k_of(found: list[_Asked]) -> tuple[_Asked, ...]:
        order = np.random.default_rng(design.seed).permutation(len(found))
        return tuple(found[i] for i in order[: design.sample])

    files = [read(one) for one in (benchmark, design.control) if one is not None]
    # What stands on both sides is no evidence for either; and the smaller file has
    # more of what is frequent, which any model may know by heart, among its distinct
    # texts.
    left_out: set[str] = set()
    if design.control is not None:
        own, theirs = (text_keys(*file) for file in files)
        both, sides = [*own, *theirs], ("benchmark", "control")
        alike = compared(both, np.arange(len(both)) < len(own), None, sides)
        left_out = set(both) - {both[i] for i in np.flatnonzero(alike.kept)}
    drawn, *controls = (
        draw_instances(*file, design, elsewhere=left_out) for file in files
    )
    loaded, fields = files[0]
    of_template = (field for _, field in template_pieces(design.template or ""))
    notes = independence_words(
        [
            file.rows[one.index]
            for (file, _), side in zip(files, (drawn, *controls), strict=True)
            for one in side.instances
        ],
        read=(*fields.texts, fields.label, *of_template, design.text_field),
        group_field=design.named("document"),
    )
    items, issues, control_issues = (), (), ()
    if OPTION in design.comparisons:
        items = k_of(read_items(load_benchmark(benchmark)))
    if PATHS in design.comparisons:
        own, theirs = read_issues(load_benchmark(benchmark)), []
        if design.control is not None:
            theirs = read_issues(load_benchmark(design.control))
        both = {one.text for one in own} & {one.text for one in theirs}
        issues, control_issues = (
            k_of([one for one in side if one.text not in both])
            for side in (own, theirs)
        )
        if both and not issues:
            raise InputError(
                f"{design.control}: file_path: it has every issue of {benchmark}",
                hint="give issues that cannot have been seen as a control",
            )
        if both:
            notes.append(f"{len(both)} issues are in both files and were left out")
    # A line end may be spelled out.
    prompts = load_prompts(design.task, design.prompts)
    ends = tuple(typed_newlines(words) for words in prompts.stop)
    if not ends and design.task == "plain":
        # A base model goes on with the next line.
        has_lines = any("\n" in one.second_piece for one in drawn.instances)
        ends = () if has_lines else ("\n",)
    return ReplicationPlan(
        design=design,
        benchmark=loaded,
        drawn=drawn,
        control=next(iter(controls), None),
        prompts=prompts,
        dataset_name=design.names[0] or loaded.name,
        items=items,
        issues=issues,
        control_issues=control_issues,
        stop=ends,
        notes=tuple(notes),
    )
