"""`jaxcontam report --database-row`: what of a report goes into the public database."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.data.hub_splits import is_hub_split, parse_hub_split
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.report.database_row import (
    DATABASE_NAME,
    SPLITS,
    database_csv,
    proven_benchmarks,
)
from jaxcontam.report.document import replace_bytes
from jaxcontam.results import Report


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFlags:
    """What the user says of a row, since a report does not know it.

    Attributes:
        dataset: Name of the benchmark in the database, or None.
        source: Name of the model in the database, or None.
        split_percent: SPLIT=PERCENT, see `percents_of`.
        reference: Address of what describes the finding, or None.
    """

    dataset: str | None
    source: str | None
    split_percent: tuple[str, ...]
    reference: str | None

    @property
    def is_given(self) -> bool:
        """Whether any of them is."""
        return any((self.dataset, self.source, self.split_percent, self.reference))


def write_database_rows(report: Report, directory: Path, flags: DatabaseFlags) -> Path:
    """Write database_rows.csv beside a report; returns its path.

    Raises:
        InputError: If the report proves nothing about a benchmark and a model that
            others know, or a flag does not fit.
    """
    if report.command[0] not in ("audit", "replicate"):
        raise InputError(
            f"{directory}: no report of audit or replicate",
            hint="only these prove something about a benchmark and a public model",
        )
    source = flags.source or (report.model and report.model.name)
    if source is None:
        raise InputError(
            f"{directory}: the report names no model",
            hint="name it as in the database: --source NAME",
        )
    benchmarks = proven_benchmarks(report)
    if not benchmarks:
        raise InputError(
            f"{directory}: no benchmark has the verdict 'contaminated'",
            hint="the database is for evidence; silence is no evidence of absence",
        )
    if (flags.dataset or flags.split_percent) and len(benchmarks) > 1:
        raise InputError(
            "--dataset and --split-percent are of one benchmark, and "
            f"{len(benchmarks)} are contaminated ({', '.join(benchmarks)})",
            hint="leave them out, and complete the rows by hand",
        )
    datasets = _hub_datasets(report.command)
    if flags.dataset is not None:
        datasets[benchmarks[0]] = (flags.dataset, "")
    text = database_csv(
        benchmarks,
        source=source,
        datasets=datasets,
        percents=percents_of(flags.split_percent),
        reference=flags.reference or "",
    )
    replace_bytes(directory / DATABASE_NAME, text.encode())
    return directory / DATABASE_NAME


def percents_of(words: Sequence[str]) -> dict[str, float]:
    """Split -> percent, from words such as `test=100`.

    Raises:
        InputError: If a split is unknown or a share is not above 0 and at most 100.
    """
    percents: dict[str, float] = {}
    for word in words:
        split, _, text = word.partition("=")
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        try:
            percent = float(text)
        except ValueError:
            percent = math.nan
        # 0 would say that a split was not used, which no test here can show.
        if not 0 < percent <= 100:
            raise InputError(
                f"--split-percent {word}: not a share above 0 and at most 100",
                hint="such as test=100; leave it out where the share is not known",
            )
        percents[split] = percent
    return percents


def _hub_datasets(command: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Benchmark -> dataset and subset of those that were read from the hub."""
    found = {}
    for word in command:
        if is_hub_split(word):
            split = parse_hub_split(word)
            found[split.name] = (split.dataset, split.config or "")
    return found
