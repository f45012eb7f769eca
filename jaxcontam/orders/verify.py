"""Reports of `audit` and `calibrate`; their files and models, asked again."""

import contextlib
import dataclasses
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tyro

from jaxcontam.data.files import check_file
from jaxcontam.errors import InputError
from jaxcontam.orders import answer_options
from jaxcontam.orders.benchmarks import (
    AuditFiles,
    CheckedFiles,
    check_files,
    read_files,
)
from jaxcontam.orders.calibrate import (
    CalibrationReport,
    DrawnPValues,
    calibration_page,
    counts_of,
)
from jaxcontam.orders.design import AuditDesign
from jaxcontam.orders.flags import Audit
from jaxcontam.orders.methods import TESTS, WORDS
from jaxcontam.orders.order_test import PlannedTest
from jaxcontam.orders.run import plan_audit
from jaxcontam.proof.kind import kind_of_tests
from jaxcontam.proof.result import Evidence, MembershipResult, OrderResult
from jaxcontam.renamed import renewed, renewed_remedy
from jaxcontam.reports.archive import P_VALUES_NAME, read_arrays
from jaxcontam.reports.flags import open_for
from jaxcontam.reports.kinds import Asked, Checked, Kind
from jaxcontam.reports.read import read_result
from jaxcontam.reports.recompute import UNREADABLE, differences, digest_faults
from jaxcontam.reports.report import Report
from jaxcontam.reports.report_files import ARCHIVE_NAME, REPORT_NAME, read_report
from jaxcontam.scoring.opened import ModelInfo
from jaxcontam.scoring.scorer import SequenceSums

if TYPE_CHECKING:
    from jaxcontam.scoring.opened import SequenceScorer

# What other batches, devices and libraries leave of a log-likelihood: float32 rounds
# sums of some hundred tokens by parts in 10^5, bfloat16 and servers tokens by parts in
# 10^3. A forgery that turns a verdict moves rows by tenths of a nat.
_EXACT, _ROUNDED = 1e-4, 1e-2


def ask_again(directory: Path, asked: Asked) -> tuple[list[str], list[str]]:
    """Run the checks of a report's files again, and score some of its rows again.

    Returns differences, and sentences on what was and was not checked.

    Nothing that the report names is opened but plain files: a stranger's report could
    name a task, which runs code, or a server, which gets a key.
    """
    benchmarks, rescore, model = asked.benchmarks, asked.rescore, asked.model
    report = read_report(directory / REPORT_NAME)
    try:
        if report.command[:1] != ("audit",):
            raise InputError("a report of another command than audit")
        command = _parsed(report.command[1:])
        command = dataclasses.replace(
            command, benchmark=tuple(benchmarks) or command.benchmark
        )
        for path in () if benchmarks else command.benchmark:
            check_file(path, ())
        command = _as_scored(command, report)
        files = read_files(command.benchmark, command)
        checked = check_files(files, command)
        _check_same(report, files, checked)
    except InputError as e:
        if benchmarks or rescore:
            raise
        return [], [f"pre-tests were not run again ({e})"]
    faults = list(_pretest_faults(report, files, checked, command))
    notes = ["pre-tests were run again"]
    if rescore and model is not None:
        opened = open_for(command, model)
        scorer = opened.make_scorer(store=None)
        sample = _Sample(scorer, rescore)
        faults += _score_again(
            report,
            read_arrays(directory / ARCHIVE_NAME, len(report.results), Evidence),
            opened.info,
            plan_audit(checked.benchmarks, files, opened, command)[0],
            sample,
        )
        notes.append(f"{model} scored {sample.n_asked} random rows again")
    return faults, notes


def _parsed(words: Sequence[str]) -> Audit:
    config = (tyro.conf.FlagCreatePairsOff,)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return tyro.cli(Audit, args=renewed(words), config=config)
    except SystemExit as e:
        raise InputError("the report's command cannot be read") from e


def _as_scored(command: Audit, report: Report) -> Audit:
    """The command with the seam of the report's rows: a default may have changed."""
    for row in report.results:
        if isinstance(row, OrderResult) and TESTS[row.method].scores_pairs:
            return dataclasses.replace(
                command,
                context_tokens=row.context_tokens,
                score_tokens=row.score_tokens,
            )
    return command


def _check_same(report: Report, files: AuditFiles, checked: CheckedFiles) -> None:
    read = (*files.benchmarks, *checked.benchmarks)
    known = {(one.name, one.fingerprint) for one in read}
    known |= {(one.benchmark, one.fingerprint) for one in checked.unscored}
    options = answer_options.options_fingerprint
    known |= {(name, options(own)) for name, own in files.items.items()}
    for row in (*report.results, *report.unscored):
        # The digest of blocks is that of texts which only their test joins.
        is_blocks = isinstance(row, OrderResult) and row.block_field is not None
        if not is_blocks and (row.benchmark, row.fingerprint) not in known:
            raise InputError(
                f"{row.benchmark}: not the file of the report",
                hint="name the files that were audited with --benchmark",
            )


def _pretest_faults(
    report: Report, files: AuditFiles, checked: CheckedFiles, design: AuditDesign
) -> Iterator[str]:
    for row in (*report.results, *report.unscored):
        again = checked.pretests.get(row.benchmark)
        if row.method == answer_options.METHOD.name:
            items, seed = files.items[row.benchmark], design.seed
            asked = design.test(row.method)
            fixed = asked.fixed
            drawn = answer_options.option_orders(
                items, seed, asked.n_orders, fixed=fixed
            )
            again = answer_options.options_pretests(items, drawn, seed, fixed=fixed)
        stated = None if isinstance(row, MembershipResult) else row.pretests
        if again is not None and stated is not None:
            yield from differences(
                f"{row.benchmark}: pre-tests",
                [
                    dataclasses.asdict(one) | {"remedy": renewed_remedy(one.remedy)}
                    for one in stated
                ],
                [dataclasses.asdict(one) for one in again],
            )


