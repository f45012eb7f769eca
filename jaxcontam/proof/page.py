"""The page of order tests: of an audit, of secrets, of rewrites, of a matrix."""

from collections.abc import Sequence

from jaxcontam.amounts import amount
from jaxcontam.proof.advice import (
    AuditedFile,
    audited_files,
    effect_words,
    next_steps,
    proof_words,
    told,
    why,
)
from jaxcontam.proof.plots import copies_plot, evidence_plot, null_plot, split_plot
from jaxcontam.proof.result import (
    MembershipResult,
    NullPicture,
    OrderResult,
    UnscoredFile,
)
from jaxcontam.proof.sentences import (
    OWN_ORDER_HEADER,
    SIDE_BY_SIDE_HEADER,
    assumed_sentence,
    attraction_sentence,
    chance_sentence,
    checked_sentence,
    commitment_sentence,
    invalid_sentence,
    own_order_rows,
    own_order_sentence,
    pair_test,
    reference_sentence,
    referred_test,
    screening_sentence,
    side_by_side,
    verdict_sentence,
    where_sentence,
)
from jaxcontam.reports.methods import Words
from jaxcontam.reports.numbers import p_cell, p_text
from jaxcontam.reports.page import (
    THIS_ONE,
    Badge,
    Cell,
    Code,
    Details,
    Figure,
    Heading,
    Items,
    Page,
    PageWords,
    Paragraph,
    Part,
    Section,
    Table,
    looks_sentence,
    model_words,
    report_page,
)
from jaxcontam.reports.report import Report
from jaxcontam.reports.terms import CONTAMINATED_LEVEL, Verdict
from jaxcontam.stats.result import Pretest

_LEVEL = (
    "A p-value is not the probability that the model is innocent. In a thousand "
    "reports on models that never saw the files, on average at most one calls a file "
    "contaminated by chance, if the assumptions about the files hold, or if the "
    "reference gains from their order what the model does."
)
_ORDER = PageWords(
    limits=(
        "Direction is valid for files whose own content does not point forward. Steps "
        "and stories do: any reader expects an answer after its question, and six "
        "after five. A reference model that cannot have seen the file shows "
        "what reading alone gives, provided that it reads as well as the model. If "
        "it gains half as much as the model, up to one clean model in twenty is called "
        "contaminated; if less, more are.",
        "The detectable effect assumes that the whole file was read. If only part of "
        "it was, less is found.",
        _LEVEL,
        THIS_ONE,
    ),
    proves=True,
)
_VERSIONS = PageWords(
    limits=(
        "The proof depends on how the versions were made. If the published ones differ "
        "from the others in anything but chance, the model may prefer them for that "
        "reason.",
        "Contaminated does not say how often a text was read, nor that a score is "
        "inflated.",
        _LEVEL,
        THIS_ONE,
    ),
    proves=True,
)

_CHECK = (
    Code("jaxcontam verify DIR"),
    " recomputes every p-value, effect and verdict from ",
    Code("orders.npz"),
    " in this folder, without the model. ",
    Code("results.csv"),
    " holds the numbers of this page for a spreadsheet.",
)
_COPIES = (
    "Each point is one planted set. Above the dashed line a single test rejects at "
    "0.001."
)
_SPLIT = (
    "Each bar: how much more expected an example is at this distance from another. "
    "Memory of the file raises only the first orange bar; natural order (neighbours "
    "that are alike) raises orange and blue equally."
)
_AUC = (
    "AUC: how often a text of the set scores above an unseen one. It detects presence "
    "in any order, and proves nothing."
)
_EXPOSURE = (
    "Each secret is ranked among all held-out sequences: exposure is log2 of their "
    "number minus log2 of the secret's rank."
)
_TERMS = (
    "p: an upper bound on the probability that a model that never saw the file looks "
    "like this, if the assumptions in the file's section hold. Effect: {effect}, ± its "
    "standard error; 0.7 nats (natural units of log-probability) make a text twice as "
    "likely. Detectable: the smallest uniform effect that the deciding test finds with "
    "probability 0.8 at {level}."
)
_BOUNDARY = (
    "what an example gains by its published place, per boundary between two examples"
)
_STRATUM = "A stratum is a run of neighbouring examples, compared with its own orders."
_NEXT: dict[Verdict, str] = {
    "contaminated": "do not trust this model's results here: the published order was "
    "learned. Report them separately, or use texts that the model cannot have seen",
    "suspected": "look closer; the section below says what could settle it",
    "invalid design": "the file's own order would accuse a clean model; the section "
    "below says what to run instead",
    "inconclusive": "the result is open; the section below says why. Use more "
    "examples, or run jaxcontam membership and replicate, which detect other traces",
    "no evidence": "no trace of the order was found, which does not clear the model; "
    "jaxcontam membership and replicate detect other traces",
}
_SILENT = ("no evidence", "inconclusive")
# Sections of more files are folded.
_MOST_OPEN = 3


