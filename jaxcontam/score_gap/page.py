"""Reports of `jaxcontam inflation`: sentences, tables, the page and the check."""

from typing import Any

from jaxcontam.reports.methods import MethodWords
from jaxcontam.reports.numbers import (
    interval_of,
    interval_words,
    plain_p,
    shown_or_dash,
)
from jaxcontam.reports.page import (
    THIS_ONE,
    Code,
    Figure,
    Items,
    Page,
    PageWords,
    Paragraph,
    Section,
    Table,
    report_page,
)
from jaxcontam.reports.recompute import Rebuilt, Row, kind_of_texts
from jaxcontam.reports.report import Report
from jaxcontam.score_gap.judging import COMMAND, InflationDesign, judged_inflation
from jaxcontam.score_gap.result import (
    InflationEstimate,
    InflationReport,
    InflationResult,
)

_WORDS = PageWords(
    assumed=(
        "That a model which saw neither side would differ between them as the "
        "references do, or, where the user vouches for the other items, not at all.",
        "That the references saw neither side and are one a family: references that "
        "are relatives of each other, and not of the model, differ too little.",
        "That items are independent draws, or groups of them where the report names "
        "groups: questions about one passage are one draw.",
        "That nobody trained on the other items, nor on texts made from them.",
    ),
    limits=(
        "What having read an item does for its rewrite as well is not counted: where a "
        "model learned the answer and not the wording, the true inflation is larger.",
        "No inflation found does not say that the items were not read. They may have "
        "been, to no effect on this score.",
        "Inflated does not say how: training on the items, on pages that quote them, "
        "or many choices made by this very score all have this effect.",
        THIS_ONE,
    ),
)

_GAPS = (
    "Published less other score of each model, and below them what is left for "
    "contamination by each estimator, in points with 95 % intervals. References are "
    "grey."
)
_CHECK = (
    Code("jaxcontam verify DIR"),
    " computes every estimate and the verdict again from ",
    Code("texts.jsonl"),
    " beside this file, which holds each item with its scores; no model is needed.",
)
_WHY = {
    "no reference": "Nothing shows that the other items are as hard as the published "
    "ones: --references names models that saw neither, --equally-hard vouches for them",
    "one reference": "One reference does not show how much models differ by "
    "themselves: name two, or better five",
    "outside": "On the other items the model scores outside the references, so these "
    "items may be harder for it by more, or by less, than for them: name references "
    "that score above it and below",
    "items": "More items (or groups of them), ten at least, or items in pairs, would "
    "tell",
    "references": "More references, or such as are more like the model, would tell",
}
_ESTIMATORS = {
    "gap": "the model alone",
    "difference in differences": "less the references",
    "constat": "against the references' curve (ConStat)",
}
# z: what rounds to -0.0 is 0.0.
_SIGNED = "+z.1f"
WORDS = {
    COMMAND: MethodWords(
        name=COMMAND,
        finds="points that a score gains by having been seen, and by no rewrite of it",
        source="difference in differences with an interval of Agresti's kind; "
        "ConStat: arXiv:2405.16281, with departures that its docstring lists",
    )
}
"""Words of reports for the method."""


def inflation_page(report: Report) -> Page:
    """The page of a run of `inflation`."""
    (result,) = (row for row in report.results if isinstance(row, InflationResult))
    accuracies, estimates = inflation_tables(result)
    first, *others = inflation_sentences(result)
    figure = Figure(_gaps_svg(result), _GAPS)
    sections = [
        Section([Paragraph(first, "headline"), Items(others)]),
        Section([estimates, figure], "Points"),
        Section([accuracies], "Scores"),
    ]
    return report_page(
        report,
        sections,
        WORDS,
        title=f"Inflation: {result.accuracies[0].model} on {result.benchmark}",
        kind=_WORDS,
        check=_CHECK,
        verdict=result.verdict,
    )


