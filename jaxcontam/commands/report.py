"""`jaxcontam report`: page and tables again, from a report and what is beside it."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from jaxcontam.analyses.membership_judging import judged_again
from jaxcontam.analyses.method_notes import method_notes
from jaxcontam.commands.database_flags import (
    DatabaseFlags,
    percents_of,
    write_database_rows,
)
from jaxcontam.data.manifest import Manifest, read_manifest
from jaxcontam.errors import InputError
from jaxcontam.methods import METHODS, two_min
from jaxcontam.methods.method import PairMethod, pair_strata
from jaxcontam.report.archive import read_archive
from jaxcontam.report.books import is_books, write_books_page
from jaxcontam.report.calibration import is_calibration, write_calibration_page
from jaxcontam.report.document import (
    ARCHIVE_NAME,
    DAMAGE,
    REPORT_NAME,
    read_document,
    replace_bytes,
)
from jaxcontam.report.membership import is_membership, read_text_rows
from jaxcontam.report.pictures import LossPicture, NullPicture
from jaxcontam.report.replication import is_replication
from jaxcontam.report.table_csv import RESULTS_NAME, results_csv
from jaxcontam.report.template import PAGE_NAME
from jaxcontam.report.unlearning import is_unlearning, write_unlearning_page
from jaxcontam.results import Evidence
from jaxcontam.stats.padding import unpadded
from jaxcontam.stats.pair_test import drawn_sums
from jaxcontam.stats.randomisation import MODEL_TOLERANCE, redrawn_sums, row_scores
from jaxcontam.terminal import visible

# Bars of a histogram need no more.
_N_DRAWN = 20_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Write report.html and results.csv again, from report.json and what it names.

    Examples:
        # report.html and results.csv, from report.json
        jaxcontam report runs/audit/FOLDER
        # rows for the public database
        jaxcontam report runs/audit/FOLDER --database-row --source org/name
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder of a finished run."""
    database_row: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also write database_rows.csv: contaminated benchmarks for the public Data
    Contamination Database."""
    dataset: str | None = None
    """Of --database-row: the benchmark's name there, such as google/boolq (default:
    as on the hub, or the file's)."""
    source: str | None = None
    """Of --database-row: the model's name there, such as org/name (default: the
    report's)."""
    split_percent: tuple[str, ...] = ()
    """Of --database-row: SPLIT=PERCENT that you vouch for, such as test=100; splits
    are train, development, test (default: unknown)."""
    reference: str | None = None
    """Of --database-row: address of a page that describes the finding."""

    def __post_init__(self) -> None:
        if self._database_flags.is_given and not self.database_row:
            raise InputError(
                "--dataset, --source, --split-percent and --reference are for "
                "--database-row",
                hint="add --database-row",
            )
        percents_of(self.split_percent)

    @property
    def _database_flags(self) -> DatabaseFlags:
        return DatabaseFlags(
            dataset=self.dataset,
            source=self.source,
            split_percent=self.split_percent,
            reference=self.reference,
        )

    def run(self) -> None:
        """Write page and table beside the report, and rows where asked for."""
        import jinja2

        document = read_document(self.directory / REPORT_NAME)
        try:
            # First: what cannot become a row is said before anything is drawn.
            if self.database_row:
                flags = self._database_flags
                rows = write_database_rows(document, self.directory, flags)
                print(visible(str(rows)))
            table = results_csv(document)
            print(visible(str(self._page(document))))
        except (*DAMAGE, jinja2.TemplateError) as e:
            raise InputError(
                f"{self.directory}: the report cannot be rendered ({e!r})",
                hint="it is damaged, or not of this version; jaxcontam verify says "
                "what differs",
            ) from e
        replace_bytes(self.directory / RESULTS_NAME, table.encode())

    def _page(self, document: dict[str, Any]) -> Path:
        methods = method_notes(document)
        if is_calibration(document):
            return write_calibration_page(document, self.directory, methods)
        if is_membership(document):
            from jaxcontam.report.membership_page import write_membership_page

            _, again = judged_again(document, read_text_rows(self.directory))
            return write_membership_page(
                document, again.pictures, self.directory, methods
            )
        if is_books(document):
            return write_books_page(document, self.directory, methods)
        if is_unlearning(document):
            return write_unlearning_page(document, self.directory, methods)
        if is_replication(document):
            from jaxcontam.report.replication_page import write_replication_page

            return write_replication_page(document, self.directory, methods)
        return write_page(document, self.directory)


