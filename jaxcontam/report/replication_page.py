"""The page of a `replicate` run: verdict, tables, and the completions themselves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from jaxcontam.report.document import replace_bytes
from jaxcontam.report.figure import BLUE, GREY, ORANGE, STYLE, figure_axes, svg_text
from jaxcontam.report.membership import read_text_rows
from jaxcontam.report.page_words import REPLICATION
from jaxcontam.report.provenance import provenance_rows
from jaxcontam.report.replication import (
    ASKED,
    MEANING,
    comparison_cells,
    is_comparison,
    is_judge,
    judge_cells,
    overlap_cells,
    replication_sentences,
)
from jaxcontam.report.template import PAGE_NAME, MethodNote, render

_SIZE = (3.6, 3.4)
_MOST_SHOWN = 12
_RANK = {"exact": 0, "near": 1, "no": 2, None: 3}

Row = Mapping[str, Any]


def write_replication_page(
    document: Row, directory: Path, methods: Sequence[MethodNote]
) -> Path:
    """Write report.html of a run of `replicate`; returns its path."""
    texts = read_text_rows(directory, ASKED)
    results = document["results"]
    counted = [row for row in texts if not row.get("follows")]
    instances = [row for row in counted if row["arm"] == "partition"]
    (deciding,) = (row for row in results if row["primary"])
    model = document["model"]
    fields = {
        "title": f"Replication: {deciding['benchmark']}"
        + ("" if model is None else f", asked of {model['name']}"),
        "subtitle": f"Made {document['started']} in {document['wall_seconds']:.0f} s.",
        "verdict": deciding["verdict"],
        "sentences": replication_sentences(results),
        "meaning": MEANING,
        "judges": [judge_cells(row) for row in results if is_judge(row)],
        "overlaps": [
            overlap_cells(row)
            for row in results
            if not is_judge(row) and not is_comparison(row)
        ],
        "comparisons": [comparison_cells(row) for row in results if is_comparison(row)],
        "settings": [
            f"{row['method']}: {row['setting']}"
            for row in results
            if is_comparison(row)
        ],
        "overlap_svg": overlap_plot(instances, deciding["method"]),
        "shown": _closest(instances, deciding["method"]),
        "of_control": _closest(
            [
                row
                for row in counted
                if row["arm"] == "control"
                and row.get(deciding["method"]) in ("exact", "near")
            ],
            deciding["method"],
        ),
        "provenance": [*provenance_rows(document), *_versions(deciding)],
    }
    page = render(
        "replication.html.j2", document, fields, methods=methods, words=REPLICATION
    )
    replace_bytes(directory / PAGE_NAME, page.encode())
    return directory / PAGE_NAME


def overlap_plot(rows: Sequence[Row], judge: str) -> str:
    """ROUGE-L with the guided instruction over that with the general one; "" if none.

    Args:
        rows: Rows of `texts.jsonl`, of the partition.
        judge: Field of the labels that colour the points.
    """
    points = [
        (row["rouge_l_general"], row["rouge_l_guided"], row[judge])
        for row in rows
        if row.get("rouge_l_general") is not None
        and row.get("rouge_l_guided") is not None
        and row[judge] is not None
    ]
    if not points:
        return ""
    kinds = (("exact", ORANGE, "o"), ("near", BLUE, "s"), ("no", GREY, "x"))
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_axes(_SIZE)
        axes.plot([0, 1], [0, 1], color=GREY, lw=0.8)
        for kind, colour, marker in kinds:
            own = [(x, y) for x, y, label in points if label == kind]
            if own:
                axes.plot(
                    *zip(*own, strict=True),
                    marker,
                    color=colour,
                    ms=5,
                    alpha=0.8,
                    label=kind,
                )
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("ROUGE-L, general instruction")
        axes.set_ylabel("ROUGE-L, guided instruction")
        axes.legend(frameon=False)
        return svg_text(
            figure,
            f"ROUGE-L of {len(points)} instances, guided over general instruction; "
            f"{sum(y > x for x, y, _ in points)} are closer when guided",
        )


def _closest(rows: Sequence[Row], judge: str) -> list[dict[str, Any]]:
    """Copies first, then the completions that come closest."""
    chosen = sorted(
        rows,
        key=lambda row: (
            _RANK[row[judge]],
            -(row.get("rouge_l_guided") or 0.0),
            row["id"],
        ),
    )
    return [
        {
            "id": row["id"] + 1,
            "label": row[judge] or "not judged",
            "overlap": "-"
            if row.get("rouge_l_guided") is None
            else f"{row['rouge_l_guided']:.2f}",
            "first": row["first_piece"],
            "second": row["second_piece"],
            "guided": row["guided_refused"] or row["guided"],
            "general": row.get("general"),
        }
        for row in chosen[:_MOST_SHOWN]
    ]


def _versions(deciding: Row) -> list[tuple[str, str]]:
    """Of the words that asked, and of the judge."""
    rows = [("judge", deciding["judge_version"])]
    if deciding["prompt_version"]:
        rows.append(("instructions", deciding["prompt_version"]))
    return rows
