"""Plan: which instances of a partition are asked for, and in which words.

Nothing here needs a model.
"""

import dataclasses
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from jaxcontam.analyses.flag_words import flag_of
from jaxcontam.arguments import check_fields
from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.issues import Issue, read_issues
from jaxcontam.data.options import Item, read_items
from jaxcontam.errors import InputError, check_names
from jaxcontam.methods.replication.catalogue import COMPARISONS
from jaxcontam.methods.replication.fields import find_fields
from jaxcontam.methods.replication.prompts import Prompts, load_prompts
from jaxcontam.methods.replication.split import Drawn, draw_instances

OPTION, PATHS = "ts_guessing_option", "file_path"

_Asked = TypeVar("_Asked", Item, Issue)

Task = Literal["classification", "nli", "summary", "one-sentence", "plain"]


# No slots: the command joins these fields to its own.
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicationDesign:
    """What a partition is asked; the fields are flags of `jaxcontam replicate`.

    Raises:
        InputError: If fields exclude each other or are out of range; names the flag.
    """

    dataset_name: str | None = None
    """What the guided instruction calls the dataset (default: the file's name)."""
    split_name: str = "test"
    """What it calls the partition."""
    task: Task = "classification"
    """Kind of instances; plain shows a first piece alone, for base models."""
    text_field: str | None = None
    """Field that is the text (default: known names; nli has two, see below)."""
    template: str | None = None
    """Or the text of an instance, with fields in braces."""
    first_field: str | None = None
    """Field of a pair that the model is shown (default: known names)."""
    second_field: str | None = None
    """Field of a pair that it must write."""
    label_field: str | None = None
    """Field of the label, which the instructions then name."""
    label_names: tuple[str, ...] = ()
    """Names of labels that are numbers, from 0 on, separated by spaces."""
    k: int = 50
    """Instances, drawn at random; the paper has 10."""
    control: Path | None = None
    """Instances that cannot have been seen, such as newer ones; with --recorded, their
    completions. Without them at most suspected."""
    prompts: Path | None = None
    """Other instructions: a .toml or .json file with guided and general templates."""
    compare: str | None = None
    """Further methods, comma-separated: first_instances, cdd, ts_guessing_word,
    ts_guessing_option, file_path."""
    cdd_samples: int = 20
    """Samples of each instance for cdd."""
    new_tokens: int = 500
    """Most tokens of a completion; a small context leaves fewer."""
    stop: tuple[str, ...] = ()
    r"""Texts that end a completion, such as "\n" (plain: a line end, where no second
    piece has one)."""
    seed: int = 0
    """Seeds every draw: folds, resamples, samples."""

    def __post_init__(self) -> None:
        """Refuse what cannot be asked."""
        check_fields(self)
        for name in ("k", "cdd_samples", "new_tokens"):
            if (value := getattr(self, name)) < 1:
                raise InputError(f"{flag_of(name)} must be at least 1, got {value}")
        if (self.first_field is None) != (self.second_field is None):
            raise InputError("--first-field and --second-field go together")
        check_names("method of --compare", self.comparisons, COMPARISONS)

    @property
    def comparisons(self) -> tuple[str, ...]:
        """Methods of --compare."""
        if self.compare is None:
            return ()
        return tuple(dict.fromkeys(name.strip() for name in self.compare.split(",")))


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplicationPlan:
    """What a run asks.

    Attributes:
        design: As it was wanted.
        benchmark: The partition.
        drawn: Its instances, drawn and cut.
        control: Instances that cannot have been seen, or None.
        dataset_name: What the guided instruction calls the dataset.
        items: Multiple-choice items for one of the further methods.
        issues: Issues with the file of their fix, likewise.
        control_issues: Those of the control.
        stop: Texts that end a completion.
    """

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

    @property
    def arms(self) -> list[Drawn]:
        """The instances in question, then those of the control."""
        return [self.drawn, *([] if self.control is None else [self.control])]

    @property
    def guided(self) -> list[list[str]]:
        """Prompts that name the dataset, of each arm."""
        return [
            [
                self.prompts.guided_prompt(
                    instance,
                    dataset_name=self.dataset_name,
                    split_name=self.design.split_name,
                )
                for instance in arm.instances
            ]
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
        """What the reader should know of the draw and of the prompts."""
        drawn = self.drawn
        words = [*drawn.warnings]
        if drawn.n_duplicates:
            words.append(
                f"{drawn.n_duplicates} of {drawn.n_rows} instances repeat another one "
                "and were not drawn"
            )
        if drawn.n_too_short:
            words.append(
                f"{drawn.n_too_short} of {drawn.n_rows} instances are empty or too "
                "short to be cut and were not drawn"
            )
        if not self.prompts.has_arms:
            words.append(
                "both instructions are the same, so completions are not compared "
                "between them"
            )
        return words


def plan_replication(
    benchmark: Path | str, design: ReplicationDesign
) -> ReplicationPlan:
    """Load a partition, draw instances, cut each in two and write the prompts.

    Raises:
        InputError: If a file, a field or a name is at fault, or instances of the
            control are those of the partition.
    """
    instructions = load_prompts(design.task, design.prompts)

    def drawn_of(path: Path | str) -> tuple[Benchmark, Drawn]:
        if not isinstance(path, str | Path):
            raise InputError(
                f"a partition and its control must be files, got {type(path).__name__}",
                hint="write the texts to a .jsonl file, each as {'text': ...}",
            )
        found = load_benchmark(
            path,
            template=design.template,
            text_field=design.text_field,
            check_fields=True,
        )
        fields = find_fields(
            found,
            task=design.task,
            text_field=design.text_field,
            has_template=design.template is not None,
            first_field=design.first_field,
            second_field=design.second_field,
            label_field=design.label_field,
        )
        return found, draw_instances(
            found,
            fields,
            k=design.k,
            seed=design.seed,
            label_names=tuple(design.label_names),
        )

    loaded, drawn = drawn_of(benchmark)
    control = None if design.control is None else drawn_of(design.control)[1]
    if control is not None:
        own, theirs = (
            {(one.first_piece, one.second_piece) for one in arm.instances}
            for arm in (drawn, control)
        )
        if own & theirs:
            raise InputError(
                f"{design.control}: {len(own & theirs)} of its instances are those of "
                f"{benchmark}",
                hint="a control holds instances that cannot have been seen",
            )

    def k_of(found: list[_Asked]) -> tuple[_Asked, ...]:
        order = np.random.default_rng(design.seed).permutation(len(found))
        return tuple(found[i] for i in order[: design.k])

    items, issues, control_issues = (), (), ()
    if OPTION in design.comparisons:
        items = k_of(read_items(load_benchmark(benchmark)))
    if PATHS in design.comparisons:
        issues = k_of(read_issues(load_benchmark(benchmark)))
        if design.control is not None:
            control_issues = k_of(read_issues(load_benchmark(design.control)))
    # A line end may be spelled out.
    ends = tuple(words.replace("\\n", "\n") for words in design.stop)
    if not ends and design.task == "plain":
        # A base model goes on with the next line.
        has_lines = any("\n" in one.second_piece for one in drawn.instances)
        ends = () if has_lines else ("\n",)
    return ReplicationPlan(
        design=design,
        benchmark=loaded,
        drawn=drawn,
        control=control,
        prompts=instructions,
        dataset_name=design.dataset_name or loaded.name,
        items=items,
        issues=issues,
        control_issues=control_issues,
        stop=ends,
    )