def write_page(document: dict[str, Any], directory: Path) -> Path:
    """Write report.html for a report whose archive stands in `directory`.

    The loss curve is drawn where a manifest and metrics stand beside it.

    Returns:
        The page's path.
    """
    rows = document["results"]
    evidence = read_archive(directory / ARCHIVE_NAME, len(rows))
    pictures: list[NullPicture | None] = [None] * len(rows)
    for r, row in enumerate(rows):
        if row["primary"] and row["validity"] == "exact":
            shown = _shown(rows, r)
            found = evidence[shown]
            if found is not None:
                pictures[r] = _picture(found, rows[shown], document["seed"])
    # matplotlib takes a third of a second to import: only for a page.
    from jaxcontam.report.page import render_page

    page = render_page(document, pictures, method_notes(document), _loss(directory))
    replace_bytes(directory / PAGE_NAME, page.encode())
    return directory / PAGE_NAME


def _shown(rows: Sequence[Mapping[str, Any]], r: int) -> int:
    """The row whose scores are drawn: of a combined test that of its first part."""
    if rows[r]["method"] != two_min.METHOD.name:
        return r
    part = (rows[r]["benchmark"], two_min.METHOD.parts[0].name)
    return [(row["benchmark"], row["method"]) for row in rows].index(part)


def _picture(evidence: Evidence, row: Mapping[str, Any], seed: int) -> NullPicture:
    if evidence.scores is None:
        strata = pair_strata(evidence)
        (q,) = np.flatnonzero(strata.first_tokens == row["first_tokens"])[:1]
        method = METHODS[row["method"]]
        assert isinstance(method, PairMethod)
        statistic = method.statistic
        contributions_K = np.array(
            [
                statistic.sums(
                    statistic.matrix(pairs_SS), np.arange(len(pairs_SS))[None]
                )
                for pairs_SS in strata.matrices(int(q))
            ]
        ).ravel()
        sums = drawn_sums(
            strata,
            statistic,
            seed=seed,
            content_digest=row["content_digest"],
            n_draws=_N_DRAWN,
            q=int(q),
        )
    else:
        # Sequential tests have their strata in the order in which they were scored.
        values = unpadded(evidence.scores)
        if row["stop"] is not None and evidence.orders is not None:
            values = [values[k] for k in np.argsort(evidence.orders[:, 0, 0])]
        scored = row_scores(
            values, kind=row["scores"], relative_tolerance=MODEL_TOLERANCE
        )
        sums = redrawn_sums(scored.rows, n_draws=_N_DRAWN, seed=seed)
        contributions_K = scored.published
    return NullPicture(
        null_sums=sums,
        observed=float(contributions_K.sum()),
        contributions=contributions_K,
    )


def _loss(directory: Path) -> LossPicture | None:
    metrics, manifest_path = directory / "metrics.jsonl", directory / "manifest.json"
    if not (metrics.is_file() and manifest_path.is_file()):
        return None
    manifest: Manifest = read_manifest(manifest_path)
    lines = metrics.read_text(encoding="utf-8").splitlines()
    return LossPicture(
        losses=np.array([json.loads(line)["loss"] for line in lines]),
        injections={
            row.name: np.array(steps)
            for row in manifest.sets
            if (steps := [step for copy in row.steps for step in copy])
        },
    )
