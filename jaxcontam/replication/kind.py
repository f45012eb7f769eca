"""Reports of `replicate`: their rows, page and check."""

from collections.abc import Sequence
from pathlib import Path

from jaxcontam.replication.catalogue import COMPARISONS, replication_words
from jaxcontam.replication.judging import ARMS, partition_from_rows
from jaxcontam.replication.page import replication_page
from jaxcontam.replication.result import AskedInstance, ReplicationReport
from jaxcontam.reports.archive import ASKED, TEXTS_NAME, read_text_rows, typed_rows
from jaxcontam.reports.page import Page
from jaxcontam.reports.recompute import Rebuilt, Row, kind_of_texts
from jaxcontam.reports.report import Report


def _page(report: Report, directory: Path) -> Page:
    rows = [row for row in read_text_rows(directory, ASKED) if "first_piece" in row]
    instances = typed_rows(rows, AskedInstance)
    return replication_page(report, instances, replication_words(report))


def _again(document: Row, rows: Sequence[Row]) -> Rebuilt:
    """Overlaps, judges and tests of a replication report; further methods stay."""
    others = [row for row in document["results"] if row["method"] in COMPARISONS]
    stated = [row for row in document["results"] if row not in others]
    partition = partition_from_rows(stated, rows)
    answers = [row for row in rows if row["arm"] not in ARMS]
    return {
        "results": [*partition.results(seed=document["seed"]), *others],
        TEXTS_NAME: [*partition.rows(), *answers],
    }


REPLICATION = kind_of_texts(
    report=ReplicationReport,
    words=replication_words,
    page=_page,
    rebuild=_again,
    checked="ROUGE-L, the local judge, counts, p-values, verdicts and digests agree; "
    "other measures, other judges and further methods need their models and were not "
    "asked again",
    fields=ASKED,
    skip=("warnings",),
)
