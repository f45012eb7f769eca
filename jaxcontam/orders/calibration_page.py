"""Reports of `jaxcontam calibrate`: rates of rejection, and every p-value."""

from collections.abc import Sequence

from jaxcontam.orders.calibration_result import (
    RELABELLED,
    CalibrationResult,
    DrawnPValues,
)
from jaxcontam.reports.methods import Words
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
from jaxcontam.reports.report import Report
from jaxcontam.stats.result import Rejection

_WORDS = PageWords(
    assumed=(
        "That the orders which were drawn are as good as random; they come from the "
        "seed below.",
    ),
    limits=(
        "Nothing here says whether the model saw the file: every order that was tested "
        "was drawn after the model was trained. Whether the published order is like a "
        "random one is what the checks of an audit look at.",
        "So many draws cannot show rates of rejection smaller than about one in their "
        "number.",
        THIS_ONE,
    ),
)

COMMAND = "calibrate"
MEANING = (
    "This checks the path from the file to p on this model: tokens, batches, padding, "
    "the place of each order, the law of the test. It does not validate that the "
    "published order of the file is exchangeable: random orders are, whatever the file."
)

_RELABELLED_MEANING = (
    "Columns of one scored order, relabelled at random: the law that an exact test "
    "refers to, and so a check of approximate tests alone."
)
_QQ = (
    "Each point is a p-value against the one that a uniform sample would have in its "
    "place, ties broken at random; most uniform samples stay within the band. A point "
    "above the line is a p-value that is too small."
)
_CHECK = (
    Code("p_values.npz"),
    " beside this file holds every p-value; ",
    Code("jaxcontam verify DIR"),
    " counts them again.",
)


def calibration_page(
    report: Report, drawn: Sequence[DrawnPValues], words: Words
) -> Page:
    """The page of a calibration; `drawn` are the p-values of each row."""
    rows = [row for row in report.results if isinstance(row, CalibrationResult)]
    sentences = [calibration_sentence(row) for row in rows]
    sections = [Section([Items(sentences), Paragraph(MEANING)])]
    sections += [_section(row, one) for row, one in zip(rows, drawn, strict=True)]
    model = "" if report.model is None else f"{report.model.name}, "
    return report_page(
        report,
        sections,
        words,
        title=f"Calibration: {model}{rows[0].benchmark}",
        kind=_WORDS,
        check=_CHECK,
    )


def calibration_sentence(row: CalibrationResult) -> str:
    """Name the draws, and how far from uniform their p-values are."""
    return (
        f"{row.method} on {row.n_examples:,} examples of {row.benchmark}: "
        f"{row.n_draws:,} {row.drawn}, {row.tokens_scored:,} tokens scored. "
        f"Distance of the p-values from uniform "
        f"{row.ks_statistic:.3f} (Kolmogorov-Smirnov p {row.ks_p_value:.2g})."
    )


def rate_text(cell: Rejection) -> str:
    """A rate of rejection with its interval."""
    low, high = (f"{end:.3f}".removeprefix("0") for end in (cell.low, cell.high))
    return f"{cell.rate:.3f} ({low}-{high})"


def _section(row: CalibrationResult, drawn: DrawnPValues) -> Section:
    # matplotlib takes a third of a second to import: only for a page.
    from jaxcontam.proof.plots import qq_plot

    values = drawn.p_value if drawn.p_randomised is None else drawn.p_randomised
    rates = [
        [f"{cell.level:g}", f"{cell.n_rejected:,}", rate_text(cell)]
        for cell in row.rejections
    ]
    header = ("p at most", "draws", "rate (95 % interval)")
    meaning = [Paragraph(_RELABELLED_MEANING)] * (row.drawn == RELABELLED)
    table = Table(header, rates, "rates of rejection")
    parts = [*meaning, table, Figure(qq_plot(values), _QQ)]
    return Section(parts, f"{row.method}, {row.drawn}")
