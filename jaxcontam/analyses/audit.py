"""Audit: was the order of a benchmark in the training data of a model?"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.analyses.audit_design import AuditDesign, Effort, design_of
from jaxcontam.analyses.model import load
from jaxcontam.analyses.order_files import CheckedFiles, Texts, check_files, read_files
from jaxcontam.analyses.scored import Row, plan_audit, scored_rows, with_reference
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.report.provenance import library_versions
from jaxcontam.results import (
    Evidence,
    ModelInfo,
    OrderResult,
    Pretest,
    Report,
    UnscoredFile,
)
from jaxcontam.scoring.opened import OpenModel
from jaxcontam.scoring.stored import Progress
from jaxcontam.verdict import MIN_EFFECT, decide, screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AuditResult:
    """Tests of one or several benchmarks, decided.

    Attributes:
        report: Everything that `report.json` holds.
        evidence: For each row of `report.results` what its p-value was computed from.
    """

    report: Report
    evidence: tuple[Evidence | None, ...]

    @property
    def results(self) -> tuple[OrderResult, ...]:
        """Every test of every benchmark."""
        return tuple(row for row in self.report.results if isinstance(row, OrderResult))

    @property
    def unscored(self) -> tuple[UnscoredFile, ...]:
        """Files that were not scored, since their order failed its checks."""
        return self.report.unscored

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """Names of the benchmarks, scored ones first."""
        rows = [*self.results, *self.unscored]
        return tuple(dict.fromkeys(row.benchmark for row in rows))

    @property
    def primary(self) -> OrderResult | None:
        """The test that decides; None where the file was not scored.

        Raises:
            ValueError: If there are several benchmarks.
        """
        if len(self.benchmarks) != 1:
            raise ValueError(
                f"{len(self.benchmarks)} benchmarks: ask result[benchmark, method]"
            )
        return next((row for row in self.results if row.primary), None)

    @property
    def verdict(self) -> str | None:
        """`contaminated`, `suspected`, `inconclusive`, `no evidence`, `invalid design`.

        Raises:
            ValueError: If there are several benchmarks.
        """
        primary = self.primary
        return self.unscored[0].verdict if primary is None else primary.verdict

    @property
    def p_value(self) -> float | None:
        """p-value of the deciding test; None where the file was not scored."""
        return None if self.primary is None else self.primary.numbers.p_value

    @property
    def effect(self) -> float | None:
        """Effect of the deciding test, nats per example boundary."""
        return None if self.primary is None else self.primary.numbers.effect

    @property
    def pretests(self) -> tuple[Pretest, ...]:
        """Checks of the file's order that bear on the deciding test."""
        primary = self.primary
        return self.unscored[0].pretests if primary is None else primary.pretests

    def __getitem__(self, key: str | tuple[str, str]) -> OrderResult:
        """A test by its name, or by benchmark and name.

        Raises:
            KeyError: If it was not made, or several benchmarks have it.
        """
        benchmark, method = key if isinstance(key, tuple) else (None, key)
        found = [
            row
            for row in self.results
            if row.method == method and benchmark in (None, row.benchmark)
        ]
        if len(found) != 1:
            made = sorted({f"{row.benchmark}, {row.method}" for row in self.results})
            raise KeyError(f"{key!r}: {len(found)} such tests among: {'; '.join(made)}")
        return found[0]

    def save(self, out: str | Path) -> Path:
        """Write report.json, orders.npz, results.csv and report.html into a folder.

        Returns:
            The path of report.html.

        Raises:
            InputError: If the folder cannot be written.
        """
        from jaxcontam.analyses.saved import write_files

        _, page = write_files(self.report, self.evidence, Path(out))
        return page

    def plot(self, benchmark: str | None = None) -> "Figure":
        """Depth of each p-value, and what an example gains beside its neighbours.

        Args:
            benchmark: Which one, where there are several.

        Raises:
            ValueError: If it was not scored.
        """
        from jaxcontam.report.notebook import audit_figure

        rows = [row for row in self.results if benchmark in (None, row.benchmark)]
        if len({row.benchmark for row in rows}) != 1:
            raise ValueError(
                f"benchmark must be one that was scored, got {benchmark!r}"
            )
        return audit_figure(rows)

    def _repr_html_(self) -> str:
        from jaxcontam.report.notebook import summary_html

        return summary_html(self.report)


