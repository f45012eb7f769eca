"""Reports of `jaxcontam membership`: one sentence to paste, the page and its plots."""

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.amounts import counted
from jaxcontam.members.result import (
    BlindBaseline,
    DocumentRates,
    MembershipStudy,
    OperatingPoint,
    ScorePicture,
    ScoreResult,
    SetResult,
    Sweep,
    TextScores,
    TextThreshold,
)
from jaxcontam.members.scores import score_words
from jaxcontam.reports.methods import Words
from jaxcontam.reports.numbers import (
    interval_of,
    interval_words,
    plain_p,
    shown_or_dash,
)
from jaxcontam.reports.page import (
    THIS_ONE,
    Code,
    Figure,
    Page,
    PageWords,
    Paragraph,
    Part,
    Section,
    Table,
    looks_sentence,
    model_words,
    named_methods,
    report_page,
)
from jaxcontam.reports.read import read_result
from jaxcontam.reports.report import Report
from jaxcontam.reports.terms import NOT_CHECKED

if TYPE_CHECKING:
    import matplotlib.figure

# Points of an ROC curve; a screen shows no more across a plot.
_MOST_POINTS = 200
_WORDS = PageWords(
    assumed=(
        "That the two sides differ in training alone: the same source, years, topics "
        "and lengths. Only a split drawn at random ensures this.",
        "That texts (or documents, if a field names them) are independent draws.",
        "That the reference model, if one was used, read neither side.",
    ),
    limits=(
        "Nothing here proves that one particular text was read. Even a high AUC leaves "
        "single texts uncertain.",
        "An AUC near 0.5 does not say that the texts were not read: a text read once "
        "among billions of words is hardly more familiar than an unread one.",
        "A threshold or a rate holds only for texts like those on which it was found.",
        THIS_ONE,
    ),
)

COMMAND = "membership"

_MEANINGS = {
    "ranking": "A ranking, not a proof: if the two sides differ in topic, year or "
    "length, every score shifts. So blind baselines, which never query the model, are "
    "reported alongside. Texts that are merely less fluent rank lower with every "
    "model; a reference model that saw neither side (--reference) reveals that.",
    "set": "The p-value of a text is the share of known non-members that look at least "
    "as familiar to the model. It holds on average over texts from the same source as "
    "the non-members; it proves nothing about a single text. A text that is also among "
    "the non-members, or occurs more than once, has none.",
    "scores": "Scores alone: higher looks more familiar to the model. Without known "
    "non-members there is no threshold, no p-value and no verdict.",
}
_BOLD = (
    " The score in bold was fixed beforehand and alone decides; the others are not "
    "corrected for their number. AUC: how often a member scores above a non-member. "
    "Gain: AUC of the blind features with the score, minus AUC without it, both "
    "cross-validated."
)
_ROC = (
    "Share of members found against share of non-members taken for members, on "
    "logarithmic axes: a verdict on single texts depends on low false-positive rates."
)
_BLIND = {
    "bag_of_words": "a bag of words",
    "length": "length, compression",
    "numbers": "dates, numbers",
    "ngram": "an n-gram model of each side",
    "fluency": "an n-gram model of both sides",
    "reference": "the reference model",
}
_CHECK = (
    Code("texts.jsonl"),
    " in this folder holds each text with all its scores; ",
    Code("jaxcontam verify DIR"),
    " recomputes every number and the verdict from it, without the model.",
)
_RATES = (
    "A rate is the share of a document's texts at or above the cut. It is not the "
    "share of the document that was read, and proves nothing: unread documents show "
    "rates above zero, and a low rate does not clear a document. Intervals (Wilson) "
    "assume independent texts; texts of one document resemble each other, so the true "
    "intervals are wider."
)
_HELD_OUT = "Each is judged by the cut found on all other known documents."
_N_TOP = 20
_BEGINNING = 120
# Curves of more scores than this cannot be told apart.
_N_CURVES = 6
# Told apart by dash as well as by colour, for grey print and colour-blind readers.
_COLOURS = ("#2a7f62", "#8e4585", "#5b4636", "#0f8b8d", "#b8336a")
_DASHES = ("-", "--", ":", "-.")