def order_page(
    report: Report, pictures: Sequence[NullPicture | None], words: Words
) -> Page:
    """The page of order tests; a picture a result, None where nothing is drawn."""
    files, unscored = audited_files(report.results), report.unscored
    own = [proof_words(words, file.test.method) for file in files]
    drawn = dict(zip(map(id, report.results), pictures, strict=True))
    tests = [file.test for file in files]
    verdicts: dict[str, Verdict | None] = {
        one.benchmark: one.verdict for one in (*tests, *unscored)
    }
    sections = [
        Section([Paragraph(headline(verdicts), "headline"), _next(verdicts)]),
        Section(_results(tests, report, words), "Results"),
    ]
    planted = [test for test in tests if test.copies is not None]
    if planted:
        parts = [Figure(copies_plot(planted), _COPIES)]
        sections.append(Section(parts, "Evidence by number of copies", is_folded=True))
    of_file = [_file_parts(f, drawn[id(f.test)], report, words) for f in files]
    of_file += [_unscored_parts(file, report, words) for file in unscored]
    is_folded = len(of_file) > _MOST_OPEN
    sections += [
        Section(parts, one.benchmark, one.verdict, is_folded)
        for one, parts in zip((*tests, *unscored), of_file, strict=True)
    ]
    is_of_order = any(one.limits == "order" for one in own) or not own
    limits = [said for said in dict.fromkeys(one.silence for one in own) if said]
    model = report.model
    return report_page(
        report,
        sections,
        words,
        title="Contamination report" + ("" if model is None else f": {model.name}"),
        subtitle=". ".join(_about(report)),
        kind=_ORDER if is_of_order else _VERSIONS,
        check=_CHECK,
        limits=limits,
    )


def headline(verdicts: dict[str, Verdict | None]) -> str:
    """The line for a manager; `verdicts` are those of each file."""
    found = list(verdicts.values()).count("contaminated")
    if len(verdicts) == 1:
        ((name, verdict),) = verdicts.items()
        return f"{name}: {verdict or 'not decided'}"
    if found:
        return f"{found} of {len(verdicts)} benchmarks contaminated"
    return f"None of {len(verdicts)} benchmarks proven contaminated, none cleared"


def _next(verdicts: dict[str, Verdict | None]) -> Items:
    names: dict[str | None, list[str]] = {}
    for name, verdict in verdicts.items():
        names.setdefault(verdict, []).append(name)
    return Items(
        [
            (Badge(verdict), f" {told(names[verdict])}: {words}.")
            for verdict, words in _NEXT.items()
            if verdict in names
        ]
    )


def _about(report: Report) -> list[str]:
    about = [] if report.model is None else [model_words(report.model)]
    study = report.study or {}
    share, n_tokens = study.get("canary_share"), study.get("n_tokens")
    if isinstance(share, float) and isinstance(n_tokens, int):
        about.append(
            f"{share:.0%} of {n_tokens:,} training tokens are planted: an easy case, "
            "which shows that the tool works, not how sensitive it is on large models"
        )
    return about


def _results(tests: Sequence[OrderResult], report: Report, words: Words) -> list[Part]:
    has_copies = any(test.copies is not None for test in tests)
    header = ["benchmark", "verdict", "n", *(["copies"] if has_copies else [])]
    header += ["test", "p", "effect ± se", "detectable effect"]
    rows: list[list[Cell]] = []
    for one in (*tests, *report.unscored):
        is_scored = isinstance(one, OrderResult)
        cells = [one.benchmark, Badge(one.verdict or ""), f"{one.n_examples:,}"]
        cells += [str(one.copies) if is_scored else ""] if has_copies else []
        numbers = _numbers(one) if is_scored else ["not scored", "", ""]
        rows.append([*cells, one.method, *numbers])
    units = list(dict.fromkeys(test.effect_unit for test in tests))
    effect = "in " + " or ".join(units)
    if units == ["nats per example boundary"]:
        effect = _BOUNDARY
    meanings: dict[str, list[str]] = {}
    for name in dict.fromkeys(one.method for one in tests):
        meanings.setdefault(proof_words(words, name).meaning.strip(), []).append(name)
    said = list(meanings)
    if len(meanings) > 1:
        said = [f"{', '.join(names)}: {one}" for one, names in meanings.items()]
    n = max(1, len(tests))
    level = f"p <= {CONTAMINATED_LEVEL / n:.2g}"
    level += f" ({CONTAMINATED_LEVEL} / {n} benchmarks)" if n > 1 else ""
    said.append(_TERMS.format(effect=effect, level=level))
    said.append(screening_sentence(report) or "")
    if report.earlier:
        said.append(looks_sentence(report.earlier))
    return [
        Table(header, rows, "results", words=(1, 3 + has_copies)),
        *(Paragraph(sentence, "quiet") for sentence in said if sentence),
    ]


