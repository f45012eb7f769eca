"""Several models or checkpoints side by side: comparison.html and comparison.csv."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from jaxcontam.report.figure import BLUE, GREY, ORANGE
from jaxcontam.report.numbers import effect_words, interval_words, p_words
from jaxcontam.report.page import method_rows
from jaxcontam.report.page_words import ORDER_COMPARISON, RANKING_COMPARISON, PageWords
from jaxcontam.report.section import (
    Badge,
    Cell,
    Code,
    Figure,
    Items,
    Page,
    Paragraph,
    Section,
    Table,
)
from jaxcontam.report.table_csv import result_row
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
    "members rank higher": (ORANGE, "o", "full"),
    "may rank higher": (ORANGE, "o", "none"),
    "invalid design": (GREY, "x", "full"),
    "confounded": (GREY, "x", "full"),
}
_OTHER = (BLUE, "s", "none")
_STRONGEST = ("contaminated", "members rank higher")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ComparedKind:
    """What the tests of one comparison share.

    Attributes:
        name: Of the tests, in a sentence.
        design: Field of a result -> words for it. Where two results of one benchmark
            differ in one of them, their numbers mean other things.
        flags: Flag of the command -> words for it, likewise.
        effect: What its effect is called.
        nothing: Value of the effect where there is none.
        unit: Sentence about the numbers of a table; `{}` stands for their unit.
        caption: Sentence about the figure.
        words: Of the page.
    """

    name: str
    design: Mapping[str, str]
    flags: Mapping[str, str]
    effect: str
    nothing: float
    unit: str
    caption: str
    words: PageWords


_FLAGS = {
    "--template": "template",
    "--text-field": "text field",
    "--limit": "limit",
}

ORDER = ComparedKind(
    name="order tests",
    design={
        "fingerprint": "examples or their order",
        "method": "test",
        "null": "null",
        "n_strata": "strata",
        "n_orders": "orders",
        "n_cut": "examples cut",
        "group_field": "group field",
        "block_field": "block field",
        "scores": "kind of scores",
        "first_tokens": "first tokens",
        "effect_unit": "unit of the effect",
    },
    flags=_FLAGS
    | {"--separator": "separator", "--max-example-tokens": "longest example"},
    effect="effect",
    nothing=0.0,
    unit="Effects and what was detectable are in {}.",
    caption="Gain of the published order with its 95 % interval, one line a model.",
    words=ORDER_COMPARISON,
)
RANKING = ComparedKind(
    name="rankings of texts",
    design={
        "fingerprint": "texts or their labels",
        "method": "score",
        "setting": "setting of the score",
        "n_members": "members",
        "n_nonmembers": "non-members",
    },
    flags=_FLAGS
    | {
        "--length": "length",
        "--label-field": "label field",
        "--document-field": "document field",
        "--reference": "reference model",
        "--corpus": "corpus",
        "--masked-lm": "masked model",
        "--n-neighbours": "neighbours",
        "--shots": "shots",
    },
    effect="AUC",
    nothing=0.5,
    unit="AUC: how often a member scores above a non-member, with its 95 % interval.",
    caption="AUC with its 95 % interval, one line a model; at the black line members "
    "and non-members are mixed.",
    words=RANKING_COMPARISON,
)


def design_of(
    report: Report,
    model: ModelInfo,
    result: OrderResult | ScoreResult,
    kind: ComparedKind,
) -> dict[str, object]:
    """What must be the same for two tests of a benchmark to be comparable."""
    command = list(report.command)
    fields = result_row(result)
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
    told = []
    for name, first in designs[0].items():
        if all(design[name] == first for design in designs):
            continue
        values = list(dict.fromkeys(str(design[name]) for design in designs))
        # Digests tell a reader nothing.
        is_digest = any(value.startswith("sha256:") for value in values)
        told.append(name if is_digest else f"{name}: {' and '.join(values)}")
    return "; ".join(told)


def difference_sentences(differences: Mapping[str, str]) -> list[str]:
    """Which benchmarks were not tested alike; one sentence a kind of difference."""
    return [
        f"{', '.join(name for name, other in differences.items() if other == words)}: "
        f"not comparable, not tested alike ({words})"
        for words in dict.fromkeys(differences.values())
        if words
    ]


def comparison_sentences(tests: Sequence[ComparedTest], level: float) -> list[str]:
    """A line a benchmark, and one about the number of tests."""
    lines = []
    for benchmark in _names(tests, "benchmark"):
        own = [test for test in tests if test.benchmark == benchmark]
        told = [
            f"{verdict} in {', '.join(t.model for t in own if t.verdict == verdict)}"
            for verdict in _names(own, "verdict")
        ]
        lines.append(f"{benchmark}: {'; '.join(told)}.")
    found = [test for test in tests if test.verdict in _STRONGEST]
    kept = sum(test.p_adjusted_all <= level for test in found)
    benchmarks = _count(_names(tests, "benchmark"), "benchmark")
    models = _count(_names(tests, "model_fingerprint"), "model")
    lines.append(
        f"{len(tests)} tests were made: {benchmarks}, {models}. Verdicts are those of "
        "the reports, each corrected for its own benchmarks alone. "
    )
    if not found:
        lines[-1] += "None has the strongest verdict."
        return lines
    lines[-1] += (
        f"Corrected for all {len(tests)} tests (Holm), {kept} of {len(found)} with the "
        f"strongest verdict stay at or below {level:g}."
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
    """The page of a comparison; models and benchmarks in the order they appear in."""
    models, benchmarks = _names(tests, "model"), _names(tests, "benchmark")
    by_place = {(test.benchmark, test.model): test for test in tests}
    *lines, counted = sentences
    rows: list[list[Cell]] = [
        [name, *(_cell(by_place.get((name, model)), kind) for model in models)]
        for name in benchmarks
    ]
    header, label = ["benchmark", *models], "results by benchmark and model"
    table = Table(header, rows, label, words=range(1, len(header)))
    units = _ADJUSTED + kind.unit.format(" or ".join(_names(tests, "effect_unit")))
    notes = [Paragraph(f"Note: {warning}.", "lead") for warning in warnings]
    sections = [
        Section([Items(lines), *notes]),
        Section([table, Paragraph(units, "quiet")], "Results"),
        *_effects(tests, kind),
    ]
    methods = [words[name] for name in _names(tests, "method") if name in words]
    return Page(
        title=f"Comparison of {_count(_names(tests, 'model_fingerprint'), 'model')}",
        subtitle=counted,
        sections=sections,
        kind=kind.words,
        methods=method_rows(methods),
        command=command,
        check=_CHECK,
        provenance=_provenance(tests),
    )


def _cell(test: ComparedTest | None, kind: ComparedKind) -> Cell:
    if test is None:
        return "not tested"
    # Intervals of an AUC are not symmetrical.
    effect = interval_words(test.effect, test.effect_low, test.effect_high)
    lines = []
    if kind is ORDER:
        effect = effect_words(test.effect, test.effect_se)
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
    from jaxcontam.report.plots import Interval, intervals_plot

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
    return [Section([Figure(svg, kind.caption + _INTERVALS)], "Effects")]


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
