"""The page of order tests: of an audit, of secrets, of rewrites, of a matrix."""

from collections.abc import Sequence

from jaxcontam.report.decision import AuditedFile, audited_files, why
from jaxcontam.report.neighbours import (
    attraction_rows,
    attraction_sentence,
    gains_of,
    pair_test,
)
from jaxcontam.report.numbers import effect_words, p_cell
from jaxcontam.report.order_words import (
    assumed_sentence,
    chance_sentence,
    checked_sentence,
    invalid_sentence,
    proof_words,
    screening_sentence,
    symmetry_sentence,
    verdict_sentence,
    where_sentence,
)
from jaxcontam.report.own_order import (
    OWN_ORDER_HEADER,
    own_order_rows,
    own_order_sentence,
)
from jaxcontam.report.page import report_page
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
from jaxcontam.report.provenance import model_words
from jaxcontam.report.reference import scale_sentence
from jaxcontam.report.reference_model import (
    SIDE_BY_SIDE_HEADER,
    reference_sentence,
    referred_test,
    side_by_side,
)
from jaxcontam.report.remedies import Advice, WayOut
from jaxcontam.report.section import (
    Badge,
    Cell,
    Code,
    Figure,
    Figures,
    Heading,
    Items,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
)
from jaxcontam.report.table import ResultTable, result_table
from jaxcontam.results import (
    MembershipResult,
    OrderResult,
    Pretest,
    Report,
    UnscoredFile,
)
from jaxcontam.results.terms import Words

_CHECK = (
    Code("jaxcontam verify DIR"),
    " recomputes every p-value, effect and verdict from ",
    Code("orders.npz"),
    " beside this file, without the model. ",
    Code("results.csv"),
    " holds the numbers of this page for a spreadsheet.",
)
_COPIES = (
    "Each point is one planted set. Above the dashed line a single test rejects at "
    "0.001; the dotted line is the smallest p-value that this design could have given."
)
_LOSS = "Loss of each step; marks below show when a copy of each set was trained on."
_GAINS = (
    "What an example gains beside its published neighbours, with 95 % intervals. "
    "Memory of the file adds to the upper bar alone; likeness of neighbours adds to "
    "both."
)
_LAGS = (
    "How much more expected an example is at each place after another one. A spike at "
    "+1 alone is memory: the model learned what comes next. A hill on both sides is "
    "natural order: like stands beside like."
)
_AUC = (
    "AUC: how often a text of the set scores above an unseen one. It ranks presence in "
    "any order, and proves nothing."
)
_EXPOSURE = (
    "Each secret among all held-out sequences: exposure is log2 of their number less "
    "log2 of the secret's rank."
)


def order_page(
    report: Report,
    pictures: Sequence[NullPicture | None],
    words: Words,
    loss: LossPicture | None = None,
) -> Page:
    """The page of a report of order tests.

    Args:
        report: What was found.
        pictures: One a result, None where nothing is drawn.
        words: Of the methods.
        loss: The training run that planted the sets, if its log is known.
    """
    files = audited_files(report.results)
    drawn = {
        id(result): picture
        for result, picture in zip(report.results, pictures, strict=True)
    }
    planted = [file.test for file in files if file.test.copies is not None]
    is_of_order = any(
        proof_words(words, file.test.method).limits == "order" for file in files
    )
    own = [proof_words(words, file.test.method) for file in files]
    meanings = dict.fromkeys(one.meaning + one.silence for one in own)
    sentences = [verdict_sentence(file.test, words, file.attracting) for file in files]
    screening = screening_sentence(report)
    rows = [
        row for row in report.results if isinstance(row, OrderResult | MembershipResult)
    ]
    places = result_table(rows)
    has_scores = any(isinstance(row, MembershipResult) for row in rows)
    sections = [
        Section([Items(sentences), *map(Paragraph, meanings)]),
        Section(
            [
                _results_table(places),
                *([Paragraph(_AUC, "quiet")] if has_scores else []),
                *([Paragraph(screening, "quiet")] if screening else []),
            ],
            "Results",
        ),
    ]
    if planted:
        label = "strength against copies"
        figure = Figure(copies_plot(planted), _COPIES, "wide", label)
        sections.append(Section([figure], "Strength against the number of copies"))
    if loss is not None:
        figure = Figure(loss_plot(loss), _LOSS, "wide", "training loss")
        sections.append(Section([figure], "Training"))
    advice = Advice(report.command, words)
    sections += [
        _file_section(file, drawn[id(file.test)], report, advice) for file in files
    ]
    sections += [_unscored_section(file, advice) for file in report.unscored]
    model = report.model
    return report_page(
        report,
        sections,
        words,
        title="Contamination report" + ("" if model is None else f": {model.name}"),
        subtitle=". ".join(_about(report)),
        kind=ORDER if is_of_order else VERSIONS,
        check=_CHECK,
    )


def _about(report: Report) -> list[str]:
    """What was tested, and how easy it was made."""
    about = [] if report.model is None else [model_words(report.model)]
    study = report.study or {}
    share, n_tokens = study.get("canary_share"), study.get("n_tokens")
    if isinstance(share, float) and isinstance(n_tokens, int):
        about.append(
            f"{share:.0%} of {n_tokens:,} training tokens are planted: an easy "
            "setting, which shows that the tool works, not its power on large models"
        )
    return about


