"""Several models or checkpoints side by side: comparison.html and comparison.csv."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from jaxcontam.report.comparison_kinds import RANKING, ComparedKind
from jaxcontam.report.figure import BLUE, GREY, ORANGE
from jaxcontam.report.numbers import effect_words, interval_words, p_words
from jaxcontam.report.page import method_rows
from jaxcontam.report.section import (
    Badge,
    Cell,
    Code,
    Figure,
    Items,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
)
from jaxcontam.results import ModelInfo, OrderResult, Report
from jaxcontam.results.comparison import ComparedTest
from jaxcontam.results.membership import ScoreResult
from jaxcontam.results.terms import Words

PAGE_NAME, TABLE_NAME = "comparison.html", "comparison.csv"

_MODEL = {"dtype": "number format", "precision": "precision"}
_ADJUSTED = (
    "Adjusted: Holm over the benchmarks of one report, on which its verdict rests; "
    "over all: Holm over all tests of this page. "
)
_INTERVALS = (
    " An interval is no test: verdicts rest on the p-values. Two models whose "
    "intervals overlap may still differ, and the other way round."
)
_CHECK = (
    "Each report has its own page, with assumptions and checks; ",
    Code("jaxcontam verify DIR"),
    " recomputes it. ",
    Code("comparison.csv"),
    " beside this file holds the numbers of this page.",
)
# Told apart by shape and filling as well as by colour.
_LOOKS = {
    "contaminated": (ORANGE, "o", "full"),
    "suspected": (ORANGE, "o", "none"),
    "invalid design": (GREY, "x", "full"),
    "confounded": (GREY, "x", "full"),
}
_OTHER = (BLUE, "s", "none")


def design_of(
    report: Report,
    model: ModelInfo,
    result: OrderResult | ScoreResult,
    kind: ComparedKind,
) -> dict[str, object]:
    """What must be the same for two tests of a benchmark to be comparable.

    Args:
        report: Of the test.
        model: That was tested.
        result: The test.
        kind: Of the result.
    """
    command = list(report.command)
    fields = dataclasses.asdict(result)
    fields |= fields.pop("numbers", {})
    design = {words: fields[name] for name, words in kind.design.items()}
    design["seed"] = report.seed
    for flag, words in kind.flags.items():
        design[words] = None
        if flag in command:
            after = command[command.index(flag) + 1 :]
            values = itertools.takewhile(lambda word: not word.startswith("--"), after)
            design[words] = " ".join(values)
    return design | {words: getattr(model, name) for name, words in _MODEL.items()}


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


def comparison_page(
    tests: Sequence[ComparedTest],
    *,
    kind: ComparedKind,
    sentences: Sequence[str],
    warnings: Sequence[str],
    command: str,
    words: Words,
) -> Page:
    """The page of a comparison.

    Args:
        tests: At least one; models and benchmarks in the order in which they appear.
        kind: Of all tests.
        sentences: See `comparison_sentences`.
        warnings: What makes numbers not comparable, one sentence each.
        command: The line that made it.
        words: Of the tests.
    """
    models, benchmarks = _names(tests, "model"), _names(tests, "benchmark")
    by_place = {(test.benchmark, test.model): test for test in tests}
    *lines, counted = sentences
    rows: list[list[Cell]] = [
        [name, *(_cell(by_place.get((name, model)), kind) for model in models)]
        for name in benchmarks
    ]
    label = "results by benchmark and model"
    columns = range(1, len(models) + 1)
    units = " or ".join(_names(tests, "effect_unit"))
    sections = [
        Section(
            [
                Items(lines),
                *(Paragraph(f"Note: {warning}.", "lead") for warning in warnings),
            ]
        ),
        Section(
            [
                Table(["benchmark", *models], rows, label, words=columns),
                Paragraph(_ADJUSTED + kind.unit.format(units), "quiet"),
            ],
            "Results",
        ),
        *_effects(tests, kind),
    ]
    methods = [words[name] for name in _names(tests, "method") if name in words]
    return Page(
        title=f"Comparison of {_count(models, 'model')}",
        subtitle=counted,
        sections=sections,
        assumed=kind.words.assumed,
        methods=method_rows(methods),
        limits=kind.words.limits,
        command=command,
        check=_CHECK,
        provenance=_provenance(tests),
    )


def _cell(test: ComparedTest | None, kind: ComparedKind) -> Cell:
    if test is None:
        return "not tested"
    effect = effect_words(test.effect, test.effect_se)
    lines = []
    if kind is RANKING:
        # Intervals of an AUC are not symmetrical.
        effect = interval_words(test.effect, test.effect_low, test.effect_high)
    else:
        lines = [f"detectable {'-' if test.mde is None else f'{test.mde:.2g}'}"]
    return (
        Badge(test.verdict),
        p_words(test.log10_p, test.validity or "exact"),
        f"adjusted {test.p_adjusted:.2g}",
        f"over all {test.p_adjusted_all:.2g}",
        f"{kind.effect} {effect}",
        *lines,
    )


def _effects(tests: Sequence[ComparedTest], kind: ComparedKind) -> list[Section]:
    """Effect of every test with its interval; nothing if none has an effect."""
    from jaxcontam.report.text_plots import Interval, intervals_plot

    rows = [
        Interval(
            name=test.model,
            group=name,
            value=test.effect,
            low=test.effect_low,
            high=test.effect_high,
            look=_LOOKS.get(test.verdict, _OTHER),
            label=test.verdict,
        )
        for name in _names(tests, "benchmark")
        for test in tests
        if test.benchmark == name and test.effect is not None
    ]
    if not rows:
        return []
    unit = " or ".join(_names(tests, "effect_unit"))
    xlabel = unit if kind is RANKING else f"effect, {unit}"
    svg = intervals_plot(rows, xlabel, nothing=kind.nothing)
    parts: list[Part] = [Figure(svg, kind.caption + _INTERVALS)]
    return [Section(parts, "Effects")]


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
