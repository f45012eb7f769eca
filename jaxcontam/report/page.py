"""`report.html`: one self-contained file, for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxcontam.report.model_words import model_words
from jaxcontam.report.page_words import ORDER, VERSIONS
from jaxcontam.report.pictures import LossPicture, NullPicture
from jaxcontam.report.plots import (
    copies_plot,
    evidence_plot,
    lag_plot,
    loss_plot,
    null_plot,
)
from jaxcontam.report.reference import scale_sentence
from jaxcontam.report.remedies import advice, remedy
from jaxcontam.report.sentences import (
    assumed_sentence,
    chance_sentence,
    checked_sentence,
    effect_words,
    p_words,
    screening_sentence,
    symmetry_sentence,
    verdict_sentence,
    where_sentence,
)
from jaxcontam.report.template import MethodNote, render
from jaxcontam.report.version_words import alone_rows, version_block, version_words

_ORDER_MEANING = (
    "A small p-value says that the model prefers the published order of a file, which "
    "a model that never saw the file in that order has no way to do. It does not say "
    "that a score is inflated, nor that other files are unaffected. Silence does not "
    "say that the texts were never seen: copies in other orders, single examples and "
    "paraphrases leave no trace in an order test."
)
_NULL_CAPTION = (
    "Sum over strata of the published order's score, and what the same sum is when a "
    "random order stands in for it in each stratum."
)
_EVIDENCE_CAPTION = (
    "Where the evidence lies: each stratum's score, first examples of the file on the "
    "left."
)


def render_page(
    document: Mapping[str, Any],
    pictures: Sequence[NullPicture | None],
    methods: Sequence[MethodNote],
    loss: LossPicture | None = None,
) -> str:
    """The page of a report; every text from outside is escaped.

    Args:
        document: As in `report.json`.
        pictures: One a result, None where there is nothing to draw.
        methods: The tests and scores.
        loss: The training run behind a study, if it stands beside the report.
    """
    results = document["results"]
    primary = [(i, row) for i, row in enumerate(results) if row["primary"]]
    planted = any(row.get("copies") is not None for _, row in primary)
    named = {row["benchmark"] for _, row in primary}
    tested = dict.fromkeys(r["method"] for r in results if r["benchmark"] in named)
    deciding = [m for m in tested if m in {row["method"] for _, row in primary}]
    beside = [method for method in tested if method not in deciding]
    scores = {row["method"] for row in results if "auc" in row}
    model = document["model"]
    title = "Contamination report"
    if model is not None:
        title += f": {model['name']}"
    fields = {
        "title": title,
        "subtitle": _subtitle(document),
        "meanings": list(dict.fromkeys(_meaning(row) for _, row in primary)),
        "blocks": [
            _block(row, pictures[i], document["command"], results) for i, row in primary
        ],
        "header": _header(deciding, beside, scores, planted),
        "rows": [
            _cells(row, results, (deciding, beside), planted) for _, row in primary
        ],
        "scores": bool(scores),
        "screening": screening_sentence(document),
        "copies_svg": copies_plot([row for _, row in primary]) if planted else None,
        "loss_svg": None if loss is None else loss_plot(loss),
    }
    of_order = any(version_words(row) is None for _, row in primary)
    words = ORDER if of_order else VERSIONS
    return render("page.html.j2", document, fields, methods=methods, words=words)


def _block(
    row: Mapping[str, Any],
    picture: NullPicture | None,
    command: Sequence[str],
    results: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    words = version_words(row)
    version = "order" if words is None else words.version
    block = {
        "name": row["benchmark"],
        "verdict": row["verdict"],
        "sentence": verdict_sentence(row),
        "assumed": assumed_sentence(row),
        "checked": checked_sentence(row),
        "chance": chance_sentence(row),
        "where": where_sentence(row),
        "warnings": row["warnings"],
        "advice": advice(row, command),
        "remedy": remedy(row, command),
        "null_caption": _NULL_CAPTION,
        "evidence_caption": _EVIDENCE_CAPTION,
        "alone": alone_rows(row, results),
        "null_svg": None if picture is None else null_plot(picture, version),
        "evidence_svg": None
        if picture is None
        else evidence_plot(picture, "stratum" if words is None else words.row),
        "lag_svg": None if picture is None else lag_plot(picture),
        "symmetry": symmetry_sentence(row),
        "scale": scale_sentence(row),
    }
    return block if words is None else block | version_block(row, words)


def _meaning(row: Mapping[str, Any]) -> str:
    words = version_words(row)
    return _ORDER_MEANING if words is None else words.meaning


def _header(
    deciding: Sequence[str], beside: Sequence[str], scores: set[str], planted: bool
) -> list[str]:
    copies = ["copies"] if planted else []
    others = [f"{'AUC' if name in scores else 'p'}, {name}" for name in beside]
    # The verdict comes first: a phone shows two columns.
    return [
        "benchmark",
        "verdict",
        *copies,
        *[f"p, {method}" for method in deciding],
        "effect ± se",
        "detectable",
        *others,
    ]


def _cells(
    row: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    methods: tuple[Sequence[str], Sequence[str]],
    planted: bool,
) -> list[str | dict[str, str]]:
    deciding, beside = methods
    same = {r["method"]: r for r in results if r["benchmark"] == row["benchmark"]}
    same[row["method"]] = row
    copies = [str(row["copies"])] if planted else []
    mde = "-" if row["mde"] is None else f"{row['mde']:.2g}"
    return [
        row["benchmark"],
        {"badge": row["verdict"]},
        *copies,
        *[_deciding_cell(same.get(name), deciding) for name in deciding],
        effect_words(row),
        mde,
        *[_beside_cell(same.get(name)) for name in beside],
    ]


def _deciding_cell(test: Mapping[str, Any] | None, deciding: Sequence[str]) -> str:
    """With a star where it decides, if not the same test decides everywhere."""
    if test is None:
        return ""
    return "*" * (test["primary"] and len(deciding) > 1) + _p_cell(test)


def _beside_cell(other: Mapping[str, Any] | None) -> str:
    if other is None:
        return ""
    if "auc" in other:
        return f"{other['auc']:.2f} ± {other['auc_se']:.2f}"
    return _p_cell(other)


def _p_cell(row: Mapping[str, Any]) -> str:
    """The p-value under a header that already says p."""
    return p_words(row).removeprefix("p ").removeprefix("= ").replace("<=", "≤")


def _subtitle(document: Mapping[str, Any]) -> str:
    parts = []
    if (model := document["model"]) is not None:
        parts.append(model_words(model))
    if (study := document.get("study")) is not None and "canary_share" in study:
        parts.append(
            f"{study['canary_share']:.0%} of {study['n_tokens']:,} training tokens are "
            "planted: an easy setting, which shows that the tool works, not its power "
            "on large models"
        )
    parts.append(f"Made {document['started']} in {document['wall_seconds']:.0f} s")
    return ". ".join(parts) + "."
