"""Reports of tests: page, table and check, whatever room's tests they hold."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.progress import log_of_large
from jaxcontam.proof.advice import audited_files, why
from jaxcontam.proof.result import MATRIX as MATRIX_METHOD
from jaxcontam.proof.result import Evidence, NullPicture, OrderReport, OrderResult
from jaxcontam.proof.sentences import gains_of
from jaxcontam.proof.test_row import TestRow, pair_strata
from jaxcontam.proof.verify import commitment_faults, verify_report
from jaxcontam.reports.archive import ARCHIVE_NAME, read_arrays
from jaxcontam.reports.kinds import Asked, Checked, Kind
from jaxcontam.reports.methods import MethodWords, Words, words_of
from jaxcontam.reports.page import Page
from jaxcontam.reports.report import Report
from jaxcontam.reports.table_csv import result_row
from jaxcontam.stats.pair_test import drawn_sums
from jaxcontam.stats.randomisation import MODEL_TOLERANCE, redrawn_sums, row_scores
from jaxcontam.stats.rows import unpadded

MATRIX_WORDS = MethodWords(
    name=MATRIX_METHOD,
    label=MATRIX_METHOD,
    finds="a published column that scores better than the others, row by row; does not "
    "know where the numbers come from",
    source="the randomisation test of Fisher, summed over rows, p counted exactly",
)
"""Words of reports for `prove`."""

_CHECKED = (
    "recomputed from {name}: p-values, effects, verdicts and digests agree; {more}"
)
# Bars of a histogram need no more.
_N_DRAWN = 20_000

AskAgain = Callable[[Path, Asked], tuple[list[str], list[str]]]
"""(folder, what is asked) -> differences, and sentences on what was checked."""


def kind_of_tests(
    tests: Mapping[str, TestRow],
    *,
    words: Callable[[Report], Words] | None = None,
    ask_again: AskAgain | None = None,
) -> Kind:
    """The kind of a report whose rows are named after `tests`.

    Args:
        tests: Name -> test.
        words: Words of more methods than these; None: of these.
        ask_again: Asks a file and a model for what evidence cannot show.
    """
    known = {name: words_of(row) for name, row in tests.items()}
    known[MATRIX_WORDS.name] = MATRIX_WORDS

    def page(report: Report, directory: Path) -> Page:
        # matplotlib takes a third of a second to import: only for a page.
        from jaxcontam.proof.page import order_page

        evidence = read_arrays(directory / ARCHIVE_NAME, len(report.results), Evidence)
        pictures = null_pictures(report, evidence, tests)
        return order_page(report, pictures, known if words is None else words(report))

    return Kind(
        report=OrderReport,
        words=words or (lambda report: known),
        page=page,
        check=functools.partial(_check, tests=tests, ask_again=ask_again),
        rows=table_rows,
    )


def table_rows(report: Report) -> list[dict[str, Any]]:
    """Rows of results.csv: ends of 95 % intervals, and what a verdict rests on."""
    said = {id(file.test): why(file) for file in audited_files(report.results)}
    rows = []
    for result in report.results:
        row = result_row(result)
        if isinstance(result, OrderResult) and (found := result.numbers.neighbours):
            for name, gain in gains_of(found).items():
                ends = {f"{name}_low": gain.low, f"{name}_high": gain.high}
                row["neighbours"] |= ends
        if words := said.get(id(result)):
            row["why"] = words
        rows.append(row)
    return rows


def _check(
    directory: Path,
    document: Mapping[str, Any],
    asked: Asked,
    *,
    tests: Mapping[str, TestRow],
    ask_again: AskAgain | None,
) -> Checked:
    archive = directory / ARCHIVE_NAME
    with log_of_large(archive, f"recomputing from {ARCHIVE_NAME}"):
        faults, n = verify_report(directory, document, tests)
    more = "other differences come first"
    if not faults:
        faults, sealed = commitment_faults(directory)
        why_not = "a report of another command than audit"
        again, notes = [], [f"pre-tests were not run again ({why_not})"]
        if ask_again is None:
            asked.refuse()
        else:
            again, notes = ask_again(directory, asked)
        faults += again
        more = "; ".join([*sealed, *notes])
    words = _CHECKED.format(name=ARCHIVE_NAME, more=more)
    return Checked(faults=faults, n=n, unit="test", words=words)


def null_pictures(
    report: Report, evidence: Sequence[Evidence | None], tests: Mapping[str, TestRow]
) -> list[NullPicture | None]:
    """Plots' numbers of each exact primary test; None for other results."""
    return [
        _picture(found, row, report.seed, tests)
        if isinstance(row, OrderResult)
        and row.primary
        and row.validity == "exact"
        and found is not None
        else None
        for row, found in zip(report.results, evidence, strict=True)
    ]


def _picture(
    evidence: Evidence, row: OrderResult, seed: int, tests: Mapping[str, TestRow]
) -> NullPicture:
    if evidence.scores is None:
        strata = pair_strata(evidence)
        statistic = tests[row.method].statistic
        assert statistic is not None
        matrices = map(statistic.matrix, strata.matrices())
        contributions_K = np.concatenate(
            [
                statistic.sums(one_SS, np.arange(len(one_SS))[None])
                for one_SS in matrices
            ]
        )
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


MATRIX = kind_of_tests({})
"""Reports of `prove`."""
