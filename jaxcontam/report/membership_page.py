"""`report.html` of `jaxcontam membership`: one self-contained file, for people."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.report.document import replace_bytes
from jaxcontam.report.membership import read_text_rows, score_columns
from jaxcontam.report.membership_words import (
    auc_words,
    blind_name,
    increment_words,
    meaning,
    membership_sentence,
    method_words,
    operating_header,
    p_words,
    sweep_sentence,
    tpr_words,
)
from jaxcontam.report.model_words import model_words
from jaxcontam.report.page_words import MEMBERSHIP
from jaxcontam.report.roc_plots import roc_plot, scores_plot
from jaxcontam.report.template import PAGE_NAME, MethodNote, render
from jaxcontam.results.membership import ScorePicture

_N_TOP = 20
_BEGINNING = 120
# Curves of more scores than this cannot be told apart.
_N_CURVES = 6


def write_membership_page(
    document: Mapping[str, Any],
    pictures: Sequence[ScorePicture],
    out: Path,
    methods: Sequence[MethodNote],
) -> Path:
    """Write report.html beside `texts.jsonl`; every text from outside is escaped.

    Args:
        document: As in `report.json`.
        pictures: Of the scores; empty where no sides are known.
        out: Folder of the report.
        methods: The scores.

    Returns:
        The page's path.
    """
    fields = _page_fields(document, pictures, read_text_rows(out))
    page = render(
        "membership.html.j2", document, fields, methods=methods, words=MEMBERSHIP
    )
    replace_bytes(out / PAGE_NAME, page.encode())
    return out / PAGE_NAME


def _page_fields(
    document: Mapping[str, Any],
    pictures: Sequence[ScorePicture],
    texts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    results, blind = document["results"], document.get("blind", [])
    decisive = next((row for row in results if row["primary"]), None)
    ranked = [row for row in results if "operating_points" in row]
    study = document["study"]
    primary = study["primary"]
    points = ranked[0]["operating_points"] if ranked else []
    blanks = [""] * (len(points) + 2)
    blind_rows = [[blind_name(one["name"]), auc_words(one)] for one in blind]
    shown = _shown_curves(pictures, primary)
    return {
        "title": f"Membership report: {document['model']['name']}",
        "subtitle": _subtitle(document),
        "verdict": decisive and decisive["verdict"],
        "sentence": decisive and membership_sentence(decisive, blind),
        "meaning": meaning(document),
        # Blind baselines have an AUC and nothing else.
        "score_rows": [
            *[_score_cells(row) for row in ranked],
            *[[f"blind: {name}", auc, *blanks] for name, auc in blind_rows],
        ]
        if ranked
        else [],
        "score_classes": ["primary" if row["primary"] else "" for row in ranked]
        + ["blind"] * len(blind_rows),
        "tpr_header": [operating_header(point) for point in points],
        "blind_rows": blind_rows,
        "sweep": study["sweep"] and sweep_sentence(study["sweep"]),
        "counts": decisive and _counts(decisive, study),
        "roc_svg": roc_plot(shown, primary=primary) if shown else None,
        "histogram_svg": _histogram(texts, primary),
        "thresholds": [_threshold_cells(row) for row in document.get("thresholds", [])],
        "top_texts": _top_texts(texts, score_columns(texts)[primary]),
        "with_p": any("p_value" in row for row in texts),
        "primary": primary,
        "warnings": [*study["warnings"], *(decisive["warnings"] if decisive else [])],
    }


def _shown_curves(pictures: Sequence[ScorePicture], primary: str) -> list[ScorePicture]:
    """The primary score and the best others."""
    best = sorted(pictures, key=lambda one: (one.method != primary, -one.auc))
    return best[:_N_CURVES]


def _score_cells(row: Mapping[str, Any]) -> list[str]:
    return [
        method_words(row),
        auc_words(row),
        *[tpr_words(point) for point in row["operating_points"]],
        p_words(row["p_value"]),
        increment_words(row),
    ]


def _threshold_cells(row: Mapping[str, Any]) -> list[str]:
    known = row["threshold"] is not None
    return [
        row["method"],
        f"{row['fpr']:.3g}",
        f"{row['threshold']:.4g}" if known else "too few non-members",
        "-"
        if row["fpr_low"] is None
        else f"{row['fpr_low']:.3f} to {row['fpr_high']:.3f}",
        "-" if row["n_above"] is None else str(row["n_above"]),
        str(row["n_discoveries"]),
    ]


def _histogram(texts: Sequence[Mapping[str, Any]], primary: str) -> str | None:
    """The primary score of both sides: those in question, or the known members."""
    values_N = score_columns(texts)[primary]
    sides = [
        values_N[[row["role"] == role for row in texts] & np.isfinite(values_N)]
        for role in ("member", "nonmember", "text")
    ]
    members, nonmembers, asked = sides
    if not len(nonmembers) or not (len(members) or len(asked)):
        return None
    if len(members):
        return scores_plot(primary, {"non-members": nonmembers, "members": members})
    return scores_plot(primary, {"non-members": nonmembers, "texts": asked})


def _top_texts(
    texts: Sequence[Mapping[str, Any]], values_N: np.ndarray
) -> list[dict[str, Any]]:
    """The most familiar texts of those in question."""
    asked = [
        i
        for i, row in enumerate(texts)
        if row["role"] == "text" and np.isfinite(values_N[i])
    ]
    best = sorted(asked, key=lambda i: -values_N[i])[:_N_TOP]
    return [
        {
            "id": texts[i]["id"],
            "begins": texts[i]["text"][:_BEGINNING],
            "score": f"{values_N[i]:.4g}",
            "p": p_words(texts[i].get("p_value")),
            "adjusted": p_words(texts[i].get("p_adjusted")),
        }
        for i in best
    ]


def _counts(decisive: Mapping[str, Any] | None, study: Mapping[str, Any]) -> str:
    if decisive is None:
        return ""
    words = [
        f"{decisive['n_members']:,} members, {decisive['n_nonmembers']:,} non-members"
        if "operating_points" in decisive
        else f"{decisive['n_members']:,} texts in question, "
        f"{decisive['n_nonmembers']:,} non-members"
    ]
    if decisive.get("n_clusters") is not None:
        words.append(f"from {decisive['n_clusters']:,} documents")
    if study["n_left_out"]:
        words.append(
            f"{study['n_left_out']:,} texts stand in a prefix and are left out"
        )
    if study["n_unscored"]:
        words.append(f"{study['n_unscored']:,} texts have no token to score")
    return "; ".join(words) + "."


def _subtitle(document: Mapping[str, Any]) -> str:
    model = document["model"]
    return (
        f"{model_words(model)}. Made {document['started']} in "
        f"{document['wall_seconds']:.0f} s."
    )