def _score_again(
    report: Report,
    evidence: Sequence[Evidence | None],
    info: ModelInfo,
    tests: Sequence[PlannedTest],
    sample: "_Sample",
) -> list[str]:
    """Differences of stored rows to those of the model, or of the reference."""
    known, prefix = report.model, ""
    if report.reference and report.reference.fingerprint == info.fingerprint:
        known, prefix = report.reference, "reference_"
    if known is None:
        return ["model: none in the report"]
    faults = [
        f"{prefix or 'model_'}{name} is {stated!r}, the model's is {found!r}"
        for name in ("name", "fingerprint")
        if (stated := getattr(known, name)) != (found := getattr(info, name))
    ]
    exact = info.served is None and info.dtype == known.dtype == "float32"
    for test in tests:
        again = test.layout.score(cast("SequenceScorer", sample), None).evidence
        for row, stored in zip(report.results, evidence, strict=True):
            if stored is None or row.benchmark != test.benchmark.name:
                continue
            if stored.orders is None or again.orders is None:
                continue
            if not np.array_equal(stored.orders, again.orders):
                continue
            for field in ("pairs", "scores"):
                faults += _row_faults(
                    f"{row.benchmark}, {row.method}: {prefix}{field}",
                    getattr(stored, prefix + field),
                    getattr(again, field),
                    _EXACT if exact else _ROUNDED,
                )
    return faults


def _row_faults(
    where: str, stored: np.ndarray | None, again: np.ndarray | None, share: float
) -> list[str]:
    if stored is None or again is None or stored.shape != again.shape:
        return []
    both = np.isfinite(stored) & np.isfinite(again)
    gap = np.abs(stored - again, where=both, out=np.zeros(stored.shape))
    wrong = gap > share * (1 + np.abs(np.where(both, stored, 0)))
    if not wrong.any():
        return []
    return [
        f"{where}: {np.count_nonzero(wrong)} of {np.count_nonzero(both)} scores differ "
        f"from the model's, by up to {gap.max():.3g} nats"
    ]


class _Sample:
    """A scorer that asks another for `n` random parts of a request; NaN elsewhere."""

    def __init__(self, scorer: Any, n: int):
        self._scorer, self._n, self.n_asked = scorer, n, 0
        # A seed that no forger can know.
        self._rng = np.random.default_rng()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    @property
    def pairs(self) -> "_Sample | None":
        return None if self._scorer.pairs is None else self

    def sums(self, sequences: Sequence[Any], progress: Any = None) -> SequenceSums:
        chosen = self._chosen(len(sequences))
        found = self._scorer.sums([sequences[i] for i in chosen])
        loglik = np.full(len(sequences), np.nan)
        loglik[chosen] = found.loglik
        return SequenceSums(loglik, np.full(len(sequences), np.nan), 0)

    def logprobs(self, groups: Sequence[Any], progress: Any = None) -> Any:
        chosen = self._chosen(len(groups))
        found = self._scorer.pairs.logprobs([groups[i] for i in chosen], None)
        scores: list[Any] = [
            [np.array([np.nan]) for _ in group.continuations] for group in groups
        ]
        for i, own in zip(chosen, found.logprobs, strict=True):
            scores[i] = own
        return dataclasses.replace(found, logprobs=scores)

    def _chosen(self, n: int) -> list[int]:
        n_asked = min(n, self._n)
        self.n_asked += n_asked
        return sorted(self._rng.choice(n, n_asked, replace=False).tolist())


AUDIT = kind_of_tests(TESTS, ask_again=ask_again)


def _drawn(report: Report, directory: Path) -> list[DrawnPValues]:
    path = directory / P_VALUES_NAME
    found = read_arrays(path, len(report.results), DrawnPValues)
    drawn = [one for one in found if one is not None]
    if len(drawn) < len(report.results):
        raise InputError(f"{path}: not the p-values of this report")
    return drawn


def _check_calibration(
    directory: Path, document: dict[str, Any], asked: Asked
) -> Checked:
    asked.refuse()
    path = directory / P_VALUES_NAME
    if not path.is_file():
        raise InputError(
            f"{path}: no such file", hint="keep it in the folder of the report"
        )
    faults, n = digest_faults(directory, document, P_VALUES_NAME), 0
    try:
        report = read_result(CalibrationReport, document, REPORT_NAME, more=True)
        rows = zip(report.results, _drawn(report, directory), strict=True)
        again = [dataclasses.replace(row, **counts_of(drawn)) for row, drawn in rows]
        faults += differences("results", document["results"], again, noise=1e-9)
        n = len(again)
    except UNREADABLE as e:
        faults.append(f"{REPORT_NAME}: not recomputable ({e})")
    words = (
        f"recomputed from {P_VALUES_NAME}: rates, intervals and digests agree; the "
        "p-values themselves need the model and were not recomputed"
    )
    return Checked(faults=faults, n=n, unit="result", words=words)


CALIBRATION = Kind(
    report=CalibrationReport,
    words=lambda report: WORDS,
    page=lambda report, directory: calibration_page(
        report, _drawn(report, directory), WORDS
    ),
    check=_check_calibration,
)
