"""An unlearning report against its `texts.jsonl`: counted again, without a model."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam.commands.unlearning_samples import ELSEWHERE, ROUGE
from jaxcontam.commands.verify_texts import checked_rows
from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.rouge import rouge_l
from jaxcontam.methods.unlearning import (
    Similarities,
    is_suspicious,
    perplexity_ratios,
    score_ratios,
    screen_result,
    similarity_result,
)
from jaxcontam.report.document import REPORT_NAME
from jaxcontam.report.texts import TEXTS_NAME

# Sums in another version of NumPy may differ in the last digits.
_TOLERANCE = 1e-9
# Words about the run, which follow from no number.
_NOT_CHECKED = ("warnings", "setting")
# What older reports lack.
_NEWER = {"n_refused": 0}
_UNREADABLE = (TypeError, ValueError, KeyError, IndexError, ArithmeticError)

Row = Mapping[str, Any]


def verify_unlearning(directory: Path, document: Row) -> tuple[list[str], int]:
    """Check digests, then count ratios, recalls, means and intervals again.

    Returns:
        What differs, one line each, and the number of results that were recomputed.

    Raises:
        InputError: If the folder has no readable texts.jsonl.
    """
    texts, faults = checked_rows(directory, document)
    try:
        for r, row in enumerate(document["results"]):
            own = [text for text in texts if text["task"] == row["task"]]
            if row["fingerprint"] != fingerprint([text["text"] for text in own]):
                faults.append(f"results[{r}]: not the texts of {TEXTS_NAME}")
            again, wrong = (_screen if "n_suspicious" in row else _similarity)(
                row, own, document["seed"]
            )
            faults += wrong
            faults += [
                f"results[{r}].{key}: {row.get(key)!r}, {value!r} when counted again"
                for key, value in dataclasses.asdict(again).items()
                if key not in _NOT_CHECKED
                and not _same(row.get(key, _NEWER.get(key)), value)
            ]
    except _UNREADABLE as e:
        return [*faults, f"{REPORT_NAME}: not an unlearning report ({e!r})"], 0
    return faults, len(document["results"])


def _screen(row: Row, texts: Sequence[Row], _: int):
    """A screen's row, and texts whose ratio or flag is not that of their scores."""
    method = row["method"]
    score = "loss" if method == "perplexity" else method
    original, unlearned = (
        np.array([_float(text["scores"][f"{score}_{which}"]) for text in texts])
        for which in ("original", "unlearned")
    )
    ratios = perplexity_ratios if method == "perplexity" else score_ratios
    ratio_N = ratios(original, unlearned)
    flags_N = is_suspicious(ratio_N, row["bound"])
    faults = [
        f"{TEXTS_NAME}: {text['task']} {text['id']}: {method} {name} is not that of "
        "its scores"
        for text, ratio, flag in zip(
            texts, ratio_N.tolist(), flags_N.tolist(), strict=True
        )
        for name, stored, value in (
            ("ratio", text["ratios"][method], ratio if math.isfinite(ratio) else None),
            ("suspicion", text["suspicious"][method], flag),
        )
        if not _same(stored, value)
    ]
    again = screen_result(
        ratio_N,
        name=row["benchmark"],
        fingerprint=row["fingerprint"],
        task=row["task"],
        method=method,
        setting=row["setting"],
        primary=row["primary"],
        bound=row["bound"],
    )
    return again, faults


def _similarity(row: Row, texts: Sequence[Row], seed: int):
    """A measure's row, and texts whose recall is not that of their samples."""
    method = row["method"]
    sampled = [text for text in texts if "samples" in text]
    selected = [text for text in sampled if text["suspicious"]["min_k"]]
    others = [text for text in sampled if not text["suspicious"]["min_k"]]
    faults = []
    if method == ROUGE:
        following = selected[1:] + selected[:1]
        pairs = [(ROUGE, text, text) for text in sampled]
        if len(selected) > 1:
            pairs += [
                (ROUGE + ELSEWHERE, text, other)
                for text, other in zip(selected, following, strict=True)
            ]
        faults = [
            f"{TEXTS_NAME}: {text['task']} {text['id']}: {name} is not that of its "
            "samples"
            for name, text, other in pairs
            if not _same(
                text[name],
                [rouge_l(other["truth"], one).recall for one in text["samples"]],
            )
        ]
    has_elsewhere = len(selected) > 1 and method + ELSEWHERE in selected[0]
    again = similarity_result(
        Similarities(
            method=method,
            selected_AK=_table(selected, method, row["n_samples"]),
            unselected_AK=_table(others, method, row["n_samples"]),
            elsewhere_AK=_table(selected, method + ELSEWHERE, row["n_samples"])
            if has_elsewhere
            else None,
            n_refused=row.get("n_refused", 0),
        ),
        name=row["benchmark"],
        fingerprint=row["fingerprint"],
        task=row["task"],
        primary=row["primary"],
        n_samples=row["n_samples"],
        seed=seed,
    )
    return again, faults


def _table(texts: Sequence[Row], name: str, n_samples: int) -> np.ndarray:
    values = [[_float(value) for value in text[name]] for text in texts]
    return np.array(values, np.float64).reshape(len(texts), n_samples)


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _same(stored: Any, again: Any) -> bool:
    if isinstance(again, list):
        return (
            isinstance(stored, list)
            and len(stored) == len(again)
            and all(map(_same, stored, again))
        )
    if isinstance(again, float) and isinstance(stored, int | float):
        return math.isclose(stored, again, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(stored) is type(again) and stored == again
