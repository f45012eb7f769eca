"""Tests of an audit planned for a model, and scored by it."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxcontam.analyses.audit_design import AuditDesign
from jaxcontam.analyses.chat_turns import chat_texts
from jaxcontam.analyses.order_files import AuditFiles, CheckedFiles
from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.blocks import as_blocks, block_starts, encoded_blocks
from jaxcontam.data.encoding import encode_examples
from jaxcontam.data.provenance import Provenance
from jaxcontam.data.templates import typed_newlines
from jaxcontam.methods import TESTS, direction, methods_to_score
from jaxcontam.methods.method import Planned, SingleTest, TestMethod
from jaxcontam.methods.options import plan_options
from jaxcontam.methods.order_test import NothingToPermuteError, plan_test, score_test
from jaxcontam.methods.pair_method import reference_result
from jaxcontam.progress import Progress, progress_after
from jaxcontam.results import DECLARED, Evidence, ModelInfo, OrderResult
from jaxcontam.scoring.shares import each_scored

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import OpenModel, SequenceScorer

Row = tuple[OrderResult, Evidence | None]


def plan_audit(
    benchmarks: Sequence[Benchmark],
    files: AuditFiles,
    model: "OpenModel",
    design: AuditDesign,
) -> tuple[tuple[Planned, ...], tuple[str, ...]]:
    """Design and lay out the tests of every benchmark; scores nothing.

    Returns:
        The tests, and why tests that do not decide are left out.
    """
    tests: list[Planned] = []
    left_out: list[str] = []
    methods = methods_to_score(design.test_names)
    if any(method.whole for method in methods):
        # Direction is read from these pairs.
        methods = [method for method in methods if method is not direction.METHOD]
    for benchmark in benchmarks:
        items = files.items.get(benchmark.name)
        texts, separator = benchmark.texts, typed_newlines(design.separator)
        tokenizer = model.tokenizer
        if design.chat_template is not None:
            texts, tokenizer = chat_texts(model, design.chat_template, benchmark)
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
                    n_orders=design.n_orders,
                    fixed=design.fix_answer,
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
                    n_orders=design.n_orders,
                    group_field=design.group_field,
                    block_field=design.block_field,
                )
            except NothingToPermuteError as e:
                if method.name == design.test_names[0]:
                    raise
                left_out.append(str(e))
                continue
            tests.append(test)
    return tuple(tests), tuple(left_out)


def scored_rows(
    planned: Sequence[Planned],
    scorer: "SequenceScorer",
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
        read: list[TestMethod | None] = [None]
        if direction.METHOD.name in names and own.whole:
            read.append(direction.METHOD)
        for method in read:
            result = test.result(
                scored,
                primary=(method or own).name == names[0],
                pretests=checked.pretests.get(name, ()),
                method=method,
            )
            if own.is_of_order:
                n_repeats = checked.n_repeats[name]
                result = dataclasses.replace(result, n_repeats=n_repeats)
            rows.append((result, scored.evidence))
    return rows


def with_reference(
    rows: Sequence[Row], reference: Sequence[Row], info: ModelInfo, *, seed: int
) -> list[Row]:
    """Rows beside the same tests of a reference model, where they can be."""
    of_reference = {
        (one.benchmark, one.method): (one, evidence) for one, evidence in reference
    }
    found: list[Row] = []
    for result, evidence in rows:
        method = TESTS[result.method]
        theirs, other = of_reference.get(
            (result.benchmark, result.method), (None, None)
        )
        if (
            isinstance(method, SingleTest)
            and method.words.takes_reference
            and (evidence is not None and theirs and other)
        ):
            evidence = dataclasses.replace(
                evidence, reference_pairs=other.pairs, reference_scores=other.scores
            )
            warnings = result.warnings
            if theirs.n_cut > result.n_cut:
                warnings += (
                    f"{info.name}, the reference model, reads {theirs.n_cut} of "
                    f"{theirs.n_examples} examples cut to its context, so it may miss "
                    "what the model reads: --max-example-tokens cuts both alike",
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
