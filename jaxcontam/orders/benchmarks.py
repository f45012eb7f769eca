"""Files of an audit: read in published order, and their order checked."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from jaxcontam.data.answer_options import Item, read_items
from jaxcontam.data.benchmark import (
    Benchmark,
    check_text,
    load_benchmark,
    without_repeats,
)
from jaxcontam.data.encoding import Encoded
from jaxcontam.data.files import TASK_PREFIX
from jaxcontam.data.release import check_release
from jaxcontam.data.templates import whole_row_words
from jaxcontam.errors import InputError
from jaxcontam.orders.design import AuditDesign
from jaxcontam.orders.methods import TESTS, methods_to_score
from jaxcontam.orders.order_test import TestMethod, check_number
from jaxcontam.proof.result import DECLARED, DESIGNED, RELEASED, UnscoredFile, refusals
from jaxcontam.reports.terms import Null
from jaxcontam.stats.pretests import columns, pretest_battery
from jaxcontam.stats.result import Pretest

HEAD = 5_000
"""Examples that a first look at the order of a file reads; all may take a minute."""

Texts = str | Path | Benchmark | Sequence[str] | Sequence[Path | Benchmark]
"""A file or hub name; strings in published order; or several files."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AuditFiles:
    """Files as read; `items` are questions and options by the name of their file."""

    benchmarks: tuple[Benchmark, ...]
    items: Mapping[str, list[Item]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CheckedFiles:
    """Files whose order was checked.

    Attributes:
        unscored: Files that are not worth a pass.
        notes: How files were read, and what of them was checked, if not all.
    """

    benchmarks: tuple[Benchmark, ...]
    pretests: Mapping[str, tuple[Pretest, ...]]
    n_repeats: Mapping[str, int]
    unscored: tuple[UnscoredFile, ...]
    notes: tuple[str, ...] = ()


def read_files(texts: Texts, design: AuditDesign) -> AuditFiles:
    """Read every file, or take texts that are there."""
    sources = _sources(texts)
    design.check_files(len(sources))
    benchmarks, items = [], {}
    for i, source in enumerate(sources):
        benchmark = _read(source, design)
        if design.seed_files:
            if isinstance(source, Benchmark):
                raise InputError("a seed file goes with a file that was released")
            sealed = check_release(
                Path(source), design.seed_files[i], no_header=design.no_header
            )
            benchmark = dataclasses.replace(
                benchmark, order_provenance=RELEASED, commitments=(sealed,)
            )
        elif design.shuffled and not design.decides_by_options:
            benchmark = dataclasses.replace(benchmark, order_provenance=DECLARED)
        if design.group_field is not None:
            # Report mistakes before a model loads.
            benchmark.groups(design.group_field)
        if design.tests_options:
            items[benchmark.name] = _items(source, design)
        benchmarks.append(benchmark)
    names = [benchmark.name for benchmark in benchmarks]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(
            f"two benchmarks are named {min(repeated)!r}", hint="rename a file"
        )
    return AuditFiles(tuple(benchmarks), items)


def check_files(
    files: AuditFiles,
    design: AuditDesign,
    *,
    most: int | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> CheckedFiles:
    """Leave out repeats, run the pre-tests, and say what is to be scored.

    Needs no model. What `options` asks does not depend on the order of the file. The
    pre-tests read the first `most` examples of each file, or all.
    """
    if design.tests_options_alone:
        return CheckedFiles(files.benchmarks, {}, {}, ())
    kept, unscored, n_repeats, pretests, notes = [], [], {}, {}, []
    for benchmark in files.benchmarks:
        # Blocks keep what they hold, repeats too.
        is_blocks = design.block_field is not None
        file = benchmark if is_blocks else without_repeats(benchmark)
        n_repeats[file.name] = n = len(benchmark) - len(file)
        pretests[file.name] = checks = order_checks(
            file,
            design,
            most=most,
            say=lambda words, name=file.name: say(f"checking {name}: {words}"),
        )
        notes += [f"{file.name}: {words}" for words in file.left_out]
        if most is not None and len(file) > most:
            notes.append(
                f"{file.name}: checks read the first {most:,} of {len(file):,} "
                "examples here; audit checks all"
            )
        refused = _refused(file, checks, design.test_names[0], n)
        if refused is None or design.score_anyway or design.tests_options:
            kept.append(file)
            _check_number(file, design, unit="different example" if n else "example")
        else:
            unscored.append(refused)
    return CheckedFiles(tuple(kept), pretests, n_repeats, tuple(unscored), tuple(notes))


def _check_number(file: Benchmark, design: AuditDesign, *, unit: str) -> None:
    n = len(file)
    if design.block_field is not None:
        n, unit = len(block_starts(file, design.block_field)), "block"
    for method in methods_to_score(design.test_names):
        if isinstance(method, TestMethod):
            check_number(file.name, n, method, unit=unit)


def order_checks(
    benchmark: Benchmark,
    design: AuditDesign,
    *,
    most: int | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> tuple[Pretest, ...]:
    """The battery on a file as it is tested: in groups, or with blocks for examples."""
    group_field = design.group_field
    if design.block_field is not None:
        benchmark = as_blocks(benchmark, block_starts(benchmark, design.block_field))
    benchmark = dataclasses.replace(
        benchmark, texts=benchmark.texts[:most], rows=benchmark.rows[:most]
    )
    groups = None if group_field is None else benchmark.groups(group_field)
    read = benchmark.texts, columns(benchmark.rows)
    return pretest_battery(*read, seed=design.seed, groups=groups, say=say)


def _sources(texts: Texts) -> list[str | Path | Benchmark]:
    if isinstance(texts, str | Path | Benchmark):
        return [texts]
    found = list(texts)
    if found and all(isinstance(text, str) for text in found):
        for i, text in enumerate(found):
            check_text(str(text), f"example {i + 1}")
        return [Benchmark("texts", tuple(map(str, found)), (None,) * len(found))]
    if all(isinstance(source, Path | Benchmark) for source in found):
        return found
    raise InputError(
        "texts must be strings in published order, a path, or several paths",
        hint="[Path('a.jsonl'), Path('b.jsonl')] names two files",
    )


def _read(source: str | Path | Benchmark, design: AuditDesign) -> Benchmark:
    if isinstance(source, Benchmark):
        if design.text is not None:
            raise InputError("--text goes with files", hint="leave it out for texts")
        benchmark = dataclasses.replace(
            source, texts=source.texts[: design.limit], rows=source.rows[: design.limit]
        )
        if not len(benchmark):
            raise InputError(f"{source.name}: no examples", hint="nothing to test")
    else:
        benchmark = load_benchmark(
            source,
            # The template of options may hold {options}, which no field is called.
            template=None if design.tests_options_alone else design.template,
            text_field=design.text_field,
            no_header=design.no_header,
            limit=None if design.block_field else design.limit,
        )
        if design.text is None and not str(source).startswith(TASK_PREFIX):
            words = (*benchmark.left_out, *whole_row_words(benchmark.rows))
            benchmark = dataclasses.replace(benchmark, left_out=words)
    if design.block_field is not None:
        limit = len(benchmark) if design.limit is None else design.limit
        benchmark = whole_blocks(benchmark, design.block_field, limit)
    return benchmark


def _items(source: str | Path | Benchmark, design: AuditDesign) -> list[Item]:
    file = source
    if not isinstance(file, Benchmark):
        file = load_benchmark(file, limit=design.limit, no_header=design.no_header)
    return read_items(
        file,
        options_field=design.named("options"),
        answer_field=design.named("answer"),
        template=design.template,
    )


def _refused(
    benchmark: Benchmark, pretests: Sequence[Pretest], method: str, n_repeats: int
) -> UnscoredFile | None:
    null = cast(Null, TESTS[method].null)
    is_drawn = null == DESIGNED or benchmark.order_provenance in ("seeded", RELEASED)
    if is_drawn or not refusals(null, pretests):
        return None
    return UnscoredFile(
        benchmark=benchmark.name,
        fingerprint=benchmark.fingerprint,
        order_provenance=benchmark.order_provenance,
        n_examples=len(benchmark),
        n_repeats=n_repeats,
        method=method,
        null=null,
        pretests=tuple(pretests),
        verdict="invalid design",
    )


def block_starts(benchmark: Benchmark, field: str) -> np.ndarray:
    """Index of the first example of each run of equal values, (B,) int64.

    Refuses a value in two separate runs: other orders of such blocks would join them,
    so the published order is not one of the orders that it is compared with.
    """
    values = benchmark.groups(field, flag="--block-field")
    starts = [i for i, v in enumerate(values) if i == 0 or v != values[i - 1]]
    seen: dict[object, int] = {}
    for start in starts:
        if (first := seen.setdefault(values[start], start)) != start:
            raise InputError(
                f"{benchmark.name}: {field} is {values[start]!r} in two separate runs, "
                f"at examples {first + 1} and {start + 1}",
                hint="keep blocks whole; to permute within equal values use "
                f"--group-field {field}",
            )
    return np.array(starts, np.int64)


def whole_blocks(benchmark: Benchmark, field: str, limit: int) -> Benchmark:
    """The first examples, up to the last block that ends within the limit.

    A truncated block would always be last in the published order, and anywhere in
    another one.
    """
    ends = np.append(block_starts(benchmark, field)[1:], len(benchmark))
    kept = ends[ends <= limit]
    if not len(kept):
        raise InputError(
            f"{benchmark.name}: the first block of {field} has {ends[0]} examples",
            hint=f"--limit {ends[0]} or more",
        )
    n = int(kept[-1])
    return dataclasses.replace(
        benchmark, texts=benchmark.texts[:n], rows=benchmark.rows[:n]
    )


def as_blocks(benchmark: Benchmark, starts_B: np.ndarray) -> Benchmark:
    """A benchmark whose examples are blocks, with the fields that a block shares."""
    parts = _runs(starts_B, len(benchmark))
    texts = tuple("\n".join(benchmark.texts[i] for i in part) for part in parts)
    rows = tuple(_shared([benchmark.rows[i] for i in part]) for part in parts)
    return dataclasses.replace(benchmark, texts=texts, rows=rows)


def encoded_blocks(encoded: Encoded, starts_B: np.ndarray) -> Encoded:
    """Ids of blocks: those of their examples, each with its separator."""
    parts = _runs(starts_B, len(encoded.ids))
    return dataclasses.replace(
        encoded,
        ids=tuple(np.concatenate([encoded.ids[i] for i in part]) for part in parts),
        n_cut_ids=np.add.reduceat(encoded.n_cut_ids, starts_B, dtype=np.int32),
    )


def _runs(starts_B: np.ndarray, n: int) -> list[np.ndarray]:
    return np.split(np.arange(n), starts_B[1:])


def _shared(rows: list[dict[str, object] | None]) -> dict[str, object] | None:
    """Fields with the same value in all records of a block."""
    first = rows[0]
    if first is None:
        return None
    return {
        name: value
        for name, value in first.items()
        if all(row is not None and row.get(name) == value for row in rows)
    }
