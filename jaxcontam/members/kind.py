"""Reports of `membership`: their rows, page and check."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.members.judging import JudgedRun, judged
from jaxcontam.members.known_texts import RunTexts
from jaxcontam.members.page import membership_page, membership_words, study_of
from jaxcontam.members.result import (
    MembershipReport,
    MembershipStudy,
    Scores,
    TextScores,
)
from jaxcontam.reports.archive import (
    TEXTS_NAME,
    number_or_none,
    read_text_rows,
    typed_rows,
)
from jaxcontam.reports.page import Page
from jaxcontam.reports.read import read_result
from jaxcontam.reports.recompute import Rebuilt, Row, kind_of_texts
from jaxcontam.reports.report import Report


def text_rows(
    run: RunTexts,
    table: Scores,
    *,
    n_tokens: np.ndarray,
    left_out: np.ndarray,
    found: JudgedRun,
) -> list[dict[str, Any]]:
    """A row of `texts.jsonl` for each text, in their order; null where it has no score.

    `n_tokens` (N,) are scored; `left_out` (N,) stand in a prefix; `found` gives texts
    in question their p-values.
    """
    rows = []
    for i, text in enumerate(run.texts):
        scores = zip(table.names, map(number_or_none, table.values[i]), strict=True)
        row: dict[str, Any] = {
            "id": i,
            "source": run.sources[i],
            "role": run.roles[i],
            "text": text,
            "n_tokens": int(n_tokens[i]),
            "left_out": bool(left_out[i]),
            "scores": dict(scores),
        }
        if run.clusters is not None:
            row["cluster"] = run.clusters[i]
        if table.reference is not None:
            row["reference"] = list(map(number_or_none, table.reference[i]))
        for name in ("p_values", "p_adjusted"):
            if (values_N := getattr(found, name)) is not None:
                row[name.removesuffix("s")] = number_or_none(values_N[i])
        if found.no_p_value is not None:
            row["no_p_value"] = found.no_p_value[i]
        rows.append(row)
    return rows


def _page(report: Report, directory: Path) -> Page:
    if report.study is None:
        raise KeyError("study")
    texts = typed_rows(read_text_rows(directory), TextScores)
    *_, found = _judged_again(study_of(report), texts, seed=report.seed)
    return membership_page(report, found.pictures, texts)


def _rebuilt(document: Row, rows: Sequence[Row]) -> Rebuilt:
    """Rankings, blind baselines, thresholds and p-values of a membership report."""
    texts = typed_rows(rows, TextScores)
    study = read_result(MembershipStudy, document["study"], "report.study")
    run, table, found = _judged_again(study, texts, seed=document["seed"])
    return {
        "study": found.study,
        "results": found.results,
        "blind": found.blind,
        "thresholds": found.thresholds,
        TEXTS_NAME: text_rows(
            run,
            table,
            n_tokens=np.array([text.n_tokens for text in texts]),
            left_out=np.array([text.left_out for text in texts]),
            found=found,
        ),
    }


def _judged_again(
    study: MembershipStudy, rows: Sequence[TextScores], *, seed: int
) -> tuple[RunTexts, Scores, JudgedRun]:
    """Judge the rows of `texts.jsonl` under the settings of their report."""
    clusters = [row.cluster for row in rows if row.cluster is not None]
    run = RunTexts(
        name=study.name,
        texts=tuple(row.text for row in rows),
        roles=tuple(row.role for row in rows),
        clusters=tuple(clusters) or None,
        sources=tuple(row.source for row in rows),
    )
    left_out_N = np.array([row.left_out for row in rows])
    names = tuple(rows[0].scores)
    # None becomes NaN.
    values_NM = [[row.scores[name] for name in names] for row in rows]
    reference = None
    if rows[0].reference is not None:
        reference = np.array([row.reference for row in rows], np.float64).reshape(-1, 2)
    table = Scores(names, np.array(values_NM, np.float64), reference)
    return run, table, judged(run, table, left_out_N, study, seed=seed)


MEMBERSHIP = kind_of_texts(
    report=MembershipReport,
    words=membership_words,
    page=_page,
    rebuild=_rebuilt,
    checked="AUCs, rates, p-values, blind baselines, thresholds, verdicts and digests "
    "agree; the scores themselves need the model and were not recomputed",
    # Warnings are words, which versions put differently.
    skip=("setting", "warnings"),
)
