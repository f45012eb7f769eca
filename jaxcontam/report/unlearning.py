"""Report of `jaxcontam unlearning`: report.json, texts.jsonl, and a page.

`texts.jsonl` is the evidence: scores, ratios, samples and their similarities, from
which every count and every mean follows.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.report.document import (
    is_report_of,
    make_folder,
    replace_bytes,
    save_document,
    to_document,
)
from jaxcontam.report.membership import TEXTS_NAME, read_text_rows
from jaxcontam.report.page_words import UNLEARNING
from jaxcontam.report.template import PAGE_NAME, MethodNote, render
from jaxcontam.results import ModelInfo, Report
from jaxcontam.results.unlearning import QUESTIONS, ScreenResult, SimilarityResult

COMMAND = "unlearning"
MEANING = (
    "A text is suspicious if the two models score it alike. That is a screen and "
    "proves nothing: a text that the original model never knew is suspicious, too. "
    "What speaks for a text that survived is the unlearned model writing it: samples "
    "of suspicious texts that come closer to the truth than samples of other texts do. "
    "Read the closest ones: a beginning gives away its subject and its names, and a "
    "common phrase needs no memory. Silence does not say that a text was forgotten: "
    "another prompt may bring it back."
)
_MEASURES = {
    "rouge_l_recall": "ROUGE-L",
    "embedding_cosine": "cosine",
    "judge": "judge",
}
_AXES = {
    "rouge_l_recall": "ROUGE-L recall",
    "embedding_cosine": "cosine of embeddings",
    "judge": "the judge's number",
}
_SCREENS = {"min_k": "Min-K% Prob", "perplexity": "perplexity"}


def is_unlearning(document: Mapping[str, Any]) -> bool:
    """Whether a report is one of `jaxcontam unlearning`."""
    return is_report_of(document, COMMAND)


def write_unlearning(
    report: Report,
    original: ModelInfo,
    results: Sequence[ScreenResult | SimilarityResult],
    rows: Sequence[Mapping[str, Any]],
    out: Path,
) -> dict[str, Any]:
    """Write `texts.jsonl` and then `report.json`, each whole or not at all.

    Args:
        report: Its model is the unlearned one; without results.
        original: The model before unlearning.
        results: Screens and similarities.
        rows: One a text.
        out: Folder, created if missing.

    Returns:
        The document as written.
    """
    make_folder(out)
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    data = "".join(line + "\n" for line in lines).encode()
    document = to_document(report)
    document["original"] = dataclasses.asdict(original)
    rows_of = [dataclasses.asdict(result) for result in results]
    document["results"] = json.loads(json.dumps(rows_of))
    save_document(document, TEXTS_NAME, data, out)
    return document


def write_unlearning_page(
    document: Mapping[str, Any], directory: Path, methods: Sequence[MethodNote]
) -> Path:
    """Write report.html of a run of `unlearning`; returns its path."""
    from jaxcontam.report.unlearning_plots import ratio_plot, similarity_plot

    texts = read_text_rows(directory)
    blocks = []
    for task in dict.fromkeys(row["task"] for row in document["results"]):
        rows = [row for row in document["results"] if row["task"] == task]
        own = [text for text in texts if text["task"] == task]
        screens = [row for row in rows if "n_suspicious" in row]
        measures = [row for row in rows if "n_suspicious" not in row]
        blocks.append(
            {
                "name": f"{rows[0]['benchmark']}, {task}",
                "sentences": unlearning_sentences({"results": rows}),
                "screens": [screen_cells(row)[1:] for row in screens],
                "measures": [similarity_cells(row)[1:] for row in measures],
                "ratio_svg": ratio_plot(own, screens),
                "similarity_svgs": [
                    similarity_plot(own, row["method"], _AXES[row["method"]])
                    for row in measures
                    if row["selected"] is not None or row["unselected"] is not None
                ],
                "best": _closest(own, "rouge_l_recall"),
            }
        )
    model, original = document["model"], document["original"]
    fields = {
        "title": f"Unlearning: {model['name']} after {original['name']}",
        "subtitle": f"Made {document['started']} in {document['wall_seconds']:.0f} s.",
        "meaning": MEANING,
        "blocks": blocks,
    }
    page = render(
        "unlearning.html.j2", document, fields, methods=methods, words=UNLEARNING
    )
    replace_bytes(directory / PAGE_NAME, page.encode())
    return directory / PAGE_NAME


def unlearning_sentences(document: Mapping[str, Any]) -> list[str]:
    """What was found, and what speaks against it."""
    sentences = []
    said: set[tuple[str, str]] = set()
    for row in document["results"]:
        if "n_suspicious" in row:
            if row["primary"]:
                n, task = row["n_texts"], row["task"]
                what = f"{task} score" if n != 1 else f"{task.removesuffix('s')} scores"
                sentences.append(
                    f"{row['n_suspicious']} of {n} {what} alike before and after "
                    f"unlearning by {_SCREENS[row['method']]} (ratio between "
                    f"{1 / row['bound']:.4g} and {row['bound']:.4g})."
                )
        elif row["primary"] and row["selected"] is not None:
            sentences += _leading(row)
        # All measures of a task are of the same few texts.
        new = [words for words in row["warnings"] if (row["task"], words) not in said]
        said.update((row["task"], words) for words in new)
        sentences += [f"{words.rstrip('.')}." for words in new]
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def _leading(row: Mapping[str, Any]) -> list[str]:
    """Sentences of the measure that leads."""
    what = "Answers to" if row["task"] == QUESTIONS else "Continuations of"
    sentences = [
        f"{what} suspicious {row['task']} repeat {row['selected']:.1%} of the words of "
        "the truth in their order."
    ]
    if row["difference"] is not None:
        is_more = row["difference_low"] > 0
        sentences.append(
            f"Those of other {row['task']} repeat {row['unselected']:.1%}: the "
            f"difference is {_points(row, 'difference')}, "
            + (
                f"so some {row['task']} survived or are easier to guess."
                if is_more
                else "which is within what chance does."
            )
        )
    if row["above_elsewhere"] is not None:
        sentences.append(
            "Of another suspicious text's truth the same samples repeat "
            f"{_points(row, 'above_elsewhere')} less; a beginning gives away its "
            "subject, so part of this needs no memory."
        )
    return sentences


def _points(row: Mapping[str, Any], name: str) -> str:
    value, low, high = (100 * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:.1f} points ({low:.1f} to {high:.1f})"


def screen_cells(row: Mapping[str, Any]) -> list[str]:
    """Task, screen, texts, suspicious ones, and their share with its interval."""
    screen = _SCREENS[row["method"]]
    setting = f" ({row['setting']})" if row["setting"] else ""
    return [
        row["task"],
        screen + setting,
        f"{row['n_texts']:,}",
        f"{row['n_suspicious']:,}",
        f"{row['share']:.1%} ({row['share_low']:.1%} to {row['share_high']:.1%})",
    ]


def similarity_cells(row: Mapping[str, Any]) -> list[str]:
    """Task, measure, both arms, their difference, and how far above elsewhere."""
    names = ("selected", "unselected", "difference", "above_elsewhere")
    return [
        row["task"],
        _MEASURES[row["method"]],
        *(_with_interval(row, name) for name in names),
    ]


def _with_interval(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "-"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.2f} ({low:.2f} to {high:.2f})"


def _closest(
    texts: Sequence[Mapping[str, Any]], method: str, most: int = 3
) -> list[dict[str, str]]:
    """The samples of suspicious texts that come closest to the truth."""
    found = [
        (value, text, sample)
        for text in texts
        if text["suspicious"]["min_k"] and text.get(method)
        for value, sample in zip(text[method], text["samples"], strict=True)
        if value is not None
    ]
    # The best sample of each text.
    found.sort(key=lambda one: -one[0])
    best = {text["id"]: (value, text, sample) for value, text, sample in found[::-1]}
    return [
        {
            "value": f"{value:.2f}",
            "source": text["source"],
            "prompt": text["prompt"],
            "truth": text["truth"],
            "sample": sample,
        }
        for value, text, sample in sorted(best.values(), key=lambda one: -one[0])[:most]
    ]
