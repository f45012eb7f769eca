"""`jaxcontam verify`: recompute a report from its evidence; no model, no JAX."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxcontam.commands.book_judged import verify_books
from jaxcontam.commands.verify_membership import verify_membership
from jaxcontam.commands.verify_orders import verify_report
from jaxcontam.commands.verify_replication import verify_replication
from jaxcontam.commands.verify_unlearning import verify_unlearning
from jaxcontam.report import books, membership, replication, unlearning
from jaxcontam.report.archive import ARCHIVE_NAME
from jaxcontam.report.document import REPORT_NAME, is_report_of, read_document
from jaxcontam.report.texts import TEXTS_NAME
from jaxcontam.terminal import Terminal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Recompute every p-value and verdict of a report; exit 3 if one differs."""

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder with report.json, and orders.npz or texts.jsonl beside it."""

    def run(self) -> int:
        """Print what was checked; 0 if all agrees, 3 if anything does not."""
        console = Terminal(highlight=False, soft_wrap=True)
        document = read_document(self.directory / REPORT_NAME)
        if is_report_of(document, membership.COMMAND):
            faults, n_tests = verify_membership(self.directory, document)
            what = (
                f"{_count(n_tests, 'result')} judged again from {TEXTS_NAME}: AUCs, "
                "rates, p-values, blind baselines, thresholds, verdicts and digests "
                "agree; the scores themselves need the model and were not computed "
                "again"
            )
        elif is_report_of(document, books.COMMAND):
            faults, n_books = verify_books(self.directory, document)
            what = (
                f"{_count(n_books, 'book')} judged again from {TEXTS_NAME}: "
                "thresholds, rates, AUCs, blind baselines, verdicts and digests agree; "
                "the scores themselves need the model and were not computed again"
            )
        elif is_report_of(document, unlearning.COMMAND):
            faults, n_tests = verify_unlearning(self.directory, document)
            what = (
                f"{_count(n_tests, 'result')} counted again from {TEXTS_NAME}: ratios, "
                "recalls, means, intervals and digests agree; scores, samples, cosines "
                "and what a judge said need the models and were not computed again"
            )
        elif is_report_of(document, replication.COMMAND):
            faults, n_tests = verify_replication(self.directory, document)
            what = (
                f"{_count(n_tests, 'result')} judged again from {TEXTS_NAME}: ROUGE-L, "
                "the local judge, counts, p-values, verdicts and digests agree; other "
                "measures, other judges and further methods need their models and were "
                "not asked again"
            )
        else:
            faults, n_tests = verify_report(self.directory)
            what = (
                f"{_count(n_tests, 'test')} recomputed from {ARCHIVE_NAME}: p-values, "
                "effects, verdicts and digests agree; pre-tests and AUCs need the "
                "benchmark and were not run again"
            )
        for fault in faults:
            console.print(f"differs: {fault}")
        if faults:
            n_faults = _count(len(faults), "difference")
            console.print(f"{self.directory}: NOT verified, {n_faults}")
            return 3
        console.print(f"{self.directory}: verified, {what}")
        return 0


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
