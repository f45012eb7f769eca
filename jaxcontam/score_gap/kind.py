"""Reports of `inflation`: their rows, page and check."""

from pathlib import Path
from typing import Any

from jaxcontam.reports.page import Page
from jaxcontam.reports.recompute import Rebuilt, Row, kind_of_texts
from jaxcontam.reports.report import Report
from jaxcontam.score_gap.judging import Comparison, judged_inflation
from jaxcontam.score_gap.page import WORDS, inflation_page
from jaxcontam.score_gap.result import InflationReport


def _page(report: Report, directory: Path) -> Page:
    return inflation_page(report)


def _again(document: Row, rows: list[dict[str, Any]]) -> Rebuilt:
    """Accuracies, estimates and the verdict of a report of inflation."""
    (stated,) = document["results"]
    names = ("benchmark", "against", "metric", "chance")
    asked = Comparison.said(
        document["command"],
        seed=document["seed"],
        **{name: stated[name] for name in names},
    )
    models = [row["model"] for row in stated["accuracies"]]
    return {"results": [judged_inflation(rows, models, asked)]}


INFLATION = kind_of_texts(
    report=InflationReport,
    words=lambda report: WORDS,
    page=_page,
    rebuild=_again,
    checked="accuracies, estimates, intervals, the verdict and digests agree; the "
    "scores themselves need the models and were not computed again",
    skip=("warnings",),
)
