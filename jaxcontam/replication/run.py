"""Ask a model for instances of a partition: what `replicate` and the command both do.

Plan (`design`), ask (here), measure and judge (`judging`).

Dimension key
    N  instances
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.arguments import Dtype, check_names, public
from jaxcontam.data.journal import Journal, MemoryJournal
from jaxcontam.errors import InputError
from jaxcontam.progress import Bar, Progress, default_bar, silent
from jaxcontam.replication.comparisons import ComparisonInputs, ComparisonResult
from jaxcontam.replication.control import JudgeResult
from jaxcontam.replication.design import ReplicationPlan, plan_replication
from jaxcontam.replication.flags import (
    BLEURT,
    EMBEDDING,
    ReplicationDesign,
    check_reference,
)
from jaxcontam.replication.hidden import COMPARISONS
from jaxcontam.replication.judges import OWN_PROMPT, JudgePrompt, judge_llm
from jaxcontam.replication.judging import (
    CONTROL,
    OF_REFERENCE,
    PARTITION,
    Arm,
    Partition,
    measured,
)
from jaxcontam.replication.overlap import Measure, OverlapResult
from jaxcontam.replication.page import COMMAND, replication_figure, replication_words
from jaxcontam.replication.recorded import read_sheet
from jaxcontam.reports.archive import TEXTS_NAME, texts_bytes
from jaxcontam.reports.report import Report, Stopwatch
from jaxcontam.reports.report_files import Writable, write_files
from jaxcontam.scoring.completer import Completer, Completion
from jaxcontam.scoring.opened import DeviceInfo, ModelInfo
from jaxcontam.scoring.prompted_model import (
    PromptedModel,
    ServerSettings,
    judge_notes,
    open_prompted,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Most new tokens (the paper's number), and how many a base model may write beyond twice
# the longest second piece: what comes later is no copy. A chat model thinks first.
_MOST_TOKENS, _MORE_TOKENS = 500, 32


# No slots: what follows is computed once.
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ReplicationAnalysis(Writable):
    """A report of replication, with the completions that it rests on.

    Results follow from the `partition`. `model` is None for recorded completions.
    """

    partition: Partition
    comparisons: tuple[ComparisonResult, ...] = ()
    answers: tuple[dict[str, Any], ...] = ()
    model: ModelInfo | None = None
    device: DeviceInfo | None = None
    reference: ModelInfo | None = None
    seed: int
    command: tuple[str, ...] = (COMMAND,)
    watch: Stopwatch

    def __repr__(self) -> str:
        return f"<ReplicationAnalysis of {self.partition.name}: {self.verdict}>"

    @functools.cached_property
    def results(self) -> list[OverlapResult | JudgeResult | ComparisonResult]:
        """The judge that decides, the others, overlaps, then further methods."""
        return [*self.partition.results(seed=self.seed), *self.comparisons]

    @property
    def verdict(self) -> str | None:
        """Verdict of the deciding judge."""
        return next((row.verdict for row in self.results if row.primary), None)

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        rows = [*self.partition.rows(), *self.answers]
        return write_files(self.report, {TEXTS_NAME: texts_bytes(rows)}, out)

    def plot(self) -> "Figure":
        """Share of copies by every judge, and findings of other methods.

        Raises:
            ValueError: If nothing was judged.
        """
        return replication_figure(self.report, replication_words(self.report))

    @property
    def was_refused(self) -> bool:
        """True if a server refused a request that a result counts."""
        rows = [row for row in self.results if not isinstance(row, OverlapResult)]
        counts = [row.n_refused + row.n_control_refused for row in rows]
        judges = (row for row in rows if isinstance(row, JudgeResult))
        counts += [row.reference.n_refused for row in judges if row.reference]
        return any(counts)

    @property
    def report(self) -> Report:
        """Everything that `report.json` holds."""
        made: dict[str, Any] = dict(model=self.model, device=self.device)
        made["reference"] = self.reference
        return self.watch.report(self.command, self.seed, self.results, **made)


@public
def replicate(
    model: Any,
    benchmark: Path | str,
    *,
    reference: Any = None,
    tokenizer: Any = None,
    dtype: Dtype = "float32",
    progress: Progress | None = None,
    **questions: Any,
) -> ReplicationAnalysis:
    """Ask a model for the rest of instances, and judge whether it copies them.

    Texts that are common on the web are copied from there, so that copies are no more
    than `suspected` without a control and a reference model.

    Args:
        model: A directory, hub name, `api:URL#NAME` of a chat model, or a decoder in
            memory.
        benchmark: File of the partition.
        reference: A model, of any of these kinds, that has seen neither the partition
            nor the control; it is asked what the model is asked.
        tokenizer: The fast tokenizer of a model in memory.
        dtype: Matmul precision of a model directory: `float32` or `bfloat16`.
        progress: Called with prompts done and in all, part by part; None draws a bar
            where someone looks, in a terminal or a notebook.
        **questions: Fields of `ReplicationDesign`: task, text, fields, sample,
            control, compare, seed and others.

    Raises:
        InputError: If a file, a field or the model is at fault.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493.
    """
    bar = functools.partial(default_bar, progress)
    check_names(ReplicationDesign, questions, "replicate")
    design = ReplicationDesign(**questions)
    if reference is not None:
        check_reference(design)
    plan = plan_replication(benchmark, design)
    with opened(plan, model, reference, tokenizer=tokenizer, dtype=dtype) as asked:
        return ask(plan, *asked, measures=measures_of(design), bar=bar)


def measures_of(design: ReplicationDesign) -> list[Measure]:
    """Measures of overlap that --compare names."""
    found: list[Measure] = []
    if folder := design.settings.get(BLEURT):
        from jaxcontam.replication.bleurt import Bleurt

        found.append(Bleurt.load(Path(folder)).measure)
    if model := design.settings.get(EMBEDDING):
        from jaxcontam.replication.bleurt import embedding_measure, open_embedder

        found.append(embedding_measure(open_embedder(model)))
    return found


@contextlib.contextmanager
def opened(
    plan: ReplicationPlan,
    model: Any,
    reference: Any = None,
    *,
    tokenizer: Any = None,
    dtype: Dtype = "float32",
    journal: Callable[[str], Journal] = lambda _: MemoryJournal(),
    settings: ServerSettings | None = None,
) -> Iterator[list[PromptedModel]]:
    """Open the model, and its reference if there is one, for the block.

    `journal` keeps the answers of both: by the name of the first model.
    """
    names = [model.name] if isinstance(model, PromptedModel) else []

    def kept(name: str, _: ModelInfo) -> Journal:
        names.append(name)
        return journal(names[0])

    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                open_prompted(
                    one,
                    tokenizer=tokenizer,
                    dtype=dtype,
                    is_plain=plan.prompts.task == "plain",
                    beside=beside,
                    settings=settings,
                    journal=kept,
                )
            )
            for one, beside in ((model, None), (reference, model))
            if one is not None
        ]


def ask(
    plan: ReplicationPlan,
    model: PromptedModel,
    reference: PromptedModel | None = None,
    *,
    measures: Sequence[Measure] = (),
    watch: Stopwatch | None = None,
    bar: Bar = silent,
) -> ReplicationAnalysis:
    """Ask for everything that a plan holds, and measure the answers.

    A reference has seen neither side: it is asked the guided prompts. `watch` runs from
    the beginning of the run.
    """
    watch, design = watch or Stopwatch(), plan.design
    if reference is not None:
        theirs = reference.info
        if theirs.fingerprint == model.info.fingerprint != "unknown":
            raise InputError(
                f"{theirs.name}: the reference is the model itself",
                hint="name a model that cannot have seen the benchmark",
            )

    def completed(
        one: PromptedModel, prompts: Sequence[str], most: int, title: str
    ) -> tuple[Completion, ...]:
        how: dict[str, Any] = dict(max_tokens=most, seed=design.seed, stop=plan.stop)
        with bar(title) as progress:
            found = one.completer.complete(prompts, progress=progress, **how)
        return tuple(answer for (answer,) in found)

    most, notes = room(plan, model)
    arms = {}
    sides = zip((PARTITION, CONTROL), plan.arms, plan.guided, strict=False)
    for name, side, prompts in sides:
        guided = completed(model, prompts, most, "guided completions")
        arms[name] = Arm(instances=side.instances, guided=guided)
    if (prompts := plan.general) is not None:
        general = completed(model, prompts, most, "general completions")
        arms[PARTITION] = dataclasses.replace(arms[PARTITION], general=general)
    comparisons, answers = _compared(
        plan, model, room(plan, model, _MOST_TOKENS)[0], bar
    )
    notes = (*plan.warnings, *notes, *model.notes())
    if reference is not None:
        most, more = room(plan, reference)
        title = "the reference's guided completions"
        for name, side, prompts in zip(
            OF_REFERENCE.values(), plan.arms, plan.guided, strict=True
        ):
            guided = completed(reference, prompts, most, title)
            arms[name] = Arm(instances=side.instances, guided=guided)
        more = (*more, *reference.notes())
        notes = (*notes, *(f"of the reference: {words}" for words in more))
    partition = Partition(
        name=plan.benchmark.name,
        fingerprint=plan.drawn.fingerprint,
        prompt_version=plan.prompts.version,
        arms=arms,
        group_field=design.named("document"),
        control_warnings=() if plan.control is None else plan.control.warnings,
        warnings=notes,
    )
    return ReplicationAnalysis(
        partition=measured(partition, measures, bar=bar),
        comparisons=comparisons,
        answers=answers,
        model=model.info,
        device=model.device,
        reference=None if reference is None else reference.info,
        seed=design.seed,
        watch=watch,
    )


def room(
    plan: ReplicationPlan, model: PromptedModel, most: int | None = None
) -> tuple[int, tuple[str, ...]]:
    """Most new tokens that leave room for the prompts, and what does not fit.

    `most` is wanted where no flag says another number; by default, what a copy of the
    longest second piece takes.
    """
    asked = plan.design.new_tokens or most
    if model.read is None or model.tokenize is None or model.context is None:
        return asked or _MOST_TOKENS, ()
    context = model.context
    lengths = [len(model.read(prompt)) for prompt in plan.completion_prompts]
    if min(lengths, default=1) < 1:
        raise InputError("a prompt has no token", hint="check the template")
    references = [len(model.tokenize(text)) for text in plan.references]
    longest = max(references, default=1)
    if asked is None:
        is_plain = plan.prompts.task == "plain"
        asked = (
            min(_MOST_TOKENS, 2 * longest + _MORE_TOKENS) if is_plain else _MOST_TOKENS
        )
    # A reference's first token may join the space before it.
    wanted = min(asked, longest + 1)
    left = context - max(lengths, default=1)
    new_tokens = min(asked, max(left, min(wanted, context // 2)))
    warnings = []
    if n_cut := sum(length > context - new_tokens for length in lengths):
        warnings.append(
            f"{n_cut} of {len(lengths)} prompts lose their beginning: the model's "
            f"context is {context} tokens"
        )
    if n_long := sum(length > new_tokens for length in references):
        warnings.append(
            f"{n_long} of {len(references)} second pieces are longer than the "
            f"{new_tokens} tokens that the model may write"
        )
    return new_tokens, tuple(warnings)


def _compared(
    plan: ReplicationPlan, model: PromptedModel, most: int, bar: Bar
) -> tuple[tuple[ComparisonResult, ...], tuple[dict[str, Any], ...]]:
    asked = ComparisonInputs(
        benchmark=plan.benchmark,
        fingerprint=plan.drawn.fingerprint,
        dataset=plan.dataset_name,
        split=plan.design.names[1],
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
        rows += [{"benchmark": plan.benchmark.name, "arm": name, **row} for row in own]
    return tuple(found), tuple(rows)


def labelled_by(analysis: ReplicationAnalysis, sheet: Path) -> ReplicationAnalysis:
    """The analysis with the labels of a sheet that people filled in."""
    partition = analysis.partition
    texts = partition.arm.instances, partition.arm.guided
    people = read_sheet(sheet, *texts, seed=analysis.seed)
    return dataclasses.replace(
        analysis, partition=dataclasses.replace(partition, humans=people)
    )


def judged_by(
    analysis: ReplicationAnalysis,
    judge: Completer,
    *,
    prompt: JudgePrompt = OWN_PROMPT,
    bar: Bar = silent,
) -> ReplicationAnalysis:
    """The analysis with the labels of a chat model, which then decides."""
    partition, labels = analysis.partition, {}
    for name, arm in partition.arms.items():
        texts, seed = (arm.instances, arm.guided), analysis.seed
        with bar("judging") as progress:
            labels[name] = judge_llm(
                judge, *texts, prompt=prompt, seed=seed, progress=progress
            )
    judged = dataclasses.replace(
        partition,
        llm=labels,
        llm_version=f"{judge.name}, {prompt.version}",
        llm_decides=True,
        warnings=(*partition.warnings, *judge_notes(judge)),
    )
    return dataclasses.replace(analysis, partition=judged)
