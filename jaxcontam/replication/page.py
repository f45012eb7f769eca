"""Reports of `replicate`: methods, sentences, tables, completions and plots."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxcontam.replication.comparisons import ComparisonResult
from jaxcontam.replication.control import JudgeResult, fewest_near
from jaxcontam.replication.overlap import OVERLAP_TESTS, OverlapResult, measure_and_test
from jaxcontam.reports.methods import MethodRow, Words, words_of
from jaxcontam.reports.numbers import interval_of, shown_or_dash
from jaxcontam.reports.page import (
    THIS_ONE,
    Code,
    Details,
    Figure,
    Items,
    Page,
    PageWords,
    Paragraph,
    Section,
    Table,
    model_words,
    named_methods,
    report_page,
)
from jaxcontam.reports.report import Report
from jaxcontam.reports.terms import CONTAMINATED_LEVEL, NOT_CHECKED

if TYPE_CHECKING:
    import matplotlib.figure


COMMAND = "replicate"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationMethod(MethodRow):
    """A method of `replicate`; `departure` from the authors' code, if any."""

    label: str = ""
    gives: str
    needs: str = "completions"
    departure: str = ""


_GOLCHIN = "Golchin and Surdeanu 2023"
_BOTH = "2k answers, shared by all overlaps"
_ROWS = (
    ReplicationMethod(
        name="judge_local",
        label="local judge",
        gives="verdict: 1 exact copy, or 2 near-exact ones of 10 (8 of 50); without a "
        "control and a reference model at most suspected",
        cost="k answers, and k of a control; both of a reference",
        finds="copies word for word, or nearly; also texts known from elsewhere, which "
        "a control shows",
        source=f"the rule: {_GOLCHIN}, algorithm 2; the judge is ours",
        departure="no model judges: equality, or ROUGE-L and content-word precision; "
        "pieces that repeat the first piece, or continue its counting, are left out",
    ),
    ReplicationMethod(
        name="judge_llm",
        label="chat model",
        gives="verdict by the same rule, instead of judge_local's",
        needs="completions, and a chat model (--judge api:URL#NAME)",
        cost="k answers, and k of the judge",
        finds="as judge_local; also copies in other words",
        source=f"{_GOLCHIN}, algorithm 2 and figure 2",
        departure="examples of our own; answers that do not parse are counted",
    ),
    ReplicationMethod(
        name="judge_human",
        label="people",
        gives="agreement of the judges with people",
        needs="annotate.csv filled in (--judge FILE.csv)",
        cost="none",
        finds="what people call a copy",
        source=_GOLCHIN,
    ),
    ReplicationMethod(
        name="rouge_l_sign_flip",
        gives="p-value, exact",
        cost=_BOTH,
        finds="that naming the partition helps, for whatever reason",
        source=f"{_GOLCHIN}, algorithm 1; Fisher 1935 for the test",
        departure="exact sign flips of paired differences instead of a bootstrap; "
        "references not mostly in Latin letters are left out",
    ),
    ReplicationMethod(
        name="rouge_l_paired_bootstrap",
        gives="p-value, asymptotic: rejects too often at k = 10",
        cost=_BOTH,
        finds="the same",
        source=f"{_GOLCHIN}, algorithm 1, as their published p-values were made",
    ),
    ReplicationMethod(
        name="rouge_l_unpaired_bootstrap",
        gives="p-value, asymptotic: too conservative if instances differ",
        cost=_BOTH,
        finds="the same",
        source=f"{_GOLCHIN}, algorithm 1, as their released code has it",
    ),
    ReplicationMethod(
        name="bleurt",
        gives="the three tests above on BLEURT, such as bleurt_sign_flip",
        needs="completions, and a checkpoint (--compare bleurt:DIR)",
        cost=_BOTH,
        finds="also similar meaning in different words",
        source=f"{_GOLCHIN}; Sellam et al. 2020",
    ),
    ReplicationMethod(
        name="embedding",
        gives="the three tests above on the cosine of embeddings",
        needs="completions, and a model (--compare embedding:MODEL)",
        cost=_BOTH,
        finds="similar subject",
        source="ours",
    ),
    ReplicationMethod(
        name="first_instances",
        label="first instances of the split",
        gives="copied, suspicious or nothing found; at most suspected",
        needs="completions (--compare first_instances)",
        cost="1 answer",
        finds="the first rows of a split; often calls everything suspicious",
        source="Sainz et al. 2023",
        departure="a fixed rule instead of a reader's judgement",
    ),
    ReplicationMethod(
        name="cdd",
        label="peaked samples (CDD)",
        gives="rate of instances whose samples are peaked",
        needs="completions, sampled (--compare cdd)",
        cost="21k answers (--compare cdd:N)",
        finds="texts that come out the same at temperature 0.8; so do short or formal "
        "answers",
        source="Dong et al. 2024",
        departure="shares of samples, on tokens, as in the paper; ports count "
        "characters",
    ),
    ReplicationMethod(
        name="ts_guessing_word",
        label="a masked word (TS-guessing)",
        gives="rate of masked words that are found, compared with chance",
        needs="completions (--compare ts_guessing_word)",
        cost="at most k answers",
        finds="exact wording; also what is easy to guess",
        source="Deng et al. 2023",
        departure="a word drawn at random among all but function words; no tagger "
        "chooses it",
    ),
    ReplicationMethod(
        name="ts_guessing_option",
        label="a masked option (TS-guessing)",
        gives="rate of masked wrong options that are found, compared with chance",
        needs="completions; questions with options (--compare ts_guessing_option)",
        cost="at most k answers",
        finds="wrong options known by heart, which knowledge alone does not give",
        source="Deng et al. 2023",
        departure="compares with the option that was masked; a port with the right one",
    ),
    ReplicationMethod(
        name="file_path",
        label="the file of an issue (path probe)",
        gives="p-value, against a control, by whole repositories; at most suspected",
        needs="completions; issues with their fixes, and a control of repositories "
        "after the cutoff (--compare file_path --control)",
        cost="at most k answers, and k of a control",
        finds="code benchmarks whose fixes are known; also repositories that are "
        "better known, or easier to guess, than the control's",
        source="Liang et al. 2025, arXiv:2506.12286",
        departure="issues that name the file, or whose fix changes several, are left "
        "out; a test instead of two rates",
    ),
)

