"""Audit: was the order of a benchmark in the training data of a model?"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam.analyses.audit_design import AuditDesign, design_of
from jaxcontam.analyses.chat_turns import tuning_notes, turn_words
from jaxcontam.analyses.order_files import CheckedFiles, Texts, check_files, read_files
from jaxcontam.analyses.saved import Writable, write_files
from jaxcontam.analyses.scored import (
    Row,
    plan_audit,
    scored_rows,
    with_reference,
)
from jaxcontam.analyses.stopwatch import Stopwatch
from jaxcontam.arguments import Dtype, public, store_folder
from jaxcontam.errors import InputError
from jaxcontam.methods.method import Planned
from jaxcontam.progress import Bar, Progress, default_bar
from jaxcontam.results import (
    Evidence,
    OrderResult,
    Pretest,
    Report,
    UnscoredFile,
)
from jaxcontam.scoring.load import load
from jaxcontam.scoring.opened import OpenModel, SequenceScorer
from jaxcontam.scoring.shares import ShareScored
from jaxcontam.verdict import decide, screen

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AuditResult(Writable):
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
        """Checks of the file's order; a test's `refusals` are those that failed it."""
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

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        return write_files(self.report, self.evidence, out)

    def plot(self, benchmark: str | None = None) -> "Figure":
        """Depth of each p-value, and what an example gains beside its neighbours.

        Args:
            benchmark: Which one, where there are several.

        Raises:
            ValueError: If it was not scored.
        """
        from jaxcontam.report.plots import audit_figure

        rows = [row for row in self.results if benchmark in (None, row.benchmark)]
        if len({row.benchmark for row in rows}) != 1:
            raise ValueError(
                f"benchmark must be one that was scored, got {benchmark!r}"
            )
        return audit_figure(rows)

    def __repr__(self) -> str:
        from jaxcontam.analyses.method_notes import method_words
        from jaxcontam.report.plots import summary_text

        return summary_text(self.report, method_words())


@public
def audit(
    model: Any,
    texts: Texts,
    *,
    reference: Any = None,
    tokenizer: Any = None,
    dtype: Dtype = "float32",
    batch_tokens: int | None = None,
    store: str | Path | None = None,
    progress: Progress | None = None,
    **design: Any,
) -> AuditResult:
    """Test whether a model saw texts in their published order.

    The null hypothesis of the deciding test is that reversing runs of examples leaves
    the probability of the file unchanged (`direction`), or, where the order is known to
    be random, that all orders are equally likely. A small p-value shows that this very
    order was in the training data; a large one does not show that the texts were not.

    Args:
        model: A directory, hub name, `api:URL#NAME`, model in memory, or a function
            `log_likelihoods(pairs)`; see `jaxcontam.scoring.load.load`.
        texts: Strings in published order; a file or hub name; or several paths.
        reference: A model that reads as well and cannot have seen the texts. Without
            one a published order is `suspected` at most.
        tokenizer: The fast tokenizer of a model in memory.
        dtype: Matmul precision of a model directory: `float32` or `bfloat16`.
        batch_tokens: Tokens of a batch on one device; None chooses by device.
        store: Folder in which scores of a directory or a server are kept, so that
            another call resumes there; None keeps none.
        progress: Called with target tokens done and in all; None draws a bar where
            someone looks, in a terminal or a notebook.
        **design: Fields of `AuditDesign`, the flags of `jaxcontam audit`: tests (also
            a sequence of names), shuffled, n_orders, text_field, seed, ...

    Returns:
        Verdict, p-values, effects and evidence; `save` writes a report.

    Raises:
        InputError: If the model, the texts or the choice of tests cannot be used.

    Source:
        Oren et al., arXiv:2310.17623, for order tests; docs/methods says of each test
        what is ours.
    """
    watch = Stopwatch()
    asked = design_of(**design)
    if reference is not None:
        asked.check_reference()
    files = read_files(texts, asked)
    checked = check_files(files, asked)

    def ready(one: Any, folder: Path | None) -> ReadyAudit:
        beside = None if one is model else model
        opened = load(one, tokenizer=tokenizer, dtype=dtype, beside=beside)
        return ReadyAudit(
            opened,
            plan_audit(checked.benchmarks, files, opened, asked)[0],
            opened.make_scorer(store=folder, batch_tokens=batch_tokens),
        )

    target = of_reference = None
    if checked.benchmarks:
        folder = store_folder(store)
        target = ready(model, folder)
        if reference is not None:
            with about_reference():
                of_reference = ready(
                    reference, None if folder is None else folder / "reference"
                )
    name = str(model) if isinstance(model, str | Path) else "MODEL"
    return run_audit(
        target,
        checked,
        asked,
        reference=of_reference,
        command=(
            "audit",
            name if target is None else target.model.info.name,
            *(benchmark.name for benchmark in files.benchmarks),
            *asked.flags,
            *(["--reference", of_reference.model.info.name] if of_reference else []),
        ),
        watch=watch,
        bar=functools.partial(default_bar, progress),
    )


@contextlib.contextmanager
def about_reference() -> Iterator[None]:
    """Say of bad input in the block that it is the reference model's."""
    try:
        yield
    except InputError as e:
        raise InputError(f"the reference model: {e}", hint=e.hint) from e


def _check_other(reference: OpenModel, model: OpenModel) -> None:
    same = reference.info.fingerprint == model.info.fingerprint
    if same and reference.checkpoint is not None:
        raise InputError(
            f"{reference.name}: the reference is the model itself",
            hint="name a model that cannot have seen the file",
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReadyAudit:
    """A model, its tests of all benchmarks, and what scores them."""

    model: OpenModel
    tests: tuple[Planned, ...]
    scorer: SequenceScorer


def run_audit(
    target: ReadyAudit | None,
    checked: CheckedFiles,
    design: AuditDesign,
    *,
    reference: ReadyAudit | None = None,
    command: Sequence[str],
    watch: Stopwatch,
    bar: Bar,
) -> AuditResult:
    """Score the planned tests and decide, corrected for the number of benchmarks.

    Raises:
        ShareScored: If this process scores a share; it is scored then.
    """
    if reference is not None and target is not None:
        _check_other(reference.model, target.model)

    def rows_of(one: ReadyAudit, title: str) -> list[Row]:
        with bar(title) as progress:
            return scored_rows(
                one.tests,
                one.scorer,
                names=design.test_names,
                checked=checked,
                progress=progress,
            )

    rows: list[Row] = []
    notes: tuple[str, ...] = ()
    if target is not None:
        try:
            rows = rows_of(target, "scoring orders")
        except ShareScored:
            if reference is None:
                raise
        if reference is not None:
            with about_reference():
                others = rows_of(reference, "scoring orders with the reference")
            rows = with_reference(rows, others, reference.model.info, seed=design.seed)
        notes = (*target.model.notes(), *tuning_notes(target.model))
        if design.chat_template is not None:
            notes = (turn_words(design.chat_template), *notes)
    noted = [dataclasses.replace(row, warnings=row.warnings + notes) for row, _ in rows]
    decided = decide(noted, min_effect=design.min_effect)
    report = watch.report(
        command,
        design.seed,
        decided,
        model=None if target is None else target.model.info,
        device=None if target is None else target.model.device,
        min_effect=design.min_effect,
        screening=screen(decided),
        unscored=checked.unscored,
        reference=None if reference is None else reference.model.info,
    )
    return AuditResult(report, tuple(evidence for _, evidence in rows))
