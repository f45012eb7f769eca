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
from jaxcontam.score_gap.flags import InflationDesign
from jaxcontam.score_gap.judging import COMMAND, judged_inflation
from jaxcontam.score_gap.result import (
    InflationEstimate,
    InflationReport,
    InflationResult,
)

_WORDS = PageWords(
    assumed=(
        "That a model that saw neither side would differ between them as the "
        "references do, or, if the user vouches for the other items, not at all.",
        "That the references saw neither side and are of different families: "
        "references that are related to each other, and not to the model, differ too "
        "little.",
        "That items (or groups, if the report names groups) are independent draws: "
        "questions about one passage are one draw.",
        "That no model was trained on the other items, or on texts made from them.",
    ),
    limits=(
        "What a model gains on the rewrite too is not counted: if it learned the "
        "answer, not only the wording, the true inflation is larger.",
        "No inflation found does not say that the items were not read. They may have "
        "been read without an effect on this score.",
        "Inflated does not say how: training on the items, training on pages that "
        "quote them, and repeated selection by this score all have this effect.",
        THIS_ONE,
    ),
)

_GAPS = (
    "Published minus other score of each model, and below them the inflation by each "
    "estimator, in points with 95% intervals. References are grey."
)
_CHECK = (
    Code("jaxcontam verify DIR"),
    " recomputes every estimate and the verdict from ",
    Code("texts.jsonl"),
    " in this folder, which holds each item with its scores; no model is needed.",
)
_WHY = {
    "no reference": "Nothing shows that the other items are as hard as the published "
    "ones: name models that saw neither with --references, or vouch for them with "
    "--equally-hard",
    "one reference": "One reference does not show how much models differ by "
    "themselves: name two, or better, five",
    "outside": "On the other items the model scores outside the references, so the "
    "difference in difficulty may be larger or smaller for it than for them: name "
    "references that score above it and below it",
    "items": "Use more items (or groups), at least ten, or items in pairs",
    "references": "Use more references, or references more like the model",
}
_ESTIMATORS = {
    "gap": "the model alone",
    "difference in differences": "minus the references",
    "constat": "against the references' curve (ConStat)",
}
# z: what rounds to -0.0 is 0.0.
_SIGNED = "+z.1f"
WORDS = {
    COMMAND: MethodWords(
        name=COMMAND,
        finds="points that a score gains on published items and not on unseen rewrites",
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
    header = ("model", "role", "published", "other", "difference (95%)")
    estimates = []
    for one in result.estimates:
        p, mde = plain_p(one.p_value), shown_or_dash(one.mde, ".1f")
        estimates.append([_ESTIMATORS[one.estimator], _points(one), p, mde])
    columns = ("inflation", "points (95%)", "p", "would be found")
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
        meaning = f"{points} of the published score are lost on unseen items"
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
            could = "No inflation of any size would have been found"
        drawn = "items" if result.n_groups is None else "these groups of items"
        beside = "the other items are as hard"
        if len(result.accuracies) > 1 and not result.equally_hard:
            beside = "the references are of different families"
        sentences.append(
            f"{could} with probability 0.8; one in forty models without inflation is "
            f"called inflated, if {drawn} are independent draws and {beside}."
        )
    if result.n_groups is not None:
        named = "" if result.group_field is None else f" of equal {result.group_field}"
        sentences.append(
            f"Items are assumed to be drawn in groups{named}: {result.n_groups:,} of "
            f"them{'' if result.paired else ' on the smaller side'}."
        )
    if result.reason:
        sentences.append(f"{_WHY[result.reason]}.")
    if found.spread is not None and found.rests_on == "models":
        sentences.append(
            f"The differences of the references vary by {found.spread:.1f} points "
            "(standard deviation), which widens the interval."
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

    colours, group = {True: GREY, False: BLUE}, "published minus other"
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
    "scores themselves need the models and were not recomputed",
    skip=("warnings",),
)