REPLICATION_METHODS: Mapping[str, ReplicationMethod] = {row.name: row for row in _ROWS}
"""In the order of reports."""


def replication_words(report: Report) -> Words:
    """Words for the methods of a report; BLEURT is one for all tests."""
    return {
        name: words_of(row, name)
        for name in named_methods(report)
        for row in REPLICATION_METHODS.values()
        if name == row.name or name.startswith(f"{row.name}_")
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskedInstance:
    """Completions of one instance: a row of `texts.jsonl`, as a page shows it."""

    id: int
    arm: str
    first_piece: str
    second_piece: str
    guided: str | None = None
    guided_refused: str | None = None
    general: str | None = None
    follows: bool = False
    repeats: bool = False
    rouge_l_guided: float | None = None
    rouge_l_general: float | None = None
    judge_local: str | None = None
    judge_llm: str | None = None
    judge_human: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationReport(Report):
    """A report of completions."""

    results: tuple[OverlapResult | JudgeResult | ComparisonResult, ...]


_WORDS = PageWords(
    assumed=(
        "That the control cannot have been seen and is as easy to guess as the "
        "benchmark: of the same kind, sources and years. A reference model shows if it "
        "is not, provided that it guesses as well as the model; one that has seen the "
        "benchmark hides contamination.",
        "That instances (or sources, if a field names them) are independent draws.",
        "That the server, if there is one, adds no search and no text of its own.",
    ),
    limits=(
        "Copies do not say where the model read them: in the benchmark, on a page that "
        "quotes it, or in the source from which its author took them. A text may also "
        "be completed by a model that never read it whole, from near-copies and "
        "shorter overlaps (Liu et al. 2025, arXiv:2503.17514).",
        "No evidence does not say that the partition was not seen. Models forget, and "
        "many are trained not to recite.",
        "Only a few instances were requested. They say little about the share of the "
        "partition that is known, and other wording or another temperature may give "
        "other answers.",
        THIS_ONE,
    ),
)
_RULE = (
    "The first row decides. The paper's rule is one exact copy, or two near-exact ones "
    f"of ten ({fewest_near(50)} of 50). A clean model meets it with well-known texts, "
    "so it gives at most suspected, and only if copies are significantly more frequent "
    "than in the control. Contaminated requires p <= 0.001 for that, and a reference "
    "model that has seen neither side: it copies less than a tenth of what the model "
    "copies of the benchmark (p <= 0.05), writes as close to the control as the model "
    "does, and is exceeded by the model with p <= 0.001."
)
_SAME_KIND = (
    "that the control is as easy to guess as the benchmark, of the same kind and years"
)
_WHY = {
    "no control": "Contaminated requires a control that cannot have been seen and is "
    "as easy to guess (--control), and a reference model (--reference).",
    "weak": "Contaminated requires p <= 0.001 against the control.",
    "no reference": "The benchmark may be easier to guess than its control: "
    "contaminated requires a reference model that has seen neither (--reference).",
    "reference copies it": "The reference also copies more of the benchmark than of "
    "the control: the benchmark is easier to guess, or the reference has seen it.",
    "reference may share it": "The reference may copy a tenth or more of what the "
    "model copies, as one that reads less well does. Showing that it copies less takes "
    "at least 32 copies (from as many sources, if they are named): use more instances "
    "(--sample), with a reference of the same size and kind.",
    "reference reads less": "The reference writes less close to the control, which "
    "neither has seen: the model may guess what the reference cannot.",
    "reference too close": "What the model copies beyond the reference may be chance.",
}
"""By the reason of a verdict that is `suspected` and no more."""

_BOOTSTRAPS = (
    "Sign flips are exact. The paper's paired bootstrap rejects too often in samples "
    "of ten (7.6% at the 5% level, simulated); its released unpaired one is far too "
    "conservative if both completions depend on the instance."
)
_ABOVE = "Each point is an instance; above the line the guided completion is closer."
_CONTROL = (
    "These cannot have been learned from the control: they show how easily its texts "
    "are guessed."
)
_CHECK = (
    Code("jaxcontam verify DIR"),
    " measures, judges and tests every completion again, from ",
    Code("texts.jsonl"),
    " in this folder; no model is needed. ",
    Code("annotate.csv"),
    " is a blind sheet for people's labels: ",
    Code("--judge annotate.csv"),
    " reads it back.",
)
_MEASURES = {"rouge_l": "ROUGE-L", "bleurt": "BLEURT", "embedding": "embedding cosine"}
# Does a verdict mean a p-value of at most 0.05?
_BELOW = {"contaminated": "yes", "suspected": "yes", "no evidence": "no"}
_RANK = {"exact": 0, "near": 1, "no": 2, None: 3}
_MOST_SHOWN = 12


def replication_page(
    report: Report, instances: Sequence[AskedInstance], words: Words
) -> Page:
    """The page of a run of `replicate` on instances of both arms."""
    judges, overlaps, comparisons = replication_rows(report.results)
    (deciding,) = (row for row in judges if row.primary)
    judge = deciding.method
    counted = [one for one in instances if not (one.follows or one.repeats)]
    asked = [one for one in counted if one.arm == "partition"]
    met = [
        one
        for one in counted
        if one.arm == "control" and getattr(one, judge) in ("exact", "near")
    ]
    copies, overlap, others = replication_tables(report.results, words)
    sections = [
        Section([Items(replication_sentences(report.results, words))]),
        Section([copies, Paragraph(_RULE, "quiet")], "Copies"),
        Section(_closest(asked, judge, is_open=True), "Completions, the closest first"),
    ]
    if met:
        parts = [Paragraph(_CONTROL, "quiet"), *_closest(met, judge)]
        sections.append(Section(parts, "Copies in the control"))
    if overlaps:
        parts = [overlap, Paragraph(_BOOTSTRAPS, "quiet"), *_overlap_plot(asked, judge)]
        sections.append(Section(parts, "Guided against general instruction"))
    if comparisons:
        notes = (f"{row.method}: {row.setting}" for row in comparisons)
        parts = [others, *(Paragraph(note, "quiet") for note in notes)]
        sections.append(Section(parts, "Other methods"))
    versions = [("judge", deciding.judge_version)]
    if deciding.prompt_version:
        versions.append(("instructions", deciding.prompt_version))
    if (other := report.reference) is not None:
        said = f"{model_words(other)}, {other.fingerprint}"
        versions.append((f"reference {other.name}", said))
    asked_of = "" if report.model is None else f", of {report.model.name}"
    return report_page(
        report,
        sections,
        words,
        title=f"Replication: {deciding.benchmark}{asked_of}",
        verdict=deciding.verdict,
        kind=_WORDS,
        check=_CHECK,
        more=versions,
    )


def replication_rows(
    rows: Sequence[Any],
) -> tuple[list[JudgeResult], list[OverlapResult], list[ComparisonResult]]:
    """Judges, overlaps and comparisons of a report."""
    judges = [row for row in rows if isinstance(row, JudgeResult)]
    overlaps = [row for row in rows if isinstance(row, OverlapResult)]
    return judges, overlaps, [row for row in rows if isinstance(row, ComparisonResult)]


Columns = Mapping[str, Callable[[Any], str]]
"""Titles of a table with the cell of a row under each."""

_COUNTED: Columns = {
    "judged": lambda row: str(row.n_instances),
    "exact": lambda row: str(row.n_exact),
    "near": lambda row: str(row.n_near),
    "share (95%)": lambda row: interval_of(row, "rate", ".0%"),
    "control": lambda row: (
        f"{row.control_copies} of {row.n_control}, p {_p_text(row.p_control)}"
        if row.n_control
        else "-"
    ),
    "paper's rule": lambda row: "met" if row.meets_rule else "not met",
    "verdict": lambda row: row.verdict or "-",
}
_COMPARED: Columns = {
    "overlap": lambda row: _measure_of(row),
    "test": lambda row: OVERLAP_TESTS[measure_and_test(row.method)[1]],
    "pairs": lambda row: str(row.n_instances),
    "guided": lambda row: shown_or_dash(row.guided),
    "general": lambda row: shown_or_dash(row.general),
    "p": lambda row: _p_text(row.p_value),
    "at 0.05": lambda row: _BELOW.get(row.verdict or "", "-"),
}
_FOUND: Columns = {
    "n": lambda row: str(row.n_instances),
    "found": lambda row: str(row.n_found),
    "share (95%)": lambda row: interval_of(row, "rate", ".0%"),
    "by guessing": lambda row: shown_or_dash(row.chance, ".1%"),
    "finding": lambda row: row.finding,
}


def replication_tables(rows: Sequence[Any], words: Words) -> tuple[Table, Table, Table]:
    """Tables of judges, overlaps and comparisons, for page and terminal."""
    judges, overlaps, comparisons = replication_rows(rows)

    def table(
        rows: Sequence[Any], columns: Columns, label: str, wrapped: Sequence[int]
    ) -> Table:
        cells = [[cell(row) for cell in columns.values()] for row in rows]
        return Table([*columns], cells, label, words=wrapped)

    def name(row: Any) -> str:
        return words[row.method].label

    return (
        table(judges, {"judge": name, **_COUNTED}, "copies", (4, 5, 6, 7)),
        table(overlaps, _COMPARED, "guided against general instruction", (1, 6)),
        table(comparisons, {"method": name, **_FOUND}, "other methods", (5,)),
    )


def replication_sentences(rows: Sequence[Any], words: Words) -> list[str]:
    """Findings on one partition, and all that speaks against them."""
    judges, overlaps, comparisons = replication_rows(rows)
    sentences: list[str] = []
    for row in judges:
        sentences += _judge_sentences(row, words[row.method].label)
    flips = [row for row in overlaps if row.method.endswith("_sign_flip")]
    sentences += [_flip_sentence(row) for row in flips if row.p_value is not None]
    if flips and not any(row.method.startswith("bleurt_") for row in flips):
        sentences.append(
            "BLEURT was left out, since no checkpoint was given (bleurt:DIR, "
            "docs/how_to/replicate.md)."
        )
    found = (*judges, *overlaps, *comparisons)
    warnings = dict.fromkeys(warning for row in found for warning in row.warnings)
    sentences += [f"{warning.rstrip('.')}." for warning in warnings]
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def _judge_sentences(row: JudgeResult, name: str) -> list[str]:
    found = []
    if row.primary:
        left_out = {"": row.n_follows, "In the control, ": row.n_control_follows}
        found = [
            _verdict_sentence(row, name),
            *(
                f"{where}{n} instances are left out: their second pieces follow from "
                "the first by repetition or counting."
                for where, n in left_out.items()
                if n
            ),
            *_control_sentences(row),
            *_reference_sentences(row),
        ]
        if row.reason is not None:
            found.append(_WHY[row.reason])
    elif row.n_short:
        found.append(f"{_short_words(row)}.")
    if row.n_unparsed or row.n_refused:
        found.append(
            f"The {name} gave no readable answer to {row.n_unparsed}, and refused, or "
            f"found nothing to judge in, {row.n_refused}."
        )
    if row.agreement is not None:
        f1 = "" if row.f1 is None else f" F1 of copies: {row.f1:.2f}."
        found.append(
            f"The {name} agrees with {row.agreement:.1%} of people's labels; always "
            f"saying no would reach {row.agreement_of_always_no:.1%}.{f1}"
        )
    return found


def _verdict_sentence(row: JudgeResult, name: str) -> str:
    if not row.n_instances:
        n = row.n_follows
        why = f"; {n} follow from their first pieces" if n else ""
        return f"No verdict: the {name} judged none of the completions{why}."
    counted = (
        f"{row.n_exact + row.n_near} of {row.n_instances} completions are copies "
        f"({row.n_exact} exact, {row.n_near} near-exact) by the {name}"
    )
    if row.n_short:
        counted += f"; {_short_words(row)}"
    if row.verdict is None:
        return f"No verdict: {counted}, but the control shows nothing about them."
    return (
        f"{row.verdict}: {counted}; the paper's rule, at least one exact or "
        f"{row.fewest_near} near-exact ones, is {'' if row.meets_rule else 'not '}met."
    )


def _short_words(row: JudgeResult) -> str:
    return (
        f"{row.n_short} of the exact ones have references of one or two words, which a "
        "model that knows the answer can match, so they do not decide"
    )


def _control_sentences(row: JudgeResult) -> list[str]:
    n, needed = row.n_instances, row.n_needed
    if not row.n_control:
        if row.n_control_unparsed + row.n_control_refused:
            return [
                "Control not answered: none of its completions was judged "
                f"({row.n_control_refused} refused, {row.n_control_unparsed} "
                "unreadable answers of the judge)."
            ]
        if row.n_exact + row.n_near:
            return ["No control was given, so copies of well-known texts count too."]
        return []
    found = f"In the control, {row.control_copies} of {row.n_control} are copies"
    if row.p_control is None:
        return [f"{found}."]
    if row.n_groups:
        floor = shared = ""
        if row.n_shared:
            shared = f", and within the {row.n_shared} that occur on both sides"
            if row.n_shared < row.n_groups:
                shared = f" (those of one size){shared}"
        if (row.p_control_floor or 0) > CONTAMINATED_LEVEL:
            floor = (
                " With so few sources p cannot be below "
                f"{_p_text(row.p_control_floor)}."
            )
        return [
            f"{found} (p = {_p_text(row.p_control)}, by permutations of the "
            f"{row.n_groups} values of {row.group_field}{shared}). This assumes that "
            f"these sources are independent, and {_SAME_KIND}.{floor}"
        ]
    enough = f"Not even {n} copies of {n} would give p <= 0.001."
    if needed is not None:
        enough = f"With this control p <= 0.001 takes {needed} copies of {n}."
    elif row.verdict is None:
        enough = (
            f"It is too small: not even {n} copies of {n} would be significantly more "
            f"than none of {row.n_control}."
        )
    return [
        f"{found} (Fisher's p = {_p_text(row.p_control)}). {enough}",
        "This assumes that instances are independent (name sources that several share "
        f"with --fields document=NAME), and {_SAME_KIND}.",
    ]


def _reference_sentences(row: JudgeResult) -> list[str]:
    one = row.reference
    if one is None:
        return []
    n = one.n_refused
    refused = f"; {n} requests to it were refused" if n else ""
    return [
        f"The reference copies {one.n_copies} of {one.n_instances}, and "
        f"{one.control_copies} of {one.n_control} of the control (p = "
        f"{_p_text(one.p_value)}). The hypothesis that it copies a tenth or more of "
        f"what the model copies of the benchmark has p = {_p_text(one.p_share)}, by an "
        "exact test of both counts. The model exceeds it by more in the benchmark with "
        f"p = {_p_text(one.p_excess)}, and writes closer to the control with p = "
        f"{_p_text(one.p_closer)}, both by exact sign flips{refused}. That it has seen "
        f"neither {NOT_CHECKED}."
    ]


def _measure_of(row: OverlapResult) -> str:
    name, _ = measure_and_test(row.method)
    return _MEASURES.get(name, name)


def _flip_sentence(row: OverlapResult) -> str:
    guided, general = row.guided or 0.0, row.general or 0.0
    means = f"{guided:.2f} against {general:.2f} by {_measure_of(row)}"
    p = f"one-sided p = {_p_text(row.p_value)}, exact"
    if _BELOW.get(row.verdict or "") == "yes":
        return (
            f"Naming the partition makes completions more like its text: {means} "
            f"({p}). That alone does not show copying: a longer, more demanding "
            "instruction can do it."
        )
    said = (
        "This does not show that naming the partition brings completions closer to "
        "its text"
    )
    if guided < general:
        said = "With the partition named, completions are less like its text, not more"
    return f"{said}: {means} ({p})."


def _closest(
    instances: Sequence[AskedInstance], judge: str, *, is_open: bool = False
) -> list[Details]:
    def place(one: AskedInstance) -> tuple[int, float, int]:
        return _RANK[getattr(one, judge)], -(one.rouge_l_guided or 0.0), one.id

    found = []
    for one in sorted(instances, key=place)[:_MOST_SHOWN]:
        summary = f"Instance {one.id + 1}: {getattr(one, judge) or 'not judged'}"
        if one.rouge_l_guided is not None:
            summary += f", ROUGE-L {one.rouge_l_guided:.2f}"
        texts = [
            ("Shown", one.first_piece),
            ("Reference", one.second_piece),
            ("Guided", one.guided_refused or one.guided or ""),
        ]
        if one.general is not None:
            texts.append(("General", one.general))
        found.append(Details(summary, texts, is_open=is_open and not found))
    return found


def _overlap_plot(asked: Sequence[AskedInstance], judge: str) -> list[Figure]:
    """ROUGE-L of instances, guided over general; empty where there are none."""
    from jaxcontam.reports.figure import BLUE, GREY, ORANGE, SQUARE, plotted, svg_text

    points = [
        (one.rouge_l_general, one.rouge_l_guided, label)
        for one in asked
        if one.rouge_l_general is not None
        and one.rouge_l_guided is not None
        and (label := getattr(one, judge)) is not None
    ]
    if not points:
        return []
    kinds = (("exact", ORANGE, "o"), ("near", BLUE, "s"), ("no", GREY, "x"))
    with plotted(SQUARE) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=GREY, lw=0.8)
        for kind, colour, marker in kinds:
            own = [(x, y) for x, y, label in points if label == kind]
            if own:
                x, y = zip(*own, strict=True)
                axes.plot(x, y, marker, color=colour, ms=5, alpha=0.8, label=kind)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.set_xlabel("ROUGE-L, general instruction")
        axes.set_ylabel("ROUGE-L, guided instruction")
        axes.legend(frameon=False)
        drawn = svg_text(
            figure,
            f"ROUGE-L of {len(points)} instances, guided over general instruction; "
            f"{sum(y > x for x, y, _ in points)} are closer when guided",
        )
    return [Figure(drawn, _ABOVE)]


def replication_figure(report: Report, words: Words) -> "matplotlib.figure.Figure":
    """Shares of copies by all judges, and of findings, with intervals."""
    from jaxcontam.reports.figure import DECIDES, interval_row, intervals_figure

    judges, _, others = replication_rows(report.results)
    rows = [
        interval_row(row, "rate", words[row.method].label, DECIDES[row.primary])
        for row in (*judges, *others)
        if row.rate is not None
    ]
    if not rows:
        raise ValueError("nothing was judged, so there is no share")
    return intervals_figure(rows, "share of instances that are found", nothing=0.0)


def _p_text(p: float | None) -> str:
    if p is None:
        return "-"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"
