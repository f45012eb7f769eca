"""A result written as files: report.json, its evidence, results.csv, report.html."""

import html
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.members.result import ScorePicture, TextScores
from jaxcontam.orders.calibration_result import DrawnPValues
from jaxcontam.orders.methods import reported_method
from jaxcontam.orders.pair_method import pair_strata
from jaxcontam.proof.result import Evidence, NullPicture, OrderResult
from jaxcontam.replication.result import AskedInstance
from jaxcontam.reports.archive import (
    ARCHIVE_NAME,
    ASKED,
    P_VALUES_NAME,
    TEXTS_NAME,
    archive_bytes,
    read_archive,
    read_p_values,
    read_text_rows,
    texts_bytes,
    typed_rows,
)
from jaxcontam.reports.method_notes import report_words
from jaxcontam.reports.page import Page, render
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import (
    PAGE_NAME,
    replace_files,
    to_document,
    write_report,
    write_sums,
)
from jaxcontam.reports.table_csv import RESULTS_NAME, results_csv
from jaxcontam.stats.pair_test import drawn_sums
from jaxcontam.stats.randomisation import MODEL_TOLERANCE, redrawn_sums, row_scores
from jaxcontam.stats.rows import unpadded

# Bars of a histogram need no more.
_N_DRAWN = 20_000


class Writable:
    """Save and show any analysis that says how it is `written`."""

    __slots__ = ()

    def save(self, out: str | Path) -> Path:
        """Write report.json, its evidence, table and page; returns the page's path."""
        return self.written(Path(out))[1]

    def written(self, out: Path) -> tuple[dict[str, Any], Path]:
        """`save`, which returns the document of report.json as well."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The page that `save` writes, in a frame of a notebook."""
        with tempfile.TemporaryDirectory() as folder:
            page = self.save(folder).read_text(encoding="utf-8")
        return (
            f'<iframe srcdoc="{html.escape(page)}" width="100%" height="600"></iframe>'
        )


def write_files(
    report: Report,
    data: Sequence[Evidence | DrawnPValues | None] | Sequence[Mapping[str, Any]],
    out: Path,
    pictures: Sequence[ScorePicture] = (),
) -> tuple[dict[str, Any], Path]:
    """Write a report, what its numbers follow from, and its page.

    `data` are arrays of each row of its results, or rows of `texts.jsonl`; `pictures`
    are for the page of a membership run. Returns report.json as a document, and the
    page's path.
    """
    arrays = [row for row in data if not isinstance(row, Mapping)]
    texts = [row for row in data if isinstance(row, Mapping)]
    files = {TEXTS_NAME: texts_bytes(texts)}
    if not texts:
        is_drawn = any(isinstance(row, DrawnPValues) for row in arrays)
        name = P_VALUES_NAME if is_drawn else ARCHIVE_NAME
        files = {name: archive_bytes(arrays)}
    written = write_report(report, files, out)
    return to_document(written), write_page(written, out, pictures)


def write_page(
    report: Report, directory: Path, pictures: Sequence[ScorePicture] = ()
) -> Path:
    """Write report.html and results.csv beside a report, then the digests of all."""
    texts = {
        RESULTS_NAME: results_csv(report),
        PAGE_NAME: render(_page(report, directory, pictures)),
    }
    replace_files({directory / name: text.encode() for name, text in texts.items()})
    write_sums(report, directory)
    return directory / PAGE_NAME


def _page(report: Report, directory: Path, pictures: Sequence[ScorePicture]) -> Page:
    # matplotlib takes a third of a second to import: only for a page.
    from jaxcontam.members import page as membership
    from jaxcontam.orders import calibration_page as calibration
    from jaxcontam.proof import page as order_page
    from jaxcontam.replication import page as replication
    from jaxcontam.score_gap import page as inflation

    words, n = report_words(report), len(report.results)
    kind = report.command[0]
    if kind == calibration.COMMAND:
        drawn = read_p_values(directory / P_VALUES_NAME, n)
        return calibration.calibration_page(report, drawn, words)
    if kind == inflation.COMMAND:
        return inflation.inflation_page(report, words)
    if kind == membership.COMMAND:
        texts = typed_rows(read_text_rows(directory), TextScores)
        return membership.membership_page(report, pictures, texts, words)
    if kind == replication.COMMAND:
        rows = [row for row in read_text_rows(directory, ASKED) if "first_piece" in row]
        instances = typed_rows(rows, AskedInstance)
        return replication.replication_page(report, instances, words)
    evidence = read_archive(directory / ARCHIVE_NAME, n)
    drawn = null_pictures(report, evidence)
    return order_page.order_page(report, drawn, words)


def null_pictures(
    report: Report, evidence: Sequence[Evidence | None]
) -> list[NullPicture | None]:
    """Plots' numbers of each exact primary test; None for other results."""
    return [
        _picture(found, row, report.seed)
        if isinstance(row, OrderResult)
        and row.primary
        and row.validity == "exact"
        and found is not None
        else None
        for row, found in zip(report.results, evidence, strict=True)
    ]


def _picture(evidence: Evidence, row: OrderResult, seed: int) -> NullPicture:
    if evidence.scores is None:
        strata = pair_strata(evidence)
        statistic = reported_method(row.method).statistic
        assert statistic is not None
        contributions_K = np.array(
            [
                statistic.sums(
                    statistic.matrix(pairs_SS), np.arange(len(pairs_SS))[None]
                )
                for pairs_SS in strata.matrices()
            ]
        ).ravel()
        sums = drawn_sums(
            strata,
            statistic,
            seed=seed,
            content_digest=row.content_digest,
            n_draws=_N_DRAWN,
        )
    else:
        scored = row_scores(
            unpadded(evidence.scores),
            kind=row.numbers.scores,  # pyright: ignore[reportArgumentType]
            relative_tolerance=MODEL_TOLERANCE,
        )
        sums = redrawn_sums(scored.rows, n_draws=_N_DRAWN, seed=seed)
        contributions_K = scored.published
    return NullPicture(
        null_sums=sums,
        observed=float(contributions_K.sum()),
        contributions=contributions_K,
    )