def _results_table(places: ResultTable) -> Table:
    """A row a file: the tests that decide, the effect, and what stands beside."""
    # The verdict comes first: a phone shows two columns.
    header = [
        *("benchmark", "verdict"),
        *["copies"] * places.has_copies,
        *[f"p, {method}" for method in places.deciding],
        *("effect ± se", "detectable"),
        *[f"{places.quantity(method)}, {method}" for method in places.beside],
    ]
    rows: list[list[Cell]] = []
    for test in places.primaries:
        numbers = test.numbers
        rows.append(
            [
                test.benchmark,
                Badge(test.verdict or ""),
                *[str(test.copies)] * places.has_copies,
                *[
                    places.star(test, method) + _result_cell(places.at(test, method))
                    for method in places.deciding
                ],
                effect_words(numbers.effect, numbers.effect_se),
                "-" if numbers.mde is None else f"{numbers.mde:.2g}",
                *[_result_cell(places.at(test, method)) for method in places.beside],
            ]
        )
    return Table(header, rows, "results", words=(1,))


def _result_cell(result: OrderResult | MembershipResult | None) -> str:
    if result is None:
        return ""
    if isinstance(result, MembershipResult):
        return effect_words(result.auc, result.auc_se)
    return p_cell(result.numbers.log10_p, result.validity)


def _file_section(
    file: AuditedFile, picture: NullPicture | None, report: Report, advice: Advice
) -> Section:
    """All that is said of one file."""
    test, words = file.test, advice.words
    own = proof_words(words, test.method)
    parts: list[Part] = [Paragraph(verdict_sentence(test, words, file.attracting))]
    # Of an invalid design the sentence says it all.
    if test.verdict != "invalid design" and (reason := why(file)):
        parts.append(Paragraph(reason))
    parts += _ways_out(advice.about(file))
    parts += _attraction(file, symmetry_sentence(test, words))
    parts += _reference(file, "model" if report.model is None else report.model.name)
    if picture is not None:
        null = null_plot(picture, own.version, own.unit)
        evidence = evidence_plot(picture, own.row, own.unit)
        figures = [
            Figure(null, own.null_caption),
            Figure(evidence, own.evidence_caption),
        ]
        parts += [Heading("The test"), Figures(figures)]
    parts += [
        Paragraph(assumed_sentence(test, words)),
        Paragraph(checked_sentence(test, words)),
        Paragraph(chance_sentence(test, words)),
    ]
    if (scale := scale_sentence(test, own.scale or test.method)) is not None:
        parts.append(Paragraph(scale))
    parts += _alone(test, report)
    if (where := where_sentence(test)) is not None:
        parts.append(Paragraph(where))
    parts += [Paragraph(f"Note: {warning}.") for warning in test.warnings]
    parts += _own_order(file.pretests)
    return Section(parts, test.benchmark, test.verdict, boxed=True)


def _unscored_section(file: UnscoredFile, advice: Advice) -> Section:
    """What is said of a file whose order failed its checks before any model read it."""
    parts = [
        Paragraph(f"{invalid_sentence(file, advice.words)} It was not scored."),
        Paragraph(checked_sentence(file, advice.words)),
        *_ways_out(advice.about_file(file)),
        *_own_order(file.pretests),
    ]
    return Section(parts, file.benchmark, file.verdict, boxed=True)


def _ways_out(ways: Sequence[WayOut]) -> list[Part]:
    return [
        Paragraph(
            f"{'Or' if i else 'Remedy'}: {way.words}."
            if way.line is None
            else (f"{'Or' if i else 'Remedy'}: {way.words}: ", Code(way.line))
        )
        for i, way in enumerate(ways)
    ]


def _attraction(file: AuditedFile, symmetry: str | None) -> list[Part]:
    """Memory beside natural order; nothing where no pairs were scored."""
    pairs = pair_test(file)
    gains = None if pairs is None else gains_of(pairs)
    if pairs is None or gains is None:
        return []
    figures = [Figure(gains_plot(gains), _GAINS)]
    if (lags := lag_plot(pairs.numbers.lag_profile)) is not None:
        figures.append(Figure(lags, f"{_LAGS} {symmetry or ''}".rstrip()))
    header, label = ("gain of an example", "nats", "95 % interval", "from"), "gains"
    return [
        Heading("Remembered, or only alike?"),
        Paragraph(attraction_sentence(pairs, file.test.verdict) or "", "lead"),
        Figures(figures),
        Table(header, attraction_rows(pairs), label, is_text=True),
    ]


def _reference(file: AuditedFile, model: str) -> list[Part]:
    test = referred_test(file)
    if test is None:
        return []
    rows, label = side_by_side(test, model), "the same test of a reference model"
    return [
        Heading("Beside a reference model"),
        Paragraph(reference_sentence(test) or ""),
        Table(SIDE_BY_SIDE_HEADER, rows, label),
    ]


def _alone(test: OrderResult, report: Report) -> list[Part]:
    """Each secret alone; nothing for other tests and for one secret."""
    rows = [
        [
            other.benchmark,
            p_cell(other.numbers.log10_p).removeprefix("≤ "),
            f"{other.numbers.exposure:.1f}",
        ]
        for other in report.results
        if isinstance(other, OrderResult)
        and other is not test
        and other.numbers.exposure is not None
        and other.content_digest == test.content_digest
    ]
    if not rows:
        return []
    header = ("each alone", "p at most", "exposure, bits")
    return [Table(header, rows, "each secret alone"), Paragraph(_EXPOSURE, "quiet")]


def _own_order(pretests: Sequence[Pretest]) -> list[Part]:
    rows = own_order_rows(pretests)
    if not rows:
        return []
    return [
        Heading("What the file's own order gives without any model"),
        Paragraph(own_order_sentence(pretests) or ""),
        Table(OWN_ORDER_HEADER, rows, "the file's own order", is_text=True),
    ]
