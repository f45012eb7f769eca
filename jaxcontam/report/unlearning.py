"""Reports of `jaxcontam unlearning`: sentences, tables, and the closest samples."""

from collections.abc import Sequence

import numpy as np

from jaxcontam.report.numbers import interval_of
from jaxcontam.report.page import report_page
from jaxcontam.report.page_words import UNLEARNING
from jaxcontam.report.section import (
    Code,
    Details,
    Figure,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
)
from jaxcontam.results import Report
from jaxcontam.results.terms import Words
from jaxcontam.results.unlearning import (
    QUESTIONS,
    ScreenedText,
    ScreenResult,
    SimilarityResult,
)

COMMAND = "unlearning"
MEANING = (
    "A text is suspicious if the two models score it alike: a screen, which proves "
    "nothing. What speaks for a text that survived is the unlearned model writing it: "
    "samples of suspicious texts that come closer to the truth than samples of other "
    "texts do. Read the closest ones: a beginning gives away its subject and its "
    "names, and a common phrase needs no memory."
)

_RATIOS = (
    "How many texts have each ratio; the band is suspicious. Ratios further out stand "
    "in the outermost bars."
)
_MEANS = (
    "Means over texts with 95 % bootstrap intervals, which are too narrow where all "
    "texts are chunks of a few books. Above elsewhere is what the samples of "
    "suspicious texts share with their own truth beyond what they share with another "
    "suspicious text's; the difference is that of the two kinds of texts."
)
_CHECK = (
    Code("jaxcontam verify DIR"),
    " counts every number again from ",
    Code("texts.jsonl"),
    " beside this file, which holds each text with its scores and samples; no model is "
    "needed.",
)
_MEANS_OF_SAMPLES = ("selected", "unselected", "difference", "above_elsewhere")
_BINS = 30
# Ratios further out stand in the last bar: one of a thousand would hide all others.
_FURTHEST = 3.0
_N_CLOSEST = 3


def unlearning_page(
    report: Report, texts: Sequence[ScreenedText], words: Words
) -> Page:
    """The page of a run of `unlearning`."""
    screens, measures = unlearning_rows(report)
    sections = [Section([Paragraph(MEANING)])]
    sections += [
        _task_section(
            [row for row in screens if row.task == task],
            [row for row in measures if row.task == task],
            [text for text in texts if text.task == task],
            words,
        )
        for task in dict.fromkeys(row.task for row in screens)
    ]
    names = [model.name for model in (report.model, report.original) if model]
    return report_page(
        report,
        sections,
        words,
        title=f"Unlearning: {' after '.join(names)}",
        kind=UNLEARNING,
        check=_CHECK,
    )


def unlearning_rows(
    report: Report,
) -> tuple[list[ScreenResult], list[SimilarityResult]]:
    """Screens and likenesses of a report."""
    screens = [row for row in report.results if isinstance(row, ScreenResult)]
    alike = [row for row in report.results if isinstance(row, SimilarityResult)]
    return screens, alike


def unlearning_sentences(
    rows: Sequence[ScreenResult | SimilarityResult], words: Words
) -> list[str]:
    """What was found of one task or of all, and what speaks against it."""
    sentences = []
    said: set[tuple[str, str]] = set()
    for row in rows:
        if isinstance(row, SimilarityResult):
            if row.primary and row.selected is not None:
                sentences += _leading_sentences(row)
        elif row.primary:
            n, task = row.n_texts, row.task
            what = f"{task} score" if n != 1 else f"{task.removesuffix('s')} scores"
            sentences.append(
                f"{row.n_suspicious} of {n} {what} alike before and after "
                f"unlearning by {words[row.method].label} (ratio between "
                f"{1 / row.bound:.4g} and {row.bound:.4g})."
            )
        # All measures of a task are of the same few texts.
        new = [warning for warning in row.warnings if (row.task, warning) not in said]
        said.update((row.task, warning) for warning in new)
        sentences += [f"{warning.rstrip('.')}." for warning in new]
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def unlearning_tables(
    screens: Sequence[ScreenResult], measures: Sequence[SimilarityResult], words: Words
) -> list[Table]:
    """Screens, and likeness of samples where there are any, for page and terminal."""
    screened = [
        [
            words[row.method].label + (f" ({row.setting})" if row.setting else ""),
            row.task,
            f"{row.n_texts:,}",
            f"{row.n_suspicious:,}",
            interval_of(row, "share", ".1%"),
        ]
        for row in screens
    ]
    alike = [
        [
            words[row.method].label,
            row.task,
            *(interval_of(row, name) for name in _MEANS_OF_SAMPLES),
        ]
        for row in measures
    ]
    screen = ("screen", "texts", "scored", "suspicious", "share (95 %)")
    sample = ("samples", "texts", "suspicious", "others", "difference")
    found = Table((*sample, "above elsewhere"), alike, "likeness of samples", (1,))
    return [Table(screen, screened, "screens", (1,)), *[found] * bool(alike)]