def inflation_tables(result: InflationResult) -> tuple[Table, Table]:
    """Scores of each model on both sides, and estimates."""
    scores = [
        [
            one.model,
            "reference" if one.reference else "in question",
            f"{one.published:.1%}",
            f"{one.other:.1%}",
            interval_of(one, "gap", _SIGNED),
        ]
        for one in result.accuracies
    ]
    header = ("model", "role", "published", "other", "difference (95 %)")
    estimates = []
    for one in result.estimates:
        p, mde = plain_p(one.p_value), shown_or_dash(one.mde, ".1f")
        estimates.append([_ESTIMATORS[one.estimator], _points(one), p, mde])
    columns = ("inflation", "points (95 %)", "p", "would be found")
    looks = ["primary", *[""] * (len(estimates) - 1)]
    return (
        Table(header, scores, "scores", words=(1,)),
        Table(columns, estimates, "estimates", looks=looks),
    )


def inflation_sentences(result: InflationResult) -> list[str]:
    """The verdict, what it rests on, and what speaks against it."""
    found, model = result.decides, result.accuracies[0].model

    n = f"{result.n_published:,} pairs"
    if not result.paired:
        n = f"{result.n_published:,} published and {result.n_other:,} other items"
    points = f"{_points(found)} points"
    meaning = f"the estimate is {points}"
    if result.verdict == "inflated":
        meaning = f"{points} of the published score are missing on unseen items"
    elif result.verdict == "cannot tell":
        meaning += f"; {result.min_points:g} would matter"
    sentences = [
        f"{result.verdict.capitalize()}: {meaning}.",
        f"{result.metric.capitalize()} on {n} of {result.benchmark} against "
        f"{result.against}: {model} scores {result.accuracies[0].published:.1%} and "
        f"{result.accuracies[0].other:.1%}.",
    ]
    if found.mde is not None:
        could = f"An inflation of {found.mde:.1f} points would have been found"
        if found.mde > 100:
            could = "No inflation at all would have been found"
        drawn = "items" if result.n_groups is None else "these groups of items"
        beside = "the other items are as hard"
        if len(result.accuracies) > 1 and not result.equally_hard:
            beside = "the references are one a family"
        sentences.append(
            f"{could} with a chance of 0.8; of models without any, one in forty is "
            f"called inflated, if {drawn} are independent draws and {beside}."
        )
    if result.n_groups is not None:
        named = "" if result.group_field is None else f" of equal {result.group_field}"
        sentences.append(
            f"Items are taken as drawn in groups{named}: {result.n_groups:,} of them"
            f"{' on the side that has fewer' * (not result.paired)}."
        )
    if result.reason:
        sentences.append(f"{_WHY[result.reason]}.")
    if found.spread is not None and found.rests_on == "models":
        sentences.append(
            f"The differences of the references vary by {found.spread:.1f} points "
            "(standard deviation), and the interval is as wide as that asks for."
        )
    return [*sentences, *(f"Note: {warning}." for warning in result.warnings)]


def _points(one: InflationEstimate) -> str:
    return interval_words(one.points, one.low, one.high, _SIGNED)


def _gaps_svg(result: InflationResult) -> str:
    # matplotlib takes a third of a second to import: only for a page.
    from jaxcontam.reports.figure import (
        BLUE,
        GREY,
        ORANGE,
        Interval,
        interval_row,
        intervals_plot,
    )

    colours, group = {True: GREY, False: BLUE}, "published less other"
    rows = [
        interval_row(one, "gap", one.model, colours[one.reference], group)
        for one in result.accuracies
    ]
    rows += [
        Interval(
            name=_ESTIMATORS[one.estimator],
            value=one.points,
            low=one.low,
            high=one.high,
            colour=ORANGE,
            group="inflation",
        )
        for one in result.estimates
    ]
    return intervals_plot(rows, "points", nothing=0.0)


def _again(document: Row, rows: list[dict[str, Any]]) -> Rebuilt:
    """Accuracies, estimates and the verdict of a report of inflation."""
    (stated,) = document["results"]
    names = ("benchmark", "against", "metric", "chance")
    design = InflationDesign.said(document["command"], document["seed"])
    models = [row["model"] for row in stated["accuracies"]]
    known = {name: stated[name] for name in names}
    return {"results": [judged_inflation(rows, models, design, **known)]}


INFLATION = kind_of_texts(
    report=InflationReport,
    words=lambda report: WORDS,
    page=lambda report, directory: inflation_page(report),
    rebuild=_again,
    checked="accuracies, estimates, intervals, the verdict and digests agree; the "
    "scores themselves need the models and were not computed again",
    skip=("warnings",),
)
