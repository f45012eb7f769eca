"""Several models or checkpoints side by side: comparison.html and comparison.csv."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.report.comparison_kinds import RANKING, ComparedKind
from jaxcontam.report.document import make_folder, replace_files
from jaxcontam.report.sentences import effect_words, p_words
from jaxcontam.report.table_csv import csv_text
from jaxcontam.report.template import MethodNote, render_fields
from jaxcontam.results.comparison import ComparedTest

PAGE_NAME, TABLE_NAME = "comparison.html", "comparison.csv"

_MODEL = {"dtype": "number format", "precision": "precision"}

Row = Mapping[str, Any]


def design_of(document: Row, row: Row, kind: ComparedKind) -> dict[str, object]:
    """What must be the same for two tests of a benchmark to be comparable.

    Args:
        document: As in `report.json`.
        row: One of its results.
        kind: Of the result.
    """
    command = list(document["command"])
    design = {words: row[name] for name, words in kind.design.items()}
    design["seed"] = document["seed"]
    for flag, words in kind.flags.items():
        design[words] = None
        if flag in command:
            after = command[command.index(flag) + 1 :]
            values = itertools.takewhile(lambda word: not word.startswith("--"), after)
            design[words] = " ".join(values)
    return design | {words: document["model"][name] for name, words in _MODEL.items()}


def difference_words(designs: Sequence[Mapping[str, object]]) -> str:
    """In what tests of one benchmark differ; "" if they do not."""
    names = [
        name
        for name in designs[0]
        if any(design[name] != designs[0][name] for design in designs)
    ]
    told = []
    for name in names:
        values = list(dict.fromkeys(str(design[name]) for design in designs))
        # Digests tell a reader nothing.
        is_digest = any(value.startswith("sha256:") for value in values)
        told.append(name if is_digest else f"{name}: {' and '.join(values)}")
    return "; ".join(told)


def difference_sentences(differences: Mapping[str, str]) -> list[str]:
    """Says which benchmarks were not tested alike; one sentence a kind of difference.

    Args:
        differences: Benchmark -> see `difference_words`.
    """
    benchmarks: dict[str, list[str]] = {}
    for benchmark, words in differences.items():
        if words:
            benchmarks.setdefault(words, []).append(benchmark)
    return [
        f"{', '.join(names)}: not comparable, the models were not tested alike "
        f"({words})"
        for words, names in benchmarks.items()
    ]


def comparison_sentences(tests: Sequence[ComparedTest], level: float) -> list[str]:
    """A line a benchmark, and one about the number of tests.

    Args:
        tests: At least one.
        level: At or below which an adjusted p-value is called contaminated.
    """
    lines = []
    for benchmark in _names(tests, "benchmark"):
        by_verdict: dict[str, list[str]] = {}
        for test in tests:
            if test.benchmark == benchmark:
                by_verdict.setdefault(test.verdict, []).append(test.model)
        told = [f"{verdict} in {', '.join(m)}" for verdict, m in by_verdict.items()]
        lines.append(f"{benchmark}: {'; '.join(told)}.")
    found = [test for test in tests if test.verdict == "contaminated"]
    kept = sum(test.p_adjusted_all <= level for test in found)
    benchmarks = _count(_names(tests, "benchmark"), "benchmark")
    models = _count(_names(tests, "model"), "model")
    lines.append(
        f"{len(tests)} tests were made: {benchmarks}, {models}. Verdicts are those of "
        "the reports, each corrected for its own benchmarks alone. Corrected for all "
        f"{len(tests)} tests (Holm), {kept} of {len(found)} that are called "
        f"contaminated stay at or below {level:g}."
    )
    if n_unable := sum(test.p_adjusted_floor > level for test in found):
        lines[-1] += (
            f" Of these, {n_unable} could not stay there whatever the evidence: "
            f"p-values as small as tests like these can give are too large for "
            f"{len(tests)} of them."
        )
    return lines


def write_comparison(
    tests: Sequence[ComparedTest],
    out: Path,
    *,
    kind: ComparedKind,
    sentences: Sequence[str],
    warnings: Sequence[str],
    command: str,
    methods: Sequence[MethodNote],
) -> Path:
    """Write comparison.csv and comparison.html; returns the page's path.

    Args:
        tests: At least one; models and benchmarks in the order in which they appear.
        out: Folder, created if missing.
        kind: Of all tests.
        sentences: See `comparison_sentences`.
        warnings: What makes numbers not comparable, one sentence each.
        command: The line that made it.
        methods: The tests.
    """
    from jaxcontam.report.comparison_plot import effects_plot

    models, benchmarks = _names(tests, "model"), _names(tests, "benchmark")
    by_place = {(test.benchmark, test.model): test for test in tests}
    *lines, counted = sentences
    fields = {
        "title": f"Comparison of {_count(models, 'model')}",
        "subtitle": counted,
        "lines": lines,
        "warnings": warnings,
        "models": models,
        "rows": [
            (name, [_cell(by_place.get((name, model)), kind) for model in models])
            for name in benchmarks
        ],
        "kind": kind,
        "unit": kind.unit.format(" or ".join(_names(tests, "effect_unit"))),
        "effects_svg": effects_plot(tests, nothing=kind.nothing),
        "methods": [[note.name, note.finds, note.source] for note in methods],
        "words": kind.words,
        "command": command,
        "provenance": _provenance(tests),
    }
    make_folder(out)
    page = render_fields("comparison.html.j2", fields)
    table = csv_text([dataclasses.asdict(test) for test in tests])
    replace_files({out / TABLE_NAME: table.encode(), out / PAGE_NAME: page.encode()})
    return out / PAGE_NAME


def _cell(test: ComparedTest | None, kind: ComparedKind) -> dict[str, str] | None:
    if test is None:
        return None
    fields = dataclasses.asdict(test)
    effect = effect_words(fields)
    if kind is RANKING and test.effect_low is not None:
        # Intervals of an AUC are not symmetrical.
        effect = f"{test.effect:.2f} ({test.effect_low:.2f} to {test.effect_high:.2f})"
    return {
        "verdict": test.verdict,
        "p": p_words(fields),
        "adjusted": f"{test.p_adjusted:.2g}",
        "adjusted_all": f"{test.p_adjusted_all:.2g}",
        "effect": f"{kind.effect} {effect}",
        "mde": ""
        if kind is RANKING
        else f"detectable {'-' if test.mde is None else f'{test.mde:.2g}'}",
    }


def _provenance(tests: Sequence[ComparedTest]) -> list[tuple[str, str]]:
    rows = {test.model: test.model_fingerprint for test in tests}
    rows |= {f"report {test.report}": test.model for test in tests}
    # One digest where all models were tested on one file.
    for name in _names(tests, "benchmark"):
        digests = [t.benchmark_fingerprint for t in tests if t.benchmark == name]
        rows[f"digest of {name}"] = ", ".join(dict.fromkeys(digests))
    return list(rows.items())


def _names(tests: Sequence[ComparedTest], field: str) -> list[str]:
    return list(dict.fromkeys(getattr(test, field) for test in tests))


def _count(names: Sequence[str], noun: str) -> str:
    return f"{len(names)} {noun}{'s' * (len(names) != 1)}"
