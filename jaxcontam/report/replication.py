"""Report of `jaxcontam replicate`: report.json, texts.jsonl, and its sentences.

`texts.jsonl` is the evidence: pieces, completions, scores and labels, from which every
count, every p-value and every verdict follows.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxcontam.report.document import (
    is_report_of,
    make_folder,
    save_document,
    to_document,
)
from jaxcontam.report.membership import TEXTS_NAME
from jaxcontam.results import Report
from jaxcontam.results.replication import (
    COMPARISONS,
    ComparisonResult,
    JudgeResult,
    OverlapResult,
)

COMMAND = "replicate"
ASKED: Mapping[str, type] = {"benchmark": str, "arm": str}
"""Fields of a row of `texts.jsonl`."""
MEANING = (
    "A model that writes the second piece of an instance word for word has most likely "
    "seen it. The verdict counts such copies; it is a rule, and texts that are common "
    "on the web are copied from there. A control set that cannot have been seen shows "
    "how many copies mean nothing, so that without one the word is at most suspected. "
    "Second pieces that follow from the first, by repeating or counting on, are left "
    "out. "
    "Finding no copy does not say that a partition was not seen: a model may know it "
    "and answer in other words."
)
_MEASURES = {"rouge_l": "ROUGE-L", "bleurt": "BLEURT", "embedding": "embedding cosine"}
_TESTS = {
    "sign_flip": "sign flips",
    "paired_bootstrap": "paired bootstrap",
    "unpaired_bootstrap": "unpaired bootstrap, as released",
}
_JUDGES = {
    "judge_local": "local judge",
    "judge_llm": "chat model",
    "judge_human": "people",
}
_COMPARISONS = {
    "first_instances": "first instances of the split",
    "cdd": "peaked samples (CDD)",
    "ts_guessing_word": "a masked word (TS-guessing)",
    "ts_guessing_option": "a masked option (TS-guessing)",
}

# Whether a test's p-value is at most 0.05.
_BELOW = {"contaminated": "yes", "suspected": "yes", "no evidence": "no"}

Row = Mapping[str, Any]


def is_replication(document: Row) -> bool:
    """Whether a report is one of `jaxcontam replicate`."""
    return is_report_of(document, COMMAND)


def is_judge(row: Row) -> bool:
    """Whether a row of the report counts copies."""
    return row["method"] in _JUDGES


def is_comparison(row: Row) -> bool:
    """Whether a row is of a method that asks otherwise."""
    return row["method"] in COMPARISONS


def write_replication(
    report: Report,
    results: Sequence[OverlapResult | JudgeResult | ComparisonResult],
    rows: Sequence[Row],
    out: Path,
) -> dict[str, Any]:
    """Write `texts.jsonl` and then `report.json`, each whole or not at all.

    Args:
        report: Without results.
        results: One a judge, a test and a comparison.
        rows: One an instance, and one an answer of a comparison.
        out: Folder, created if missing.

    Returns:
        The document as written.
    """
    make_folder(out)
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    data = "".join(line + "\n" for line in lines).encode()
    document = to_document(report)
    document["results"] = json.loads(
        json.dumps([dataclasses.asdict(result) for result in results])
    )
    save_document(document, TEXTS_NAME, data, out)
    return document


def judge_cells(row: Row) -> list[str]:
    """Judge, judged, exact, near, share of copies, control, verdict."""
    share = "-"
    if row["rate"] is not None:
        share = f"{row['rate']:.0%} ({row['rate_low']:.0%} to {row['rate_high']:.0%})"
    control = "-"
    if row["n_control"]:
        control = (
            f"{row['control_copies']} of {row['n_control']}, "
            f"p {_p_text(row['p_control'])}"
        )
    return [
        _JUDGES[row["method"]],
        f"{row['n_instances']}",
        f"{row['n_exact']}",
        f"{row['n_near']}",
        share,
        control,
        row["verdict"] or "-",
    ]


def overlap_cells(row: Row) -> list[str]:
    """Measure, test, pairs, guided, general, p, and whether it is below 0.05."""
    measure, test = measure_and_test(row["method"])
    return [
        _MEASURES.get(measure, measure),
        _TESTS[test],
        f"{row['n_instances']}",
        _share_text(row["guided"]),
        _share_text(row["general"]),
        _p_text(row["p_value"]),
        _BELOW.get(row["verdict"], "-"),
    ]


def comparison_cells(row: Row) -> list[str]:
    """Method, asked, found, share, chance, finding."""
    share = "-"
    if row["rate"] is not None:
        share = f"{row['rate']:.0%}"
        if row["rate_low"] is not None:
            share += f" ({row['rate_low']:.0%} to {row['rate_high']:.0%})"
    return [
        _COMPARISONS[row["method"]],
        f"{row['n_instances']}",
        f"{row['n_found']}",
        share,
        "-" if row["chance"] is None else f"{row['chance']:.1%}",
        row["finding"],
    ]


def measure_and_test(method: str) -> tuple[str, str]:
    """`rouge_l_sign_flip` -> `rouge_l`, `sign_flip`.

    Raises:
        ValueError: If it is no such name.
    """
    for test in _TESTS:
        if method.endswith(f"_{test}"):
            return method.removesuffix(f"_{test}"), test
    raise ValueError(f"no overlap test: {method!r}")


def replication_sentences(rows: Sequence[Row]) -> list[str]:
    """What was found of one partition, and what speaks against it.

    Args:
        rows: The partition's rows of the report.
    """
    sentences: list[str] = []
    for row in rows:
        if is_judge(row):
            sentences += _judge_sentences(row)
    flips = [row for row in rows if row["method"].endswith("_sign_flip")]
    for row in flips:
        if row["p_value"] is None:
            continue
        measure = _MEASURES.get(measure_and_test(row["method"])[0], row["method"])
        means = f"{row['guided']:.2f} against {row['general']:.2f} by {measure}"
        p = f"one-sided p = {_p_text(row['p_value'])}, exact"
        if _BELOW.get(row["verdict"]) == "yes":
            sentence = (
                f"Naming the partition makes completions more like its text: {means} "
                f"({p}). That alone is no copy: a longer, more exacting instruction "
                "can do it."
            )
        elif row["guided"] < row["general"]:
            sentence = (
                f"With the partition named, completions are less like its text, not "
                f"more: {means} ({p})."
            )
        else:
            sentence = (
                "This does not show that naming the partition brings completions "
                f"closer to its text: {means} ({p})."
            )
        sentences.append(sentence)
    methods = {row["method"] for row in rows}
    if flips and "bleurt_sign_flip" not in methods:
        sentences.append(
            "BLEURT was left out, since no checkpoint was given (--bleurt, "
            "docs/bleurt.md)."
        )
    said: set[str] = set()
    for row in rows:
        new = [words for words in row["warnings"] if words not in said]
        said.update(new)
        sentences += [f"{words.rstrip('.')}." for words in new]
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def _judge_sentences(row: Row) -> list[str]:
    name = _JUDGES[row["method"]]
    sentences = []
    if row["primary"]:
        sentences += [_verdict_sentence(row, name), *_left_out_sentences(row)]
        sentences += _control_sentences(row)
    elif row["n_short"]:
        sentences.append(_short_sentence(row))
    if row["n_unparsed"] or row["n_refused"]:
        sentences.append(
            f"The {name} gave no readable answer to {row['n_unparsed']} and refused, "
            f"or had nothing to judge in, {row['n_refused']}."
        )
    if row["agreement"] is not None:
        sentences.append(
            f"Of people's labels the {name} agrees with {row['agreement']:.1%}; always "
            f"saying no would reach {row['agreement_of_always_no']:.1%}"
            + ("." if row["f1"] is None else f". F1 of copies: {row['f1']:.2f}.")
        )
    return sentences


def _verdict_sentence(row: Row, name: str) -> str:
    if not row["n_instances"]:
        n_follows = row.get("n_follows", 0)
        why = f"; {n_follows} follow from their first pieces" * (n_follows > 0)
        return f"No verdict: the {name} judged none of the completions{why}."
    n_copies = row["n_exact"] + row["n_near"]
    counted = (
        f"{n_copies} of {row['n_instances']} completions are copies ({row['n_exact']} "
        f"exact, {row['n_near']} near-exact) by the {name}"
    )
    if row["n_short"]:
        counted += f"; {_short_sentence(row).removesuffix('.')}"
    if row["verdict"] is None:
        return f"No verdict: {counted}, but the control shows nothing about them."
    rule = f"the rule is at least one exact or {row['fewest_near']} near-exact ones"
    if row["n_control"]:
        rule += ", and significantly more than in the control (p <= 0.001; suspected "
        rule += "from p <= 0.05)"
    elif row["verdict"] == "suspected":
        rule += "; contaminated needs a control that cannot have been seen (--control)"
    return f"{row['verdict']}: {counted}; {rule}."


def _left_out_sentences(row: Row) -> list[str]:
    """How many instances follow from their first pieces, of both arms."""
    counts = {
        "": row.get("n_follows", 0),
        "In the control, ": row.get("n_control_follows", 0),
    }
    return [
        f"{where}{n} instances are left out: their second pieces follow from the first "
        "by repeating or counting on."
        for where, n in counts.items()
        if n
    ]


def _short_sentence(row: Row) -> str:
    return (
        f"{row['n_short']} of the exact ones are of references of one or two words, "
        "which a model that knows the answer meets, so they do not decide."
    )


def _control_sentences(row: Row) -> list[str]:
    """What the control says, or why it says nothing."""
    n_lost = row["n_control_unparsed"] + row["n_control_refused"]
    if not row["n_control"]:
        if n_lost:
            return [
                "Control not answered: none of its completions was judged "
                f"({row['n_control_refused']} refused, {row['n_control_unparsed']} "
                "answers of the judge not readable)."
            ]
        if row["n_exact"] + row["n_near"]:
            return ["No control was given, so copies of well-known texts count, too."]
        return []
    of_control = f"{row['control_copies']} of {row['n_control']}"
    if row["p_control"] is None:
        return [f"In the control, {of_control} are copies."]
    found = f"In the control, {of_control} are copies (Fisher's p = "
    found += f"{_p_text(row['p_control'])}). "
    if row["n_needed"] is not None:
        return [
            f"{found}With this control it takes {row['n_needed']} copies of "
            f"{row['n_instances']} for p <= 0.001."
        ]
    if row["verdict"] is None:
        return [
            f"{found}It is too small: not even {row['n_instances']} copies of "
            f"{row['n_instances']} would be significantly more than none of "
            f"{row['n_control']}."
        ]
    return [
        f"{found}Not even {row['n_instances']} copies of {row['n_instances']} would "
        "give p <= 0.001."
    ]


def _p_text(p: float | None) -> str:
    if p is None:
        return "-"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def _share_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