def study_of(report: Report) -> MembershipStudy:
    """The study of a membership report: all that the run was asked for."""
    return read_result(MembershipStudy, report.study, "report.study")


def decisive_row(report: Report) -> ScoreResult | SetResult | None:
    """The row that decides; None where no sides are known."""
    rows = [row for row in report.results if isinstance(row, ScoreResult | SetResult)]
    return next((row for row in rows if row.primary), None)


def membership_page(
    report: Report, pictures: Sequence[ScorePicture], texts: Sequence[TextScores]
) -> Page:
    """The page of a run on `texts`; `pictures` only where both sides are known."""
    study, decisive = study_of(report), decisive_row(report)
    kind = "ranking" if isinstance(decisive, ScoreResult) else "set"
    first: list[Part] = [Paragraph(_MEANINGS[kind if decisive else "scores"])]
    if decisive is not None:
        sentence = membership_sentence(decisive, report.blind)
        first.insert(0, Paragraph(sentence, "lead"))
    warnings = (*study.warnings, *(decisive.warnings if decisive else ()))
    first += map(Paragraph, [*beside_words(decisive), *share_sentences(study)])
    if report.earlier:
        first.append(Paragraph(looks_sentence(report.earlier)))
    first += [Paragraph(f"Note: {warning}.") for warning in warnings]
    sections = [
        Section([*first, *_plots(pictures, texts, study.primary)]),
        *_rankings(report, study),
        *_thresholds(report.thresholds),
        *_documents(study.documents),
        *_top_texts(texts, study.primary),
    ]
    model = report.model
    return report_page(
        report,
        sections,
        membership_words(report),
        title="Membership report" + ("" if model is None else f": {model.name}"),
        subtitle="" if model is None else model_words(model),
        verdict=None if decisive is None else decisive.verdict,
        kind=_WORDS,
        check=_CHECK if decisive is not None else _CHECK[:2],
    )


def membership_words(report: Report) -> Words:
    """Words for the scores of a report."""
    found = {name: score_words(name) for name in named_methods(report)}
    return {name: words for name, words in found.items() if words is not None}


def membership_sentence(
    row: ScoreResult | SetResult, blind: Sequence[BlindBaseline]
) -> str:
    """One sentence about the row that decides, which can be pasted anywhere."""
    best = max(blind, key=lambda one: one.auc, default=None)
    without = "no blind baseline was made"
    if best is not None:
        without = f"the best blind baseline reaches {auc_words(best)}"
    who = "as a set, these texts" if isinstance(row, SetResult) else "members"
    verdict, meaning = row.verdict, "too few texts to tell"
    if verdict == "confounded" and best is not None:
        meaning = f"{blind_name(best.name)} separates the sides without any model;"
    elif verdict in ("members rank higher", "may rank higher"):
        meaning = f"{who} look more familiar to the model than non-members"
    elif verdict == "members rank lower":
        meaning = f"{who} look less familiar to the model than non-members"
    elif verdict == "no difference":
        meaning = f"{who} look like non-members"
    found = f"by {row.method}, AUC {auc_words(row)}, p {plain_p(row.p_value)}"
    return f"{row.benchmark}: {verdict}: {meaning} {found}; {without}."


def auc_words(row: ScoreResult | SetResult | BlindBaseline) -> str:
    """An AUC with its interval, if it has one."""
    return f"{row.auc:.2f}" if isinstance(row, SetResult) else interval_of(row, "auc")


def blind_name(name: str) -> str:
    """A blind baseline in words."""
    return _BLIND.get(name, name)


