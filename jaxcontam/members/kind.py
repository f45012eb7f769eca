"""Reports of `membership`: their rows, page and check."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxcontam.members.judging import judged_again, table_from_rows, text_rows
from jaxcontam.members.page import membership_page, membership_words, study_of
from jaxcontam.members.result import MembershipReport, MembershipStudy, TextScores
from jaxcontam.reports.archive import TEXTS_NAME, read_text_rows, typed_rows
from jaxcontam.reports.page import Page
from jaxcontam.reports.read import read_result
from jaxcontam.reports.recompute import Rebuilt, Row, kind_of_texts
from jaxcontam.reports.report import Report


def _page(report: Report, directory: Path) -> Page:
    if report.study is None:
        raise KeyError("study")
    texts = typed_rows(read_text_rows(directory), TextScores)
    _, again = judged_again(study_of(report), texts, seed=report.seed)
    return membership_page(report, again.pictures, texts)


def _again(document: Row, rows: Sequence[Row]) -> Rebuilt:
    """Rankings, blind baselines, thresholds and p-values of a membership report."""
    texts = typed_rows(rows, TextScores)
    study = read_result(MembershipStudy, document["study"], "report.study")
    run, again = judged_again(study, texts, seed=document["seed"])
    return {
        "study": again.study,
        "results": again.results,
        "blind": again.blind,
        "thresholds": again.thresholds,
        TEXTS_NAME: text_rows(
            run,
            table_from_rows(texts),
            n_tokens=np.array([text.n_tokens for text in texts]),
            left_out=np.array([text.left_out for text in texts]),
            found=again,
        ),
    }


MEMBERSHIP = kind_of_texts(
    report=MembershipReport,
    words=membership_words,
    page=_page,
    rebuild=_again,
    checked="AUCs, rates, p-values, blind baselines, thresholds, verdicts and digests "
    "agree; the scores themselves need the model and were not computed again",
    skip=("setting",),
)
