"""Audit: was the order of a benchmark in the training data of a model?"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxcontam.arguments import Dtype, public, store_folder
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.files import Provenance
from jaxcontam.data.templates import typed_newlines
from jaxcontam.orders.answer_options import plan_options
from jaxcontam.orders.benchmarks import (
    AuditFiles,
    CheckedFiles,
    Texts,
    as_blocks,
    block_starts,
    check_files,
    encoded_blocks,
    read_files,
)
from jaxcontam.orders.chat_turns import chat_texts, tuning_notes, turn_words
from jaxcontam.orders.design import AuditDesign, design_of
from jaxcontam.orders.methods import DIRECTION, TESTS, methods_to_score
from jaxcontam.orders.order_test import (
    NothingToPermuteError,
    PlannedTest,
    TestMethod,
    plan_test,
    score_test,
)
from jaxcontam.progress import Bar, Progress, default_bar, progress_after
from jaxcontam.proof.publish import AuditResult
from jaxcontam.proof.result import DECLARED, Evidence, OrderResult
from jaxcontam.proof.test_row import reference_result
from jaxcontam.proof.verdict import decide, screen
from jaxcontam.reports.report import Stopwatch
from jaxcontam.scoring.load import load
from jaxcontam.scoring.opened import (
    ModelInfo,
    OpenModel,
    SequenceScorer,
    about_reference,
    check_other,
)
from jaxcontam.scoring.parts import ShareScored
from jaxcontam.scoring.shares import each_scored


@public
def audit(
    model: Any,
    texts: Texts,
    *,
    reference: Any = None,
    tokenizer: Any = None,
    dtype: Dtype = "float32",
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
        store: Folder in which scores of a directory or a server are kept, so that
            another call resumes there; None keeps none.
        progress: Called with target tokens done and in all; None draws a bar where
            someone looks, in a terminal or a notebook.
        **design: Fields of `AuditDesign`, the flags of `jaxcontam audit`: tests and
            order (a word or several), text, group_field, seed, ...

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
            opened.make_scorer(store=folder),
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
    is_object = not isinstance(model, str | Path)
    name = "MODEL" if is_object else str(model)
    if target is not None:
        name = target.model.info.name
    if is_object:
        # No shell has it: `next_steps` then names keywords, not flags.
        name = f"<{name}>"
    return run_audit(
        target,
        checked,
        asked,
        reference=of_reference,
        command=(
            "audit",
            name,
            *(benchmark.name for benchmark in files.benchmarks),
            *asked.flags,
            *(["--reference", of_reference.model.info.name] if of_reference else []),
        ),
        watch=watch,
        bar=functools.partial(default_bar, progress),
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReadyAudit:
    """A model, its tests of all benchmarks, and what scores them."""

    model: OpenModel
    tests: tuple[PlannedTest, ...]
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
        check_other(reference.model, target.model)

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
        if design.chat_turn is not None:
            notes = (turn_words(design.chat_turn), *notes)
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


Row = tuple[OrderResult, Evidence | None]


def plan_audit(
    benchmarks: Sequence[Benchmark],
    files: AuditFiles,
    model: OpenModel,
    design: AuditDesign,
) -> tuple[tuple[PlannedTest, ...], tuple[str, ...]]:
    """Design and lay out the tests of every benchmark; scores nothing.

    Returns:
        The tests, and why tests that do not decide are left out.
    """
    tests: list[PlannedTest] = []
    left_out: list[str] = []
    methods = methods_to_score(design.test_names)
    if any(method.whole for method in methods):
        # Direction is read from these pairs.
        methods = [method for method in methods if method is not DIRECTION]
    for benchmark in benchmarks:
        items = files.items.get(benchmark.name)
        texts, separator = benchmark.texts, typed_newlines(design.separator)
        tokenizer = model.tokenizer
        if design.chat_turn is not None:
            texts, tokenizer = chat_texts(model, design.chat_turn, benchmark)
            # The template ends each turn.
            separator = ""
        encoded = encode_examples(
            tokenizer,
            texts,
            separator=separator,
            max_example_tokens=design.max_example_tokens,
        )
        if design.block_field is not None:
            starts = block_starts(benchmark, design.block_field)
            benchmark = as_blocks(benchmark, starts)
            encoded = encoded_blocks(encoded, starts)
        for method in methods:
            own = design.test(method.name)
            method = own.method
            if not isinstance(method, TestMethod):
                assert items is not None
                # Code that made the items may have shuffled their options, too.
                is_unknown = benchmark.order_provenance == "unknown"
                order: Provenance = "unknown" if is_unknown else "published"
                if design.shuffled and design.decides_by_options:
                    order = DECLARED
                test = plan_options(
                    benchmark,
                    items,
                    model.tokenizer,
                    prefix_id=model.prefix_id,
                    seed=design.seed,
                    n_orders=own.n_orders,
                    fixed=own.fixed,
                    order_provenance=order,
                )
                tests.append(test)
                continue
            try:
                test = plan_test(
                    benchmark,
                    encoded,
                    method,
                    prefix_id=model.prefix_id,
                    context=model.context,
                    seed=design.seed,
                    n_orders=own.n_orders,
                    group_field=design.group_field,
                    block_field=design.block_field,
                    seam=design.seam,
                )
            except NothingToPermuteError as e:
                if method.name == design.test_names[0]:
                    raise
                left_out.append(str(e))
                continue
            tests.append(test)
    return tuple(tests), tuple(left_out)


def scored_rows(
    planned: Sequence[PlannedTest],
    scorer: SequenceScorer,
    *,
    names: Sequence[str],
    checked: CheckedFiles,
    progress: Progress | None = None,
) -> list[Row]:
    """Score every test; direction is read from the pairs of a test that has them all.

    Raises:
        ShareScored: If this process scores a share; it is scored then.
    """
    total, done = sum(test.n_targets for test in planned), 0
    calls = []
    for test in planned:
        after = progress_after(progress, done, total)
        calls.append(functools.partial(score_test, test, scorer, after))
        done += test.n_targets
    rows: list[Row] = []
    for scored, test in zip(each_scored(calls), planned, strict=True):
        own, name = test.method, test.benchmark.name
        also = [DIRECTION] if DIRECTION.name in names and own.whole else []
        for method in (None, *also):
            result = test.result(
                scored,
                primary=(method or own).name == names[0],
                pretests=checked.pretests.get(name, ()),
                method=method,
            )
            if test.is_of_file:
                n_repeats = checked.n_repeats[name]
                result = dataclasses.replace(result, n_repeats=n_repeats)
            rows.append((result, scored.evidence))
    return rows


def with_reference(
    rows: Sequence[Row], reference: Sequence[Row], info: ModelInfo, *, seed: int
) -> list[Row]:
    """Rows beside the same tests of a reference model, where they can be."""
    of_reference = {(row[0].benchmark, row[0].method): row for row in reference}
    found: list[Row] = []
    for result, evidence in rows:
        method, key = TESTS[result.method], (result.benchmark, result.method)
        theirs, other = of_reference.get(key, (None, None))
        if method.words.takes_reference and evidence is not None and theirs and other:
            evidence = dataclasses.replace(
                evidence, reference_pairs=other.pairs, reference_scores=other.scores
            )
            warnings = result.warnings
            if theirs.n_cut > result.n_cut:
                warnings += (
                    f"{info.name}, the reference model, reads {theirs.n_cut} of "
                    f"{theirs.n_examples} examples cut to its context, so it may miss "
                    "what the model reads; --max-example-tokens cuts both equally",
                )
            result = dataclasses.replace(
                result,
                warnings=warnings,
                reference=reference_result(
                    method,
                    evidence,
                    name=info.name,
                    fingerprint=info.fingerprint,
                    seed=seed,
                    content_digest=result.content_digest,
                ),
            )
        found.append((result, evidence))
    return found


@public
def order_test(
    log_likelihoods: Any,
    texts: Sequence[str],
    *,
    test: str = "direction",
    seed: int = 0,
) -> OrderResult:
    """Run one order test with any engine.

    Args:
        log_likelihoods: Takes (context, continuation) strings, returns log
            p(continuation | context) of each in nats; or any other model.
        texts: Examples in published order.
        test: A row of METHODS; see there for its null hypothesis.
        seed: Seeds every random choice.

    Returns:
        The test, also where the texts' own order fails its checks: its verdict then
        says `invalid design`.

    Raises:
        InputError: If the model or the texts cannot be used.
    """
    result = audit(log_likelihoods, texts, tests=test, seed=seed, order="anyway")
    return result[test]