def ranking_columns(
    points: Sequence[OperatingPoint], *, intervals: bool = True
) -> list[tuple[str, Callable[[ScoreResult], str]]]:
    """Columns behind a score's name, its gain last: a title, and the cell of a row."""

    def rate(row: ScoreResult, i: int) -> str:
        one = row.operating_points[i]
        return interval_words(one.tpr, one.tpr_low if intervals else None, one.tpr_high)

    def gain(row: ScoreResult) -> str:
        low = row.increment_low if intervals else None
        return interval_words(row.increment, low, row.increment_high, "+z.2f")

    signs = {"le": "≤", "lt": "<"}
    return [
        ("AUC (95%)", auc_words),
        *(
            (
                f"TPR at FPR {signs[point.convention]} {point.fpr:.3g}",
                functools.partial(rate, i=i),
            )
            for i, point in enumerate(points)
        ),
        ("p, permuted labels", lambda row: plain_p(row.p_value)),
        ("gain over blind (95%)", gain),
    ]


def sweep_sentence(sweep: Sweep) -> str:
    """Chosen share of tokens, and its AUC."""
    tried = ", ".join(f"{name} {auc:.2f}" for name, auc in sweep.held_out_aucs.items())
    return (
        f"Sweep over k on a random half of the texts (AUC {tried}) chooses "
        f"{sweep.chosen}: AUC {sweep.auc:.2f} ± {sweep.auc_se:.2f} on the other half."
    )


def beside_words(row: ScoreResult | SetResult | None) -> list[str]:
    """Gain of the deciding score over a reference, if one was asked."""
    beside = None if row is None else row.beside_reference
    if beside is None:
        return []
    return [
        f"Compared with the reference model (AUC {beside.reference_auc:.2f}): "
        f"{beside.score} (AUC {beside.score_auc:.2f}) ranks better, p "
        f"{plain_p(beside.p_value)}; half of its effect exceeds that of the reference, "
        f"p {plain_p(beside.half_p_value)}. That it saw neither side {NOT_CHECKED}."
    ]


def share_sentences(study: MembershipStudy) -> list[str]:
    """Lower bound on the texts seen, its assumptions, and CoDeC's shares."""
    found, seen = [], study.seen
    if seen is not None:
        act, if_so = "were seen", ""
        if seen.low and not seen.beyond_reference:
            act = "rank above what the non-members explain"
            if_so = (
                " This may be a difference of kind: a reference model that saw neither "
                "side may show it too."
            )
        found.append(
            f"At least {seen.low:.1%} of {seen.n_texts:,} distinct texts in question "
            f"{act} (95%, by {seen.method}; estimate {seen.estimate:.1%}), if the "
            f"others are like the {seen.n_pool:,} non-members; seen texts that score "
            f"like unseen ones are not counted.{if_so}"
        )
    if study.codec:
        sides = ", ".join(
            f"{one.share:.1%} of {one.n_texts:,} {one.role}s ({one.low:.1%} to "
            f"{one.high:.1%})"
            for one in study.codec
        )
        found.append(
            f"CoDeC: another text of its own file lowers the confidence in {sides}; "
            "texts of a kind that the model knows have a high share even if unseen."
        )
    return found


def rate_sentence(found: DocumentRates) -> str:
    """The cut of document rates, and what it makes of the known documents."""
    return (
        f"Rates of documents, by {found.method}: the cut at {found.threshold:.4g} gets "
        f"{found.accuracy:.1%} of the texts of {found.n_members:,} seen and "
        f"{found.n_nonmembers:,} unseen documents right. Judged by the others, a seen "
        f"one shows a rate of {found.tpr_held_out:.0%} on average and an unseen one "
        f"{found.fpr_held_out:.0%} (accuracy {found.accuracy_held_out:.1%})."
    )


def rate_table(found: DocumentRates, *roles: str) -> Table:
    """Documents of some roles, highest rate first, then by name."""
    rows = [row for row in found.rates if row.role in roles]
    rows.sort(key=lambda row: (row.rate is None, -(row.rate or 0), row.document))
    cells = [
        [
            row.document,
            row.role,
            str(row.n_scored),
            shown_or_dash(row.rate, ".0%"),
            "-" if row.rate is None else f"{row.rate_low:.0%} to {row.rate_high:.0%}",
        ]
        for row in rows
    ]
    header = ("document", "known as", "texts", "rate", "95% interval")
    return Table(header, cells, "rates of documents", words=(1,))


