"""Folders of finished runs that are fuzzed: `verify` and `report` read them."""

import contextlib
import io
import json

from hypothesis import strategies as st

from jaxcontam.cli.main import main
from jaxcontam.proof.result import Evidence
from jaxcontam.reports.archive import read_arrays
from jaxcontam.reports.report_files import (
    ARCHIVE_NAME,
    PAGE_NAME,
    REPORT_NAME,
    SUMS_NAME,
    sealed_text,
)
from jaxcontam.reports.table_csv import RESULTS_NAME
from tests.faults.folders import contents
from tests.faults.fuzzed import Target, a_file
from tests.faults.mutations import as_json, changed, damaged


def report_targets(reports):
    """Targets that are folders of finished runs.

    Args:
        reports: Name -> folder, each with its report.
    """
    return {
        f"{command} of {name}": Target(
            _folders(folder),
            lambda to, case, command=command: _rerun(to, case, command),
            2,
        )
        for name, folder in reports.items()
        for command in ("verify", "report")
    }


def _folders(folder):
    """Strategy of what stands in a run's folder: one file of it changed."""
    kept = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name in (REPORT_NAME, ARCHIVE_NAME, "texts.jsonl")
    }
    document = json.loads(kept[REPORT_NAME])
    return st.one_of(
        changed(document).map(lambda found: kept | {REPORT_NAME: _sealed(found)}),
        *(
            damaged(data).map(lambda found, name=name: kept | {name: found})
            for name, data in kept.items()
        ),
    )


def _sealed(document):
    """A report under a mended seal, so that more than the digest is looked at."""
    try:
        return sealed_text(document).encode()
    except (ValueError, TypeError):
        return as_json(document)


def _rerun(folder, files, command):
    for name, data in files.items():
        (folder / name).write_bytes(data)
    before = contents(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([command, str(folder)])
    assert code in (0, 2, 3), code
    after = contents(folder)
    if command == "report" and code == 0:
        for name in (PAGE_NAME, RESULTS_NAME, SUMS_NAME):
            after.pop(name)
            before.pop(name, None)
    assert after == before
    if code == 2:
        lines = err.getvalue().splitlines()
        assert lines[0].startswith("jaxcontam: error: ") and len(lines) <= 2, lines


def archive_target(folder):
    """The archive of scores, which a digest guards elsewhere."""
    data = (folder / ARCHIVE_NAME).read_bytes()
    return a_file(ARCHIVE_NAME, lambda path: read_arrays(path, 1, Evidence), data, 2)
