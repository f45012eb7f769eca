"""`jaxcontam annotate`: verdicts of audits beside the scores of a leaderboard."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxcontam.commands.new_files import write_new_files
from jaxcontam.commands.score_files import NOT_AUDITED, ScoredBenchmark, read_scores
from jaxcontam.errors import InputError, nearest
from jaxcontam.report.report_files import REPORT_NAME, is_sealed, read_report
from jaxcontam.report.table_csv import verdict_fields
from jaxcontam.results.order import OrderResult, UnscoredFile
from jaxcontam.terminal import Terminal, printable

_MOST_NAMED = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """The verdict of one benchmark in one report.

    Attributes:
        names: What the report calls its model: the word that was typed, and the name of
            the model's folder.
        fields: What is said of it beside a score.
        weight: Of several audits of one question the heaviest counts: whether a
            reference stands beside the model, and when the audit started.
    """

    names: tuple[str, ...]
    benchmark: str
    fields: dict[str, Any]
    weight: tuple[bool, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Annotate:
    """Add verdicts of finished audits to a file of benchmark scores.

    Names must be equal: another revision, adapter or folder is another model.

    Examples:
        # results of lm_eval, beside them results.annotated.json
        jaxcontam annotate results.json --audit runs/audit/pythia-boolq-1a2b3c4d
        # a leaderboard that calls the model, or the benchmark, something else
        jaxcontam annotate board.csv --audit runs --same Pythia=pythia-160m
    """

    results: tyro.conf.Positional[Path]
    """Results of lm_eval, a log of Inspect, a record of Every Eval Ever, or a table."""
    audit: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR...")]
    """Folders of finished audits, or folders of such folders."""
    same: Annotated[tuple[str, ...], tyro.conf.arg(metavar="A=B")] = ()
    """A of the results is B of the audits: a model, or a benchmark."""
    out: Path | None = None
    """New file (default: RESULTS.annotated.json, or with the suffix that it has)."""

    def run(self) -> None:
        """Match, write, and say what matched and what did not."""
        file = read_scores(self.results)
        audits = [audited for folder in self.audit for audited in _audits_in(folder)]
        # Names as reports show them: what a harness wrote may be of the raw folder.
        same = dict(_pair(printable(words)) for words in self.same)
        by_model: dict[str, list[Audited]] = {}
        for one in audits:
            for name in map(printable, one.names):
                by_model.setdefault(name, []).append(one)
        known = {printable(one.benchmark) for one in audits}
        used: set[tuple[str, str]] = set()
        without = []
        console = Terminal()
        lines = [f"{printable(self.results)} ({file.kind}):"]
        for score in file.scores:
            name = f"{score.model} on {score.benchmarks[0]}"
            names = map(printable, score.benchmarks)
            benchmarks = {same.get(word, word) for word in names}
            word = printable(score.model)
            model = same.get(word, word).removesuffix("@main")
            own = by_model.get(model, [])
            _check_one(own, "model_fingerprint", score.model)
            found = [one for one in own if printable(one.benchmark) in benchmarks]
            _check_one(found, "benchmark_fingerprint", name)
            _check_one(found, "benchmark", name)
            if found:
                chosen = max(found, key=lambda audited: audited.weight)
                fields = chosen.fields
                used |= {(one.fields["report"], one.benchmark) for one in found}
                score.put(fields)
                words = [fields["verdict"], fields["test"], fields["report"]]
                lines.append(f"  {name}: {', '.join(words)}")
                lines += _passed_over(found, chosen)
            elif score.is_sure or known & benchmarks:
                score.put({"verdict": NOT_AUDITED})
                without.append(name)
        if not used:
            raise _nothing(self.results, file.scores, audits)
        out = self.out or self.results.with_suffix(f".annotated{file.suffix}")
        write_new_files([(out, file.text().encode(errors="backslashreplace"), 0o666)])
        if without:
            lines.append(f"{NOT_AUDITED}, {len(without)}: {_few(without)}")
        lines += [
            f"no score for {audited.names[0]} on {audited.benchmark} "
            f"({audited.fields['report']})"
            for audited in audits
            if (audited.fields["report"], audited.benchmark) not in used
        ]
        console.say(*lines, f"\nannotated: {printable(out)}")


def _audits_in(folder: Path) -> list[Audited]:
    """Deciding tests of a report, or of all in the folders of a folder."""
    places = [folder, *sorted(path.parent for path in folder.glob(f"*/{REPORT_NAME}"))]
    reports = [place for place in places if (place / REPORT_NAME).is_file()]
    found = [audited for place in reports for audited in _audits_of(place)]
    if not found:
        raise InputError(
            f"{folder}: no {REPORT_NAME} of an audit, nor in a folder in it",
            hint="--audit takes folders that `jaxcontam audit` wrote",
        )
    return found


def _audits_of(folder: Path) -> list[Audited]:
    path = folder / REPORT_NAME
    report = read_report(path)
    if not is_sealed(path.read_bytes(), report.digest):
        raise InputError(
            f"{path}: differs from its digest",
            hint="it was changed after it was written; jaxcontam verify says where",
        )
    if report.model is None or report.command[:1] != ("audit",):
        return []
    words = [*report.command[1:2], report.model.name]
    names = tuple(dict.fromkeys(word.removesuffix("@main") for word in words))
    tests = [row for row in report.results if getattr(row, "primary", False)]
    found = []
    for row in (*tests, *report.unscored):
        assert isinstance(row, OrderResult | UnscoredFile)
        found.append(
            Audited(
                names=names,
                benchmark=row.benchmark,
                fields=verdict_fields(report, row, folder.as_posix()),
                weight=(report.reference is not None, report.started),
            )
        )
    return found


def _passed_over(found: Sequence[Audited], chosen: Audited) -> list[str]:
    digest = chosen.fields["report_digest"]
    others = {
        one.fields["report"]: one.fields["verdict"]
        for one in found
        if one.fields["report_digest"] != digest
    }
    if not others:
        return []
    kind = "the newest beside a reference" if chosen.weight[0] else "the newest"
    said = "; ".join(f"{verdict} in {folder}" for folder, verdict in others.items())
    return [f"    {kind} of {len(others) + 1} audits; not counted: {said}"]


def _pair(word: str) -> tuple[str, str]:
    name, sign, other = word.partition("=")
    if not (name and sign and other):
        raise InputError(
            f"--same must be A=B, got {word!r}",
            hint="such as --same Pythia=EleutherAI/pythia-160m",
        )
    return name, other


def _check_one(found: Sequence[Audited], field: str, what: str) -> None:
    """Refuse audits that differ in a field, of which one must be chosen."""
    chosen = {a.fields[field]: f"{a.benchmark} in {a.fields['report']}" for a in found}
    if len(chosen) > 1:
        raise InputError(
            f"{what}: two audits fit ({', '.join(list(chosen.values())[:2])})",
            hint="name one of them with --audit",
        )


def _nothing(
    results: Path, scores: Sequence[ScoredBenchmark], audits: Sequence[Audited]
) -> InputError:
    models = [score.model for score in scores]
    known = [name for audited in audits for name in audited.names]
    benchmarks = [audited.benchmark for audited in audits]
    close = next(filter(None, (nearest(model, known) for model in models)), "")
    return InputError(
        f"{results}: no score of an audited model and benchmark (scores of: "
        f"{_few(models)}; audited: {_few(known)} on {_few(benchmarks)})",
        hint=f"{close}--same A=B says that two names are one model, or one benchmark",
    )


def _few(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = ", ..." if len(distinct) > _MOST_NAMED else ""
    return ", ".join(distinct[:_MOST_NAMED]) + more