def _documents(found: DocumentRates | None) -> list[Section]:
    if found is None:
        return []
    asked = rate_table(found, "text")
    known = rate_table(found, "member", "nonmember")
    first: list[Part] = [Paragraph(rate_sentence(found)), Paragraph(_RATES, "quiet")]
    first[1:1] = [asked] if asked.rows else []
    last = [Paragraph(_HELD_OUT, "quiet"), known]
    return [
        Section(first, "How much of each document?"),
        Section(last, "Known documents", is_folded=True),
    ]


def _rankings(report: Report, study: MembershipStudy) -> list[Section]:
    """AUC of each score; for texts in question, their difference without a score."""
    ranked = [row for row in report.results if isinstance(row, ScoreResult)]
    counts = _counts(decisive_row(report), study)
    blind = [[blind_name(one.name), auc_words(one)] for one in report.blind]
    if not ranked:
        header, label = ("blind baseline", "AUC (95%)"), "blind baselines"
        parts = [Table(header, blind, label), Paragraph(counts, "quiet")]
        title = "Can the two files be told apart without the model?"
        return [Section(parts, title)] if blind else []
    columns = ranking_columns(ranked[0].operating_points)
    rows = [
        [f"{row.method} {row.setting}".rstrip(), *(cell(row) for _, cell in columns)]
        for row in ranked
    ]
    # Blind baselines have an AUC and nothing else.
    blanks = [""] * (len(columns) - 1)
    rows += [[f"blind: {name}", auc, *blanks] for name, auc in blind]
    header = ("score", *(title for title, _ in columns))
    looks = ["primary" if row.primary else "" for row in ranked]
    label = "how well each score ranks"
    parts: list[Part] = [
        Table(header, rows, label, looks=[*looks, *["blind"] * len(blind)]),
        Paragraph(counts + _BOLD, "quiet"),
    ]
    if study.sweep is not None:
        parts.append(Paragraph(sweep_sentence(study.sweep)))
    return [Section(parts, "How well each score ranks")]


def _plots(
    pictures: Sequence[ScorePicture], texts: Sequence[TextScores], primary: str
) -> list[Part]:
    from jaxcontam.reports.figure import histogram

    parts: list[Part] = []
    # The primary score and the best others.
    best = sorted(pictures, key=lambda one: (one.method != primary, -one.auc))
    if best:
        svg = roc_plot(best[:_N_CURVES], primary=primary)
        parts.append(Figure(svg, _ROC))
    sides: dict[str, list[float]] = {"nonmember": [], "member": [], "text": []}
    for row in texts:
        if (value := row.scores[primary]) is not None:
            sides[row.role].append(value)
    other = "member" if sides["member"] else "text"
    if sides["nonmember"] and sides[other]:
        groups = {"non-members": sides["nonmember"], f"{other}s": sides[other]}
        svg = histogram(
            {name: np.array(values) for name, values in groups.items()},
            f"{primary}, higher = more likely a member",
            "share of the texts",
        )
        caption = f"{primary} of every text; higher is more familiar to the model."
        parts.append(Figure(svg, caption))
    return parts


def roc_plot(pictures: Sequence[ScorePicture], *, primary: str | None = None) -> str:
    """ROC curves of scores of the same texts, both rates on a logarithmic scale.

    It shows what matters in an audit: how many members are found where false alarms
    are rare. It begins below one non-member. The primary score is drawn heavier.
    """
    from jaxcontam.reports.figure import BLUE, GREY, ORANGE, TALL, plotted, svg_text

    colours = (BLUE, ORANGE, *_COLOURS)
    first = pictures[0]
    floors = 0.5 / len(first.nonmembers), 0.5 / len(first.members)
    with plotted(TALL) as (figure, axes):
        axes.plot([floors[0], 1], [floors[0], 1], color=GREY, lw=0.8, label="chance")
        for i, picture in enumerate(pictures):
            fpr_R, tpr_R = _thinned(picture.fpr, picture.tpr)
            axes.step(
                np.maximum(fpr_R, floors[0]),
                np.maximum(tpr_R, floors[1]),
                where="post",
                color=colours[i % len(colours)],
                ls=_DASHES[i % len(_DASHES)],
                lw=2.2 if picture.method == primary else 1.0,
                label=f"{picture.method}, AUC {picture.auc:.3f}",
            )
        axes.set(xscale="log", yscale="log")
        axes.set(xlim=(floors[0], 1), ylim=(min(floors), 1.05))
        axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
        figure.legend(loc="outside lower center", frameon=False, ncols=2)
        labels = axes.get_legend_handles_labels()[1]
        return svg_text(figure, f"ROC curves: {'; '.join(labels)}")