def _task_section(
    screens: Sequence[ScreenResult],
    measures: Sequence[SimilarityResult],
    texts: Sequence[ScreenedText],
    words: Words,
) -> Section:
    sentences = unlearning_sentences([*screens, *measures], words)
    screened, *alike = unlearning_tables(screens, measures, words)
    parts: list[Part] = [*map(Paragraph, sentences), screened]
    parts.append(Figure(_ratio_plot(screens, texts), _RATIOS))
    for table in alike:
        parts += [table, Paragraph(_MEANS, "quiet")]
    parts += [
        Figure(_similarity_plot(row.method, texts, words, screen=screens[0].method))
        for row in measures
        if row.selected is not None or row.unselected is not None
    ]
    parts += _closest(texts, screen=screens[0].method)
    first = screens[0]
    return Section(parts, f"{first.benchmark}, {first.task}")


def _leading_sentences(row: SimilarityResult) -> list[str]:
    """Sentences of the measure that leads."""
    what = "Answers to" if row.task == QUESTIONS else "Continuations of"
    sentences = [
        f"{what} suspicious {row.task} repeat {row.selected:.1%} of the words of "
        "the truth in their order."
    ]
    if row.difference is not None:
        points = _points(row.difference, row.difference_low, row.difference_high)
        end = "which is within what chance does."
        if (row.difference_low or 0.0) > 0:
            end = f"so some {row.task} survived or are easier to guess."
        sentences.append(
            f"Those of other {row.task} repeat {row.unselected:.1%}: the "
            f"difference is {points}, {end}"
        )
    if row.above_elsewhere is not None:
        ends = row.above_elsewhere_low, row.above_elsewhere_high
        sentences.append(
            f"The same samples repeat {_points(row.above_elsewhere, *ends)} less of "
            "another suspicious text's truth; a beginning gives away its subject, so "
            "part of this needs no memory."
        )
    return sentences


def _points(value: float, low: float | None, high: float | None) -> str:
    low, high = 100 * (low or 0.0), 100 * (high or 0.0)
    return f"{100 * value:.1f} points ({low:.1f} to {high:.1f})"


def _ratio_plot(screens: Sequence[ScreenResult], texts: Sequence[ScreenedText]) -> str:
    """Ratios of each screen, on a logarithmic axis, with the suspicious band."""
    from jaxcontam.report.plots import histogram

    bound = screens[0].bound
    furthest = max(_FURTHEST, bound**2)
    ratios = {
        row.method: np.array(
            [one for text in texts if (one := text.ratios[row.method]) is not None]
        )
        for row in screens
    }
    return histogram(
        ratios,
        "score or perplexity after unlearning over before",
        "texts",
        edges=np.geomspace(1 / furthest, furthest, _BINS + 1),
        shares=False,
        band=(1 / bound, bound),
        ticks=sorted({1 / furthest, 1 / bound, 1.0, bound, furthest}),
    )


def _similarity_plot(
    method: str, texts: Sequence[ScreenedText], words: Words, *, screen: str
) -> str:
    """Likeness of every sample, suspicious texts beside others, as shares."""
    from jaxcontam.report.plots import histogram

    arms: dict[str, list[float]] = {"others": [], "suspicious": []}
    for text in texts:
        arm = arms["suspicious" if text.suspicious[screen] else "others"]
        arm += [value for value in getattr(text, method) if value is not None]
    low = min(0.0, *arms["suspicious"], *arms["others"])
    edges = np.arange(0.5, 6) if method == "judge" else np.linspace(low, 1, _BINS + 1)
    groups = {name: np.array(values) for name, values in arms.items() if values}
    return histogram(groups, words[method].label, "share of samples", edges=edges)


def _closest(texts: Sequence[ScreenedText], *, screen: str) -> list[Details]:
    """The best sample of each suspicious text that comes closest to the truth."""
    best = []
    for text in texts:
        values = zip(text.rouge_l_recall, text.samples, strict=True)
        found = [(value, sample) for value, sample in values if value is not None]
        if text.suspicious[screen] and found:
            value, sample = max(found, key=lambda one: one[0])
            shown = [("Given", text.prompt), ("Text", text.truth)]
            best.append((value, text.source, [*shown, ("Unlearned model", sample)]))
    best.sort(key=lambda one: -one[0])
    return [
        Details(f"{source}: ROUGE-L recall {value:.2f}", shown)
        for value, source, shown in best[:_N_CLOSEST]
    ]
