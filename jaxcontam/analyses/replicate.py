"""Does a model write instances of a partition by heart?

Plan (`replicate_plan`), ask and measure (here), judge (`replicate_judging`).

Dimension key
    N  instances
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from jaxcontam.analyses.method_notes import report_words
from jaxcontam.analyses.prompted_model import PromptedModel, judge_notes, open_prompted
from jaxcontam.analyses.replicate_judging import Arm, Partition, rouge_overlap
from jaxcontam.analyses.replicate_plan import (
    ReplicationDesign,
    ReplicationPlan,
    plan_replication,
)
from jaxcontam.analyses.saved import Writable, write_files
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.arguments import Dtype, check_names, public
from jaxcontam.errors import InputError
from jaxcontam.methods.replication.annotate import read_sheet
from jaxcontam.methods.replication.catalogue import COMPARISONS
from jaxcontam.methods.replication.instance import Completer, Completion
from jaxcontam.methods.replication.judges import People
from jaxcontam.methods.replication.llm_judge import judge_llm, judge_version
from jaxcontam.methods.replication.overlap import overlap_scores
from jaxcontam.methods.replication.questions import ComparisonInputs, Names
from jaxcontam.progress import Bar, Progress, default_bar, silent
from jaxcontam.report.replication import COMMAND
from jaxcontam.results import DeviceInfo, ModelInfo, Report
from jaxcontam.results.replication import ComparisonResult, JudgeResult, OverlapResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jaxcontam.methods.replication.bleurt import Bleurt
    from jaxcontam.methods.replication.overlap import EmbeddingOverlap

OverlapModel = Union["Bleurt", "EmbeddingOverlap"]
"""A model that measures how close a completion is to its reference."""

_TITLES = {"bleurt": "BLEURT", "embedding": "The embedding cosine"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplicationAnalysis(Writable):
    """What a model wrote, and what is said of it.

    Attributes:
        partition: Completions, measures and labels, from which results follow.
        comparisons: What further methods found.
        answers: One row an answer of theirs.
        model: What was asked; None for completions that were recorded.
        device: Device of a local model.
        command: The command line that made it.
    """

    partition: Partition
    comparisons: tuple[ComparisonResult, ...] = ()
    answers: tuple[dict[str, Any], ...] = ()
    model: ModelInfo | None = None
    device: DeviceInfo | None = None
    seed: int
    command: tuple[str, ...] = (COMMAND,)
    watch: Stopwatch

    def __repr__(self) -> str:
        return f"<ReplicationAnalysis of {self.partition.name}: {self.verdict}>"

    @property
    def results(self) -> list[OverlapResult | JudgeResult | ComparisonResult]:
        """The judge that decides, the others, overlaps, then further methods."""
        return [*self.partition.results(seed=self.seed), *self.comparisons]

    @property
    def verdict(self) -> str | None:
        """Verdict of the deciding judge."""
        return next((row.verdict for row in self.results if row.primary), None)

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        return write_files(self.report, [*self.partition.rows(), *self.answers], out)

    def plot(self) -> "Figure":
        """Share of copies by every judge, and what other methods found.

        Raises:
            ValueError: If nothing was judged.
        """
        from jaxcontam.report.notebook import replication_figure

        return replication_figure(self.report, report_words(self.report))

    @property
    def report(self) -> Report:
        """Everything that `report.json` holds."""
        return self.watch.report(
            self.command,
            self.seed,
            self.results,
            model=self.model,
            device=self.device,
        )


@public
def replicate(
    model: Any,
    benchmark: Path | str,
    *,
    tokenizer: Any = None,
    dtype: Dtype = "float32",
    progress: Progress | None = None,
    **questions: Any,
) -> ReplicationAnalysis:
    """Ask a model for the rest of instances, and judge whether it copies them.

    The verdict is a rule on the number of copies, and no proof: texts that are common
    on the web are copied from there.

    Args:
        model: A directory, hub name, `api:URL#NAME` of a chat model, or a decoder in
            memory.
        benchmark: File of the partition.
        tokenizer: The fast tokenizer of a model in memory.
        dtype: Matmul precision of a model directory: `float32` or `bfloat16`.
        progress: Called with prompts done and in all, part by part; None draws a bar
            where someone looks, in a terminal or a notebook.
        **questions: Fields of `ReplicationDesign`: task, k, control, compare, seed and
            others; `compare` may be a sequence of names.

    Raises:
        InputError: If a file, a field or the model is at fault.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493.
    """
    bar = functools.partial(default_bar, progress)
    compare = questions.get("compare")
    if compare is not None and not isinstance(compare, str):
        questions["compare"] = ",".join(compare) or None
    check_names(ReplicationDesign, questions)
    plan = plan_replication(benchmark, ReplicationDesign(**questions))
    with open_prompted(
        model,
        tokenizer=tokenizer,
        dtype=dtype,
        is_plain=plan.prompts.task == "plain",
    ) as opened:
        return ask(plan, opened, bar=bar)


def room(plan: ReplicationPlan, model: PromptedModel) -> tuple[int, tuple[str, ...]]:
    """Most new tokens that leave room for the prompts, and what does not fit.

    Raises:
        InputError: If a prompt has no token.
    """
    if model.read is None or model.tokenize is None or model.context is None:
        return plan.design.new_tokens, ()
    context = model.context
    lengths = [len(model.read(prompt)) for prompt in plan.completion_prompts]
    if min(lengths, default=1) < 1:
        raise InputError("a prompt has no token", hint="look at the template")
    references = [len(model.tokenize(text)) for text in plan.references]
    # A reference's first token may join the space before it.
    wanted = min(plan.design.new_tokens, max(references, default=1) + 1)
    left = context - max(lengths, default=1)
    new_tokens = min(plan.design.new_tokens, max(left, min(wanted, context // 2)))
    warnings = []
    if n_cut := sum(length > context - new_tokens for length in lengths):
        warnings.append(
            f"{n_cut} of {len(lengths)} prompts lose their beginning in the "
            f"model's context of {context} tokens"
        )
    if n_long := sum(length > new_tokens for length in references):
        warnings.append(
            f"{n_long} of {len(references)} second pieces are longer than the "
            f"{new_tokens} tokens that the model may write"
        )
    return new_tokens, tuple(warnings)


def ask(
    plan: ReplicationPlan,
    model: PromptedModel,
    *,
    measures: Sequence[OverlapModel] = (),
    annotated: Path | None = None,
    watch: Stopwatch | None = None,
    bar: Bar = silent,
) -> ReplicationAnalysis:
    """Ask for everything that a plan holds, and measure the answers.

    Raises:
        InputError: If the model refuses everything, or the sheet is of another run.
    """
    watch = watch or Stopwatch()
    new_tokens, notes = room(plan, model)

    def complete(prompts: Sequence[str], title: str) -> tuple[Completion, ...]:
        with bar(title) as progress:
            found = model.completer.complete(
                prompts,
                max_tokens=new_tokens,
                seed=plan.design.seed,
                stop=plan.stop,
                progress=progress,
            )
        return tuple(one for (one,) in found)

    guided = [complete(prompts, "guided completions") for prompts in plan.guided]
    general = None
    if (prompts := plan.general) is not None:
        general = complete(prompts, "general completions")
    comparisons, answers = _compared(plan, model, new_tokens, bar)
    arm = Arm(instances=plan.drawn.instances, guided=guided[0], general=general)
    control = None
    if plan.control is not None:
        control = Arm(instances=plan.control.instances, guided=guided[1])
    partition = Partition(
        name=plan.benchmark.name,
        fingerprint=plan.drawn.fingerprint,
        prompt_version=plan.prompts.version,
        arm=arm,
        control=control,
        control_warnings=() if plan.control is None else plan.control.warnings,
        humans=human_labels(annotated, arm, seed=plan.design.seed),
        warnings=(*plan.warnings, *notes, *model.notes()),
    )
    return ReplicationAnalysis(
        partition=measured(partition, measures, bar=bar),
        comparisons=tuple(comparisons),
        answers=tuple(answers),
        model=model.info,
        device=model.device,
        seed=plan.design.seed,
        watch=watch,
    )


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


def human_labels(annotated: Path | None, arm: Arm, *, seed: int) -> People | None:
    """Labels of a sheet that people filled in; None without one."""
    if annotated is None:
        return None
    return read_sheet(annotated, arm.instances, arm.guided, seed=seed)


def _compared(
    plan: ReplicationPlan, model: PromptedModel, most: int, bar: Bar
) -> tuple[list[ComparisonResult], list[dict[str, Any]]]:
    """Results and answers of the further methods, in the order they were named."""
    names = Names(
        benchmark=plan.benchmark.name,
        fingerprint=plan.drawn.fingerprint,
        dataset=plan.dataset_name,
        split=plan.design.split_name,
    )
    asked = ComparisonInputs(
        benchmark=plan.benchmark,
        names=names,
        instances=plan.drawn.instances,
        prompts=plan.general or plan.guided[0],
        items=plan.items,
        issues=plan.issues,
        control_issues=plan.control_issues,
        completer=model.completer,
        tokenize=model.tokenize,
        n_samples=plan.design.cdd_samples,
        max_tokens=most,
        stop=plan.stop,
        seed=plan.design.seed,
    )
    found: list[ComparisonResult] = []
    rows: list[dict[str, Any]] = []
    for name in plan.design.comparisons:
        with bar(name) as progress:
            result, own = COMPARISONS[name](asked, progress)
        found.append(result)
        rows += [{"benchmark": names.benchmark, "arm": name, **row} for row in own]
    return found, rows


def judged_by(
    analysis: ReplicationAnalysis,
    judge: Completer,
    *,
    bar: Bar = silent,
) -> ReplicationAnalysis:
    """The analysis with the labels of a chat model, which then decides."""
    partition = analysis.partition
    labels = []
    for arm in (partition.arm, partition.control):
        if arm is not None:
            with bar("judging") as progress:
                labels.append(
                    judge_llm(
                        judge,
                        arm.instances,
                        arm.guided,
                        seed=analysis.seed,
                        progress=progress,
                    )
                )
    return dataclasses.replace(
        analysis,
        partition=dataclasses.replace(
            partition,
            llm=(labels[0], f"{judge.name}, {judge_version()}"),
            llm_decides=True,
            llm_control=labels[1] if len(labels) > 1 else None,
            warnings=(*partition.warnings, *judge_notes(judge)),
        ),
    )