def _numbers(test: OrderResult) -> list[str]:
    numbers = test.numbers
    mde = test.mde_adjusted if test.primary else numbers.mde
    return [
        p_cell(numbers.log10_p, test.validity),
        effect_words(numbers.effect, numbers.effect_se),
        amount(mde),
    ]


def _file_parts(
    file: AuditedFile, picture: NullPicture | None, report: Report, words: Words
) -> list[Part]:
    """Parts on one file: a sentence, a picture, what to do; then evidence.

    A file whose test is silent shows noise alone, so nothing is said of its details.
    """
    test = file.test
    parts: list[Part] = [Paragraph(verdict_sentence(test, words, file.attracting))]
    figures = _figures(test, picture, words)
    if test.verdict not in _SILENT:
        pairs = pair_test(file)
        if pairs is not None and (svg := split_plot(pairs.numbers)) is not None:
            figures.insert(0, Figure(svg, _SPLIT))
        parts += figures[:1]
        figures = figures[1:]
        if pairs is not None:
            parts.append(Paragraph(attraction_sentence(pairs, test.verdict) or ""))
    if test.verdict == "suspected":
        parts.append(Paragraph(why(file)))
    parts += _steps(file, report, words)
    if (referred := referred_test(file)) is not None:
        parts.append(Paragraph(reference_sentence(referred) or ""))
    if (committed := commitment_sentence(test)) is not None:
        parts.append(Paragraph(committed))
    parts += [Paragraph(f"Note: {warning}.") for warning in test.warnings]
    evidence = _evidence(file, figures, report, words)
    return [*parts, Details("How it was tested", parts=evidence)]


def _figures(
    test: OrderResult, picture: NullPicture | None, words: Words
) -> list[Figure]:
    if picture is None:
        return []
    own = proof_words(words, test.method)
    null = null_plot(picture, own.version, own.unit)
    if test.verdict in _SILENT:
        return [Figure(null, own.null_caption)]
    evidence = evidence_plot(picture, own.row, own.unit)
    return [Figure(null, own.null_caption), Figure(evidence, own.evidence_caption)]


def _evidence(
    file: AuditedFile, figures: Sequence[Figure], report: Report, words: Words
) -> list[Part]:
    test = file.test
    own, is_silent = proof_words(words, test.method), test.verdict in _SILENT
    said = [
        why(file) if test.verdict not in ("suspected", "invalid design") else "",
        assumed_sentence(test, words),
        checked_sentence(test, words),
        chance_sentence(test, words),
        _STRATUM if own.row == "stratum" else "",
        "" if is_silent else where_sentence(test),
    ]
    parts: list[Part] = [Paragraph(sentence) for sentence in said if sentence]
    parts += [*figures, *_all_tests(file, report)]
    if (referred := referred_test(file)) is not None:
        model = "model" if report.model is None else report.model.name
        rows = side_by_side(referred, model)
        parts.append(Heading("Comparison with a reference model"))
        parts.append(Table(SIDE_BY_SIDE_HEADER, rows, "the test of a reference model"))
    return [*parts, *_alone(test, report), *_own_order(test.pretests)]


def _all_tests(file: AuditedFile, report: Report) -> list[Part]:
    rows = [[test.method, *_numbers(test)] for test in file.tests]
    scores = [
        [f"{row.method} (AUC)", "", effect_words(row.auc, row.auc_se), ""]
        for row in report.results
        if isinstance(row, MembershipResult) and row.benchmark == file.test.benchmark
    ]
    if len(rows) + len(scores) < 2:
        return []
    header = ("test", "p", "effect ± se", "detectable effect")
    looks = ["primary"] + [""] * (len(rows) + len(scores) - 1)
    table = Table(header, [*rows, *scores], "all tests of the file", looks=looks)
    return [table, *([Paragraph(_AUC, "quiet")] if scores else [])]


def _unscored_parts(file: UnscoredFile, report: Report, words: Words) -> list[Part]:
    checks = [Paragraph(checked_sentence(file, words)), *_own_order(file.pretests)]
    return [
        Paragraph(f"{invalid_sentence(file, words)} It was not scored."),
        *_steps(file, report, words),
        Details("How it was checked", parts=checks),
    ]


def _steps(
    file: AuditedFile | UnscoredFile, report: Report, words: Words
) -> list[Part]:
    return [
        Paragraph(f"{'Or' if i else 'Remedy'}: {step}.")
        for i, step in enumerate(next_steps(file, report.command, words))
    ]


def _alone(test: OrderResult, report: Report) -> list[Part]:
    rows = [
        [one.benchmark, p_text(one.numbers.log10_p), f"{one.numbers.exposure:.1f}"]
        for one in report.results
        if isinstance(one, OrderResult)
        and one is not test
        and one.numbers.exposure is not None
        and one.content_digest == test.content_digest
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
