"""`report.html`: one self-contained file, for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxcontam.report.attraction import (
    attraction_rows,
    attraction_sentence,
    gains_of,
    pair_row,
)
from jaxcontam.report.model_words import model_words
from jaxcontam.report.own_order import (
    OWN_ORDER_HEADER,
    all_pretests,
    own_order_rows,
    own_order_sentence,
)
from jaxcontam.report.page_words import ORDER, VERSIONS
from jaxcontam.report.pictures import LossPicture, NullPicture
from jaxcontam.report.plots import (
    copies_plot,
    evidence_plot,
    gains_plot,
    lag_plot,
    loss_plot,
    null_plot,
)
from jaxcontam.report.reference import scale_sentence
from jaxcontam.report.reference_model import (
    SIDE_BY_SIDE_HEADER,
    reference_row,
    reference_sentence,
    side_by_side,
)
from jaxcontam.report.remedies import ways_out
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
from jaxcontam.report.why import attracting, why

_ORDER_MEANING = (
    "A small p-value says that the model prefers the published order of a file, which "
    "a model that never saw the file in that order has no way to do if the order was "
    "drawn at random. "
)
_DIRECTION_MEANING = (
    "A small p-value says that the model expects examples after those published "
    "before them, and less the other way round. Like stands beside like in most files, "
    "which works both ways; memory works forwards alone. "
)
_SILENCE = (
    "It does not say that a score is inflated, nor that other files are unaffected. "
    "Silence does not say that the texts were never seen: copies in other orders, "
    "single examples and paraphrases leave no trace in an order test."
)
_NULL_CAPTION = (
    "Sum over strata of the published order's score, and what the same sum is when a "
    "random order stands in for it in each stratum."
)
_REVERSED_CAPTION = (
    "Sum over strata of the published order's score, and what the same sum is when "
    "each run of at most four examples is turned round at random."
)
_DIRECTED_UNIT = "nats forwards less backwards"
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
        "blocks": [_block(row, pictures[i], document) for i, row in primary],
        "unscored": [
            _unscored(file, document["command"])
            for file in document.get("unscored", ())
        ],
        "own_order_header": OWN_ORDER_HEADER,
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
    document: Mapping[str, Any],
) -> dict[str, Any]:
    results = document["results"]
    words = version_words(row)
    pretests = all_pretests(row, results)
    version = "order" if words is None else words.version
    unit = _DIRECTED_UNIT if row["method"] == "direction" else None
    block = {
        "name": row["benchmark"],
        "verdict": row["verdict"],
        "sentence": verdict_sentence(row, attracting(row, results)),
        # Of an invalid design the sentence says it all.
        "why": "" if row["verdict"] == "invalid design" else why(row, results),
        "assumed": assumed_sentence(row),
        "checked": checked_sentence(row),
        "chance": chance_sentence(row),
        "where": where_sentence(row),
        "warnings": row["warnings"],
        "ways_out": ways_out(row, document["command"], results),
        "null_caption": _REVERSED_CAPTION
        if row["method"] == "direction"
        else _NULL_CAPTION,
        "evidence_caption": _EVIDENCE_CAPTION,
        "alone": alone_rows(row, results),
        "null_svg": None if picture is None else null_plot(picture, version, unit),
        "evidence_svg": None
        if picture is None
        else evidence_plot(picture, "stratum" if words is None else words.row, unit),
        "symmetry": symmetry_sentence(row),
        "scale": scale_sentence(row),
        "attraction": _attraction(row, results),
        "own_order": own_order_rows(pretests),
        "own_order_sentence": own_order_sentence(pretests),
        **_reference(row, document),
    }
    return block if words is None else block | version_block(row, words)


def _unscored(file: Mapping[str, Any], command: Sequence[str]) -> dict[str, Any]:
    """What is said of a file whose order failed its checks before any model read it."""
    return {
        "name": file["benchmark"],
        "verdict": file["verdict"],
        "sentence": f"{verdict_sentence(file)} It was not scored.",
        "checked": checked_sentence(file),
        "ways_out": ways_out(file, command),
        "own_order": own_order_rows(file["pretests"]),
        "own_order_sentence": own_order_sentence(file["pretests"]),
    }


def _attraction(
    row: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Memory beside natural order; None where no pairs were scored."""
    pairs = pair_row(row, results)
    gains = None if pairs is None else gains_of(pairs)
    if pairs is None or gains is None:
        return None
    return {
        "sentence": attraction_sentence(pairs, row["verdict"]),
        "rows": attraction_rows(pairs),
        "gains_svg": gains_plot(gains),
        "lag_svg": lag_plot(pairs["lag_profile"]),
    }


def _reference(row: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    held = reference_row(row, document["results"])
    model = document["model"]
    return {
        "reference": side_by_side(held, "model" if model is None else model["name"]),
        "reference_header": SIDE_BY_SIDE_HEADER,
        "reference_sentence": reference_sentence(held),
    }


def _meaning(row: Mapping[str, Any]) -> str:
    words = version_words(row)
    if words is not None:
        return words.meaning
    is_directed = row["method"] == "direction"
    return (_DIRECTION_MEANING if is_directed else _ORDER_MEANING) + _SILENCE


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
