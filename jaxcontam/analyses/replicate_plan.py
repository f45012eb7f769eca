"""Plan: which instances of a partition are asked for, and in which words.

Nothing here needs a model.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.data.benchmark import Benchmark, load_benchmark
from jaxcontam.data.options import Item, read_items
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.methods.replication.fields import find_fields
from jaxcontam.methods.replication.prompts import Prompts, load_prompts
from jaxcontam.methods.replication.split import Drawn, draw_instances
from jaxcontam.results.replication import COMPARISONS

OPTION = "ts_guessing_option"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplicationPlan:
    """What a run asks.

    Attributes:
        benchmark: The partition.
        drawn: Its instances, drawn and cut.
        control: Instances that cannot have been seen, or None.
        dataset_name: What the guided instruction calls the dataset.
        split_name: What it calls the partition.
        compare: Further methods.
        items: Multiple-choice items for one of them.
        cdd_samples: Samples of each instance for `cdd`.
        new_tokens: Most tokens of a completion.
        stop: Texts that end a completion.
    """

    benchmark: Benchmark
    drawn: Drawn
    control: Drawn | None
    prompts: Prompts
    dataset_name: str
    split_name: str
    compare: tuple[str, ...]
    items: tuple[Item, ...]
    cdd_samples: int
    new_tokens: int
    stop: tuple[str, ...]
    seed: int

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
                    split_name=self.split_name,
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
    benchmark: Path | str,
    *,
    task: str = "classification",
    dataset_name: str | None = None,
    split_name: str = "test",
    control: Path | str | None = None,
    prompts: Path | None = None,
    template: str | None = None,
    text_field: str | None = None,
    first_field: str | None = None,
    second_field: str | None = None,
    label_field: str | None = None,
    label_names: Sequence[str] = (),
    k: int = 50,
    compare: Sequence[str] = (),
    cdd_samples: int = 20,
    new_tokens: int = 500,
    stop: Sequence[str] = (),
    seed: int = 0,
) -> ReplicationPlan:
    r"""Load a partition, draw instances, cut each in two and write the prompts.

    Args:
        benchmark: File of the partition.
        task: Kind of instances; `plain` shows a first piece alone, for base models.
        dataset_name: What the guided instruction calls it; None is the file's name.
        split_name: What it calls the partition.
        control: File of instances that cannot have been seen.
        prompts: File of other instructions.
        template: Text of an instance, with fields in braces.
        text_field: Field that is the text; None takes known names.
        first_field: Field of a pair that is shown.
        second_field: Field of a pair that must be written.
        label_field: Field of the label, which the instructions then name.
        label_names: Names of labels that are numbers, from 0 on.
        k: Instances, drawn at random.
        compare: Further methods, of `COMPARISONS`.
        cdd_samples: Samples of each instance for `cdd`.
        new_tokens: Most tokens of a completion.
        stop: Texts that end one; `\n` may be spelled out. None for `plain`: a line
            end, where no second piece has one.
        seed: Seed of draws and cuts.

    Raises:
        InputError: If a file, a field or a name is at fault, or instances of the
            control are those of the partition.
    """
    for name in compare:
        if name not in COMPARISONS:
            raise unknown_name("method of --compare", name, COMPARISONS)
    instructions = load_prompts(task, prompts)

    def drawn_of(path: Path | str) -> tuple[Benchmark, Drawn]:
        if not isinstance(path, str | Path):
            raise InputError(
                f"a partition and its control must be files, got {type(path).__name__}",
                hint="write the texts to a .jsonl file, each as {'text': ...}",
            )
        found = load_benchmark(
            path, template=template, text_field=text_field, check_fields=True
        )
        fields = find_fields(
            found,
            task=task,
            text_field=text_field,
            has_template=template is not None,
            first_field=first_field,
            second_field=second_field,
            label_field=label_field,
        )
        return found, draw_instances(
            found, fields, k=k, seed=seed, label_names=tuple(label_names)
        )

    loaded, drawn = drawn_of(benchmark)
    others = None if control is None else drawn_of(control)[1]
    if others is not None:
        own, theirs = (
            {(one.first_piece, one.second_piece) for one in arm.instances}
            for arm in (drawn, others)
        )
        if own & theirs:
            raise InputError(
                f"{control}: {len(own & theirs)} of its instances are those of "
                f"{benchmark}",
                hint="a control holds instances that cannot have been seen",
            )
    items: list[Item] = []
    if OPTION in compare:
        found = read_items(load_benchmark(benchmark))
        order = np.random.default_rng(seed).permutation(len(found))
        items = [found[i] for i in order[:k]]
    ends = tuple(words.replace("\\n", "\n") for words in stop)
    if not ends and task == "plain":
        # A base model goes on with the next line.
        has_lines = any("\n" in one.second_piece for one in drawn.instances)
        ends = () if has_lines else ("\n",)
    return ReplicationPlan(
        benchmark=loaded,
        drawn=drawn,
        control=others,
        prompts=instructions,
        dataset_name=dataset_name or loaded.name,
        split_name=split_name,
        compare=tuple(compare),
        items=tuple(items),
        cdd_samples=cdd_samples,
        new_tokens=new_tokens,
        stop=ends,
        seed=seed,
    )