def audit(
    model: Any,
    texts: Texts,
    *,
    tests: str | Sequence[str] | None = None,
    effort: Effort = "standard",
    shuffled: bool = False,
    reference: Any = None,
    tokenizer: Any = None,
    score_anyway: bool = False,
    n_orders: int | None = None,
    first_tokens: str = "all",
    group_field: str | None = None,
    block_field: str | None = None,
    template: str | None = None,
    text_field: str | None = None,
    separator: str = "\n",
    max_example_tokens: int | None = None,
    limit: int | None = None,
    options_field: str | None = None,
    answer_field: str | None = None,
    fix_answer: bool = False,
    seed_file: str | Path | tuple[Path, ...] = (),
    min_effect: float = MIN_EFFECT,
    seed: int = 0,
    dtype: str = "float32",
    batch_tokens: int | None = None,
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Test whether a model saw texts in their published order.

    The null hypothesis of the deciding test is that reversing runs of examples leaves
    the probability of the file unchanged (`direction`), or, where the order is known to
    be random, that all orders are equally likely. A small p-value shows that this very
    order was in the training data; a large one does not show that the texts were not.

    Args:
        model: A directory, hub name, `api:URL#NAME`, model in memory, or a function
            `log_likelihoods(pairs)`; see `jaxcontam.analyses.model.load`.
        texts: Strings in published order; a file or hub name; or several paths.
        tests: Names of METHODS, the deciding one first; None follows `effort`.
        effort: `quick` is direction, `standard` adds adjacency, `thorough` stratified.
        shuffled: You know that the published order was drawn at random.
        reference: A model that cannot have seen the texts.
        tokenizer: The fast tokenizer of a model in memory.
        score_anyway: Score files whose order fails its checks, too.
        n_orders: Random orders a stratum; None is the test's own number.
        first_tokens: Tokens of each example that count: `all`, `auto` or a number.
        group_field: Permute only within equal values of this field.
        block_field: Permute whole runs of equal values of this field.
        template: Text of an example, with fields in braces.
        text_field: Or the one field that is the text.
        separator: Text after each example, as in the training data.
        max_example_tokens: Cut longer examples, separator included.
        limit: Take the first so many examples.
        options_field: For the test `options`: field of the options.
        answer_field: For the test `options`: field of the right one.
        fix_answer: For the test `options`: right options keep their places.
        seed_file: Secret seed of a file made by `jaxcontam release`.
        min_effect: Nats a boundary that `no evidence` must have been able to find.
        seed: Seeds every random choice.
        dtype: Matmul precision of a model directory: `float32` or `bfloat16`.
        batch_tokens: Tokens of a batch on one device; None chooses by device.
        store: Folder in which scores of a directory or a server are kept, so that
            another call goes on there; None keeps none.
        progress: Called with target tokens done and in all.

    Returns:
        Verdict, p-values, effects and evidence; `save` writes a report.

    Raises:
        InputError: If the model, the texts or the choice of tests cannot be used.

    Source:
        Oren et al., arXiv:2310.17623, for order tests; docs/methods says of each test
        what is ours.
    """
    watch = Stopwatch()
    design = design_of(
        dict(
            tests=tests,
            effort=effort,
            shuffled=shuffled,
            score_anyway=score_anyway,
            n_orders=n_orders,
            first_tokens=first_tokens,
            group_field=group_field,
            block_field=block_field,
            template=template,
            text_field=text_field,
            separator=separator,
            max_example_tokens=max_example_tokens,
            limit=limit,
            options_field=options_field,
            answer_field=answer_field,
            fix_answer=fix_answer,
            seed_file=seed_file,
            min_effect=min_effect,
            seed=seed,
        )
    )
    if reference is not None:
        design.check_reference()
    files = read_files(texts, design)
    checked = check_files(files, design)
    target = load(model, tokenizer=tokenizer, dtype=dtype)

    def rows_of(one: OpenModel, folder: Path | None) -> list[Row]:
        return scored_rows(
            plan_audit(checked.benchmarks, files, one, design).tests,
            one.make_scorer(store=folder, batch_tokens=batch_tokens),
            names=design.test_names,
            checked=checked,
            progress=progress,
        )

    folder = None if store is None else Path(store)
    rows: list[Row] = []
    reference_info = None
    if checked.benchmarks:
        rows = rows_of(target, folder)
        if reference is not None:
            other = load(reference, tokenizer=tokenizer, dtype=dtype)
            reference_info = other.info
            of_other = rows_of(other, None if folder is None else folder / "reference")
            rows = with_reference(rows, of_other, reference_info, seed=seed)
    command = ("audit", target.info.name, *(one.name for one in files.benchmarks))
    return conclude(
        rows,
        target,
        checked,
        design,
        command=command,
        watch=watch,
        reference=reference_info,
    )


def conclude(
    rows: Sequence[Row],
    model: OpenModel,
    checked: CheckedFiles,
    design: AuditDesign,
    *,
    command: Sequence[str],
    watch: Stopwatch,
    reference: ModelInfo | None = None,
) -> AuditResult:
    """Decide scored tests, corrected for the number of benchmarks.

    Args:
        rows: Results before verdicts, with their evidence.
        model: What was scored; its notes become warnings.
        checked: The files.
        design: What was asked.
        command: The words that made it; remedies repeat them.
        watch: Started with the run.
        reference: The reference model, if one was given.
    """
    notes = model.notes()
    noted = [dataclasses.replace(row, warnings=row.warnings + notes) for row, _ in rows]
    decided = decide(noted, min_effect=design.min_effect)
    report = Report(
        command=tuple(command),
        seed=design.seed,
        started=watch.started,
        wall_seconds=watch.seconds,
        model=model.info,
        device=model.device,
        versions=library_versions(),
        min_effect=design.min_effect,
        results=tuple(decided),
        screening=screen(decided),
        unscored=checked.unscored,
        reference=reference,
    )
    return AuditResult(report, tuple(evidence for _, evidence in rows))