def _thinned(fpr_R: np.ndarray, tpr_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fewer points, spread over ranks on a log scale, where few would be told apart."""
    n = len(fpr_R)
    if n <= _MOST_POINTS:
        return fpr_R, tpr_R
    kept = np.geomspace(1, n, _MOST_POINTS).round().astype(np.int64) - 1
    even = np.linspace(0, n - 1, _MOST_POINTS).round().astype(np.int64)
    chosen = np.unique(np.concatenate([kept, even]))
    return fpr_R[chosen], tpr_R[chosen]


def membership_figure(
    scores: Sequence[ScoreResult | SetResult], blind: Sequence[BlindBaseline]
) -> "matplotlib.figure.Figure":
    """AUC of every score and of every blind baseline, with 95 % intervals."""
    from jaxcontam.reports.figure import DECIDES, interval_row, intervals_figure

    if not scores:
        raise ValueError("no members and non-members are known, so there is no AUC")
    rows = [
        interval_row(row, "auc", row.method, DECIDES[row.primary]) for row in scores
    ]
    rows += [interval_row(one, "auc", blind_name(one.name)) for one in blind]
    return intervals_figure(rows, "AUC", nothing=0.5)


def _thresholds(rows: Sequence[TextThreshold]) -> list[Section]:
    header = ("score", "wanted FPR", "threshold", "its FPR on new non-members (95%)")
    header += ("texts above", "discoveries (Benjamini-Hochberg)")
    cells = [
        [
            row.method,
            f"{row.fpr:.3g}",
            "too few non-members" if row.threshold is None else f"{row.threshold:.4g}",
            "-" if row.fpr_low is None else f"{row.fpr_low:.3f} to {row.fpr_high:.3f}",
            shown_or_dash(row.n_above, "d"),
            str(row.n_discoveries),
        ]
        for row in rows
    ]
    table = Table(header, cells, "thresholds")
    return [Section([table], "Which threshold?")] if cells else []


def _top_texts(texts: Sequence[TextScores], primary: str) -> list[Section]:
    asked = [(row.scores[primary], row) for row in texts if row.role == "text"]
    scored = [(value, row) for value, row in asked if value is not None]
    with_p = any(row.p_value is not None for row in texts)
    rows = []
    for value, row in sorted(scored, key=lambda one: -one[0])[:_N_TOP]:
        rows.append([str(row.id), row.text[:_BEGINNING], f"{value:.4g}"])
        p_value = row.no_p_value or plain_p(row.p_value)
        rows[-1] += [p_value, plain_p(row.p_adjusted)] if with_p else []
    header = ("text", "begins", primary, *(("p", "p, adjusted") if with_p else ()))
    table = Table(header, rows, "most familiar texts", words=(1,))
    return [Section([table], "Most familiar texts")] if rows else []


def _counts(row: ScoreResult | SetResult | None, study: MembershipStudy) -> str:
    if row is None:
        return ""
    kind = "members" if isinstance(row, ScoreResult) else "texts in question"
    words = [f"{row.n_members:,} {kind}, {row.n_nonmembers:,} non-members"]
    if isinstance(row, ScoreResult) and row.n_clusters is not None:
        words.append(f"from {counted(row.n_clusters, 'document')}")
    if study.n_left_out:
        one = "text is part of a prefix and is left out"
        several = "texts are part of a prefix and are left out"
        words.append(counted(study.n_left_out, one, several))
    if study.n_unscored:
        words.append(
            f"{counted(study.n_unscored, 'text has', 'texts have')} no token to score"
        )
    return "; ".join(words) + "."
